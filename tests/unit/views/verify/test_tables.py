"""Values without an exact place: told where a query reads them, never a null instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

from changelog.contract.base.errors import LogError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import value_schema
from tests.support.builders import INTEGER, INTEGERS, TEXT, decimal_type, make_relation
from views.verify.log.decode import DocumentDecoder
from views.verify.log.tables import TableState, create_view, load_state
from views.verify.records.survivors import FoldedTable
from views.verify.sql.evaluate import computing, evaluate
from views.verify.values.types import Type, logged_type, parse_type, quoted

KINDS = {"id": INTEGER, "name": TEXT, "price": decimal_type(4, 2), "ns": INTEGERS}
RELATION = make_relation(KINDS)
ROWS = (
    {"id": 1, "name": "a", "price": "1.50", "ns": [1]},
    {"id": 7, "name": "NaN", "price": "NaN", "ns": "{{1,2}}"},
    {"id": 8, "name": "c", "price": None, "ns": None},
)
READ_NONE = (
    "SELECT id, name FROM things",
    "SELECT id, name FROM (SELECT *, price * 2 AS twice FROM things) t",
    "WITH t AS (SELECT * FROM things) SELECT id, name FROM t UNION SELECT id, name FROM t",
    "SELECT a.id, b.name FROM things a JOIN things b USING (id)",
    "SELECT id, name FROM things WHERE id IN (SELECT id FROM things) ORDER BY id LIMIT 9",
    "SELECT id, max(name) AS name FROM things GROUP BY id HAVING count(*) > 0",
)
ID, PRICE = ("id", "int"), ("price", "decimal(4,2)")
READ_SOME = (
    ("SELECT id, price FROM things", [ID, PRICE], "price"),
    ("SELECT id, coalesce(price, 0) AS price FROM things", [ID, PRICE], "price"),
    ("SELECT id FROM things WHERE price IS NULL", [ID], "price"),
    ("SELECT id FROM things ORDER BY price LIMIT 1", [ID], "price"),
    ("SELECT sum(price) AS s FROM things", [("s", "decimal(14,2)")], "price"),
    ("SELECT DISTINCT price, id FROM things", [PRICE, ID], "price"),
    ("SELECT a.id FROM things a JOIN things b ON a.price = b.price", [ID], "price"),
    ("SELECT size(ns) AS n FROM things", [("n", "int")], "ns"),
    ("SELECT id, ns FROM things", [ID, ("ns", "array<int>")], "ns"),
)


@pytest.fixture
def loaded() -> Iterator[tuple[duckdb.DuckDBPyConnection, TableState]]:
    decoder = DocumentDecoder("things", value_schema(RELATION))
    state = TableState(RELATION.name, "things", "state", decoder.columns, ("id",))
    with duckdb.connect() as database:
        database.execute("CREATE TABLE survivors (part INTEGER, off BIGINT, value BLOB)")
        for offset, row in enumerate(ROWS, 40):
            body = json.dumps(row).encode()
            database.execute("INSERT INTO survivors VALUES (3, ?, ?)", [offset, body])
        state = load_state(database, state, decoder, FoldedTable(database, "survivors"))
        create_view(database, state)
        yield database, state


def types() -> dict[TableName, dict[str, Type]]:
    return {RELATION.name: {name: logged_type(kind) for name, kind in KINDS.items()}}


def test_a_column_that_a_query_does_not_read_does_not_count(loaded):
    database, state = loaded
    assert state.inexact == {"price", "ns"}
    for sql in READ_NONE:
        columns = [("id", parse_type("int")), ("name", parse_type("string"))]
        evaluate(database, "expected", sql, types(), columns)
        assert len(database.execute("FROM expected").fetchall()) == 3
    state.require_exact(database, ["id", "name"])


def test_a_row_that_a_query_leaves_out_does_not_count(loaded):
    database, _ = loaded
    columns = [("id", parse_type("int")), ("price", parse_type("decimal(4,2)"))]
    evaluate(database, "expected", "SELECT id, price FROM things WHERE id <> 7", types(), columns)
    assert len(database.execute("FROM expected").fetchall()) == 2


def computed(database, sql, columns):
    evaluate(database, "expected", sql, types(), columns)
    with computing():
        return database.execute("FROM expected").fetchall()


@pytest.mark.parametrize(("sql", "columns", "name"), READ_SOME)
def test_a_column_that_a_query_reads_fails_and_names_the_row(loaded, sql, columns, name):
    database, state = loaded
    typed = [(column, parse_type(kind)) for column, kind in columns]
    with pytest.raises(LogError, match="which has no exact form in its type") as raised:
        computed(database, sql, typed)
    assert f'table "public.things", column "{name}" (' in str(raised.value)
    assert '(topic "things", partition 3, offset 41)' in str(raised.value)
    assert "leave the column out of the view" in raised.value.hint
    with pytest.raises(LogError):
        state.require_exact(database, [name])


def test_what_is_chosen_is_seen_in_place_of_values_without_a_form(loaded):
    database, state = loaded
    state = replace(state, choices=(("price", "text"), ("ns", "null")))
    create_view(database, state)
    seen = {RELATION.name: {c.column: logged_type(c.type) for c in state.seen}}
    columns = [ID, ("price", "string"), ("ns", "array<int>")]
    typed = [(name, parse_type(kind)) for name, kind in columns]
    evaluate(database, "expected", "SELECT id, price, ns FROM things", seen, typed)
    rows = database.execute("FROM expected ORDER BY id").fetchall()
    assert rows == [(1, "1.50", [1]), (7, "NaN", None), (8, None, None)]
    named = database.execute(f"FROM {quoted(state.as_seen(database))} ORDER BY id").fetchall()
    assert [row[2] for row in named] == ["1.50", "NaN", None]
    state.require_exact(database, ["ns"])
