"""What a cache's options promise: forms of entries, slots, expiry, and a reader in between."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import duckdb
import pytest
import redis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.runtime.cache_servers import connect
from tests.conformance.conftest import cache_bench
from tests.conformance.test_forward import at, delta
from views.base.cache import CacheForm
from views.client import Cache, identity
from views.sinks.rendering import identity as rendered_identity
from views.verify.served.served import read_served
from views.verify.values.types import parse_type

pytestmark = [pytest.mark.spark, pytest.mark.services]

EVERY_TYPE = """
select 1 k, true b, cast(1 as tinyint) i1, 9223372036854775807 i8, float(0.1) f, double('NaN') d,
  cast('-0.0000001' as decimal(38,10)) n, 'null' s, X'00ff' x, date'0001-01-01' day,
  timestamp'1600-01-01 00:00:00.000001Z' t, timestamp_ntz'2500-03-10 02:30:00' z, array(1, null) a,
  named_struct('p', array(1.5), 'q', cast(null as int)) st, map('m', 1) m, cast(null as string) v
union all select 2, null, null, null, null, null, null, '', null, null, null, null, null, null,
  null, '"é😀'
"""
TEXTS = "select * from values ('UA', 1, ''), ('UA', 2, 'null'), ('a\"b', 3, '{}') as t(c, n, v)"


def build(bench: Any, number: int, rows: Any, key: tuple[str, ...]) -> Any:
    sink = bench.sink(key=key)
    sink.open(number, rows.schema)
    sink.write(rows)
    return sink.seal()


def published(bench: Any, number: int, rows: Any, key: tuple[str, ...]) -> Any:
    build(bench, number, rows, key)
    sink = bench.sink(key=key)
    sink.publish(number)
    return sink


def read_back(bench: Any, number: int, rows: Any, key: tuple[str, ...]) -> tuple[list, list]:
    """Return what the verifier reads of a generation: rows in order of the key, and faults."""
    columns = [(field.name, parse_type(field.dataType.simpleString())) for field in rows.schema]
    with duckdb.connect() as database:
        read_served(database, "t", bench.sink(key=key).address(number), columns, key)
        names = ", ".join(name for name, _ in columns)
        found = database.execute(f"select {names} from t order by {', '.join(key)}").fetchall()
        faults = database.execute("select __fault from t where __fault is not null").fetchall()
    return found, [fault for (fault,) in faults]


FORMS = [
    {"value": "hash"},
    {"value": "hash", "hash_tag": "key"},
    {"value": "json", "hash_tag": "view"},
]


@pytest.fixture(params=["one", pytest.param("three", marks=pytest.mark.matrix)])
def url(request: pytest.FixtureRequest) -> str:
    """One server, and a cluster of three."""
    name = "cache_url" if request.param == "one" else "cluster_url"
    return str(request.getfixturevalue(name))


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with closing(connect(url, decode_responses=True)) as client:
        yield client


@pytest.mark.parametrize(
    "options", [FORMS[0], *(pytest.param(f, marks=pytest.mark.matrix) for f in FORMS[1:])]
)
def test_the_verifier_reads_each_form_exactly(url, spark, view, options):
    rows, plain = spark.sql(EVERY_TYPE), cache_bench(url, spark, f"{view}_json")
    bench = cache_bench(url, spark, view, options)
    build(plain, 1, rows, ("k",))
    build(bench, 1, rows, ("k",))
    expected, found = read_back(plain, 1, rows, ("k",)), read_back(bench, 1, rows, ("k",))
    assert repr(found) == repr(expected)
    assert found[1] == []
    assert [row[7] for row in found[0]] == ["null", ""]
    assert [row[-1] for row in found[0]] == [None, '"é😀']


@pytest.mark.parametrize("tag", [None, "key"])
def test_the_verifier_reads_plain_texts_beside_their_keys(url, spark, view, tag):
    options = {"value": "string", **({"hash_tag": tag} if tag else {})}
    bench, rows = cache_bench(url, spark, view, options), spark.sql(TEXTS)
    build(bench, 1, rows, ("c", "n"))
    assert read_back(bench, 1, rows, ("c", "n")) == (
        [("UA", 1, ""), ("UA", 2, "null"), ('a"b', 3, "{}")],
        [],
    )


DEFECTS: dict[str, Callable[[Any, str], Any]] = {
    "is not an integer": lambda client, key: client.hset(key, "n", "1.0"),
    "'null' is not an integer": lambda client, key: client.hset(key, "n", "null"),
    "' 1' is not an integer": lambda client, key: client.hset(key, "n", " 1"),
    "its key says '2'": lambda client, key: client.hset(key, "id", "2"),
    "unknown: .'other'": lambda client, key: client.hset(key, "other", ""),
    "surrogates not allowed": lambda client, key: client.hset(key, "s", b"\xff"),
    "malformed": lambda client, key: client.delete(key) and client.set(key, "{}"),
}


@pytest.mark.parametrize("fault", DEFECTS)
def test_a_hash_that_is_not_in_its_form_is_a_fault(cache_url, spark, view, fault):
    bench = cache_bench(cache_url, spark, view, {"value": "hash"})
    rows = spark.sql("select 1 id, 7 n, 'a' s")
    build(bench, 1, rows, ("id",))
    assert read_back(bench, 1, rows, ("id",)) == ([(1, 7, "a")], [])
    DEFECTS[fault](redis.Redis.from_url(cache_url), f"{view}:1:1")
    found, faults = read_back(bench, 1, rows, ("id",))
    assert len(found) == len(faults) == 1
    assert fault.strip("'. ").split(": ")[0].split(" ")[0].strip("'") in faults[0]


def test_a_null_that_came_or_went_is_another_row(cache_url, spark, view):
    bench = cache_bench(cache_url, spark, view, {"value": "hash"})
    rows = spark.sql("select 1 id, 'a' s")
    build(bench, 1, rows, ("id",))
    redis.Redis.from_url(cache_url).hdel(f"{view}:1:1", "s")
    assert read_back(bench, 1, rows, ("id",)) == ([(1, None)], [])


@pytest.mark.parametrize(
    ("sql", "key", "reason"),
    [
        ("select 1 id, cast(null as string) v", ("id",), 'row "1" has no value'),
        ("select 1 id, 2 a, 3 b", ("id",), "one column beside the key, this view has 2"),
        ("select 1.5D id, 2 a", ("id",), "-0.0 would read as 0.0"),
    ],
)
def test_what_one_text_cannot_hold_is_refused(cache_url, spark, view, sql, key, reason):
    bench = cache_bench(cache_url, spark, view, {"value": "string"})
    with pytest.raises(SinkError, match=reason):
        build(bench, 1, spark.sql(sql), key)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"values": "json"}, "values: there is no such option"),
        ({"value": "text"}, "value: Input should be"),
        ({"ttl_seconds": 0}, "ttl_seconds: Input should be greater"),
        ({"ttl_seconds": True}, "ttl_seconds: "),
    ],
)
def test_options_that_are_none_are_refused(cache_url, spark, view, options, reason):
    with pytest.raises(ConfigurationError, match=f"{view}.cache.json: {reason}"):
        cache_bench(cache_url, spark, view, options).sink()


def test_a_removed_generation_stays_as_long_as_asked(url, client, spark, view):
    bench = cache_bench(url, spark, view, {"value": "hash", "ttl_seconds": 600})
    published(bench, 1, spark.range(3), ("id",))
    sink = published(bench, 2, spark.range(2), ("id",))
    assert client.ttl(f"{view}:1:2") == -1
    sink.discard(1)
    assert 0 < client.ttl(f"{view}:1:2") <= 600 < client.ttl(f"{view}:keys:1") <= 660
    assert client.hgetall(f"{view}:1:2") == {"id": "2"}
    assert sink.generations() == [2]
    assert client.ttl(f"{view}:2:1") == client.ttl(f"{view}:keys:2") == -1
    # A generation of the same number has none of the old entries, and its own do not expire.
    build(bench, 1, spark.range(1), ("id",))
    assert client.ttl(f"{view}:1:0") == -1
    assert client.exists(f"{view}:1:2") == 0
    assert read_back(bench, 1, spark.range(1), ("id",))[0] == [(0,)]
    sink.drop()
    assert list(client.scan_iter(f"*{view}*", count=1000)) == []


def test_what_was_never_whole_is_removed_at_once(cache_url, spark, view):
    bench = cache_bench(cache_url, spark, view, {"ttl_seconds": 600})
    sink, rows = bench.sink(), spark.range(3)
    sink.open(1, rows.schema)
    sink.write(rows)
    bench.sink().discard(1)
    client = redis.Redis.from_url(cache_url)
    assert list(client.scan_iter(f"*{view}*", count=1000)) == []


def test_a_hash_goes_forward_with_nothing_of_the_row_before(cache_url, spark, view):
    bench = cache_bench(cache_url, spark, view, {"value": "hash", "hash_tag": "view"})
    kinds, key = "id int, n int, s string", ("id",)
    first = spark.createDataFrame([(1, 1, "a"), (2, None, "b"), (3, 3, "c")], kinds)
    sink = published(bench, 1, first, key)
    assert sink.holds_back(1) is None
    come, gone = [(1, None, "z"), (4, 4, None)], [(3, 0, "")]
    sink.apply(1, *delta(bench, sink, come, gone, kinds, key), at(100))
    assert read_back(bench, 1, first, key) == ([(1, None, "z"), (2, None, "b"), (4, 4, None)], [])
    assert sink.rows(1) == 3
    other: Any = cache_bench(cache_url, spark, view).sink(key=key)
    assert other.holds_back(1) == "generation 1 has entries of the form hash"
    sink.drop()
    assert list(redis.Redis.from_url(cache_url).scan_iter(f"*{view}*", count=1000)) == []


def test_a_text_that_becomes_null_is_refused_and_not_removed(cache_url, spark, view):
    bench = cache_bench(cache_url, spark, view, {"value": "string"})
    kinds, key = "id int, v string", ("id",)
    first = spark.createDataFrame([(1, "a"), (2, "b")], kinds)
    sink = published(bench, 1, first, key)
    with pytest.raises(SinkError, match='row "1" has no value'):
        sink.apply(1, *delta(bench, sink, [(1, None)], [], kinds, key), at(100))
    sink.apply(1, *delta(bench, sink, [(1, "z")], [(2, "")], kinds, key), at(100))
    assert read_back(bench, 1, first, key) == ([(1, "z")], [])


@pytest.mark.matrix
def test_a_cluster_does_not_go_forward_in_one_step(cluster_url, spark, view):
    sink = published(cache_bench(cluster_url, spark, view), 1, spark.range(2), ("id",))
    assert "cluster" in sink.holds_back(1)


@pytest.mark.matrix
@pytest.mark.parametrize("url", ["three"], indirect=True)
def test_hash_tags_say_where_entries_lie_in_a_cluster(url, client, spark, view):
    rows = spark.range(500)

    def slots(tag: str | None, name: str) -> set[int]:
        bench = cache_bench(url, spark, name, {"hash_tag": tag} if tag else {})
        address = published(bench, 1, rows, ("id",)).address(1)
        keys = client.scan_iter(f"{address.location['prefix']}*", count=1000)
        return {client.keyslot(key) for key in keys}

    assert len(slots("view", f"{view}_a")) == 1
    spread = slots("key", f"{view}_b")
    assert len(spread) > 400
    assert slots("key", f"{view}_c") == spread
    assert len(slots(None, f"{view}_d")) > 400


def test_readers_and_the_sink_follow_a_change_of_options(url, client, spark, view):
    rows = spark.sql("select 'x' k, 1 n")
    shapes: list[tuple[dict[str, Any], Any]] = [
        ({}, {"k": "x", "n": 1}),
        ({"value": "hash", "hash_tag": "view"}, {"k": "x", "n": "1"}),
        ({"value": "string", "hash_tag": "key"}, "1"),
    ]
    with Cache(view, url=url) as reader:
        assert reader.get("x") is None
        sink = cache_bench(url, spark, view).sink()
        for number, (options, expected) in enumerate(shapes, 1):
            published(cache_bench(url, spark, view, options), number, rows, ("k",))
            assert reader.get_many(["y", "x"]) == [None, expected]
        sink.publish(1)
        assert reader.get("x") == shapes[0][1]
        sink.discard(2)
        sink.discard(3)
    own = {"current", "generations", "form:1", "keys:1", "1:x"}
    found = set(client.scan_iter(f"*{view}*", count=1000))
    assert found == {f"{view}:{name}" for name in own}


def careful(view: str, url: str, value: str) -> Callable[[], Any]:
    reader = Cache(view, url=url)

    def read() -> Any:
        rows = reader.get_many([0, 1])
        assert rows[0] == {**rows[1], "id": type(rows[1]["id"])(0)}  # of one generation
        return int(rows[1]["n"])

    return read if value == "hash" else lambda: int(reader.get(1)["n"])


def readings(read: Callable[[], Any], bench: Any, rounds: int) -> list[Any]:
    """Return what a reader sees, each value once in a row, while generations come and go."""
    sink = bench.sink()
    seen: list[Any] = []
    over = threading.Event()

    def publish(number: int) -> None:
        rows = bench.spark.range(2).selectExpr("id", f"{number} n")
        build(bench, number, rows, ("id",))
        sink.publish(number)
        if number > 1:
            sink.discard(number - 1)

    def loop() -> None:
        while not over.is_set():
            found = read()
            if not seen or seen[-1] != found:
                seen.append(found)

    publish(1)
    readers = [threading.Thread(target=loop)]
    for thread in readers:
        thread.start()
    try:
        for number in range(2, rounds + 2):
            publish(number)
    finally:
        over.set()
        for thread in readers:
            thread.join()
    return seen


@pytest.mark.matrix
@pytest.mark.parametrize("value", ["json", pytest.param("hash", marks=pytest.mark.matrix)])
def test_a_reader_is_right_while_generations_retire(url, spark, view, value):
    """With one generation kept: what always exists is never missing, and never turns older."""
    bench = cache_bench(url, spark, view, {"value": value})
    seen = readings(careful(view, url, value), bench, rounds=12)
    assert None not in seen
    assert seen == sorted(seen)
    assert len(seen) > 3


class Between:
    """A connection that lets a rebuild happen behind a reader's first look at the pointer."""

    def __init__(self, honest: Any, happen: Callable[[], None]) -> None:
        self._honest, self._happen = honest, happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def get(self, key: str) -> Any:
        found = self._honest.get(key)
        if key.endswith(":current"):
            happen, self._happen = self._happen, lambda: None
            happen()
        return found


