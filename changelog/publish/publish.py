"""Publishes the rows of a query to a topic in one transaction, with tombstones for vanished keys.

The last run's keys are read from the topic itself, as a `read_committed` consumer reads it. The
transactional id belongs to the topic, so a new run fences off every earlier one: after the topic
has been read, no other run can change it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from rich.console import Console

from changelog.capture.rows.shape import RowShape, batch_codec, row_codec, whole
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, SourceError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.form import Form, Output
from changelog.contract.rows.codec import SchemaIds, key_of
from changelog.contract.rows.relation import Relation
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.kafka.cluster import Cluster
from changelog.kafka.scan import OffsetRange, scan
from changelog.lines.ask import bounds_of
from changelog.native import Records, Texts
from changelog.publish.rows import QueryRows, relation_of
from changelog.runtime.progress.bar import RowBar
from changelog.sections import CaptureSettings
from changelog.sink.by_hand import create_topics
from changelog.sink.claimed import check_unclaimed
from changelog.sink.producer import LogProducer
from changelog.sink.registry import SchemaRegistry
from changelog.source.snapshot.snapshot import parse_row

_TRANSACTION_S = 900
"""The timeout of a transaction: the longest that brokers allow by default."""
_DIGEST_BYTES = 16
_LOOK_RECORDS = 10_000
"""The number of records after which progress is shown and a signal noticed."""
Digest = bytes


class PublishStoppedError(Exception):
    """The command was stopped by a signal; nothing of the run is published."""


class KeyRefusedError(SourceError):
    """A row's key cannot be the key of a record: it has a null, or another row has it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """The settings of `changelog publish`."""

    topic: str
    key: tuple[str, ...]  # columns of the key; empty if records have no key
    output: Output  # the form of keys and values
    tombstones: bool = False  # whether keys that are on the topic and not in the query are deleted
    changed_only: bool = False  # whether rows that are on the topic unchanged are left out

    def __post_init__(self) -> None:
        """Check that the settings fit together."""
        if not self.key and (self.tombstones or self.changed_only):
            raise ConfigurationError(
                "--tombstones and --changed-only need a key to recognise rows",
                hint="give --key",
            )


