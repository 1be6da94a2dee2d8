"""Views in PostgreSQL's SQL: its answer, Spark's, the verifier's, a follower's; or a refusal."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import duckdb
import psycopg2
import pyarrow.compute as pc
import pytest
from psycopg2.extensions import make_dsn, parse_dsn
from psycopg2.extras import register_default_json, register_default_jsonb
from pyspark.errors import PySparkException

from changelog.contract.base.errors import ChangelogError, ViewError
from tests.support.engines import Engines, Source, own_session
from tests.support.followed_expressions import FOLLOWED
from tests.support.postgres_queries import DDL, Drawn, fill
from views.project.own_calls import with_own_calls
from views.rebuild.plan.dialect import UnknownValueError
from views.verify.sql.evaluate import evaluate
from views.verify.sql.translate import UnverifiableError
from views.verify.values.types import parse_type

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

AT_ONCE = 25
KEYS = range(1, 10)
REAL = 700
CLOSE, CLOSE_REALS = 1e-9, 1e-6
NO_VALUE = (psycopg2.Error, ValueError, OverflowError)
"""PostgreSQL has none, or one that Python's dates do not hold."""
LOUD = (ChangelogError, duckdb.Error, PySparkException, OverflowError)


@pytest.fixture
def asked(spark, database):
    source = Source(database, DDL, fill)
    yield Asked(Engines(own_session(spark), source))
    source.close()


def plain(value, *, real=False):
    """Return a value in a form that is equal where values are; floats by their digits."""
    match value:
        case float() if value != value:  # noqa: PLR0124 - NaN
            return "NaN"
        case float():
            if real:  # PostgreSQL's client has its shortest text, which may be on the edge
                (value,) = struct.unpack("f", struct.pack("f", value))
            return ("float", float(f"{value:.{6 if real else 9}g}") + 0.0)
        case bool() | None:
            return value
        case list() | dict():
            return nested(value, real)
        case datetime():
            zone = value.tzinfo is not None
            return (value.astimezone(UTC).replace(tzinfo=None) if zone else value, zone)
        case _:
            return value


def nested(value, real):
    """Return a list, or an object of JSON."""
    if isinstance(value, list):
        return tuple(plain(each, real=real) for each in value)
    pairs = (
        (name, each.isoformat() if isinstance(each, date) else each) for name, each in value.items()
    )
    return tuple((name, plain(each)) for name, each in pairs)