@pytest.mark.parametrize("second_look", [True, False])
def test_a_generation_that_retires_between_pointer_and_entry(cache_url, spark, view, second_look):
    """And the twin without the second look, which finds nothing."""
    bench = cache_bench(cache_url, spark, view)
    sink = published(bench, 1, spark.sql("select 1 id, 1 n"), ("id",))
    build(bench, 2, spark.sql("select 1 id, 2 n"), ("id",))

    def retire() -> None:
        sink.publish(2)
        sink.discard(1)

    client = Between(redis.Redis.from_url(cache_url, decode_responses=True), retire)
    if second_look:
        reader = Cache(view, url=cache_url)
        reader._client = client
        assert reader.get(1) == {"id": 1, "n": 2}
    else:
        number = client.get(f"{view}:current")
        assert client.get(f"{view}:{number}:1") is None


DAYS = st.dates()
MOMENTS = st.datetimes(*map(dt.datetime.fromisoformat, ("0001-01-02", "9999-12-30")))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "int": st.integers(-(2**31), 2**31 - 1),
    "boolean": st.booleans(),
    "double": st.floats(),
    "float": st.floats(width=32),
    "decimal(12,3)": st.decimals(-(10**8), 10**8, places=3).map(lambda n: n + Decimal(0)),
    "binary": st.binary(max_size=5),
    "date": DAYS,
    "timestamp": MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    "timestamp_ntz": MOMENTS,
    "array<string>": st.lists(TEXT, max_size=3),
}


