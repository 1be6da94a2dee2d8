"""Parts of a topic that tasks read: what they are given, what they say, and what is believed."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import (
    ChangelogError,
    CorruptRecordError,
    LogError,
    SinkError,
    UnavailableLogError,
    ViewError,
)
from changelog.contract.log.partition import partition_of
from views.verify.log.part import column_name, write_rows
from views.verify.processes.place import SharedFolder, stamp_of
from views.verify.records.receipts import (
    PART_OFFSETS,
    Receipt,
    TopicPart,
    failed,
    parts_of,
    require_receipts,
)
from views.verify.records.topic import first_astray, homes_of

STARTS, ENDS = [0, 5, 0, 9], [10, 5, 30, 20]
PARTS = parts_of(STARTS, ENDS, 2)
FOUND = [
    Receipt(
        run="r",
        part=part.number,
        share=part.share,
        records=7,
        rows=3,
        later=None,
        astray=(1, 2) if part.number else None,
        frames=("0000000007",),
        left_out=((0, 3),),
        file=f"{part.number}-x.parquet",
        size=1,
        digest="d",
    )
    for part in PARTS
]


def require(receipts: Sequence[Receipt]) -> None:
    require_receipts("t", "r", PARTS, receipts, starts=STARTS, ends=ENDS)


def test_parts_are_whole_partitions_of_about_the_same_size():
    assert [TopicPart(0, {2: (0, 30)}), TopicPart(1, {3: (9, 20), 0: (0, 10)})] == PARTS
    assert parts_of([0, 0], [0, 0], 4) == []
    many = parts_of([0] * 12, [PART_OFFSETS] * 12, 2)
    assert [len(part.share) for part in many] == [1] * 12


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=9), st.integers(1, 9))
def test_each_offset_is_in_one_part(spans, least):
    starts, ends = [start for start, _ in spans], [start + size for start, size in spans]
    parts = parts_of(starts, ends, least)
    found = {part: slice_ for each in parts for part, slice_ in each.share.items()}
    wanted = {n: (a, b) for n, (a, b) in enumerate(zip(starts, ends, strict=True)) if a < b}
    assert (found, sum(len(each.share) for each in parts)) == (wanted, len(wanted))
    assert len(parts) == min(len(wanted), least)


def test_a_receipt_travels_as_text():
    for each in FOUND:
        assert Receipt.from_text(each.to_text()) == each
    require(FOUND)
    require([*reversed(FOUND)])


@pytest.mark.parametrize(
    ("receipts", "says"),
    [
        (FOUND[1:], "task 0 of the verification: its receipt is lost"),
        ([], "its receipt is lost"),
        ([*FOUND, FOUND[1]], "task 1 of the verification: its receipt came twice"),
        ([FOUND[0], replace(FOUND[1], run="s")], "of another verification"),
        ([FOUND[0], replace(FOUND[1], part=2)], "of another verification"),
        ([FOUND[0], replace(FOUND[1], part=0)], "came twice"),
        ([FOUND[0], replace(FOUND[1], share={})], "tells of other offsets"),
        ([replace(FOUND[0], share={2: (0, 29)}), FOUND[1]], "tells of other offsets"),
    ],
)
def test_receipts_that_are_not_the_whole_topic_are_not_believed(receipts, says):
    with pytest.raises(LogError, match=says):
        require(receipts)


def test_parts_that_are_not_the_whole_topic_are_not_believed():
    with pytest.raises(LogError, match="were not read"):
        require_receipts("t", "r", PARTS, FOUND, starts=STARTS, ends=[10, 6, 30, 20])


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"run": 1}', FOUND[0].to_text()[:-9]])
def test_a_text_that_is_no_receipt_is_told(text):
    with pytest.raises(LogError, match="a task gave no receipt"):
        Receipt.from_text(text)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CorruptRecordError("a", hint="b"), CorruptRecordError),
        (UnavailableLogError("a", hint="b"), UnavailableLogError),
        (SinkError("a", hint="b"), SinkError),
        (LogError("a", hint="b"), LogError),
        (ViewError("a", hint="b"), LogError),
    ],
)
def test_the_error_of_a_task_arrives_as_one(error, kind):
    with pytest.raises(ChangelogError) as raised:
        Receipt.from_text(failed(error))
    assert (type(raised.value), str(raised.value)) == (kind, "a | hint: b")


@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(1, 40), st.integers(0, 3))
def test_keys_have_the_homes_of_kafkas_clients(keys, partitions, skipped):
    column = pa.array([b"abc"] * skipped + keys, pa.binary()).slice(skipped)
    wanted = [partition_of(key, partitions) for key in keys]
    assert homes_of(column, partitions).tolist() == wanted
    table = pa.table({"part": wanted, "off": [*range(len(keys))], "key": column})
    assert first_astray(table, partitions) is None
    moved = [*wanted[:-1], (wanted[-1] + 1) % partitions]
    table = pa.table({"part": moved, "off": [*range(len(keys))], "key": column})
    found = None if partitions == 1 else (moved[-1], len(keys) - 1)
    assert first_astray(table, partitions) == found


def test_a_file_is_fetched_with_the_stamp_that_it_was_put_with(tmp_path: Path):
    file, fetched = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"rows" * 5_000_000)
    place = SharedFolder(str(tmp_path / "shared folder" / "run"))
    assert place.names() == []
    place.put("0-x.parquet", file)
    assert place.names() == ["0-x.parquet"]
    assert place.fetch("0-x.parquet", fetched) == stamp_of(file) == stamp_of(fetched)
    (tmp_path / "shared folder" / "run" / "0-x.parquet").write_bytes(b"rows")
    assert place.fetch("0-x.parquet", fetched) != stamp_of(file)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    place = SharedFolder(str(tmp_path / "file" / "run"))
    for use in (place.names, lambda: place.put("a", tmp_path / "file")):
        with pytest.raises(SinkError, match="the tasks of a verification share") as raised:
            use()
        assert "--verify-on driver" in raised.value.hint
    with pytest.raises(SinkError, match=r"cannot be read: gone\.parquet"):
        SharedFolder(str(tmp_path)).fetch("gone.parquet", tmp_path / "b")


EDGES = pa.table(
    {
        "file_row_number": pa.array([1.0, math.nan, -0.0, None], pa.float64()),
        "moment": pa.array([2**63 - 1, -(2**63) + 1, 0, None], pa.int64()).view(pa.timestamp("us")),
        "day": pa.array([2**31 - 1, -(2**31) + 1, 0, None], pa.int32()).view(pa.date32()),
        "amount": pa.array([Decimal(10**38 - 1), Decimal(-1), None, None], pa.decimal128(38, 0)),
        "text": pa.array(["", "a\0b", "é", None]),
        "bytes": pa.array([b"", b"\0\xff", b"x", None]),
        "list": pa.array([[None, 1], [], [2], None], pa.list_(pa.int32())),
    }
)


def test_a_file_of_rows_reads_as_the_table_that_it_was(tmp_path: Path):
    file = tmp_path / "rows.parquet"
    assert write_rows(file, EDGES.schema, iter([EDGES.slice(0, 3), EDGES.slice(3)])) == 4
    with duckdb.connect() as database:
        database.register("edges", EDGES)
        columns = ", ".join(f"{column_name(number)}" for number in range(EDGES.num_columns))
        found = database.sql(f"SELECT {columns} FROM read_parquet('{file}')")
        wanted = database.sql("FROM edges")
        assert found.types == wanted.types
        assert repr(found.fetchall()) == repr(wanted.fetchall())
        nans = database.sql(f"SELECT count(*) FROM read_parquet('{file}') WHERE c0 > 7")
        assert nans.fetchall() == [(1,)], "NaN is greater than any number"


def test_a_file_of_rows_has_no_statistics_that_know_no_nan(tmp_path: Path):
    file = tmp_path / "rows.parquet"
    write_rows(file, EDGES.schema, [EDGES])
    group = pq.read_metadata(file).row_group(0)
    assert {group.column(n).statistics for n in range(group.num_columns)} == {None}


def test_tasks_import_nothing_of_what_they_verify():
    program = (
        "import sys, views.verify.log.part; "
        "print({n.partition('.')[0] for n in sys.modules} & {'replay', 'pyspark', 'psycopg2'})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "set()"), ran.stderr
