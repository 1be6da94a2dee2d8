"""Records of a topic, from its log's start to a frontier's end, into DuckDB as raw bytes.

An end is reached by consumer position, never by "the last record is end - 1": compaction and
transactions leave gaps, of whose records only the committed ones are read. What the topic is (its
id, partitions, log start) is asked before and after, since a topic made anew or cut off would read
as an older, smaller one.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import lt, methodcaller
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    CorruptRecordError,
    LogError,
    NoFrontierError,
    UnavailableLogError,
    VerdictError,
)
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier
from views.verify.processes.job import Work
from views.verify.processes.pool import done_by_helpers, helpers
from views.verify.processes.scratch import fill, first_row, make_table
from views.verify.values.faults import SetApart
from views.verify.values.types import quoted

BATCH_RECORDS = 20_000
MANY_OFFSETS = 500_000
"""From so many on helpers read: their start takes as long as some ten thousand records."""
SHARES_OF_ONE = 2
"""Shares for each helper, so that none waits long for another's."""
Share = dict[int, tuple[int, int]]
"""First offset and end of a slice of each partition."""
_POLLED = 500  # so many stay in the processor's cache until they are looked at
_REQUEST_SECONDS = 30.0
_STALL_SECONDS = 60.0
_STABLE_SECONDS = 10.0  # the brokers mark a transaction's end in each partition a moment later
_POLL_SECONDS = 0.05  # `consume` waits for a whole batch or for this long
_POSITION = struct.Struct(">IQQ")
_POSITIONS = np.dtype([("epoch", ">u4"), ("commit_lsn", ">u8"), ("sequence", ">u8")])
_FRAME = struct.Struct(">BI")
NO_EPOCH = 2**32 - 1
"""The epoch of a record that has no place in the order: past all others."""
_NO_POSITION = (NO_EPOCH, 2**64 - 1, 2**64 - 1)

