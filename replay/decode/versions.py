"""Records of a table -> the versions of its rows, and from which LSN on they are complete. Pure.

Of each key and transaction the last record counts. A version begins with its record and ends with
the next one of its key, whatever that is; it is there if it ended at or after `complete_from`.

Compaction removes a record once a newer one of its key is there, the oldest first, and leaves gaps
between offsets. So nothing that is newer than the first record behind a partition's last gap is
missing. Of older records that of a key may be missing which its first one superseded: a copied row
may have been there before, and so may a row that its first record changed or deleted, where a gap
stands before it. All that was there before an inserted row has been deleted, and this is older than
the gap. `views.verify.log.versions` has the same in words of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.errors import VerdictError
from changelog.contract.base.headers import OP, POSITION, TS, Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import POSITION_BYTES, Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.order import PLACE_DIGITS
from changelog.contract.log.versions import (
    CHANGES,
    COMPLETE_FROM,
    FROM_CHANGE,
    FROM_LSN,
    FROM_TIME,
    IS_CURRENT,
    TO_CHANGE,
    TO_LSN,
    TO_TIME,
    VERSION_COLUMNS,
)
from changelog.contract.rows.codec import FRAME_BYTES, frame
from replay.base.failures import fail
from replay.base.record_place import NO_POSITION, cut_of, no_key
from replay.base.task_faults import TaskFault
from replay.decode.bag import header_of, number_at
from replay.decode.decode import built, decoded, logged_name, read_columns_of, sound_row
from replay.decode.schemas import TopicSchemas
from replay.scan.fold import before_position, from_position
from replay.scan.java_source import place

_TS_BYTES = 8
# In the key that a version is given, counted from 1: the operation, the time and the LSN of its
# record, then the same of the record that ended it.
_FROM, _TO = 1, 18
_EPOCH_BYTES, _LSN_BYTES = 4, 8


def of_log(raw: DataFrame, schemas: TopicSchemas) -> DataFrame:
    """Return the records as `key, value, partition, offset, position, op, ts`, checked.

    `raw`: as Spark's source gives them, with their headers.
    """
    position, op, ts = (header_of(name) for name in (POSITION, OP, TS))
    prefix = b"" if schemas.key_id is None else frame(schemas.key_id)
    is_ours = F.substring("key", 1, FRAME_BYTES) == F.lit(bytearray(prefix))
    fault = (
        F.when(F.coalesce(F.length(position), F.lit(0)) != POSITION_BYTES, F.lit(NO_POSITION))
        .when(~F.coalesce(is_ours, F.expr("false")), F.lit(no_key(schemas.key_id)))
        .when(
            ~F.coalesce(op, F.lit(b"")).isin([operation.value for operation in CHANGES]),
            F.lit("it bears no operation of a row"),
        )
        .when(F.coalesce(F.length(ts), F.lit(0)) != _TS_BYTES, F.lit("it bears no commit time"))
    )
    sound = F.when(
        fault.isNotNull(), fail(TaskFault.CORRUPT, *place(schemas.topic), ": ", fault)
    ).otherwise(position)
    return raw.select(
        "key", "value", "partition", "offset",
        sound.alias("position"), op.alias("op"), ts.alias("ts"),
    )  # fmt: skip


def alive(records: DataFrame, frontier: Frontier, topic: str) -> DataFrame:
    """Leave out records that are dead at a frontier, and later ones."""
    since = frontier.since.get(topic)
    records = before_position(records, cut_of(frontier))
    return records if since is None else from_position(records, since)


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The gaps between the offsets of a partition that was read from its start."""

    first: int | None  # the offset of the first record after one; None without a gap
    after_last: Position | None  # the position of the record after the last one, if there is any
    ends_in_one: bool  # whether the last records that were read for are missing


def _gaps(row: Row | None, start: int, end: int) -> _Gaps:
    if row is None:
        return _Gaps(None, None, end > start)
    after_last = None if row.gap is None else Position.from_bytes(bytes(row.gap.position))
    return _Gaps(row.first, after_last, row.last < end - 1)


