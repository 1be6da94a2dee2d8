"""A value that ends a proof is told with its column, its expression and what to write."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from changelog.contract.rows.relation import TableName
from views.verify.sql import translate as translation
from views.verify.sql.evaluate import computing, evaluate, locating
from views.verify.sql.translate import INFINITE, UnverifiableError, columns_read
from views.verify.values.names import reading_name
from views.verify.values.types import duckdb_type, parse_type, quoted

COLUMNS = {
    "k": "int",
    "d": "double",
    "s": "string",
    "dt": "date",
    "ts": "timestamp_ntz",
    "tz": "timestamp",
}
TABLE, OTHER = TableName("public", "t"), TableName("other", "u")
KINDS = {name: parse_type(kind) for name, kind in COLUMNS.items()}
TYPES = {TABLE: KINDS, OTHER: {"k": KINDS["k"], "since": KINDS["dt"], "Until": KINDS["dt"]}}


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        listed = ", ".join(f"{quoted(name)} {duckdb_type(kind)}" for name, kind in KINDS.items())
        made.execute(f"CREATE TABLE {reading_name(TABLE)} ({listed})")
        made.execute(
            f"INSERT INTO {reading_name(TABLE)} VALUES "
            "(1, 1.5, 'x', '2024-02-29', '2024-02-29 10:00', '2024-02-29 10:00'),"
            "(2, 'NaN', '', 'infinity', 'infinity', 'infinity'),"
            "(3, '-Infinity', NULL, '-infinity', '-infinity', '-infinity')"
        )
        yield made


def said(database, expressions: dict[str, str], condition: str = "true") -> str:
    """Return the error that ends the proof of a view with these columns; empty if it is proved."""
    listed = ", ".join(f"{text} AS {name}" for name, text in expressions.items())
    described = database.execute(
        f"DESCRIBE SELECT {', '.join(expressions.values())} FROM {reading_name(TABLE)} t"
    )
    names = {"DATE": "date", "TIMESTAMP": "timestamp_ntz", "DOUBLE": "bigint", "INTEGER": "int"}
    kinds = [names.get(str(row[1]), "string") for row in described.fetchall()]
    columns = [*zip(expressions, map(parse_type, kinds), strict=True)]
    try:
        evaluate(database, "out", f"SELECT {listed} FROM t WHERE {condition}", TYPES, columns)
        with computing(), locating(database, "out", {name: quoted(name) for name in expressions}):
            database.execute("FROM out").fetchall()
    except UnverifiableError as error:
        return str(error)
    return ""


MOVED = [
    "dt + 1",
    "dt - 1",
    "dt + k",
    "dt + INTERVAL '1' month",
    "dt - INTERVAL '1' year",
    "ts + INTERVAL '1' day",
    "tz - INTERVAL '1' month",
]


@pytest.mark.parametrize("line", MOVED)
@pytest.mark.parametrize("key", [2, 3])
def test_an_infinite_day_that_is_moved_ends_the_proof_and_refutes_nothing(database, line, key):
    """PostgreSQL's stays infinite; Spark's becomes some day round the other end."""
    assert INFINITE in said(database, {"x": line}, f"k = {key}")
    assert said(database, {"x": line}, "k = 1") == ""


def test_twin_without_the_correction_it_is_given_as_infinite(database, monkeypatch):
    monkeypatch.setattr(translation, "_moved", lambda *_: None)
    assert said(database, {"x": "dt + INTERVAL '1' day"}, "k > 1") == ""


def test_the_column_is_named_with_what_to_write(database):
    found = said(database, {"a": "k", "whole": "floor(d)", "s": "s"})
    assert found.startswith('cannot verify this SQL: column "whole": floor(d) of NaN, an infinity')
    assert "CASE WHEN abs(x) < 9e18 THEN" in found
    assert "DuckDB" not in found
    assert said(database, {"whole": "floor(CASE WHEN abs(d) < 9e18 THEN d END)"}) == ""


def test_twin_where_the_rows_themselves_fail_no_column_is_named(database):
    found = said(database, {"x": "k", "s": "s"}, "floor(d) > 0")
    assert found.startswith("cannot verify this SQL: floor(d) of NaN")


@pytest.mark.parametrize(
    ("sql", "read", "others"),
    [
        ("SELECT k, dt + 1 AS x FROM t", {"k", "dt"}, set()),
        ("SELECT * FROM t", set(COLUMNS), set()),
        ("SELECT q.k FROM (SELECT k, ts FROM t) q WHERE ts IS NULL", {"k", "ts"}, set()),
        (
            "SELECT a.k, b.until FROM t a JOIN other.u b ON a.k = b.k WHERE a.dt IS NULL",
            {"k", "dt"},
            {"k", "until"},
        ),
    ],
)
def test_the_columns_that_a_query_reads_are_known(sql, read, others):
    """Of these alone the infinite values are told."""
    assert columns_read(sql, TYPES) == {TABLE: read, OTHER: others}
