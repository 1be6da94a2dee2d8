"""Laws of deltas that wait for a sink: merged, they leave it as one after the other would."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from views.rebuild.one_view.delta import KEY, Delta
from views.rebuild.sending import sender as waits
from views.rebuild.sending.sender import UnlikeError, Waiting, merged
from views.sinks.base import GONE

KEYS = [f"[{n}]" for n in range(6)]
rows = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 99), max_size=6)
"""What a delta says of some keys: their row's value, or that there is none."""


def table_of(said: dict[str, int | None], *, rich: bool = False) -> pa.Table:
    """Return a delta's table; of rich ones the key's column has no nulls, as Spark may say."""
    schema = pa.schema(
        [
            pa.field("value", pa.int64()),
            pa.field(GONE, pa.bool_(), nullable=not rich),
            pa.field(KEY, pa.string(), nullable=not rich),
            pa.field("__cache_document", pa.string()),
        ]
    )
    lines = [
        {"value": v, GONE: v is None, KEY: k, "__cache_document": None if v is None else f"{v}"}
        for k, v in said.items()
    ]
    return pa.Table.from_pylist(lines, schema=schema)


def applied(held: dict[str, tuple], *deltas: pa.Table) -> dict[str, tuple]:
    """Return what a sink holds after deltas, one after the other."""
    now = dict(held)
    for delta in deltas:
        for line in delta.to_pylist():
            now.pop(line[KEY], None)
            if not line[GONE]:
                now[line[KEY]] = (line["value"], line["__cache_document"])
    return now


held = st.dictionaries(st.sampled_from(KEYS), st.just((-1, "-1")))


@given(held, rows, rows, st.booleans())
def test_a_merged_delta_leaves_what_both_leave_one_after_the_other(held, first, second, rich):
    one, two = table_of(first), table_of(second, rich=rich)
    both = merged(one, two)
    assert applied(held, both) == applied(held, one, two)
    assert len(set(both[KEY].to_pylist())) == both.num_rows, "each key once"


@given(held, rows, rows, rows)
def test_merging_is_associative_and_may_be_applied_again_after_a_part(held, first, second, third):
    one, two, three = table_of(first), table_of(second), table_of(third)
    left, right = merged(merged(one, two), three), merged(one, merged(two, three))
    assert applied(held, left) == applied(held, right) == applied(held, one, two, three)
    # A sink that took the first one, and whose answer was lost, gets all of it again.
    assert applied(applied(held, one), left) == applied(held, left)


@given(held, rows, rows)
def test_twin_that_keeps_the_earlier_row_is_seen(held, first, second):
    shared = {k for k in first if k in second and first[k] != second[k]}
    one, two = table_of(first), table_of(second)
    wrong = merged(two, one)
    assert (applied(held, wrong) == applied(held, one, two)) is not bool(shared)


@given(st.lists(rows, min_size=1))
def test_what_waits_has_the_last_position_and_the_first_moment(said):
    parts = [
        waiting(table_of(each), lsn=10 + number, since=float(number))
        for number, each in enumerate(said)
    ]
    all_of_it = parts[0]
    for part in parts[1:]:
        all_of_it = all_of_it.then(part)
    assert all_of_it.position == parts[-1].position
    assert all_of_it.since == 0.0


def waiting(table: pa.Table, *, lsn: int, since: float = 0.0) -> Waiting:
    delta = Delta(table=table, schema=StructType(), key=("id",))
    return Waiting(delta=delta, position=Position(1, Lsn(lsn), 0), since=since)


def test_deltas_of_other_columns_are_not_merged():
    one = table_of({"[1]": 1})
    with pytest.raises(UnlikeError, match="different columns"):
        merged(one, one.drop_columns(["value"]))
    text = one.set_column(0, "value", pa.array(["a"]))
    with pytest.raises(UnlikeError):
        merged(one, text)


@pytest.mark.parametrize(
    ("bounds", "is_too_much"), [({}, False), ({"MOST_KEYS": 1}, True), ({"MOST_BYTES": 10}, True)]
)
def test_what_is_kept_for_a_sink_has_bounds(monkeypatch, bounds, is_too_much):
    for name, most in bounds.items():
        monkeypatch.setattr(waits, name, most)
    assert waiting(table_of({"[1]": 1, "[2]": 2}), lsn=1).is_too_much is is_too_much
