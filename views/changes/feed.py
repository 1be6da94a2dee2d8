"""The changes of one view for one client, read from its topic as fast as the client takes them.

The topic is what readers of the view read anyway: each delta and each switch is one transaction
that ends with a record of the register, which says where the topic is whole and at which LSN. A
step reads up to the newest frontier that is known when it begins, so what a slow client lacks is
put together and its memory does not grow. Compaction may take records away that later ones
supersede, but none of a step's before `min.compaction.lag.ms` has gone by since it began, and no
delete before `delete.retention.ms` has since it was written; a step that takes longer is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.avro.bodies import MALFORMED, BodyReader
from changelog.avro.jsonforms import JsonForm, Writer, base64_text, decimal, number
from changelog.config import Project
from changelog.contract.base.errors import (
    ConfigurationError,
    CorruptRecordError,
    UnavailableError,
    ViewError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.codec import unframe
from changelog.kafka.clients import REQUEST_S, reading_consumer
from changelog.kafka.errors import is_waited_for
from changelog.runtime.http_modules import NO_ANSWER
from replay.base.sections import warehouse_of
from views.changes.moments import START, FeedPlace, GoneError, Moment, NotBuiltError, place_after
from views.generations.history import GenerationHistory
from views.generations.served import topic_prefix_of
from views.project.catalog import catalog_of
from views.sinks.topic.register import PUBLISHED
from views.sinks.topic.server import TopicServer

MOST_ROWS = 500
"""Of one event."""
MOST_BYTES = 256 << 10
"""Of one event's rows, about."""
_POLL_S = 0.25
_NO_SCHEMA: tuple[type[Exception], ...] = (SchemaRegistryError, *NO_ANSWER)
_FRONTIERS = 500
_LIFE_EVERY_S = 2.0
_MARGIN = 0.9
"""Of the times that compaction leaves, so much is used."""
_WHOLE = f"read the view whole (since={START})"
_SMALL: Mapping[str, float] = {
    "queued_max_messages_kbytes": 4096,
    "queued_min_messages": 1000,
    "fetch_wait_max_ms": 100,
}


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key, and the row that it has now."""

    key: bytes  # JSON, an object of the key's columns
    row: bytes  # JSON, an object of all columns; null where the key has no row any more
    offset: int  # of its record on the topic
    written_ms: int  # when that was written, milliseconds since 1970


@dataclass(frozen=True, slots=True)
class Some:
    """Some changes before a frontier; the view is not complete after them."""

    changes: Sequence[KeyChange]


@dataclass(frozen=True, slots=True)
class FeedFrontier:
    """A frontier: with all changes up to it a client has the view as it was at that LSN."""

    moment: Moment  # the frontier
    mark: str  # what a client gives back to go on from it
    count: int  # of the changes since the one before


@dataclass(frozen=True, slots=True)
class Nothing:
    """An event without changes: none arrived for a moment."""


Event = Some | FeedFrontier | Nothing
LsnOf = Callable[[int], str | None]
"""Returns the LSN at which a generation was built, or None if it is not known."""


class Feed:
    """A view's topic, from a place on, for one client; `close` ends it.

    `documents`: makes JSON of its records. `lsn_of`: of generations that never went forward.
    """

    def __init__(
        self, server: TopicServer, topic: str, documents: FeedDocuments, lsn_of: LsnOf
    ) -> None:
        self.server, self.topic = server, topic  # the brokers, and the topic's name
        self._documents = documents
        self._lsn_of = lsn_of
        self._register = f"{topic}.generations"
        self._records: Consumer | None = None
        self._frontiers: Consumer | None = None
        self._back: Message | None = None
        self._looked, self._at, self._is_first = 0.0, 0, False
        with server.errors(f'topic "{topic}"'):
            self._life = self._topic_life()
            self._lag_s, self._kept_s = self._times()
            self._moments = self._known_moments()
            self._frontiers = reading_consumer(server.kafka, committed=True, **_SMALL)
            self._frontiers.assign([TopicPartition(self._register, 0, self._register_end)])

    @property
    def life(self) -> str:
        """Return the topic's own id: a later topic of its name has another."""
        return self._life

    def close(self) -> None:
        """Close the clients of the brokers."""
        for consumer in (self._records, self._frontiers):
            if consumer is not None:
                consumer.close()

    def begin(self, since: str | None) -> None:
        """Go to the place from which a client continues, or to the newest frontier.

        Raises:
            ConfigurationError: it is none.
            GoneError: what came since is not kept any more.
            AheadError: the view has not come so far.
        """
        newest = self._moments[-1]
        place = FeedPlace(newest.end, newest.written_s)
        if since is not None:
            place = place_after(since, self._moments, self._life)
        with self.server.errors(f'topic "{self.topic}"'):
            if since != START and place.offset < newest.end:
                self._require_deletes(place)
            self._records = reading_consumer(self.server.kafka, committed=True, **_SMALL)
            self._records.assign([TopicPartition(self.topic, 0, place.offset)])
        self._at = place.offset
        self._is_first = since is None or since == START

    def events(self) -> Iterator[Event]:
        """Yield the events that a client lacks, and then new ones, until it stops.

        Raises GoneError: the topic is another one, or the client took too long; SinkError: the
        brokers refuse.
        """
        with self.server.errors(f'topic "{self.topic}"'):
            while True:
                newest = self._moments[-1]
                if newest.end > self._at or self._is_first:
                    yield from self._step(newest)
                    self._is_first = False
                self._take_frontiers()
                if self._moments[-1] is newest:
                    yield Nothing()
                self._require_life()

    def _step(self, newest: Moment) -> Iterator[Event]:
        """Read up to a frontier."""
        begun, count = time.monotonic(), 0
        for some in self._some(newest.end):
            count += len(some.changes)
            yield some
        if time.monotonic() - begun > min(self._lag_s, self._kept_s) * _MARGIN:
            raise GoneError(
                "the changes up to a frontier were taken too slowly: some may have been cleaned",
                hint="go on from the last frontier, and take them faster",
            )
        self._require_life(at_once=True)
        self._at = newest.end
        yield FeedFrontier(newest, newest.mark(self._life), count)

    def _some(self, end: int) -> Iterator[Some]:
        changes: list[KeyChange] = []
        size = 0
        for message in self._messages(end):
            change = KeyChange(
                self._documents.json(message.key()),
                self._documents.json(message.value()),
                message.offset() or 0,
                message.timestamp()[1],
            )
            changes.append(change)
            size += len(change.key) + len(change.row)
            if len(changes) >= MOST_ROWS or size >= MOST_BYTES:
                yield Some(changes)
                changes, size = [], 0
        if changes:
            yield Some(changes)

    def _messages(self, end: int) -> Iterator[Message]:
        """Yield the records before an offset; keep the first one after it for the next step."""
        if self._at >= end:
            return
        waits_until = time.monotonic() + self.server.retry_seconds
        while True:
            message = self._next()
            if message is None:
                if time.monotonic() > waits_until:
                    raise UnavailableError(
                        f'topic "{self.topic}" at {self.server.kafka.brokers} does not answer',
                        hint="see that the brokers run",
                    )
                continue
            waits_until = time.monotonic() + self.server.retry_seconds
            offset = message.offset() or 0
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    if offset >= end:
                        return
                elif not is_waited_for(error):
                    raise KafkaException(error)
                continue
            if offset >= end:
                self._back = message
                return
            yield message
            if offset == end - 1:
                return

    def _next(self) -> Message | None:
        if self._back is not None:
            message, self._back = self._back, None
            return message
        return self._records.poll(_POLL_S)  # type: ignore[union-attr]

    def _take_frontiers(self) -> None:
        """Take all waiting frontiers: a step reads up to the newest."""
        wait_s = _POLL_S
        while messages := self._frontiers.consume(_FRONTIERS, wait_s):  # type: ignore[union-attr]
            self._take(messages)
            if len(messages) < _FRONTIERS:
                return
            wait_s = 0.0

    def _take(self, messages: Sequence[Message]) -> None:
        """Take the frontiers among new messages of the register."""
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF and not is_waited_for(error):
                    raise KafkaException(error)
            elif (moment := self._moment(message)) is not None:
                self._moments = [moment]

    def _known_moments(self) -> list[Moment]:
        moments, self._register_end = [], 0
        for message in self.server.records(self._register):
            self._register_end = (message.offset() or 0) + 1
            if (moment := self._moment(message)) is not None:
                moments.append(moment)
        if not moments:
            raise NotBuiltError(
                f'topic "{self.topic}" shows no generation yet', hint="rebuild-view NAME"
            )
        return moments

    def _moment(self, message: Message) -> Moment | None:
        value = message.value()
        if message.key() != PUBLISHED.encode() or value is None:
            return None
        frontier = orjson.loads(value)
        if frontier.get("records", "keyed") != "keyed":
            raise GoneError(
                "readers of this view get rows without keys: such rows never change",
                hint="read its topic",
            )
        generation, position = int(frontier["generation"]), frontier["position"]
        if position is not None:
            lsn = Position.parse(position).commit_lsn
        elif (lsn_text := self._lsn_of(generation)) is not None:
            lsn = Lsn.parse(lsn_text)
        else:
            return None
        return Moment(Lsn(lsn), int(frontier["end"]), generation, message.timestamp()[1] // 1000)

    def _require_deletes(self, place: FeedPlace) -> None:
        """Refuse a place after which deletes may have been forgotten."""
        with self.server.asking() as cluster:
            (bounds,) = cluster.bounds([(self.topic, 0)]).values()
        if place.offset < bounds.start:
            raise GoneError("what came since was removed from the topic", hint=_WHOLE)
        if self._may_be_kept(place.written_s):
            return
        with closing(self.server.records(self.topic, place.offset)) as records:
            first = next(records, None)
        # The mark of the frontier's own transaction stands between. Where nothing else is missing,
        # nothing was cleaned away, and what comes next says how long ago that was.
        is_next = first is not None and (first.offset() or 0) <= place.offset + 1
        if first is None or not (is_next and self._may_be_kept(first.timestamp()[1] / 1000)):
            age_s = time.time() - place.written_s
            raise GoneError(
                f"deletes are kept for {self._kept_s:,.0f} s, and that is {age_s:,.0f} s ago",
                hint=_WHOLE,
            )

    def _may_be_kept(self, written_s: float) -> bool:
        """Tell whether deletes of that moment are still there."""
        return time.time() - written_s <= self._kept_s * _MARGIN

    def _require_life(self, *, at_once: bool = False) -> None:
        """Raise if the topic was deleted and created again under the same name."""
        if not at_once and time.monotonic() - self._looked < _LIFE_EVERY_S:
            return
        self._looked = time.monotonic()
        if self._topic_life() != self._life:
            raise GoneError("the view was dropped or built anew", hint=_WHOLE)

    def _topic_life(self) -> str:
        with self.server.asking() as cluster:
            topic = cluster.topics([self.topic]).get(self.topic)
        if topic is None:
            raise NotBuiltError(f'there is no topic "{self.topic}"', hint="rebuild-view makes it")
        return blake2b(str(topic.topic_id).encode(), digest_size=4).hexdigest()

    def _times(self) -> tuple[float, float]:
        """Return for how many seconds superseded records and deletes are kept."""
        with self.server.asking() as cluster:
            settings = cluster.settings([self.topic])[self.topic]
        if "compact" not in settings["cleanup.policy"]:
            raise ViewError(
                f'topic "{self.topic}" is not compacted: its rows have no keys, and never change',
                hint="read the topic itself",
            )
        lag, kept = (settings[name] for name in ("min.compaction.lag.ms", "delete.retention.ms"))
        return int(lag) / 1000, int(kept) / 1000


def opened_feed(project: Project, view: str) -> Feed:
    """Return the feed of a view's changes; it is closed by whoever asks for it.

    Raises ViewError: there is no such view, or it has no topic that changes; SinkError: the brokers
    refuse, or do not answer.
    """
    spec = catalog_of(project).load(view)
    if "topic" not in spec.sinks:
        raise ViewError(
            f'view "{view}" has no topic, whose records its changes are',
            hint=f"add topic to its sinks, then rebuild-view {view}",
        )
    registry = project.registry if project.registry.url else None
    server = TopicServer(project.kafka, registry, REQUEST_S, REQUEST_S)
    is_json = spec.options.get("topic", {}).get("value") == "json"
    history = GenerationHistory(warehouse_of(project))

    def schema_of(schema_id: int) -> str:
        if registry is None:
            raise ConfigurationError("records in Avro need a registry: registry.url")
        try:
            with closing(SchemaRegistryClient.new_client(registry.client_config())) as client:
                return client.get_schema(schema_id).schema_str or ""
        except _NO_SCHEMA as error:
            raise UnavailableError(f"the registry {registry} does not answer") from error

    def lsn_of(generation: int) -> str | None:
        rows = history.rows([view], generation=generation)
        return next((row.lsn for row in reversed(rows) if row.lsn is not None), None)

    return Feed(
        server,
        f"{topic_prefix_of(project)}.{view}",
        FeedDocuments(None if is_json else schema_of),
        lsn_of,
    )


# Decimals are texts with all their digits, bytes are base64, dates and moments ISO 8601, what is
# no number is a text.
def _moment(unit: str, zone: str) -> Writer:
    return lambda value, *_: str(np.array(value).astype(f"datetime64[{unit}]")) + zone


# Not the log's form, but that of the documents in sinks: a moment has all six digits of its second,
# and Z. A float has the digits of the double that holds it.
_VIEW_FORM = JsonForm(
    "view",
    {
        ("bytes", "bytes"): base64_text,
        ("bytes", "decimal"): decimal,
        ("float", "float"): number,
        ("double", "double"): number,
        ("int", "date"): _moment("D", ""),
        ("long", "timestamp-micros"): _moment("us", "Z"),
        ("long", "local-timestamp-micros"): _moment("us", ""),
    },
)


class FeedDocuments:
    """Makes JSON of keys and values.

    `schema_of`: returns the text of a schema by its id; None where records are JSON already.
    """

    def __init__(self, schema_of: Callable[[int], str] | None) -> None:
        self._schema_of = schema_of
        self._bodies: dict[int, BodyReader] = {}

    def json(self, raw: bytes | None) -> bytes:
        """Return the JSON of a key or a value; null of a tombstone."""
        if raw is None:
            return b"null"
        if self._schema_of is None:
            return raw
        schema_id, _ = unframe(raw)
        if schema_id not in self._bodies:
            schema = json.loads(self._schema_of(schema_id))
            self._bodies[schema_id] = _VIEW_FORM.reader(schema)
        try:
            value, _ = self._bodies[schema_id].read(raw)
            return orjson.dumps(value)
        except MALFORMED as error:
            raise CorruptRecordError(f"a record is none of schema {schema_id}: {error}") from error