def complete_from(records: DataFrame, frontier: Frontier, topic: str, starts: Sequence[int]) -> Lsn:
    """Return the LSN from which on the states of all frontiers follow from the versions.

    `records`: all from the offsets `starts` on to the frontier's ends, as `of_log` gives them.

    Raises VerdictError: records of an earlier epoch are alive, whose LSNs may be others.
    """
    ends = frontier.ends[topic]
    in_order = Window.partitionBy("partition").orderBy("offset")
    first_offset = F.array(*map(F.lit, starts))[F.col("partition")]
    expected = F.coalesce(F.lag("offset").over(in_order) + 1, first_offset)
    is_after_gap = F.col("offset") != expected
    placed = records.select("partition", "offset", "position", is_after_gap.alias("is_after_gap"))
    after_gap = F.col("is_after_gap")
    by_partition = {
        row.partition: row
        for row in placed.groupBy("partition")
        .agg(
            F.max("offset").alias("last"),
            F.min(F.when(after_gap, F.col("offset"))).alias("first"),
            F.max(F.when(after_gap, F.struct("offset", "position"))).alias("gap"),
        )
        .collect()
    }
    gaps = [
        _gaps(by_partition.get(number), *offsets)
        for number, offsets in enumerate(zip(starts, ends, strict=True))
    ]
    (first,) = _firsts(alive(records, frontier, topic), gaps).collect()
    if first.least is not None and Position.from_bytes(bytes(first.least)).epoch < frontier.epoch:
        raise VerdictError(
            f'topic "{topic}" has rows from before epoch {frontier.epoch}, so no history has LSNs '
            "that can be compared",
            hint="copy the table anew with `changelog resnapshot`",
        )
    if any(gap.ends_in_one for gap in gaps):
        return frontier.lsn
    places = [gap.after_last for gap in gaps if gap.after_last is not None]
    places += [] if first.doubtful is None else [Position.from_bytes(bytes(first.doubtful))]
    places += [frontier.since[topic]] if topic in frontier.since else []
    lsns = [place.commit_lsn for place in places if place.epoch == frontier.epoch]
    lsns += [frontier.whole[topic]] if topic in frontier.whole else []
    return min(Lsn(max(lsns, default=Lsn(0)) + 1), frontier.lsn)


def _firsts(records: DataFrame, gaps: Sequence[_Gaps]) -> DataFrame:
    """Return in one row the least position, and the last of which something may be missing."""
    firsts = records.groupBy("key").agg(
        F.min(F.struct("position", "offset", "partition", "op")).alias("first")
    )
    behind_gap = reduce(
        Column.__or__,
        [
            (F.col("first.partition") == number) & (F.col("first.offset") >= gap.first)
            for number, gap in enumerate(gaps)
            if gap.first is not None
        ],
        F.expr("false"),
    )
    op = F.col("first.op")
    is_doubtful = (op == F.lit(Op.READ.value)) | (behind_gap & (op != F.lit(Op.CREATE.value)))
    return firsts.agg(
        F.min("first.position").alias("least"),
        F.max(F.when(is_doubtful, F.col("first.position"))).alias("doubtful"),
    )


def versions(records: DataFrame, schemas: TopicSchemas, since: Lsn) -> DataFrame:
    """Return a row for each version, with the columns of its table and of versions.

    `records`: those that are alive. `since`: versions that ended before it are left out.
    """
    lsn = F.substring("position", _EPOCH_BYTES + 1, _LSN_BYTES)
    parts = ("partition", "offset", "position", "op", "ts", "value")
    last = records.groupBy("key", lsn.alias("lsn")).agg(
        F.max_by(F.struct(*parts), F.struct("position", "offset")).alias("last")
    )
    in_order = Window.partitionBy("key").orderBy("lsn")
    followed = last.select(
        "last.*",
        "lsn",
        F.lead(F.struct("last.op", "last.ts", "lsn")).over(in_order).alias("next"),
    )
    is_complete = F.col("next").isNull() | (
        F.col("next.lsn") >= F.lit(bytearray(since.to_bytes(_LSN_BYTES, "big")))
    )
    ended = F.when(F.col("next").isNotNull(), F.concat("next.op", "next.ts", "next.lsn"))
    placed = followed.where(F.col("value").isNotNull() & is_complete).select(
        F.concat("op", "ts", "lsn", F.coalesce(ended, F.lit(b""))).alias("key"),
        "value", "partition", "offset",
    )  # fmt: skip
    read = decoded(placed, schemas).frame.select(
        "partition", "offset", "key", built(sound_row, schemas)
    )
    columns = schemas.logged(schemas.reader_id).columns
    logged = read.select(
        "partition",
        "offset",
        *_version_columns(since),
        *(
            F.col("row").getField(column.field).alias(logged_name(number))
            for number, column in enumerate(columns)
        ),
    )
    return logged.select(*read_columns_of(schemas), *VERSION_COLUMNS)


def _version_columns(since: Lsn) -> list[Column]:
    has_ended = F.length("key") > _TO
    return [
        _lsn(_FROM).alias(FROM_LSN),
        _time(_FROM).alias(FROM_TIME),
        _change(_FROM).alias(FROM_CHANGE),
        F.when(has_ended, _lsn(_TO)).alias(TO_LSN),
        F.when(has_ended, _time(_TO)).alias(TO_TIME),
        F.when(has_ended, _change(_TO)).alias(TO_CHANGE),
        (~has_ended).alias(IS_CURRENT),
        F.lit(str(int(since))).cast(f"decimal({PLACE_DIGITS},0)").alias(COMPLETE_FROM),
    ]


def _change(first: int) -> Column:
    letter = F.substring("key", first, 1)
    words = iter(CHANGES.items())
    op, word = next(words)
    chosen = F.when(letter == F.lit(op.value), F.lit(word))
    for op, word in words:
        chosen = chosen.when(letter == F.lit(op.value), F.lit(word))
    return chosen


def _time(first: int) -> Column:
    return F.timestamp_micros(number_at("key", first + 1).cast("bigint"))


def _lsn(first: int) -> Column:
    return number_at("key", first + 1 + _TS_BYTES)