class Asked:
    """Asks PostgreSQL, Spark and the verifier."""

    def __init__(self, engines):
        self.engines, self.cursor = engines, engines.source.cursor
        exact = partial(json.loads, parse_float=Decimal)
        for register in (register_default_json, register_default_jsonb):
            register(self.cursor.connection, loads=exact)
        self.wrong: list[tuple[object, ...]] = []
        self.count: Counter[str] = Counter()

    def view(self, query):
        """Return a view of a query in PostgreSQL's SQL; None where it is refused."""
        try:
            return self.engines.view(query, dialect="postgres")
        except ViewError as error:
            self.count["refused"] += 1
            self.count[f"refused: {error}: {query}"] += 1
            return None

    def postgresql(self, query):
        self.cursor.execute(query)
        reals = [column.type_code == REAL for column in self.cursor.description]
        rows = self.cursor.fetchall()
        return [tuple(map(plained, row, reals)) for row in rows], reals

    def spark(self, view, reals):
        rows = self.engines.frame(view).toArrow().to_pylist()
        return [tuple(map(plained, row.values(), reals)) for row in rows]

    def verifier(self, view, reals):
        columns = [(name, parse_type(kind)) for name, kind in self.engines.frame(view).dtypes]
        evaluate(self.engines.duckdb, "made", view.sql, self.engines.types, columns)
        rows = self.engines.duckdb.execute("SELECT * FROM made").fetchall()
        return [tuple(map(plained, row, reals)) for row in rows]

    def follower(self, view, reals):
        rows = self.engines.by_follower(view).to_pylist()
        return [tuple(map(plained, row.values(), reals)) for row in rows]

    def query(self, query):
        """Compare a query's rows in any order."""
        try:
            theirs, reals = self.postgresql(query)
        except NO_VALUE as error:
            self.count["an error in PostgreSQL"] += 1
            if getattr(error, "pgcode", "")[:2] == "42" and (view := self.view(query)) is not None:
                self.wrong.append((query, f"{error}", view.sql))
            return
        view = self.view(query)
        if view is None:
            return
        for engine in (self.spark, self.verifier, self.follower):
            try:
                ours = engine(view, reals)
            except UnknownValueError as error:
                self.count[f"left to Spark: {error}"] += 1  # by a follower
            except UnverifiableError as error:
                self.count["not proved"] += 1
                self.count[f"not proved: {str(error)[:150]}"] += 1
            except LOUD as error:
                self.count[f"loud in {engine.__name__}"] += 1
                self.count[f"loud: {query}: {str(error)[:300]}"] += 1
                self.wrong = [one for one in self.wrong if one[0] != query]
                break  # nothing is published where either of them ends with an error
            else:
                self.count[f"alike in {engine.__name__}"] += 1
                if Counter(without_zones(ours)) != Counter(without_zones(theirs)):
                    self.wrong.append((query, engine.__name__, ours, theirs, view.sql))

    def expressions(self, lines):
        """Compare expressions at those rows where PostgreSQL has a value."""
        known = []
        for line in lines:
            keys = self._keys(line)
            text = f"CASE WHEN id IN ({', '.join(map(str, keys))}) THEN {line} END" if keys else ""
            view = self.view(f"SELECT id, {text or line} AS x FROM t")
            if keys is None:
                self.count["an error in PostgreSQL"] += 1
                if view is not None:
                    self.wrong.append((line, "PostgreSQL refuses it", view.sql))
            elif keys and view is not None:
                known.append(text)
        for first in range(0, len(known), AT_ONCE):
            self._some(known[first : first + AT_ONCE])

    def _keys(self, line):
        """Return the keys of the rows at which it has a value; None where it has no meaning."""
        found = []
        try:
            self.postgresql(f"SELECT {line} FROM t")
        except NO_VALUE as error:
            if getattr(error, "pgcode", "")[:2] == "42":
                return None
        else:
            return list(range(1, 10))
        for key in range(1, 10):
            try:
                self.postgresql(f"SELECT {line} FROM t WHERE id = {key}")
            except NO_VALUE:
                continue
            found.append(key)
        return found

    def _some(self, texts):
        """Compare some expressions; others are asked where Spark has an answer.

        Where its proof ends with an error nothing is published, whatever Spark's answer is.
        """
        loud = self._compare(self.spark, texts)
        self._compare(self.follower, [text for text in texts if text not in loud])
        unproved = self._compare(self.verifier, [text for text in texts if text not in loud])
        self.wrong = [one for one in self.wrong if one[1] not in unproved]

    def _compare(self, engine, texts):
        """Compare an engine's answers; return the expressions of which it has none."""
        if not texts:
            return []
        listed = ", ".join(f"{text} AS x{n}" for n, text in enumerate(texts))
        query = f"SELECT id, {listed} FROM t"
        theirs, reals = self.postgresql(query)
        view = self.view(query)
        try:
            ours = engine(view, reals)
        except (UnknownValueError, *LOUD) as error:
            if len(texts) > 1:
                middle = len(texts) // 2
                halves = (texts[:middle], texts[middle:])
                return [text for some in halves for text in self._compare(engine, some)]
            kinds = {UnverifiableError: "not proved", UnknownValueError: "left to Spark"}
            kind = kinds.get(type(error), "loud")
            self.count[f"{kind} in {engine.__name__}"] += 1
            self.count[f"{kind} in {engine.__name__}: {texts[0]}: {str(error)[:300]}"] += 1
            return texts if kind == "loud" else []
        ours, theirs = (
            sorted(without_zones(rows), key=lambda row: row[0]) for rows in (ours, theirs)
        )
        for place, text in enumerate(texts, 1):
            mine = {row[0]: row[place] for row in ours}
            other = {row[0]: row[place] for row in theirs}
            self.count[f"alike in {engine.__name__}"] += mine == other
            if mine != other:
                pairs = {k: (v, other[k]) for k, v in mine.items() if v != other[k]}
                self.wrong.append(
                    (engine.__name__, text, pairs, view.sql if len(texts) == 1 else "")
                )
        return []


def plained(value, real):
    return plain(value, real=real)


def without_zones(rows):
    """Return rows in which a moment is one, whether or not the engine tells its zone."""
    return [tuple(map(without_zone, row)) for row in rows]


def without_zone(value):
    match value:
        case (datetime() as moment, bool()):
            return moment
        case tuple():
            return tuple(map(without_zone, value))
        case _:
            return value


def compare(asked, seed, expressions, queries):
    asked.wrong, asked.count = [], Counter[str]()
    drawn = Drawn(seed)
    asked.expressions([drawn.expression() for _ in range(expressions)])
    for query in dict.fromkeys(drawn.query() for _ in range(queries)):
        asked.query(query)
    assert asked.wrong == [], asked.count
    return asked.count


