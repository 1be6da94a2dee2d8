"""What a plan says of a view before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from tests.support.builders import INTEGER, TEXT, decimal_type
from views.project.sql import parse_sql_view
from views.rebuild.plan.analysis import analyse

THINGS, PARTS = TableName("public", "things"), TableName("shop", "parts")
SCHEMAS = {
    table: LoggedSchema(
        table,
        ("id",),
        tuple(LoggedColumn(name, name, kind, nullable=True) for name, kind in columns.items()),
    )
    for table, columns in {
        THINGS: {"id": INTEGER, "name": TEXT, "amount": decimal_type(9, 2)},
        PARTS: {"id": INTEGER, "thing_id": INTEGER},
    }.items()
}


def look(sql: str, *, key: str = "id", sinks: str = "delta"):
    text = f"-- key: {key}\n-- sinks: {sinks}\n{sql}\n"
    return analyse(parse_sql_view("v", Path("v.sql"), text), SCHEMAS)


def test_a_view_over_one_table_is_proved_and_refreshed_by_its_rows() -> None:
    found = look("SELECT id, name FROM things WHERE amount > 1")
    assert (found.unprovable, found.whole) == (None, None)
    assert found.lines() == ["proof: every row", "a refresh computes the rows that changed"]
    assert found.to_json()["refresh"] == "rows"


@pytest.mark.parametrize(
    ("sql", "sinks", "why"),
    [
        ("SELECT id FROM things ORDER BY id LIMIT 3", "delta", "LIMIT"),
        ("SELECT id, row_number() OVER (ORDER BY id) AS n FROM things", "delta", "window"),
        ("SELECT id FROM things", "search", "no Delta sink"),
    ],
)
def test_how_a_refresh_goes_is_told(sql: str, sinks: str, why: str) -> None:
    assert why in (look(sql, sinks=sinks).whole or "")


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT id, soundex(name) AS r FROM things", "Soundex"),
        ("SELECT id, my_function(name) AS f FROM things", "my_function is not known"),
        ("SELECT id, sort_array(collect_list(name))[0] AS l FROM things GROUP BY id", None),
        ("SELECT id, collect_list(struct(name, amount)) AS l FROM things GROUP BY id", None),
        ("SELECT id, name || 1 / 0 AS x FROM things WHERE name > date '2020-01-01'", "DuckDB"),
    ],
)
def test_what_cannot_be_proved_says_why(sql: str, why: str | None) -> None:
    found = look(sql).unprovable
    assert found is None if why is None else why in (found or "")


def test_a_column_that_is_nowhere_is_refused_with_what_is_near() -> None:
    with pytest.raises(ViewError, match='reads a column "amonut", which none') as raised:
        look("SELECT id, amonut FROM things")
    assert "did you mean amount?" in raised.value.hint
    with pytest.raises(ViewError, match="thing_idd"):
        look("SELECT t.id FROM things t JOIN shop.parts p ON p.thing_idd = t.id")


def test_a_column_that_the_query_names_itself_is_left_to_spark() -> None:
    found = look("SELECT id, amount + 1 AS more, more + 1 AS most FROM things")
    assert found.unprovable is None or "more" in found.unprovable


def test_a_key_that_the_view_lacks_is_refused() -> None:
    with pytest.raises(ViewError, match="has no column nr, which its key names") as raised:
        look("SELECT id, name FROM things", key="id, nr")
    assert raised.value.hint == "it has id, name"


def test_a_view_in_python_says_what_is_proved(tmp_path: Path) -> None:
    from views.project.python import load_python_view

    path = tmp_path / "v.py"
    path.write_text(
        "from views import view\n@view(key='id', tables=['things'])\ndef v(things):\n"
        "    return things\n"
    )
    found = analyse(load_python_view("v", path), SCHEMAS)
    assert "the tables that it reads are verified" in (found.unprovable or "")
    assert found.whole == "it is made by a function"
