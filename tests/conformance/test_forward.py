"""What sinks promise whose generations go forward: one step for readers, repeated at will."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import pytest
import redis
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from changelog.contract.base.errors import SinkError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.runtime.tls_trust import authorities
from tests.conformance.conftest import Bench
from tests.support.wait import wait_until
from views.sinks.base import GONE, ForwardSink
from views.sinks.cache.forward import CacheForward
from views.sinks.postgres.forward import PostgresForward
from views.sinks.search.forward import SearchForward
from views.sinks.topic.register import TopicForward

pytestmark = pytest.mark.spark

SCHEMA = (
    "id int, part string, number bigint, amount decimal(10,2), score double, "
    "at timestamp, tags array<string>, doc struct<a: int, b: string>"
)
KEY = ("id", "part")
ODD = [
    (1, "é\"{'", 2**62, Decimal("-0.01"), float("-inf"), None, ["a", None, ""], (1, None)),
    (2, "", None, None, float("nan"), None, None, None),
    (3, "x" * 300, 0, Decimal("99999999.99"), -0.0, None, [], (None, "b")),
]


@pytest.fixture(
    params=[
        "search",
        "cache",
        "postgres",
        pytest.param("upserted", marks=pytest.mark.matrix),
        "topic",
        pytest.param("elastic", marks=pytest.mark.matrix),
    ]
)
def bench(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def at(lsn: int) -> Position:
    return Position(1, Lsn(lsn), 0)


def delta(bench: Bench, sink: ForwardSink, rows, gone, schema=SCHEMA, key=KEY):
    come = bench.spark.createDataFrame(rows, schema).withColumn(GONE, F.lit(False))
    keys = bench.spark.createDataFrame(gone, schema).withColumn(GONE, F.lit(True))
    nulls = [
        F.col(name) if name in (*key, GONE) else F.lit(None).cast(kind).alias(name)
        for name, kind in keys.dtypes
    ]
    both = come.unionByName(keys.select(*nulls))
    shape = bench.spark.createDataFrame([], schema).schema
    return shape, both.select(GONE, *sink.delta_columns(shape)).toArrow()


def row(number: int, value: int):
    return (number, "p", value, Decimal(value), float(value), None, [str(value)], (value, "b"))


def served(bench: Bench, rows) -> Bench:
    """Publish a first generation."""
    sink = bench.sink(KEY)
    frame = bench.spark.createDataFrame(rows, SCHEMA)
    sink.open(1, frame.schema)
    sink.write(frame)
    sink.seal()
    sink.publish(1)
    return bench


def texts(rows):
    return sorted(str(sorted(each.items())) for each in rows or [])


def test_rows_are_those_that_a_whole_write_would_give(bench):
    served(bench, [row(n, n) for n in range(20)] + ODD[:1])
    sink = bench.sink(KEY)
    assert sink.position(1) is None
    assert sink.holds_back(1) is None
    changed = [row(3, 333), row(25, 25), *ODD]
    rows = sink.apply(1, *delta(bench, sink, changed, [row(4, 0), row(99, 0)]), at(100))
    assert sink.position(1) == at(100)
    after = [row(n, n) for n in range(20) if n not in {3, 4}] + changed
    assert rows == sink.rows(1) == len(after)
    whole = bench.sink(KEY)
    frame = bench.spark.createDataFrame(after, SCHEMA)
    whole.open(2, frame.schema)
    whole.write(frame)
    address = whole.seal()
    assert texts(bench.served(bench.view)) == texts(bench.read(address))
    # Again, and an empty one: the same rows, and the position.
    sink.apply(1, *delta(bench, sink, changed, [row(4, 0), row(99, 0)]), at(100))
    sink.apply(1, *delta(bench, sink, [], []), at(200))
    assert texts(bench.served(bench.view)) == texts(bench.read(address))
    assert (sink.rows(1), bench.sink(KEY).position(1)) == (len(after), at(200))
    # What went forward is published, left and removed like any other.
    whole.publish(2)
    assert whole.position(2) is None
    sink.publish(1)
    assert texts(bench.served(bench.view)) == texts(bench.read(address))
    whole.publish(2)
    whole.discard(1)
    assert (bench.stored(bench.view, 1), whole.generations()) == (0, [2])


@pytest.mark.matrix
def test_a_generation_never_goes_back(bench):
    served(bench, [row(1, 1)])
    sink = bench.sink(KEY)
    sink.apply(1, *delta(bench, sink, [row(1, 2)], []), at(100))
    with pytest.raises(SinkError, match="let one process follow a view"):
        sink.apply(1, *delta(bench, sink, [row(1, 1)], [row(2, 2)]), at(99))
    assert [each["number"] for each in bench.served(bench.view)] == [2]
    assert sink.position(1) == at(100)


def test_only_a_sealed_generation_goes_forward(bench):
    sink = bench.sink(KEY)
    with pytest.raises(SinkError, match="no generation"):
        sink.apply(1, *delta(bench, sink, [row(1, 1)], []), at(1))
    sink.open(1, bench.spark.createDataFrame([], SCHEMA).schema)
    other = bench.sink(KEY)
    with pytest.raises(SinkError, match="not sealed"):
        other.apply(1, *delta(bench, other, [row(1, 1)], []), at(1))


def halves(sound, split):
    """The defect: a delta is applied in two steps."""

    def defect(self, *arguments):
        for some in split(arguments):
            sound(self, *some)

    return defect


def in_two(arguments):
    """Cut the documents, or the rows, of the arguments of an `apply` into two parts."""
    found = list(arguments)
    number = next(n for n, each in enumerate(found) if hasattr(each, "__len__") and len(each) > 1)
    half = len(found[number]) // 2
    first, second = list(found), list(found)
    if isinstance(found[number], list):
        first[number], second[number] = found[number][:half], found[number][half:]
    else:
        first[number], second[number] = found[number].slice(0, half), found[number].slice(half)
    return first, second


def mixed(bench: Bench, rounds: int = 12) -> bool:
    """Tell whether a reader ever saw two rows of different deltas that always come together."""
    served(bench, [row(n, 0) for n in range(8)])
    sink: Any = bench.sink(KEY)
    seen: set[tuple[int, ...]] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            rows = together(bench)
            seen.add(tuple(sorted({each["number"] for each in rows})) if len(rows) == 8 else ())

    def is_mixed() -> bool:
        return any(len(numbers) != 1 for numbers in seen.copy())

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(1, rounds + 1):
            sink.apply(1, *delta(bench, sink, [row(n, number) for n in range(8)], []), at(number))
            if is_mixed():
                break
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert len(seen) > 1, "the readers saw nothing change"
    return is_mixed()


def together(bench: Bench):
    if bench.kind != "cache":
        return bench.served(bench.view)
    with redis.Redis.from_url(str(bench.settings.cache_url), decode_responses=True) as client:
        names = [f'{bench.view}:1:[{n},"p"]' for n in range(8)]
        return [json.loads(each) for each in client.mget(names) if each]


def test_readers_see_all_of_a_delta_or_nothing(bench):
    assert not mixed(bench, 6)


@pytest.mark.matrix
def test_twin_a_delta_in_two_steps_is_seen(bench, monkeypatch):
    kind: Any = {
        "search": SearchForward,
        "cache": CacheForward,
        "postgres": PostgresForward,
        "topic": TopicForward,
    }[bench.kind]
    sound = kind.apply
    if bench.kind == "postgres":

        def apart(self, cursor, table, position):
            for some in in_two([table]):
                sound(self, cursor, *some, position)
                cursor.connection.commit()

        monkeypatch.setattr(kind, "apply", apart)
    else:
        monkeypatch.setattr(kind, "apply", halves(sound, in_two))
    # Two commits to a topic are so far apart that readers have the time to look in between.
    assert mixed(bench, rounds=8 if bench.kind == "topic" else 60)


def test_a_row_that_is_refused_leaves_readers_as_they_were(postgres):
    served(postgres, [row(1, 1)])
    options = {"types": {"number": "smallint"}}
    sink = postgres.sink(KEY, options=options)
    with pytest.raises(SinkError, match=r"does not hold exactly|out of range"):
        sink.apply(1, *delta(postgres, sink, [row(2, 2), row(1, 70_000)], []), at(5))
    assert [each["number"] for each in postgres.served(postgres.view)] == [1]
    assert sink.position(1) is None


def test_what_was_sent_in_part_is_made_whole_by_the_same_delta(search, monkeypatch):
    served(search, [row(1, 1), row(2, 1)])
    sink = search.sink(KEY)
    sound = sink._server.request

    def cut(server, method, path, body=None):
        if path.endswith("/_refresh"):
            raise SinkError("killed")
        return sound(method, path, body)

    with monkeypatch.context() as patched:
        patched.setattr(type(sink._server), "request", cut)
        with pytest.raises(SinkError, match="killed"):
            sink.apply(1, *delta(search, sink, [row(1, 2)], [row(2, 0)]), at(7))
    assert sorted(each["number"] for each in search.served(search.view)) == [1, 1]
    assert sink.position(1) is None
    sink.apply(1, *delta(search, sink, [row(1, 2)], [row(2, 0)]), at(7))
    assert [each["number"] for each in search.served(search.view)] == [2]


def overtaken(search, *, forgets: bool) -> Callable[[], list[int]]:
    """Remove a row; returns what sends it as somebody who was overtaken, and reads what serves."""
    served(search, [row(1, 1), row(2, 1)])
    sink = search.sink(KEY)
    sink.apply(1, *delta(search, sink, [], [row(2, 0)]), at(200))
    place = f"{search.settings.search_url}/{search.view}-000001"
    if forgets:
        httpx.put(
            f"{place}/_settings", json={"index.gc_deletes": "1ms"}, verify=authorities()
        ).raise_for_status()

    def late() -> list[int]:
        httpx.post(f"{place}/_refresh", verify=authorities()).raise_for_status()
        index = f"{search.view}-000001"
        with contextlib.suppress(SinkError), sink._server.bulk(index, 150) as write:
            write([('[2,"p"]', json.dumps({"id": 2, "part": "p", "number": 1}))])
        httpx.post(f"{place}/_refresh", verify=authorities()).raise_for_status()
        return sorted(each["number"] for each in search.served(search.view))

    return late


def test_a_row_that_was_removed_does_not_come_back_with_who_was_overtaken(search):
    assert overtaken(search, forgets=False)() == [1]


@pytest.mark.matrix
def test_twin_where_its_version_is_forgotten_it_comes_back(search):
    late = overtaken(search, forgets=True)
    # The server forgets in a refresh, by a clock of its own that goes on a few times a second.
    wait_until(lambda: late() == [1, 1], 30, "the row that was removed serves again")


def unflushed(search, sink, *, settings: dict[str, Any]) -> Callable[[], int]:
    """Replace two large documents often; return a function that asks for the unflushed bytes."""
    served(search, [row(1, 1), row(2, 1)])
    sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(5))
    index = f"{search.view}-000001"
    place = f"{search.settings.search_url}/{index}"
    httpx.put(f"{place}/_settings", json=settings, verify=authorities()).raise_for_status()
    for version in range(10, 34):
        document = {"id": 1, "part": "p" * 500_000, "number": version}
        with sink._server.bulk(index, version) as write:
            write([(f'[{key},"p"]', json.dumps({**document, "id": key})) for key in (1, 2)])

    def size() -> int:
        stats = httpx.get(f"{place}/_stats/translog", verify=authorities()).json()
        return int(stats["_all"]["primaries"]["translog"]["uncommitted_size_in_bytes"])

    return size


def test_a_followed_index_is_flushed_every_16_mb(search):
    size = unflushed(search, search.sink(KEY), settings={"index.gc_deletes": "1h"})
    wait_until(lambda: size() < 17 << 20, 30, "the translog is flushed")


def test_twin_by_the_servers_default_it_is_not(search):
    default = {"index.translog.flush_threshold_size": None}
    assert unflushed(search, search.sink(KEY), settings=default)() > 17 << 20


def metadata(search, index: str) -> dict[str, Any]:
    """Return the metadata of an index in the state of its cluster."""
    url = f"{search.settings.search_url}/_cluster/state/metadata/{index}?expand_wildcards=all"
    state = httpx.get(url, verify=authorities()).raise_for_status().json()
    return dict(state["metadata"]["indices"][index])


def test_a_delta_changes_nothing_in_the_state_of_the_search_cluster(search):
    served(search, [row(1, 1)])
    sink = search.sink(KEY)
    sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(5))
    indices = [f"{search.view}-000001", f"{search.view}-positions"]
    before = [metadata(search, index) for index in indices]
    sink.apply(1, *delta(search, sink, [row(1, 3), row(2, 3)], []), at(6))
    assert [metadata(search, index) for index in indices] == before
    assert (sink.position(1), sink.rows(1)) == (at(6), 2)
    assert search.served(f"{search.view}-*") == search.served(search.view)  # hidden from a search


def test_who_was_overtaken_cannot_move_an_index_back(search):
    served(search, [row(1, 1)])
    late, other = search.sink(KEY), search.sink(KEY)
    late.apply(1, *delta(search, late, [row(1, 2)], []), at(100))
    other.apply(1, *delta(search, other, [row(2, 2)], []), at(200))
    with pytest.raises(SinkError, match="let one process follow a view"):
        late.apply(1, *delta(search, late, [], []), at(150))
    assert late.position(1) == at(200)
    with pytest.raises(SinkError, match="let one process follow a view"):
        late.apply(1, *delta(search, late, [row(3, 3)], []), at(150))
    late.apply(1, *delta(search, late, [row(3, 3)], []), at(300))
    assert (other.position(1), other.rows(1)) == (at(300), 3)


def test_a_position_that_an_older_version_wrote_is_gone_on_from(search):
    served(search, [row(1, 1), row(2, 1)])
    place = f"{search.settings.search_url}/{search.view}-000001/_mapping"
    mapping = httpx.get(place, verify=authorities()).json()[f"{search.view}-000001"]["mappings"]
    meta = {key: value for key, value in mapping["_meta"]["changelog"].items() if key != "id"}
    body = {"_meta": {"changelog": {**meta, "rows": 1, "position": str(at(100))}}}
    httpx.put(place, json=body, verify=authorities()).raise_for_status()
    sink = search.sink(KEY)
    assert (sink.position(1), sink.rows(1)) == (at(100), 1)
    with pytest.raises(SinkError, match="let one process follow a view"):
        sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(99))
    httpx.put(
        f"{search.settings.search_url}/{search.view}-000001/_settings",
        json={"index.blocks.write": False},
        verify=authorities(),
    ).raise_for_status()
    sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(101))
    assert search.sink(KEY).position(1) == at(101)


def test_an_index_made_again_has_not_the_position_of_the_one_before(search):
    served(search, [row(1, 1)])
    sink = search.sink(KEY)
    sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(100))
    url = f"{search.settings.search_url}/{search.view}-000001"
    httpx.delete(url, verify=authorities()).raise_for_status()
    served(search, [row(1, 5), row(2, 5)])
    again = search.sink(KEY)
    assert (again.position(1), again.rows(1)) == (None, 2)


def test_positions_that_somebody_removes_are_written_again(search):
    served(search, [row(1, 1)])
    sink = search.sink(KEY)
    sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(100))
    url = f"{search.settings.search_url}/{search.view}-positions"
    httpx.delete(url, verify=authorities()).raise_for_status()
    assert search.sink(KEY).position(1) is None
    with pytest.raises(SinkError, match="no such index"):
        sink.apply(1, *delta(search, sink, [row(2, 2)], []), at(200))
    sink.apply(1, *delta(search, sink, [row(2, 2)], []), at(200))
    other = search.sink(KEY)
    other.apply(1, *delta(search, other, [row(3, 3)], []), at(300))
    assert (search.sink(KEY).position(1), other.rows(1)) == (at(300), 3)


def test_positions_are_dropped_with_the_view_and_a_strangers_index_is_left(search):
    url = f"{search.settings.search_url}/{search.view}-positions"
    served(search, [row(1, 1)])
    sink = search.sink(KEY)
    httpx.put(url, verify=authorities()).raise_for_status()
    with pytest.raises(SinkError, match="was not made here"):
        sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(5))
    sink.drop()
    assert httpx.delete(url, verify=authorities()).status_code == 200
    served(search, [row(1, 1)])
    sink.apply(1, *delta(search, sink, [row(1, 2)], []), at(5))
    sink.drop()
    assert httpx.get(url, verify=authorities()).status_code == 404