@dataclass(slots=True)
class Published:
    """The result of a run, in numbers."""

    rows: int = 0  # rows of the query
    written: int = 0  # rows that were written
    tombstones: int = 0  # keys that were deleted
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the result as an object of JSON, for `--json`."""
        return {
            "rows": self.rows,
            "written": self.written,
            "unchanged": self.rows - self.written,
            "tombstones": self.tombstones,
            "seconds": round(self.seconds, 3),
        }


class Publish:
    """Publishes the rows of a query, any number of times."""

    def __init__(
        self,
        kafka: KafkaConnection,
        settings: PublishSettings,
        capture: CaptureSettings,
        registry: Callable[[], SchemaRegistry],
        console: Console,
    ) -> None:
        """Take the settings; nothing is connected yet.

        `capture` has the settings of a topic that has to be created; `registry` opens a client of
        the registry.
        """
        self._kafka, self._settings, self._capture = kafka, settings, capture
        self._registry, self._console = registry, console

    def run(self, rows: QueryRows, stop: Callable[[], bool]) -> Published:
        """Publish the rows in one transaction.

        Raises:
            PublishStoppedError: `stop` returned true.
            ConfigurationError: query, key and topic do not fit together, or the topic belongs to a
                capture.
            SourceError: the query fails, or two rows have the same key or one has a null in it.
            EncodeError: a value has no exact form.
            LogError: the brokers or the registry refuse, or do not answer.
        """
        began, result = time.monotonic(), Published()
        relation = relation_of(self._settings.topic, rows.columns(), self._settings.key)
        self._make_topic()
        encoder = _Encoder(relation, self._settings.output, self._ids(relation))

        def check() -> None:
            if stop():
                raise PublishStoppedError

        producer = LogProducer.open(
            self._kafka,
            on_wait=check,
            transactional_id=f"changelog-publish-{self._settings.topic}",
            transaction_s=_TRANSACTION_S,
        )
        with closing(producer):
            producer.take_over()
            earlier: Mapping[Digest, tuple[bytes, Digest]] = {}
            if self._settings.tombstones or self._settings.changed_only:
                earlier = self._earlier(check)
            with RowBar(self._console, self._settings.topic, says_sum=False) as bar:
                self._write(producer, encoder, rows, result, check, earlier=earlier, bar=bar)
                producer.commit()
                producer.await_readers()
        result.seconds = time.monotonic() - began
        return result

    def _write(
        self,
        producer: LogProducer,
        encoder: _Encoder,
        rows: QueryRows,
        result: Published,
        check: Callable[[], None],
        *,
        earlier: Mapping[Digest, tuple[bytes, Digest]],
        bar: RowBar,
    ) -> None:
        topic, settings = self._settings.topic, self._settings
        published_keys: set[Digest] = set()
        for lines in rows.lines():
            check()
            for number, (key, value) in enumerate(encoder.records(lines)):
                result.rows += 1
                digest = None if key is None else _digest(key)
                if digest is not None:
                    if digest in published_keys:
                        raise encoder.duplicate(lines[number])
                    published_keys.add(digest)
                    old = earlier.get(digest)
                    if settings.changed_only and old and old[1] == _digest(value):
                        continue
                producer.produce(topic, key, value, [])
                result.written += 1
            producer.poll()
            bar.add(len(lines))
        if settings.tombstones:
            for digest, (key, _) in earlier.items():
                if digest not in published_keys:
                    producer.produce(topic, key, None, [])
                    result.tombstones += 1

    def _earlier(self, check: Callable[[], None]) -> dict[Digest, tuple[bytes, Digest]]:
        """Return the keys on the topic by their digests, each with a digest of its last value."""
        topic = self._settings.topic
        cluster = Cluster(self._kafka)
        partitions = len(cluster.topics([topic])[topic].leaders)
        bounds = bounds_of(cluster, topic, range(partitions))
        ranges = [OffsetRange(topic, n, bound.first, bound.end) for n, bound in bounds.items()]
        keys: dict[Digest, tuple[bytes, Digest]] = {}
        records = sum(part.end - part.start for part in ranges)
        with RowBar(self._console, f"read {topic}", records, says_sum=False) as bar:
            for number, record in enumerate(scan(self._kafka, ranges), 1):
                if not number % _LOOK_RECORDS:
                    check()
                    bar.add(_LOOK_RECORDS)
                key: Any = record.key()
                value: Any = record.value()
                if key is None:
                    continue
                if value is None:
                    keys.pop(_digest(key), None)
                else:
                    keys[_digest(key)] = (key, _digest(value))
        return keys

    def _make_topic(self) -> None:
        topic = self._settings.topic
        cluster = Cluster(self._kafka)
        cluster.meet()  # raises an error with the reason if no broker answers
        check_unclaimed(self._kafka, topic)
        if topic not in cluster.topics([topic]):
            create_topics(self._kafka, [topic], self._capture, unkeyed=not self._settings.key)

    def _ids(self, relation: Relation) -> SchemaIds:
        if self._settings.output is Output.JSON:
            return SchemaIds(key=0, value=0)
        topic = self._settings.topic
        with closing(self._registry()) as schemas:
            key = schemas.register_key(topic, key_schema(relation)) if relation.key else 0
            return SchemaIds(key=key, value=schemas.register_value(topic, value_schema(relation)))


class _Encoder:
    """Encodes lines of rows into keys and values, many at once in C where possible."""

    def __init__(self, relation: Relation, output: Output, ids: SchemaIds) -> None:
        plain = whole(relation)
        shape = RowShape(relation, plain.places, plain.masks, form=Form(output))
        self._relation = relation
        self._batches = batch_codec(shape, ids)
        self._rows = row_codec(shape, ids)
        self._records = Records(epoch=1)

    def records(self, lines: Texts) -> Iterator[tuple[bytes | None, bytes]]:
        """Return the record of each line.

        Raises KeyRefusedError: a key has a null; EncodeError: a value has no exact form.
        """
        place = 0
        while place < len(lines):
            odd: int | None = place
            if self._batches is not None:
                self._records.clear()
                odd = self._batches.add_lines(
                    lines, place, lsn=Lsn(0), sequence=0, ts_us=0, to=self._records
                )
                for record in self._records:
                    assert record.value is not None  # noqa: S101 - each line is a row
                    yield record.key, record.value
            if odd is None:
                return
            yield self._record(lines[odd])
            place = odd + 1

    def _record(self, line: bytes) -> tuple[bytes | None, bytes]:
        row = parse_row(line)
        key = None
        if self._relation.key:
            fields = key_of(self._relation.key_indexes, row)
            if None in fields:
                raise KeyRefusedError(
                    f"a row has a null in its key: {self._shown(line)}",
                    hint="leave such rows out in the query, or choose another --key",
                )
            key = self._rows.encode_key(fields)
        return key, self._rows.encode_value(row)

    def duplicate(self, line: bytes) -> KeyRefusedError:
        """Return the error for a row whose key another row has too."""
        return KeyRefusedError(
            f"two rows have the key {self._shown(line)}",
            hint="group or filter the rows in the query, or choose another --key",
        )

    def _shown(self, line: bytes) -> str:
        row = parse_row(line)
        pairs = zip(self._relation.key, self._relation.key_indexes, strict=True)
        return ", ".join(
            f"{name}={field.decode('utf-8', 'replace') if isinstance(field, bytes) else 'null'}"
            for name, index in pairs
            for field in [row[index]]
        )


def _digest(raw: bytes) -> Digest:
    return blake2b(raw, digest_size=_DIGEST_BYTES).digest()
