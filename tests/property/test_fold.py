"""Laws of the fold, on random logs: the model's own, and Spark's fold against the model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from replay.scan.fold import before_position, from_position, last_of_each_key, survivors
from tests.support import model
from tests.support.model import Entry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "key binary, value binary, partition int, offset bigint, position binary"
EVERYTHING = Position(9, Lsn(0), 0)


@st.composite
def logs(draw: st.DrawFn, name: str = "", *, resends: bool = True) -> list[Entry]:
    """Draw the log of one partition: positions grow, but for what is sent again after a crash."""
    steps = ["insert", "update", "delete", "move", *(["resend"] if resends else [])]
    records: list[tuple[bytes, bytes | None, Position]] = []
    for number in range(draw(st.integers(1, 14))):
        key, other = (f"{name}{draw(st.integers(0, 3))}".encode() for _ in range(2))
        value = f"v{number}".encode()
        position = Position(draw(st.integers(1, 1 + number // 5)), Lsn(number * 16), 0)
        position = max(position, records[-1][2]) if records else position
        if position.commit_lsn != number * 16:
            position = Position(position.epoch, Lsn(number * 16), 0)
        match draw(st.sampled_from(steps)):
            case "insert" | "update":
                records.append((key, value, position))
            case "delete":
                records.append((key, None, position))
            case "move":
                records.append((key, None, position))
                records.append((other, value, Position(position.epoch, position.commit_lsn, 1)))
            case _:
                records += records[-draw(st.integers(0, 4)) :] if records else []
    return [Entry(offset, *record) for offset, record in enumerate(records)]


@st.composite
def cleanings(draw: st.DrawFn, log: list[Entry], limit: int | None = None) -> list[Entry]:
    """Draw one or two legal cleanings of a log, none beyond the offset `limit`."""
    for _ in range(draw(st.integers(1, 2))):
        highest = max((entry.offset for entry in log), default=0) + 1
        end = draw(st.integers(0, highest if limit is None else min(limit, highest)))
        offsets = [entry.offset for entry in log]
        chosen = st.sets(st.sampled_from(offsets)) if offsets else st.just(set())
        log = model.clean(log, end=end, removed=draw(chosen), forgotten=draw(chosen))
    return log


@given(st.data())
@settings(max_examples=100)
def test_a_legal_cleaning_does_not_change_the_fold(data):
    log = data.draw(logs())
    assert model.fold(data.draw(cleanings(log))) == model.fold(log)


@given(st.data())
@settings(max_examples=100)
def test_cleaning_up_to_the_ends_does_not_change_a_fold_that_stops_there(data):
    log = data.draw(logs(resends=False))
    ends = data.draw(st.integers(0, len(log)))
    cleaned = data.draw(cleanings(log, limit=ends))
    read = [entry for entry in cleaned if entry.offset < ends]
    assert model.fold(read) == model.fold(log[:ends])


def test_cleaning_beyond_the_ends_loses_rows_which_is_why_the_verdict_has_a_deadline():
    log = [
        Entry(0, b"a", b"old", Position(1, Lsn(16), 0)),
        Entry(1, b"a", b"new", Position(1, Lsn(32), 0)),
    ]
    cleaned = model.clean(log, end=2, removed={0})
    assert model.fold(log[:1]) == {b"a": b"old"}
    assert model.fold(entry for entry in cleaned if entry.offset < 1) == {}


def test_a_frontier_inside_a_resend_may_show_an_older_row_so_capture_never_writes_one():
    first, second = Position(1, Lsn(16), 0), Position(1, Lsn(32), 0)
    log = [Entry(0, b"a", b"1", first), Entry(1, b"a", b"2", second), Entry(2, b"a", b"1", first)]
    cleaned = model.clean(log, end=3, removed={0, 1})
    assert model.fold(log) == {b"a": b"2"}
    assert model.fold(cleaned) == {b"a": b"1"}


def test_a_read_that_outlives_delete_retention_revives_a_row():
    log = [
        Entry(0, b"a", b"old", Position(1, Lsn(16), 0)),
        Entry(1, b"a", None, Position(1, Lsn(32), 0)),
    ]
    early = log[:1]  # read before the cleaning
    late = model.clean(log, end=2, removed={0}, forgotten={1})
    assert late == []
    assert model.fold([*early, *late]) == {b"a": b"old"} != model.fold(log)


@given(st.data())
@settings(max_examples=100)
def test_records_sent_again_change_nothing(data):
    log = data.draw(logs())
    start = data.draw(st.integers(0, len(log)))
    again = [Entry(len(log) + n, e.key, e.value, e.position) for n, e in enumerate(log[start:])]
    assert model.fold([*log, *again]) == model.fold(log)


def frame_of(spark: SparkSession, entries: list[Entry], partitions: int, seed: int) -> DataFrame:
    rows = [
        (bytearray(e.key), e.value and bytearray(e.value), 0, e.offset, e.position.to_bytes())
        for e in entries
    ]
    random.Random(seed).shuffle(rows)  # noqa: S311
    return spark.createDataFrame(rows, SCHEMA).repartition(partitions)


def spark_fold(records: DataFrame, *, since: Position | None, before: Position) -> DataFrame:
    kept = before_position(records, before)
    return survivors(last_of_each_key(kept if since is None else from_position(kept, since)))


def rows_of(frame: DataFrame) -> dict[bytes, bytes]:
    rows = [(bytes(row.key), bytes(row.value)) for row in frame.select("key", "value").collect()]
    assert len(rows) == len(dict(rows)), "a key came out twice"
    return dict(rows)


positions = st.builds(
    Position, st.integers(1, 3), st.integers(0, 14 * 16).map(Lsn), st.integers(0, 1)
)


@pytest.mark.spark
@given(data=st.data())
@settings(
    max_examples=3,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_spark_folds_as_the_model_does_whatever_the_order_and_the_partitions(spark, data):
    """Many logs a job: each has keys of its own, so one fold holds them all apart."""
    whole: list[Entry] = []
    for number in range(30):
        log = data.draw(logs(f"{number}/"))
        whole += data.draw(st.one_of(st.just(log), cleanings(log)))
    since = data.draw(st.none() | positions)
    before = data.draw(st.just(EVERYTHING) | positions)
    expected = model.fold(whole, since=since, before=before)
    for partitions in (1, data.draw(st.integers(2, 5))):
        records = frame_of(spark, whole, partitions, data.draw(st.integers(0, 2**16)))
        assert rows_of(spark_fold(records, since=since, before=before)) == expected


@pytest.mark.spark
def test_two_hundred_partitions_fold_as_one_does(spark):
    log = [
        Entry(n, b"%d" % (n % 50), None if n % 7 == 0 else b"v%d" % n, Position(1, Lsn(n), 0))
        for n in range(400)
    ]
    records = frame_of(spark, log, 200, 1)
    assert rows_of(spark_fold(records, since=None, before=EVERYTHING)) == model.fold(log)


def fold_that_skips_nulls(records: DataFrame) -> DataFrame:
    """Fold as an aggregate that skips nulls would: the seeded defect."""
    valued = records.where(F.col("value").isNotNull())
    return valued.groupBy("key").agg(F.max_by("value", "position").alias("value"))


@pytest.mark.spark
def test_the_comparison_finds_a_fold_that_skips_nulls(spark):
    log = [
        Entry(0, b"a", b"1", Position(1, Lsn(16), 0)),
        Entry(1, b"b", b"1", Position(1, Lsn(16), 2)),
        Entry(2, b"a", None, Position(1, Lsn(32), 0)),
    ]
    records = frame_of(spark, log, 2, 0)
    assert rows_of(spark_fold(records, since=None, before=EVERYTHING)) == model.fold(log)
    assert rows_of(fold_that_skips_nulls(records)) != model.fold(log)


@pytest.mark.spark
def test_a_key_in_two_partitions_is_one_row(spark):
    before_growth = Entry(70, b"a", b"old", Position(1, Lsn(16), 0))
    after_growth = Entry(3, b"a", b"new", Position(1, Lsn(32), 0))
    records = frame_of(spark, [before_growth, after_growth], 2, 0)
    assert rows_of(spark_fold(records, since=None, before=EVERYTHING)) == {b"a": b"new"}


@pytest.mark.spark
def test_positions_compare_as_unsigned_numbers(spark):
    low, high = Lsn(0x7FFF_FFFF_FFFF_FFFF), Lsn(0x8000_0000_0000_0000)
    log = [
        Entry(0, b"a", b"high", Position(1, high, 0)),
        Entry(1, b"a", b"low", Position(1, low, 0)),
        Entry(2, b"b", b"epoch", Position(2, Lsn(1), 0)),
        Entry(3, b"b", b"old", Position(1, high, 0)),
    ]
    records = frame_of(spark, log, 2, 0)
    folded = rows_of(spark_fold(records, since=None, before=EVERYTHING))
    assert folded == {b"a": b"high", b"b": b"epoch"}