RAW_SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("off", pa.int64()),
        ("epoch", pa.uint32()),
        ("commit_lsn", pa.uint64()),
        ("sequence", pa.uint64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What must not move while a topic is read."""

    topic_id: str
    starts: tuple[int, ...]


def read_topic(
    kafka: KafkaConnection,
    frontier: Frontier,
    topic: str,
    database: duckdb.DuckDBPyConnection,
    table: str,
    *,
    key_id: int | None = None,
    set_apart: SetApart | None = None,
) -> int:
    """Read all records of a topic before the frontier's ends into a new DuckDB table.

    Args:
        kafka: the brokers.
        frontier: says where to end.
        topic: which.
        database: takes the records.
        table: name of the new table.
        key_id: the schema id that every key bears, None where that is not known.
        set_apart: takes the records that have no place in the order, which then come after all
            others of their key; None makes one an error.

    Returns:
        The number of records.

    Raises:
        LogError: the topic is not the one of the frontier, or moved while it was read.
        CorruptRecordError: a record breaks the contract; names topic, partition and offset.
        UnavailableLogError: the brokers do not answer.
    """
    make_table(database, table, RAW_SCHEMA)
    ends = frontier.ends.get(topic, ())
    before = topic_facts(kafka, frontier, topic)
    require_stable(kafka, topic, ends)
    is_json = frontier.scope_of(topic).form.output is Output.JSON
    keys = _Keys(is_json=is_json, schema_id=key_id)
    shares = shared_out(before.starts, ends, helpers())
    if shares:
        sets_apart = set_apart is not None
        jobs = [(_read_share, (kafka, topic, share, keys, sets_apart)) for share in shares]
        batches = done_by_helpers(jobs, set_apart)
    else:
        rows = _Rows(keys, set_apart)
        batches = _batches(
            kafka, topic, dict(enumerate(before.starts)), dict(enumerate(ends)), rows
        )
    count = fill(database, table, batches)
    if topic_facts(kafka, frontier, topic) != before:
        raise LogError(
            f'topic "{topic}" moved while it was read: another topic id or log start',
            hint="run the verification again; look who made the topic anew or deleted records",
        )
    _check_cut(database, table, frontier, topic)
    if set_apart is None and not is_json:
        _check_key_ids(database, table, topic)
    return count


def shared_out(starts: Sequence[int], ends: Sequence[int], helpers: int) -> list[Share]:
    """Cut the offsets of a topic into shares for some helpers; none where that does not pay.

    A share has a slice of each partition, the old of one and the young of another: where a topic
    was cleaned, the old offsets hold fewer records. Each offset is in one share (pure).
    """
    spans = [max(0, end - start) for start, end in zip(starts, ends, strict=True)]
    if helpers < 2 or sum(spans) < MANY_OFFSETS:  # noqa: PLR2004 - one helper helps nobody
        return []
    count = helpers * SHARES_OF_ONE
    shares = []
    for number in range(count):
        share: Share = {}
        for part, (start, span) in enumerate(zip(starts, spans, strict=True)):
            slice_ = (number + part) % count
            first, end = start + span * slice_ // count, start + span * (slice_ + 1) // count
            if first < end:
                share[part] = first, end
        shares.append(share)
    return shares


def _read_share(
    kafka: KafkaConnection,
    topic: str,
    share: Share,
    keys: _Keys,
    sets_apart: bool,
) -> Work:
    """Read a share of a topic, in a helper."""
    set_apart = SetApart() if sets_apart else None
    starts = {part: start for part, (start, _) in share.items()}
    ends = {part: end for part, (_, end) in share.items()}
    yield from _batches(kafka, topic, starts, ends, _Rows(keys, set_apart))
    return set_apart


def read_schema_topic(kafka: KafkaConnection, topic: str) -> dict[str, list[str]]:
    """Return the schemas that capture notes where no registry is, by subject, the oldest first.

    Raises:
        LogError: the topic does not exist.
        UnavailableLogError: the brokers do not answer.
    """
    consumer = _consumer(kafka)
    try:
        low, high = _watermarks(consumer, topic, 0)
    finally:
        consumer.close()
    found: dict[str, list[str]] = {}
    for message in messages(kafka, topic, {0: low}, {0: high}):
        subject = (message.key() or b"").decode().rpartition("#")[0]
        found.setdefault(subject, []).append((message.value() or b"").decode())
    return found


def topic_facts(kafka: KafkaConnection, frontier: Frontier, topic: str) -> TopicFacts:
    """Ask the brokers what a topic is now, and require that it is the frontier's.

    Raises:
        LogError: it is another one, has fewer partitions, or ends before the frontier.
        VerdictError: it has lost its beginning.
        UnavailableLogError: the brokers do not answer.
    """
    ends = frontier.ends.get(topic, ())
    topic_id = _topic_id(kafka, topic)
    known = frontier.topic_ids.get(topic)
    if known and known != topic_id:
        raise LogError(
            f'topic "{topic}" has id {topic_id}, but the frontier was taken of {known}',
            hint="the topic was made anew: take a new snapshot of its table",
        )
    starts = []
    consumer = _consumer(kafka, committed=False)
    try:
        for partition, end in enumerate(ends):
            low, high = _watermarks(consumer, topic, partition)
            if high < end:
                raise LogError(
                    f'topic "{topic}", partition {partition} ends at {high}, '
                    f"before the frontier's {end}",
                    hint="the log lost records: take a new snapshot of its table",
                )
            starts.append(low)
    finally:
        consumer.close()
    lost = frontier.missing_of(topic, starts)
    if lost:
        raise VerdictError(
            f'topic "{topic}": {"; ".join(lost)}, so rows may be missing',
            hint="copy the table anew with `changelog resnapshot`",
        )
    return TopicFacts(topic_id, tuple(starts))


def require_stable(kafka: KafkaConnection, topic: str, ends: Sequence[int]) -> None:
    """Check that no transaction is open before the ends: what lies behind it cannot be read.

    Raises:
        UnavailableLogError: one stays open, or the brokers do not answer.
    """
    deadline = time.monotonic() + _STABLE_SECONDS
    consumer = _consumer(kafka)
    try:
        for partition, end in enumerate(ends):
            while (stable := _watermarks(consumer, topic, partition)[1]) < end:
                if time.monotonic() > deadline:
                    raise UnavailableLogError(
                        f'topic "{topic}", partition {partition}: a transaction is open since '
                        f"offset {stable}, before the frontier's end {end}",
                        hint="a capture that died leaves one open for a minute at most; one that "
                        "hangs is ended by `kafka-transactions.sh abort`",
                    )
                time.sleep(_POLL_SECONDS)
    finally:
        consumer.close()


def read_frontiers(kafka: KafkaConnection, topic: str, slot: str) -> Iterator[Frontier]:
    """Return the frontiers of a slot that are on their topic now, in order.

    Raises:
        NoFrontierError: the topic does not exist.
        UnavailableLogError: the brokers do not answer.
    """
    if not _exists(kafka, topic):
        raise NoFrontierError(
            f'topic "{topic}" does not exist',
            hint="start `changelog capture`, or correct the topic prefix",
        )
    consumer = _consumer(kafka)
    try:
        low, high = _watermarks(consumer, topic, 0)
    finally:
        consumer.close()
    for message in messages(kafka, topic, {0: low}, {0: high}):
        if message.key() == slot.encode() and message.value() is not None:
            yield Frontier.from_json(message.value() or b"")


def _consumer(kafka: KafkaConnection, *, committed: bool = True) -> Consumer:
    settings = kafka.client_config(
        group_id="changelog-verify",
        enable_auto_commit=False,
        enable_partition_eof=True,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="error",
        fetch_wait_max_ms=20,
        fetch_queue_backoff_ms=2,  # with enough in hand the client would pause for a second
        queued_max_messages_kbytes=8_192,
    )
    return Consumer({**settings, "log_level": 0})  # the one name that has a real underscore


def _watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=_REQUEST_SECONDS
        )
    except KafkaException as error:
        raise _unavailable(topic, error) from error
    return low, high


def _unavailable(topic: str, error: Exception) -> LogError:
    code = error.args[0].code() if error.args and isinstance(error.args[0], KafkaError) else None
    if code in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}:
        return LogError(
            f'topic "{topic}" or one of its partitions does not exist',
            hint="start `changelog capture`, or correct the topic prefix",
        )
    return UnavailableLogError(
        f'the brokers do not answer about topic "{topic}": {error}',
        hint="check that Kafka runs and that its address is right",
    )


def _exists(kafka: KafkaConnection, topic: str) -> bool:
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    try:
        metadata = admin.list_topics(timeout=_REQUEST_SECONDS)
    except KafkaException as error:
        raise _unavailable(topic, error) from error
    return topic in metadata.topics


def _topic_id(kafka: KafkaConnection, topic: str) -> str:
    from confluent_kafka import TopicCollection  # noqa: PLC0415

    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    try:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_SECONDS)
        return str(asked[topic].result().topic_id)
    except KafkaException as error:
        raise _unavailable(topic, error) from error


def messages(
    kafka: KafkaConnection, topic: str, starts: dict[int, int], ends: dict[int, int]
) -> Iterator[Message]:
    """Return the messages of some partitions of a topic, each from its start to its end."""
    return chain.from_iterable(_polled(kafka, topic, starts, ends))


def _polled(
    kafka: KafkaConnection, topic: str, starts: dict[int, int], ends: dict[int, int]
) -> Iterator[list[Message]]:
    open_ = {part for part, end in ends.items() if end > starts[part]}
    if not open_:
        return
    consumer = _consumer(kafka)
    try:
        consumer.assign([TopicPartition(topic, part, starts[part]) for part in sorted(open_)])
        deadline = time.monotonic() + _STALL_SECONDS
        while open_:
            polled = consumer.consume(_POLLED, _POLL_SECONDS)
            if not polled and time.monotonic() > deadline:
                raise UnavailableLogError(
                    f'nothing came from topic "{topic}" for {_STALL_SECONDS:.0f} s',
                    hint="check that Kafka runs",
                )
            if polled:
                deadline = time.monotonic() + _STALL_SECONDS
            if _all_inside(polled, ends):
                yield polled
                continue
            reading = len(open_)
            yield list(_wanted(polled, topic, ends, open_))
            if len(open_) < reading:  # what comes behind an end is not wanted
                consumer.pause(
                    [TopicPartition(topic, part) for part in starts if part not in open_]
                )
    finally:
        consumer.close()


_error_of, _part_of, _offset_of = map(methodcaller, ("error", "partition", "offset"))
_key_of, _value_of, _headers_of = map(methodcaller, ("key", "value", "headers"))


def _all_inside(polled: list[Message], ends: dict[int, int]) -> bool:
    """Tell whether these are records, none of which is the last before an end, or behind it."""
    if any(map(_error_of, polled)):
        return False
    last = {part: end - 1 for part, end in ends.items()}
    return all(map(lt, map(_offset_of, polled), [last[part] for part in map(_part_of, polled)]))


def _wanted(
    polled: Iterable[Message], topic: str, ends: dict[int, int], open_: set[int]
) -> Iterator[Message]:
    """Return the messages before the ends; take a partition out of `open_` when its is reached."""
    for message in polled:
        error = message.error()
        part, offset = message.partition() or 0, message.offset() or 0
        if error is None:
            if offset < ends[part]:
                yield message
            if offset >= ends[part] - 1:
                open_.discard(part)
        elif error.code() == KafkaError._PARTITION_EOF:
            if offset >= ends[part]:
                open_.discard(part)
            else:
                raise LogError(
                    f'topic "{topic}", partition {part} ended at {offset} while it was read, '
                    f"before {ends[part]}",
                    hint="the log lost records: take a new snapshot of its table",
                )
        elif error.retriable() or error.code() in {
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
        }:
            continue
        else:
            raise LogError(f'topic "{topic}", partition {part} cannot be read: {error.str()}')


def _batches(
    kafka: KafkaConnection,
    topic: str,
    starts: dict[int, int],
    ends: dict[int, int],
    make: _Rows,
) -> Iterator[pa.Table]:
    tables: list[pa.Table] = []
    rows = size = 0
    for polled in _polled(kafka, topic, starts, ends):
        if not polled:
            continue
        tables.append(make.table(polled))
        rows += len(polled)
        size += tables[-1].nbytes
        if rows >= BATCH_RECORDS or size > 64 << 20:
            yield pa.concat_tables(tables)
            tables, rows, size = [], 0, 0
    if tables:
        yield pa.concat_tables(tables)


def place(topic: str, partition: int, offset: int) -> str:
    """Name a record's place for people."""
    return f'topic "{topic}", partition {partition}, offset {offset}'


@dataclass(frozen=True, slots=True)
class _Keys:
    """How the keys of a topic begin."""

    is_json: bool
    schema_id: int | None

    @property
    def beginning(self) -> bytes:
        if self.is_json:
            return b"{"
        return b"" if self.schema_id is None else _FRAME.pack(0, self.schema_id)

    def fault_of(self, key: bytes | None) -> str:
        if key is None:
            return "no key"
        if key.startswith(self.beginning):
            return ""
        if self.is_json:
            return "a key that is not a JSON document"
        return f"a key that does not bear the pinned schema id {self.schema_id}"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Iterates over the rows of records in the table of raw records."""

    keys: _Keys
    set_apart: SetApart | None

    def table(self, messages: list[Message]) -> pa.Table:
        """Return the rows of some records: by column where all are in order, else one by one."""
        keys = list(map(_key_of, messages))
        headers = list(map(_headers_of, messages))
        positions = [each[0][1] for each in headers if each and each[0][0] == "position"]
        begins_so = methodcaller("startswith", self.keys.beginning)
        if (
            None in keys
            or not all(map(begins_so, keys))
            or len(positions) != len(keys)
            or None in positions
            or set(map(len, positions)) != {_POSITION.size}
        ):
            return _arrow(zip(*map(self.row, messages), strict=True))
        numbers = np.frombuffer(b"".join(positions), _POSITIONS)
        orders = [numbers[name].astype(numbers[name].dtype.newbyteorder("=")) for name in _ORDER]
        places = map(_part_of, messages), map(_offset_of, messages)
        return _arrow([*map(list, places), *orders, keys, list(map(_value_of, messages))])

    def row(self, message: Message) -> tuple[Any, ...]:
        """Return the row of one record, whatever it is."""
        key, part, offset = message.key(), message.partition() or 0, message.offset() or 0
        fault = self.keys.fault_of(key)
        if not fault:
            headers: Any = message.headers() or ()
            for name, raw in headers:
                if name == "position" and isinstance(raw, bytes) and len(raw) == _POSITION.size:
                    return part, offset, *_POSITION.unpack(raw), key, message.value()
            fault = "no header `position` of 20 bytes"
        if self.set_apart is None:
            raise CorruptRecordError(
                f"{place(message.topic() or '', part, offset)}: the record has {fault}",
                hint="another program wrote to the topic",
            )
        self.set_apart.suspect(part, offset, f"the record has {fault}")
        own = key if key is not None else f"{part}:{offset}".encode()
        return part, offset, *_NO_POSITION, own, message.value()


_ORDER = ("epoch", "commit_lsn", "sequence")


def _arrow(columns: Iterable[Any]) -> pa.Table:
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)


def _check_cut(
    database: duckdb.DuckDBPyConnection, table: str, frontier: Frontier, topic: str
) -> None:
    """Require what a frontier promises: no record of a later transaction before its ends."""
    later = first_row(
        database,
        f"SELECT part, off FROM {quoted(table)} "
        "WHERE epoch < ? AND (epoch > ? OR (epoch = ? AND commit_lsn >= ?)) "
        "ORDER BY part, off LIMIT 1",
        [NO_EPOCH, frontier.epoch, frontier.epoch, int(frontier.lsn)],
    )
    if later is not None:
        raise LogError(
            f"{place(topic, later[0], later[1])} belongs to a transaction after the frontier "
            f"{frontier.lsn} but lies before its end",
            hint="the log breaks its contract here: take a new snapshot of the table",
        )


def _check_key_ids(database: duckdb.DuckDBPyConnection, table: str, topic: str) -> None:
    ids = first_row(database, f"SELECT count(DISTINCT key[1:5]) FROM {quoted(table)}")
    if ids is not None and ids[0] > 1:
        raise LogError(
            f'topic "{topic}" has keys under {ids[0]} schema ids, so one row may have two keys',
            hint="the key's schema id is pinned for the life of a topic: make the topic anew",
        )