@pytest.mark.matrix
@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # each example is a job of Spark
    suppress_health_check=list(HealthCheck),
)
@given(rows=st.lists(st.tuples(*KEYS.values()), min_size=8, max_size=30))
def test_a_client_names_entries_as_spark_does(spark, rows):
    """Keys of each type alone, and one of all of them."""
    columns = [(f"c{n}", kind) for n, kind in enumerate(KEYS)]
    keys = [*([column] for column in columns), columns]
    frame = spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in columns))
    ids = [rendered_identity(frame.schema, [name for name, _ in key]) for key in keys]
    found = frame.select(*(id_.alias(f"i{n}") for n, id_ in enumerate(ids))).collect()
    forms = [CacheForm.of("v", 1, key=key) for key in keys]
    for row, wanted in zip(rows, found, strict=True):
        for form, key, id_ in zip(forms, [*row, row], wanted, strict=True):
            assert identity(form, key) == id_, form.key


MIDNIGHT = dt.datetime.fromisoformat("2020-01-01 00:00:00")


@pytest.mark.parametrize(
    ("kind", "key"),
    [("int", True), ("int", "1"), ("decimal(4,1)", Decimal("1.25")), ("string", 1),
     ("timestamp", MIDNIGHT), ("date", MIDNIGHT), ("int", None)],
)  # fmt: skip
def test_a_key_that_cannot_be_one_is_an_error(kind, key):
    form = CacheForm.of("v", 1, key=[("k", kind)])
    with pytest.raises(ValueError, match=r"is not a|more than"):
        identity(form, key)


def test_a_key_of_another_number_of_columns_is_an_error():
    form = CacheForm.of("v", 1, key=[("a", "int"), ("b", "int")])
    with pytest.raises(ValueError, match="2 columns"):
        identity(form, (1,))
