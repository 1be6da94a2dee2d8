"""Expressions over hostile values, by Spark, by the verifier, and by PostgreSQL where it has them.

What no line of `tests/fixtures/expressions.txt` has compared has no place in the translation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, partial
from itertools import islice
from typing import Any

import duckdb
import psycopg2
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from changelog.contract.base.errors import ChangelogError
from changelog.contract.rows.relation import TableName
from tests.support.compared_signatures import signatures_of
from tests.support.hostile_rows import (
    COLUMNS,
    PROVED,
    ROWS,
    column_types,
    expressions,
    queries_of,
    query_of,
)
from tests.support.random_expressions import AT_ONCE, Drawn, everywhere
from views.base.spark_sql import doubled_quotes
from views.project.own_calls import with_own_calls
from views.rebuild.plan.other_types import other_types
from views.rebuild.plan.parts import annotated
from views.verify.sql import translate as translation
from views.verify.sql.evaluate import evaluate
from views.verify.sql.translate import UnverifiableError, translate
from views.verify.values.names import reading_name
from views.verify.values.types import Type, arrow_type, duckdb_type, parse_type, quoted

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

TABLE = TableName("public", "t")
REAL = 700
"""The type of a real in PostgreSQL's catalogue."""
TYPES = {TABLE: {name: parse_type(kind) for name, (kind, _) in COLUMNS.items()}}


@pytest.fixture(scope="module")
def engines(spark):
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in TYPES[TABLE].items()])
    plain = [dict(zip(COLUMNS, map(without_zone, row), strict=True)) for row in ROWS]
    frame = spark.createDataFrame(
        ROWS, ", ".join(f"{n} {kind}" for n, (kind, _) in COLUMNS.items())
    )
    frame.createOrReplaceTempView("t")
    with duckdb.connect() as database:
        listed = ", ".join(f"{quoted(n)} {duckdb_type(k)}" for n, k in TYPES[TABLE].items())
        database.execute(f"CREATE TABLE {reading_name(TABLE)} ({listed})")
        database.register("given", pa.Table.from_pylist(plain, schema))
        database.execute(f"INSERT INTO {reading_name(TABLE)} SELECT * FROM given")
        yield spark, database
    spark.catalog.dropTempView("t")


def without_zone(value: object) -> object:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def by_spark(spark, sql: str) -> list[dict[str, Any]]:
    return sorted(frame_of(spark, sql).toArrow().to_pylist(), key=lambda row: row["k"])


def frame_of(spark, sql: str):
    """Return the rows of a query, with a text's quotes as a view's are given to Spark."""
    for place in doubled_quotes(sql):
        sql = f"{sql[:place]}\\{sql[place + 1 :]}"
    return spark.sql(with_own_calls(sql))


@pytest.fixture(scope="module")
def answers(engines):
    """Spark's answer to a query, which is computed once for all tests."""
    spark, _ = engines
    return cache(partial(by_spark, spark))


def by_verifier(engines, sql: str):
    spark, database = engines
    kinds = [(name, parse_type(kind)) for name, kind in frame_of(spark, sql).dtypes]
    evaluate(database, "out", sql, TYPES, kinds)
    return database.sql("SELECT * FROM out ORDER BY k").to_arrow_table().to_pylist()


CLOSE, CLOSE_REALS = 1e-9, 1e-6
"""How close equal floats are; PostgreSQL's client gives a real by its shortest text."""


def alike(one: Any, two: Any, close: float = CLOSE) -> bool:
    one, two = (
        without_zone(value.astimezone(UTC)) if zoned(value) else value for value in (one, two)
    )
    if isinstance(one, list) and isinstance(two, list):
        pairs = zip(sorted(one, key=str), sorted(two, key=str), strict=False)
        return len(one) == len(two) and all(alike(a, b, close) for a, b in pairs)
    if isinstance(one, dict) and isinstance(two, dict):
        return [*one] == [*two] and all(alike(one[name], two[name], close) for name in one)
    if isinstance(one, memoryview | bytes):
        return bytes(one) == bytes(two)
    numbers = int | float | Decimal
    if isinstance(one, numbers) and isinstance(two, numbers) and float in {type(one), type(two)}:
        one, two = float(one), float(two)
        return (math.isnan(one) and math.isnan(two)) or math.isclose(one, two, rel_tol=close)
    days = isinstance(one, date) and isinstance(two, date)
    return one == two and (not days or isinstance(one, datetime) == isinstance(two, datetime))


