"""The past of a table according to the log: versions of a row, its origin, and all changes.

Nothing is guessed. The result says which versions compaction may have removed. Changes are given
only while the state at their start is exact: then the cleaner has not yet used any record behind
that frontier to remove another, so all of them are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, CorruptRecordError, VerdictError
from changelog.contract.base.headers import RecordHeaders, decode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.versions import CHANGES
from changelog.contract.rows.codec import FRAME_BYTES
from changelog.kafka.scan import OffsetRange, scan
from replay.api.frames import texts
from replay.api.opened import OpenedTable, offsets_of, shown
from replay.api.rows import (
    CHANGE_TYPE,
    COMMIT_LSN,
    COMMIT_TIME,
    Changes,
    History,
    Origin,
    Row,
    RowVersion,
    key_text,
    rows_of,
)
from replay.api.values import moment_of
from replay.base.clock import clock_ms
from replay.base.record_place import cut_of
from replay.base.task_faults import TaskFault, error_of, lost
from replay.decode.schemas import TopicSchemas
from replay.local.changes import RowChange, changes_of, once, touched
from replay.local.keys import Key
from replay.local.records import RecordVersion, WrittenRecord
from replay.local.rows import RowReader
from replay.scan.range import PartitionRange
from replay.verdict.limits import lag_ms

_MOMENT = pa.timestamp("us", "UTC")
_CHANGE_COLUMNS = pa.schema(
    [(CHANGE_TYPE, pa.string()), (COMMIT_LSN, pa.string()), (COMMIT_TIME, _MOMENT)]
)


def row_of(opened: OpenedTable, key: Key) -> Row | None:
    """Return the row of a key; see `LogTable.row`."""
    encoded = opened.key_bytes(key)
    opened.cut.verdict.require()
    with shown(f"{opened.name}: read", offsets_of(opened.scan().ranges_of(encoded))) as progress:
        last = opened.scan(progress).last([encoded]).get(encoded)
    opened.recheck()
    if last is None or last.value is None:
        return None
    written = WrittenRecord(last.value, last.partition, last.offset)
    return next(iter(rows_of(RowReader(opened.schemas).table([written]))), None)


def history_of(opened: OpenedTable, key: Key) -> History:
    """Return the versions of a row; see `LogTable.history`."""
    records = _versions(opened, key)
    return History(
        table=opened.name,
        key=_key_texts(opened, key),
        lsn=opened.frontier.lsn,
        versions=tuple(_version(opened.schemas, record) for record in records),
        complete_since=_complete_since(opened, clock_ms()),
        verdict=str(opened.cut.verdict),
    )


def _complete_since(opened: OpenedTable, now_ms: int) -> datetime | None:
    """Return from when on no version can have been removed.

    The cleaner removes a record only because of a newer one that is `min.compaction.lag.ms` old by
    the broker's clock, so every record that is younger than that is still there.
    """
    state, allowance = opened.cut.states[opened.topic], opened.cut.settings.clock_allowance_ms
    lag = lag_ms(state)
    if state.settings.get("message.timestamp.type") != "LogAppendTime" or lag <= allowance:
        return None
    return datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(milliseconds=allowance - lag)


def origin_of(opened: OpenedTable, key: Key) -> Origin:
    """Return the origin of the row of a key; see `LogTable.explain`."""
    records = _versions(opened, key)
    key_texts, lsn = _key_texts(opened, key), opened.frontier.lsn
    if not records:
        raise ConfigurationError(
            f'table "{opened.table}": the log has no record of the key {key_text(key_texts)} '
            f"up to LSN {lsn}",
            hint="nothing was written of it, or its delete was cleaned away",
        )
    *older, last = (_version(opened.schemas, record) for record in records)
    return Origin(
        table=opened.name,
        topic=opened.topic,
        key=key_texts,
        lsn=lsn,
        version=last,
        superseded=tuple(older),
        verdict=str(opened.cut.verdict),
    )


def _versions(opened: OpenedTable, key: Key) -> list[RecordVersion]:
    """Return the records of a key that count, in the order of changes."""
    encoded = opened.key_bytes(key)
    opened.cut.verdict.require()
    ranges = opened.scan().ranges_of(encoded)
    with shown(f"{opened.name}: read", offsets_of(ranges)) as progress:
        records = versions(opened.reach.kafka, opened.topic, ranges, progress, key=encoded)
    opened.recheck()
    since, before = opened.frontier.since.get(opened.topic), cut_of(opened.frontier)
    alive = (
        record
        for record in records
        if record.position < before and (since is None or record.position >= since)
    )
    return list(once(alive))


def _version(schemas: TopicSchemas, record: RecordVersion) -> RowVersion:
    row: Row | None = None
    schema_id: int | None = None
    if record.value is not None and not record.is_gone:
        written = WrittenRecord(record.value, record.partition, record.offset)
        row = rows_of(RowReader(schemas).table([written]))[0]
        schema_id = int.from_bytes(record.value[1:FRAME_BYTES], "big")
    return RowVersion(
        change=CHANGES.get(record.op, record.op.name.lower()),
        lsn=record.position.commit_lsn,
        time=moment_of(record.ts_us),
        row=row,
        partition=record.partition,
        offset=record.offset,
        schema_id=schema_id,
    )


def _key_texts(opened: OpenedTable, key: Key) -> dict[str, str]:
    if isinstance(key, Mapping):
        return texts({name: key[name] for name in opened.logged.key})
    values = key if isinstance(key, list | tuple) else (key,)
    return texts(dict(zip(opened.logged.key, values, strict=True)))


def changes_between(first: OpenedTable, last: OpenedTable) -> Changes:
    """Return the changes from one cut to another; see `LogTable.changes`."""
    last.require_local()
    _require_no_copy_between(first, last)
    first.cut.verdict.require()
    last.cut.verdict.require()
    new, kafka = _between(first, last), first.reach.kafka
    total = offsets_of(new) + first.cut.offset_count(first.topic)
    with shown(f"{last.name}: read", total) as progress:
        records = versions(kafka, last.topic, new, progress)
        until = cut_of(last.frontier)
        touched_keys = touched(
            (record for record in records if record.position < until), cut_of(first.frontier)
        )
        count = len(records)
        before = first.scan(lambda done: progress(count + done)).last(touched_keys)
    first.recheck()
    last.recheck()
    return Changes(
        table=last.name,
        start=first.frontier.lsn,
        end=last.frontier.lsn,
        rows=_change_rows(last.schemas, changes_of(before, touched_keys)),
    )


def _between(first: OpenedTable, last: OpenedTable) -> list[PartitionRange]:
    """Return the ranges between two cuts; partitions may have been added."""
    first_ends, last_ends = first.frontier.ends[first.topic], last.frontier.ends[last.topic]
    starts = [*first_ends, *last.cut.start_offsets(last.topic)[len(first_ends) :]]
    return [
        PartitionRange(number, start, end)
        for number, (start, end) in enumerate(zip(starts, last_ends, strict=True))
        if start < end
    ]


def _require_no_copy_between(first: OpenedTable, last: OpenedTable) -> None:
    """Require that the log has every change between two cuts: the table was not copied again."""
    start, end = first.frontier, last.frontier
    if (end.epoch, end.lsn) < (start.epoch, start.lsn):
        raise ConfigurationError(
            f"changes from LSN {start.lsn} to LSN {end.lsn}: the end lies before the start",
            hint="give the older moment first",
        )
    is_copied_anew = start.whole.get(first.topic) != end.whole.get(last.topic)
    if start.epoch != end.epoch or is_copied_anew or first.topic != last.topic:
        raise VerdictError(
            f'table "{last.table}" was copied anew between LSN {start.lsn} and LSN {end.lsn}: '
            "what changed meanwhile is not on the log",
            hint="ask for changes since a later moment",
        )


def _change_rows(schemas: TopicSchemas, changes: Sequence[RowChange]) -> pa.Table:
    rows = RowReader(schemas).table([change.row for change in changes])
    columns = pa.Table.from_arrays(
        [
            pa.array([change.kind.value for change in changes], pa.string()),
            pa.array([str(Lsn(change.position.commit_lsn)) for change in changes], pa.string()),
            pa.array([change.ts_us for change in changes], pa.int64()).view(_MOMENT),
        ],
        schema=_CHANGE_COLUMNS,
    )
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        columns = columns.append_column(name, column)
    return columns


# Records between two reports of progress.
_REPORT_EVERY = 10_000


# The client makes an object of each record, so this is for few partitions or few offsets.
def versions(
    kafka: KafkaConnection,
    topic: str,
    ranges: Sequence[PartitionRange],
    progress: Callable[[int], None],
    *,
    key: bytes | None = None,
) -> list[RecordVersion]:
    """Return the records of some ranges, in the order of changes.

    Args:
        kafka: the brokers.
        topic: their topic.
        ranges: of different partitions.
        progress: called with the number of records read.
        key: the key whose records are returned; None for those of all keys.

    Raises:
        CorruptRecordError: a record is not of capture's form; names its place.
        VerdictError: a range is not on the log.
        UnavailableLogError: the brokers do not answer.
    """
    records, read = [], 0
    places = [OffsetRange(topic, *part) for part in ranges]
    for read, message in enumerate(scan(kafka, places, lost=lost), 1):
        if key is None or message.key() == key:
            records.append(_table_version(topic, message))
        if not read % _REPORT_EVERY:
            progress(read)
    progress(read)
    return sorted(records, key=lambda version: (version.position, version.offset))


def _table_version(topic: str, message: Message) -> RecordVersion:
    place = f'topic "{topic}", partition {message.partition()}, offset {message.offset()}'
    key = message.key()
    if not isinstance(key, bytes):
        raise error_of(TaskFault.CORRUPT, f"{place}: it has no key")
    try:
        headers: RecordHeaders = decode_headers(message.headers())
    except CorruptRecordError as error:
        raise error_of(TaskFault.CORRUPT, f"{place}: {error.args[0]}") from error
    return RecordVersion(
        key=key,
        value=message.value(),
        position=headers.position,
        op=headers.op,
        ts_us=headers.ts_us,
        appended_ms=message.timestamp()[1],
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )
