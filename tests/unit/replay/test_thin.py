"""Superseded records are taken out early, and none that the fold needs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from changelog.contract.lsn import Lsn
from changelog.contract.position import Position
from replay.thin import newest, thin, thinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("position", pa.binary()),
    ]
)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.one_of(st.none(), st.binary(max_size=4)),
        st.integers(0, 1),
        st.builds(Position, st.integers(1, 2), st.integers(0, 9).map(Lsn), st.integers(0, 2)),
    ),
    max_size=40,
)


def records_of(drawn):
    """Give each record its offset."""
    return [
        (b"k%d" % key, value, partition, offset, position.to_bytes())
        for offset, (key, value, partition, position) in enumerate(drawn)
    ]


def batches_of(records, size):
    return [
        pa.RecordBatch.from_pylist(
            [dict(zip(SCHEMA.names, record, strict=True)) for record in records[at : at + size]],
            schema=SCHEMA,
        )
        for at in range(0, len(records), size)
    ]


def rows_of(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def last_of_each_key(records):
    found: dict[bytes, tuple] = {}
    for record in records:
        key, _, partition, offset, position = record
        if key not in found or (position, offset, partition) > found[key][0]:
            found[key] = ((position, offset, partition), record)
    return {record for _, record in found.values()}


@given(RECORDS, st.integers(1, 7))
def test_the_newest_record_of_each_key_stays_and_no_other(drawn, size):
    records = records_of(drawn)
    found = rows_of(newest(batches_of(records, size)))
    assert len(found) == len(set(found))
    assert set(found) == last_of_each_key(records)


@given(RECORDS, st.integers(1, 7), st.integers(1, 2_000), st.integers(1, 500))
def test_whatever_is_taken_out_the_fold_gives_the_same(drawn, size, most, first):
    records = records_of(drawn)
    found = rows_of(thin(batches_of(records, size), most_bytes=most, first_bytes=first))
    assert len(found) == len(set(found))
    assert set(found) <= set(records)
    assert last_of_each_key(found) == last_of_each_key(records)


def test_a_slice_of_a_batch_is_read_from_its_own_start():
    records = records_of([(0, b"a", 0, Position(1, Lsn(n), 0)) for n in (9, 1, 5)])
    (batch,) = batches_of(records, 3)
    assert rows_of(newest([batch.slice(1, 2)])) == [records[2]]


def many(keys, taken):
    """Give batches of 500 records, and note how many were taken."""
    for start in range(0, 20_000, 500):
        records = [
            (b"%d" % (n % keys), b"x" * 50, 0, n, Position(1, Lsn(n), 0).to_bytes())
            for n in range(start, start + 500)
        ]
        taken.append(500)
        yield from batches_of(records, 500)


def test_few_keys_leave_few_records():
    assert len(rows_of(thin(many(10, []), most_bytes=200_000, first_bytes=50_000))) == 10


def test_a_task_that_finds_nothing_to_take_out_lets_the_rest_pass():
    taken: list[int] = []
    given, ahead = 0, []
    for batch in thin(many(100_000, taken), most_bytes=200_000, first_bytes=50_000):
        given += batch.num_rows
        ahead.append(sum(taken) - given)

    assert given == 20_000
    assert max(ahead) < 5_000
    assert ahead[-1] == 0
    assert len(set(ahead[-20:])) == 1, "each batch passes as it comes"


def test_what_a_task_runs_needs_nothing_of_ours_where_it_runs(tmp_path):
    """On a machine with Arrow, NumPy and Spark alone."""
    records = records_of([(0, b"a", 0, Position(1, Lsn(n), 0)) for n in range(3)])
    frame = _Frame()
    thinned(cast("DataFrame", frame), most_bytes=1_000)
    (tmp_path / "task").write_bytes(cloudpickle.dumps(frame.task))
    (tmp_path / "rows").write_bytes(cloudpickle.dumps(batches_of(records, 1)))
    script = (
        "import pickle, sys\n"
        "sys.modules['replay'] = None\n"
        "task = pickle.load(open('task', 'rb'))\n"
        "assert list(task(pickle.load(open('rows', 'rb'))))[-1].num_rows == 1\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)


class _Frame:
    def select(self, *_):
        return self

    def mapInArrow(self, task, _):  # noqa: N802 - Spark's name
        self.task = task