def zones(rows: list[dict[str, Any]], column: str) -> bool:
    return any(zoned(row[column]) for row in rows)


def zoned(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def differences(
    lines: list[str],
    one: list[dict[str, Any]],
    two: list[dict[str, Any]],
    reals: Collection[str] = (),
) -> Iterator[tuple[str, int, Any, Any]]:
    """Yield line, key and both values where two engines differ."""
    assert [row["k"] for row in one] == [row["k"] for row in two], lines
    for left, right in zip(one, two, strict=True):
        for number, line in enumerate(lines):
            name = f"x{number}"
            if not alike(left[name], right[name], CLOSE_REALS if name in reals else CLOSE):
                yield line, left["k"], left[name], right[name]


@pytest.mark.parametrize("section", PROVED)
def test_the_verifier_gives_sparks_answer(engines, answers, section):
    # Collected sets are compared as bags, zeros by value.
    lines = [line for line in expressions(section) if "collect_set" not in line]
    wrong = [
        found
        for sql, some in queries_of(lines)
        for found in differences(some, answers(sql), by_verifier(engines, sql))
    ]
    assert wrong == []


FAR_DAYS = (-735_161, -719_469, -719_162, 2_932_897, 106_751_000)
"""44 BC, 1 BC, the first day of the year 1, the first of 10000, and one of 294244."""


@pytest.mark.parametrize(
    "line",
    [
        "cast(dt AS string)",
        "cast(ts AS string)",
        "concat('x', dt)",
        "concat_ws('/', dt, ts)",
        "dt || ''",
        "extract(year FROM dt)",
        "date_add(dt, 1)",
        "datediff(dt, date'2000-01-01')",
        "make_date(-43, 3, 15)",
        "dt + k",
    ],
)
def test_so_do_years_that_have_no_four_digits(spark, line):
    days = ", ".join(f"({n}, {day})" for n, day in enumerate(FAR_DAYS))
    zone = "timestamp_ntz '1970-01-01 05:00:00.25' + make_dt_interval(n)"
    spark.sql(
        f"SELECT k, date_from_unix_date(n) AS dt, {zone} AS ts FROM VALUES {days} AS v(k, n)"
    ).createOrReplaceTempView("far")
    kinds = {"k": "int", "dt": "date", "ts": "timestamp_ntz"}
    far = TableName("public", "far")
    types = {far: {name: parse_type(kind) for name, kind in kinds.items()}}
    sql = f"SELECT k, {line} AS x0 FROM far"
    with duckdb.connect() as database:
        zone = "TIMESTAMP '1970-01-01 05:00:00.25' + to_days(n)"
        database.execute(
            f"CREATE TABLE {reading_name(far)} AS SELECT k, DATE '1970-01-01' + n AS dt, "
            f"{zone} AS ts FROM (VALUES {days}) v(k, n)"
        )
        found = [(name, parse_type(kind)) for name, kind in spark.sql(sql).dtypes]
        evaluate(database, "out", sql, types, found)
        theirs = database.sql("SELECT * FROM out ORDER BY k").to_arrow_table()
    ours = spark.sql(sql).sort("k").toArrow()
    as_number = pa.int32() if pa.types.is_date32(ours["x0"].type) else ours["x0"].type
    assert ours["x0"].cast(as_number).to_pylist() == theirs["x0"].cast(as_number).to_pylist()


@pytest.fixture
def cursor(dsn):
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("SET timezone = 'UTC'")
        listed = ", ".join(f"{name} {kind}" for name, (_, kind) in COLUMNS.items())
        cursor.execute(f"CREATE TEMP TABLE t ({listed})")
        for row in ROWS:
            values = [psycopg2.Binary(each) if isinstance(each, bytes) else each for each in row]
            cursor.execute(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(row))})", values)
        yield cursor


