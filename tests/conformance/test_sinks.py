"""What every sink promises, asked of every sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import duckdb
import pytest

from changelog.contract.base.errors import SinkError, ViewError
from tests.conformance.conftest import Bench, Rows
from tests.support.memory_sink import MemorySink
from views.sinks.base import Sink
from views.verify.served.served import read_served
from views.verify.values.types import parse_type

pytestmark = pytest.mark.spark

SCHEMA = "id int, name string"


def frame(bench: Bench, rows, schema: str = SCHEMA):
    return bench.spark.createDataFrame(rows, schema)


def numbered(bench: Bench, generation: int, count: int = 3):
    """Rows that tell which generation they are of."""
    return frame(bench, expected(bench, generation, count))


def build(bench: Bench, generation: int, *, sink: Sink | None = None, rows=None):
    """Build a generation up to its seal."""
    sink = sink or bench.sink()
    rows = numbered(bench, generation) if rows is None else rows
    sink.open(generation, rows.schema)
    sink.write(rows)
    return sink.seal()


def published(bench: Bench, *generations: int) -> Sink:
    """Build generations and publish the last."""
    for generation in generations:
        build(bench, generation)
    sink = bench.sink()
    sink.publish(generations[-1])
    return sink


def content(rows: Rows | None):
    return None if rows is None else sorted((row["id"], row["name"]) for row in rows)


def expected(bench: Bench, generation: int, count: int = 3):
    name = "row" if bench.only_grows else f"g{generation}"
    return [(n, name) for n in range(count * generation)]


def test_nothing_is_seen_before_the_first_publish(bench):
    sink = bench.sink()
    assert sink.published() is None
    assert sink.generations() == []
    build(bench, 1)
    assert bench.served(bench.view) is None
    assert sink.published() is None
    assert sink.generations() == [1]


def test_a_sealed_generation_can_be_read_at_its_address_before_it_is_published(bench):
    published(bench, 1)
    address = build(bench, 2)
    assert content(bench.read(address)) == expected(bench, 2)
    assert content(bench.read(bench.sink().address(2))) == expected(bench, 2)
    assert content(bench.served(bench.view)) == expected(bench, 1)


def test_readers_keep_the_old_generation_while_the_next_is_built(bench):
    published(bench, 1)
    sink, rows = bench.sink(), numbered(bench, 2)
    for step in (lambda: sink.open(2, rows.schema), lambda: sink.write(rows), sink.seal):
        step()
        assert content(bench.served(bench.view)) == expected(bench, 1)
        assert bench.sink().published() == 1
    for _ in range(2):  # publishing what is published changes nothing
        sink.publish(2)
        assert content(bench.served(bench.view)) == expected(bench, 2)
        assert (sink.published(), sink.rows(2)) == (2, 6)


def test_publishing_an_older_generation_rolls_back(bench):
    sink = published(bench, 1, 2)
    if bench.only_grows:
        with pytest.raises(SinkError, match="is gone"):
            sink.publish(1)
        assert content(bench.served(bench.view)) == expected(bench, 2)
        return
    sink.publish(1)
    assert content(bench.served(bench.view)) == expected(bench, 1)
    assert sink.published() == 1
    sink.publish(2)
    assert content(bench.served(bench.view)) == expected(bench, 2)
    assert sink.generations() == [1, 2]


@pytest.mark.parametrize("steps", [1, 2])
def test_an_unsealed_generation_is_not_published_and_can_be_removed(bench, steps):
    """What a rebuild that was killed after `steps` leaves behind."""
    published(bench, 1)
    rows = numbered(bench, 2)
    killed = bench.sink()
    killed.open(2, rows.schema)
    if steps == 2:
        killed.write(rows)
    sink = bench.sink()
    for act in (sink.publish, sink.address, sink.rows):
        with pytest.raises(SinkError, match=r"not sealed|holds no generation"):
            act(2)
    assert content(bench.served(bench.view)) == expected(bench, 1)
    if steps == 2:
        assert sink.generations() == [1, 2]
        assert bench.stored(bench.view, 2) > 0 or bench.kind == "search"
    sink.discard(2)
    assert sink.generations() == [1]
    assert bench.stored(bench.view, 2) == 0
    build(bench, 2)
    sink.publish(2)
    assert content(bench.served(bench.view)) == expected(bench, 2)


def test_a_generation_that_is_not_there_is_refused(bench):
    sink = published(bench, 1)
    for act in (sink.publish, sink.address, sink.rows):
        with pytest.raises(SinkError, match="holds no generation 7"):
            act(7)
    sink.discard(7)
    assert content(bench.served(bench.view)) == expected(bench, 1)


def test_a_removed_generation_leaves_nothing_and_what_is_published_stays(bench):
    sink = published(bench, 1, 2)
    with pytest.raises(SinkError, match="published"):
        sink.discard(2)
    assert bench.stored(bench.view, 1) > 0
    sink.discard(1)
    assert bench.stored(bench.view, 1) == 0
    assert sink.generations() == [2]
    with pytest.raises(SinkError, match="holds no generation 1"):
        sink.publish(1)
    assert content(bench.served(bench.view)) == expected(bench, 2)


def test_a_dropped_view_leaves_nothing_and_can_be_built_again(bench):
    published(bench, 1, 2)
    build(bench, 3)
    sink = bench.sink()
    sink.drop()
    assert bench.served(bench.view) is None
    assert [bench.stored(bench.view, number) for number in (1, 2, 3)] == [0, 0, 0]
    assert (sink.published(), sink.generations()) == (None, [])
    bench.sink().drop()
    published(bench, 4)
    assert content(bench.served(bench.view)) == expected(bench, 4)


def test_a_drop_takes_what_a_killed_rebuild_left(bench):
    rows = numbered(bench, 1)
    killed = bench.sink()
    killed.open(1, rows.schema)
    killed.write(rows)
    sink = bench.sink()
    sink.drop()
    assert (sink.generations(), bench.stored(bench.view, 1)) == ([], 0)


def test_a_generation_is_opened_once(bench):
    published(bench, 1)
    with pytest.raises(SinkError, match="already"):
        bench.sink().open(1, numbered(bench, 1).schema)
    assert content(bench.served(bench.view)) == expected(bench, 1)


def test_a_generation_is_written_once_and_in_order(bench):
    sink, rows = bench.sink(), numbered(bench, 1)
    with pytest.raises(SinkError, match="open"):
        sink.write(rows)
    sink.open(1, rows.schema)
    with pytest.raises(SinkError, match="before it is written"):
        sink.seal()
    with pytest.raises(SinkError, match="opened for"):
        sink.write(frame(bench, [(1,)], "id int"))
    sink.write(rows)
    with pytest.raises(SinkError, match="already"):
        sink.write(rows)


def test_an_empty_view_is_served_as_empty(bench):
    if not bench.only_grows:
        published(bench, 1)
    build(bench, 2, rows=frame(bench, []))
    sink = bench.sink()
    sink.publish(2)
    assert sink.rows(2) == 0
    assert bench.served(bench.view) == []
    assert sink.published() == 2


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(1, "a"), (2, "b"), (2, "c")], r"share one key \(id=2\)"),
        ([(1, "a"), (1, "a")], r"share one key \(id=1\)"),
        ([(1, "a"), (None, "b")], "null in its key"),
    ],
)
def test_a_key_that_is_not_unique_fails_loudly(bench, rows, reason):
    published(bench, 1)
    with pytest.raises(SinkError, match=reason):
        build(bench, 2, rows=frame(bench, rows))
    sink = bench.sink()
    with pytest.raises(SinkError, match="not sealed"):
        sink.publish(2)
    sink.discard(2)
    assert content(bench.served(bench.view)) == expected(bench, 1)
    assert sink.generations() == [1]


def test_a_key_of_several_columns_is_one_key(bench):
    rows = frame(bench, [(1, "a"), (1, "b"), (2, "a")])
    sink = bench.sink(key=("id", "name"))
    build(bench, 1, sink=sink, rows=rows)
    sink.publish(1)
    assert content(bench.served(bench.view)) == [(1, "a"), (1, "b"), (2, "a")]
    doubled = bench.sink(key=("name", "id"))
    with pytest.raises(SinkError, match=r"share one key \(name='a', id=1\)"):
        build(bench, 2, sink=doubled, rows=frame(bench, [(1, "a"), (1, "a")]))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("select struct(1) id", "cannot be in a key"),
        ("select array(struct(1)) id", "cannot be in a key"),
        ("select 1 other", 'key column "id" is not a column'),
        ("select 1 id, null nothing", 'column "nothing" is of type void'),
        ("select 1 id, interval 1 day span", 'column "span"'),
        ("select 1 id, map(1.0D, 1) m", 'column "m"'),
        ("select 1 id, 2 ID", "2 columns are called"),
    ],
)
def test_columns_that_no_sink_holds_exactly_are_refused_at_open(bench, sql, reason):
    sink = bench.sink()
    with pytest.raises(SinkError, match=reason):
        sink.open(1, bench.spark.sql(sql).schema)
    assert sink.generations() == []


def test_views_do_not_touch_each_other(bench):
    """Also not when one name begins with the other."""
    longer = f"{bench.view}_b"
    published(bench, 1)
    rows = frame(bench, [(9, "other")])
    other = bench.sink(view=longer)
    build(bench, 1, sink=other, rows=rows)
    other.publish(1)
    build(bench, 2, sink=other, rows=rows)
    assert bench.sink().generations() == [1]
    assert content(bench.served(bench.view)) == expected(bench, 1)
    other.discard(2)
    bench.sink().drop()
    assert content(bench.served(longer)) == [(9, "other")]
    other.drop()
    assert bench.served(longer) is None


def test_a_name_that_is_a_path_or_pattern_is_refused(bench):
    for name in ("../other", "a-*", "A", "a:b", ""):
        with pytest.raises(ViewError):
            bench.sink(view=name or " ")


def watch(bench: Bench, flip: Callable[[], None]) -> list[object]:
    """Read in a loop while `flip` runs; give each thing read that is not a whole generation."""
    whole = [expected(bench, 1), expected(bench, 2)]
    wrong: list[object] = []
    reads: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set() or not reads:
            try:
                found = content(bench.served(bench.view))
            except Exception as error:  # noqa: BLE001 - a reader that fails is a finding
                found = repr(error)
            reads.append(1)
            if found not in whole:
                wrong.append(found)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        flip()
    finally:
        done.set()
        reader.join()
    assert len(reads) > 2
    return wrong


def test_a_reader_sees_one_generation_whole_at_every_moment(bench):
    sink = published(bench, *([1] if bench.only_grows else [1, 2]))
    order: Sequence[int] = (1, 2) * 15
    if bench.only_grows:
        build(bench, 2)
        order = (2,)

    def flip() -> None:
        for number in order:
            sink.publish(number)

    assert watch(bench, flip) == []


def test_the_watching_reader_notices_a_sink_that_swaps_in_two_steps(memory):
    """The twin of the test above, with the defect that it is there to find."""
    published(memory, 1, 2)
    store = memory.memory

    class TwoSteps(MemorySink):
        def publish(self, generation: int) -> None:
            store.pointers.pop(memory.view)
            seen = threading.Event()
            threading.Timer(0.05, seen.set).start()
            assert seen.wait(5)
            super().publish(generation)

    broken = TwoSteps(view=memory.view, key=("id",), store=store)

    def flip() -> None:
        for number in (1, 2):
            broken.publish(number)

    assert None in watch(memory, flip)


DAYS = ("date_from_unix_date(-2147483648)", "date'0044-03-15'", "date_from_unix_date(2147483647)")
MOMENTS = ("timestamp_micros(-9223372036854775807 - 1)", "timestamp'0044-03-15 12:00:00'",
           "timestamp_micros(9223372036854775807)")  # fmt: skip
SERVED = pytest.mark.services


@pytest.mark.parametrize(
    "bench",
    [
        "memory",
        "delta",
        "iceberg",
        *(pytest.param(name, marks=SERVED) for name in ("search", "cache", "postgres", "topic")),
        *(
            pytest.param(name, marks=[SERVED, pytest.mark.matrix])
            for name in ("upserted", "topic_json", "topic_unkeyed", "elastic", "hashes", "cluster")
        ),
    ],
    indirect=True,
)
def test_infinities_of_both_signs_are_served_and_read_back_for_the_proof(bench):
    columns = {
        "day": DAYS,
        "moment": MOMENTS,
        "clock": [f"cast({each} as timestamp_ntz)" for each in MOMENTS],
        "days": [f"array(null, {each})" for each in DAYS],
        "moments": [f"map('m', {each})" for each in MOMENTS],
        "pair": [
            f"named_struct('d', {day}, 'm', {moment})"
            for day, moment in zip(DAYS, MOMENTS, strict=True)
        ],
    }
    rows = bench.spark.sql(
        " union all ".join(
            "select {} id, {}".format(
                number, ", ".join(f"{texts[number]} {name}" for name, texts in columns.items())
            )
            for number in range(3)
        )
    )
    address = build(bench, 1, rows=rows)
    kinds = [(name, parse_type(kind)) for name, kind in rows.dtypes]
    with duckdb.connect() as database:
        assert read_served(database, "served", address, kinds, ["id"]) == 3
        told = [
            "cast(day as varchar)", "cast(moment as varchar)", "cast(clock as varchar)",
            "cast(days[2] as varchar)", "cast(moments['m'] as varchar)",
            "cast(pair.d as varchar)", "cast(pair.m as varchar)", "__fault",
        ]  # fmt: skip
        found = database.execute(f"select {', '.join(told)} from served order by id").fetchall()
    day, moment = "0044-03-15", "0044-03-15 12:00:00"
    assert found == [
        (*["-infinity"] * 7, None),
        (day, moment, moment, day, moment, day, moment, None),
        (*["infinity"] * 7, None),
    ]