def test_a_follower_computes_common_expressions_as_postgresql_does(asked):
    """Where PostgreSQL has no value neither has it; a few hostile values are left to Spark."""
    left = Counter[str]()
    for text in FOLLOWED:
        query = f"SELECT id, {text} AS x FROM t"
        rows = asked.engines.followed(asked.view(query))
        for key in KEYS:
            try:
                found = rows(lambda table, key=key: table.filter(pc.equal(table["id"], key)))
            except UnknownValueError:
                left[text] += 1
                continue
            theirs, reals = asked.postgresql(f"{query} WHERE id = {key}")
            ours = [tuple(map(plained, row.values(), reals)) for row in found.to_pylist()]
            assert without_zones(ours) == without_zones(theirs), text
    hostile = {text: count for text, count in left.items() if count > 2}
    assert hostile == {"s::int": 7, "(j ->> 'k')::int": 3}


def test_a_label_that_the_schema_does_not_have_is_an_error(asked):
    query = with_own_calls("SELECT label_place('x', array('sad', 'ok')) AS x")
    with pytest.raises(PySparkException, match="no label of the type"):
        asked.engines.spark.sql(query).collect()


def test_random_expressions_and_queries_mean_what_they_mean_in_postgresql(asked):
    """CHANGELOG_DIALECT=1000,200 looks at more, CHANGELOG_DIALECT_SEED=7 at others."""
    seed = int(os.environ.get("CHANGELOG_DIALECT_SEED", "11"))
    expressions, queries = map(int, os.environ.get("CHANGELOG_DIALECT", "60,10").split(","))
    count = compare(asked, seed, expressions, queries)
    assert count["alike in spark"] > (expressions + queries) // 2
    assert count["alike in verifier"] > (expressions + queries) // 2


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(6))
def test_so_do_thousands(asked, seed):
    count = compare(asked, seed, 1000, 150)
    assert count["alike in spark"] > 500


LETTERS = """
CREATE TYPE mood AS ENUM ('é');
CREATE COLLATION every (LOCALE = 'C.UTF-8');
CREATE TABLE t (id int PRIMARY KEY, own text, doc jsonb, mood mood, fixed char(9),
    ascii text COLLATE "C", words text[] COLLATE "C", sql varchar(20) COLLATE ucs_basic,
    every text COLLATE every)
"""
IN_CASE = [
    *("upper({})", "lower({})", "{} ILIKE 'É%'", "{} NOT ILIKE '%ss_'", "{} ~* 'stra'"),
    *(
        "upper(trim({}) || '-')",
        "lower(concat({}, 'A', 1))",
        "upper(coalesce(nullif({}, ''), 'b'))",
    ),
    *("({})::text COLLATE \"C\" < 'É'", "upper(({})::text COLLATE ucs_basic)"),
]
OF_TEXTS = ("own", "doc ->> 'k'", "mood::text", "fixed", "ascii", "words[1]", "sql", "every")
IN_QUERIES = [
    "SELECT id, upper(x) AS x FROM (SELECT id, {0} AS x FROM t UNION ALL SELECT -id, {0} FROM t) q",
    "WITH q AS (SELECT id, max({0}) AS x FROM t GROUP BY id) SELECT id, lower(x) AS x FROM q",
    "SELECT 1 AS id, upper(string_agg({0}, ',' ORDER BY id)) AS x FROM t",
]


def with_letters(cursor):
    for number, text in enumerate(("éa straße", "STRASSE É", "Éclair", "iI", "", None), 1):
        cursor.execute(
            "INSERT INTO t VALUES (%s, %s, jsonb_build_object('k', %s::text), 'é', %s, %s,"
            " ARRAY[%s], %s, %s)",
            (number, *[text] * 7),
        )


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_letters_change_case_by_the_rules_of_their_collation(spark, database, locale):
    """Under C, those of ASCII alone; what no column tells is refused."""
    name = f"{parse_dsn(database)['dbname']}_letters"
    with closing(psycopg2.connect(database)) as connection:
        connection.autocommit = True
        execute = connection.cursor().execute
        execute(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE '{locale}'")
        try:
            source = Source(make_dsn(database, dbname=name), LETTERS, with_letters)
            asked = Asked(Engines(own_session(spark), source))
            for query in [
                *(f"SELECT id, {e.format(t)} AS x FROM t" for e in IN_CASE for t in OF_TEXTS),
                *(query.format(t) for query in IN_QUERIES for t in OF_TEXTS),
            ]:
                asked.query(query)
            assert asked.wrong == []
            assert (asked.count["refused"], asked.count["alike in verifier"]) == (0, 104), (
                asked.count
            )
            assert asked.view("SELECT id, lower(ascii || every) AS x FROM t") is None
            source.close()
        finally:
            execute(f"DROP DATABASE {name} WITH (FORCE)")