def by_postgresql(cursor, sql: str) -> tuple[list[dict[str, Any]], set[str]]:
    """Return PostgreSQL's answer, and which of its columns are reals."""
    cursor.execute(sql)
    columns = cursor.description or ()
    names = [column.name for column in columns]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    rows.sort(key=lambda row: row["k"])
    return rows, {column.name for column in columns if column.type_code == REAL}


def test_postgresql_gives_the_same_answer_where_it_is_said_to(answers, cursor):
    wrong: list[object] = []
    for sql, some in queries_of(expressions("everywhere")):
        rows, reals = by_postgresql(cursor, sql)
        wrong += differences(some, answers(sql), rows, reals)
        wrong += [
            (line, "only one has a time zone")
            for number, line in enumerate(some)
            if zones(answers(sql), f"x{number}") != zones(rows, f"x{number}")
        ]
    assert wrong == []


def test_twin_a_translation_with_a_defect_is_found(engines, monkeypatch):
    """The comparison itself can fail: without the correction of `trim`, or with another one."""
    spark, _ = engines
    right = translation._corrected
    monkeypatch.setattr(
        translation,
        "_corrected",
        lambda node, kinds: None if type(node).__name__ == "Trim" else right(node, kinds),
    )
    sql = query_of("trim(s)")
    found = differences(["trim(s)"], by_spark(spark, sql), by_verifier(engines, sql))
    assert [key for _, key, _, _ in found] == [2]


class Nests:
    """Compares expressions row by row, since at hostile values many end with an error."""

    def __init__(self, spark, database, cursor):
        self.spark, self.database, self.cursor = spark, database, cursor
        self.wrong: list[object] = []
        self.values = self.by_postgresql = 0
        self.loud: list[object] = []

    def look_at(self, lines: list[str]) -> None:
        """Compare some expressions where the verifier gives a value."""
        made = frame_of(self.spark, f"SELECT k, {listed(lines)} FROM t")
        kinds = [parse_type(kind) for _, kind in made.dtypes]
        theirs = {
            line: found
            for line, kind in zip(lines, kinds[1:], strict=True)
            if (found := self._of_verifier(line, kinds[0], kind))
        }
        ours = self._of_spark({line: [*found] for line, found in theirs.items()})
        for line, found in theirs.items():
            self.values += len(ours[line])
            self._compare(line, "verifier", ours[line], found, CLOSE)
            if may_be_asked_of_postgresql(line):
                answers, close = self._of_postgresql(line, [*ours[line]])
                self.by_postgresql += bool(answers)
                self._compare(line, "PostgreSQL", ours[line], answers, close)

    def _compare(self, line, engine, ours, theirs, close):
        for key in ours.keys() & theirs.keys():
            one, two = ours[key], theirs[key]
            same_zone = engine == "verifier" or zoned(one) == zoned(two)
            if not alike(one, two, close) or not same_zone:
                self.wrong.append((engine, line, key, one, two))

    def _of_verifier(self, line: str, *kinds: Type) -> dict[int, Any]:
        """Return its values by key, without those rows that it ends with an error at."""
        try:
            columns = [*zip(("k", "x0"), kinds, strict=True)]
            evaluate(self.database, "out", query_of(line), TYPES, columns)
        except ChangelogError:
            return {}
        return by_keys(
            KEYS,
            lambda keys: self.database.sql(f"FROM out WHERE k IN ({keys})").fetchall(),
            duckdb.Error,
        )

    def _of_spark(self, keys: dict[str, list[int]]) -> dict[str, dict[int, Any]]:
        guarded = [f"CASE WHEN k IN ({joined(of)}) THEN {line} END" for line, of in keys.items()]
        try:
            rows = by_spark(self.spark, f"SELECT k, {listed(guarded)} FROM t") if keys else []
        except (PySparkException, OverflowError):  # Python has no year 0
            if len(keys) > 1:
                items = [*keys.items()]
                middle = len(items) // 2
                return self._of_spark(dict(items[:middle])) | self._of_spark(dict(items[middle:]))
            ((line, of),) = keys.items()
            if len(of) == 1:
                self.loud.append((line, of))
                return {line: {}}
            found = (self._of_spark({line: [key]}) for key in of)
            return {line: {key: value for each in found for key, value in each[line].items()}}
        return {
            line: {row["k"]: row[f"x{n}"] for row in rows if row["k"] in of}
            for n, (line, of) in enumerate(keys.items())
        }

    def _of_postgresql(self, line: str, keys: list[int]) -> tuple[dict[int, Any], float]:
        """Return its values by key, where it has any, and how close they are."""
        kinds = set()

        def ask(of: str) -> list[tuple[int, Any]]:
            self.cursor.execute(f"SELECT k, {line} AS x0 FROM t WHERE k IN ({of})")
            kinds.add(self.cursor.description[1].type_code)
            return list(self.cursor.fetchall())

        found = by_keys(keys, ask, psycopg2.Error)
        return found, CLOSE_REALS if kinds == {REAL} else CLOSE


KEYS = [row[0] for row in ROWS]


def by_keys(keys, ask, error) -> dict[int, Any]:
    """Ask for the values of all rows at once, or where that fails one by one."""
    try:
        return dict(ask(joined(keys)))
    except error:
        found = dict[int, Any]()
        for key in keys:
            with suppress(error):
                found |= dict(ask(key))
        return found


def joined(keys) -> str:
    return ", ".join(map(str, keys))


def listed(lines) -> str:
    return ", ".join(f"{line} AS x{n}" for n, line in enumerate(lines))


def may_be_asked_of_postgresql(line: str) -> bool:
    """Tell whether a line is of parts that PostgreSQL has compared, and nothing is said of it."""
    sql, columns = query_of(line), {TABLE: column_types()}
    return signatures_of(line) <= everywhere() and not other_types(
        annotated(sql, columns), sql, columns, {TABLE: {"k"}}
    )


@pytest.mark.matrix
def test_nested_expressions_are_alike_wherever_they_have_a_value(engines, cursor):
    """CHANGELOG_EXPRESSIONS=2000 looks at more, CHANGELOG_EXPRESSIONS_SEED=7 at others."""
    seed = int(os.environ.get("CHANGELOG_EXPRESSIONS_SEED", "31"))
    count = int(os.environ.get("CHANGELOG_EXPRESSIONS", "30"))
    nests = Nests(engines[0], engines[1], cursor)
    lines = list(islice(Drawn(seed).provable(), count))
    for start in range(0, count, AT_ONCE):
        nests.look_at(lines[start : start + AT_ONCE])
    assert nests.wrong == []
    assert nests.values > 5 * count
    assert nests.by_postgresql > count // 6


@pytest.mark.parametrize("line", expressions("refused"))
def test_what_is_not_known_to_be_the_same_is_refused_before_a_build(line):
    with pytest.raises(UnverifiableError):
        translate(query_of(line), TYPES)


def test_values_that_are_not_known_to_be_the_same_end_the_proof_and_refute_nothing(engines):
    for line in expressions("loud"):
        with pytest.raises((ChangelogError, duckdb.Error)):
            by_verifier(engines, query_of(line))


@pytest.mark.matrix
def test_capital_and_small_forms_of_every_letter(engines):
    """Each code point there is: the engines agree, or the verifier does not say anything."""
    spark, database = engines
    points = [*range(1, 0xD800), *range(0xE000, 0x110000)]
    texts = pa.table({"c": pa.array(points, pa.int32()), "s": [chr(each) for each in points]})
    made = spark.createDataFrame(texts).select(
        "c", F.upper("s").alias("u"), F.lower(F.concat(F.lit("A"), "s")).alias("l")
    )
    database.register("texts", texts)
    database.register("made", made.toArrow())
    differing = database.sql(
        "SELECT t.s, upper(replace(t.s, 'ß', 'SS')) <> m.u, lower('A' || t.s) <> m.l "
        "FROM texts t JOIN made m USING (c)"
    ).fetchall()
    for place, odd in ((1, translation._ODD_CAPITALS), (2, translation._ODD_SMALL)):
        letters = [row[0] for row in differing if row[place]]
        known = database.execute(
            "SELECT count(*) FROM (SELECT unnest(?) AS s) WHERE regexp_matches(s, ?)",
            [letters, odd],
        ).fetchone()
        assert known == (len(letters),), [f"{ord(each):x}" for each in letters]
