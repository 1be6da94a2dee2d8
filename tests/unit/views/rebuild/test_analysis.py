"""What a plan says of a view before Spark starts."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyspark.sql.types import DayTimeIntervalType, NullType, StringType

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import column_type
from tests.support.builders import INTEGER, TEXT, decimal_type
from tests.support.ended_database import end
from views.project.sql import parse_sql_view
from views.rebuild.plan.analysis import Engine, analyse
from views.verify.sql.translate import UnverifiableError, translate
from views.verify.values.types import parse_type

DATE = column_type("date", "date")
TIMESTAMP = column_type("timestamp", "timestamp without time zone")
THINGS, PARTS = TableName("public", "things"), TableName("shop", "parts")
SCHEMAS = {
    table: LoggedSchema(
        table,
        ("id",),
        tuple(LoggedColumn(name, name, kind, nullable=True) for name, kind in columns.items()),
    )
    for table, columns in {
        THINGS: {
            "id": INTEGER,
            "name": TEXT,
            "amount": decimal_type(9, 2),
            "moment": TIMESTAMP,
        },
        PARTS: {"id": INTEGER, "thing_id": INTEGER},
    }.items()
}


def look(sql: str, *, key: str = "id", sinks: str = "delta"):
    text = f"-- key: {key}\n-- sinks: {sinks}\n{sql}\n"
    return analyse(parse_sql_view("v", Path("v.sql"), text), SCHEMAS)


def test_a_view_over_one_table_is_proved_and_refreshed_by_its_rows() -> None:
    found = look("SELECT id, name FROM things WHERE amount > 1")
    assert (found.unprovable, found.whole) == (None, None)
    assert found.lines() == [
        "proof: every row",
        "a refresh computes the rows that changed",
        "--follow writes all rows anew, by Spark: a Delta table takes all rows of a view",
        "  a changed row of things: all rows of the view, by Spark",
    ]
    assert found.to_json()["refresh"] == "rows"


@pytest.mark.parametrize(
    ("sql", "sinks", "sent", "why"),
    [
        ("SELECT id, amount FROM things", "search", "keys", "of changed keys, without Spark"),
        ("SELECT id, initcap(name) AS n FROM things", "search", "keys", "by Spark: INITCAP"),
        (
            "SELECT id FROM things WHERE moment > cast('2024-01-01 10:00' AS timestamp_ntz)",
            "search",
            "keys",
            "by Spark: CAST('2024-01-01 10:00' AS TIMESTAMP_NTZ)",
        ),
        (
            "SELECT n AS id, count(*) AS c FROM (SELECT count(id) AS n FROM things) t GROUP BY n",
            "cache",
            "differences",
            "sends what differs: it has a query inside",
        ),
        (
            "SELECT id FROM (SELECT id, initcap(name) AS n FROM things) t",
            "cache",
            "whole",
            "by Spark: it has a query inside, and INITCAP",
        ),
        ("SELECT id FROM things", "delta", "whole", "a Delta table takes all rows"),
    ],
)
def test_a_plan_says_how_a_follower_keeps_a_view_fresh(sql, sinks, sent, why) -> None:
    plan = look(sql, sinks=sinks)
    assert plan.follow.sent == plan.to_json()["follow"] == sent
    assert why in plan.lines()[2]


@pytest.mark.parametrize(
    ("sql", "costs"),
    [
        ("SELECT id, amount FROM things", ["things (id, amount): one key"]),
        (
            """SELECT t.id, count(p.id) AS n FROM things t
            LEFT JOIN shop.parts p ON p.thing_id = t.id GROUP BY t.id""",
            ["things (id): one key", "shop.parts (id, thing_id): one key of things by id"],
        ),
        (
            "SELECT p.id, t.name FROM shop.parts p JOIN things t ON p.thing_id = t.id",
            [
                "shop.parts (id, thing_id): one key",
                "things (name, id): the keys of shop.parts by thing_id",
            ],
        ),
        ("SELECT id, initcap(name) AS n FROM things", ["things: one key"]),
        ("SELECT id, upper(name) AS n FROM things", ["things (id, name): one key"]),
        (
            "SELECT n AS id, count(*) AS c FROM (SELECT count(id) AS n FROM things) t GROUP BY n",
            ["things (id): all rows of the view, without Spark"],
        ),
    ],
)
def test_a_plan_says_what_a_changed_row_of_each_table_costs(sql, costs) -> None:
    plan = look(sql, sinks="search")
    told = [line.strip() for line in plan.lines() if line.startswith(" ")]
    assert sorted(told) == sorted(f"a changed row of {cost}" for cost in costs)
    assert [cost["table"] for cost in plan.to_json()["follow_costs"]]


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
        ("SELECT id, soundex(name) AS r FROM things", "function soundex is not known"),
        ("SELECT id, my_function(name) AS f FROM things", "my_function is not known"),
        ("SELECT id, sort_array(collect_list(name))[0] AS l FROM things GROUP BY id", None),
        ("SELECT id, collect_list(struct(name, amount)) AS l FROM things GROUP BY id", None),
        ("SELECT id FROM things WHERE date '2020-01-01' = 3", "no test has compared"),
        ("SELECT id, sum(amount) AS s FROM things", "neither under GROUP BY nor in"),
        ("SELECT id FROM things WHERE sum(amount) > 1", "WHERE holds aggregates"),
        ("SELECT id, (SELECT id, name FROM things) AS x FROM things", "gives 2 columns where one"),
        ("SELECT id, name FROM things UNION SELECT id FROM things", "different numbers of columns"),
        (
            "SELECT id, sum(amount) OVER (ORDER BY name RANGE 1 PRECEDING) AS s FROM things",
            "RANGE counts from a number or a date",
        ),
    ],
)
def test_what_cannot_be_proved_says_why(sql: str, why: str | None) -> None:
    found = look(sql).unprovable
    assert found is None if why is None else why in (found or "")


def test_a_column_that_is_nowhere_is_refused_with_what_is_near() -> None:
    with pytest.raises(ViewError, match='reads a column "amonut", which none') as raised:
        look("SELECT id, amonut FROM things")
    assert "did you mean amount?" in raised.value.hint
    with pytest.raises(ViewError, match='"id", which several of its tables have'):
        look("SELECT id FROM things a JOIN things b ON a.id = b.id")
    with pytest.raises(ViewError, match="thing_idd"):
        look("SELECT t.id FROM things t JOIN shop.parts p ON p.thing_idd = t.id")


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT id, sum(amount) FROM things GROUP BY id", r"column 2, SUM\(amount\), has no name"),
        ("SELECT id, amount + 1 FROM things", "has no name"),
        ("SELECT id, name, amount AS Name FROM things", "two columns called Name and name"),
        ("SELECT * FROM things JOIN shop.parts USING (id) WHERE id > 1", None),
        ("SELECT t.id, p.thing_id, id AS other FROM things t, shop.parts p", "is in things and"),
    ],
)
def test_names_that_cannot_be_used_are_refused(sql: str, why: str | None) -> None:
    if why is None:
        assert look(sql).shape is not None
        return
    with pytest.raises(ViewError, match=why):
        look(sql)


def test_a_name_that_spark_makes_up_is_held_by_some_sinks_and_proved_by_none() -> None:
    found = look("SELECT id, sum(amount) FROM things GROUP BY id", sinks="postgres, cache")
    assert "has no name" in (found.unprovable or "")


@pytest.mark.parametrize(
    ("sql", "key", "spelled"),
    [
        ('SELECT id AS "SEGMENT" FROM things', "SEGMENT", "SEGMENT"),
        ("SELECT id AS SEGMENT FROM things", "segment", "SEGMENT"),
        ("SELECT id AS `Seg Ment` FROM things", '"SEG MENT"', "Seg Ment"),
        ("SELECT ID FROM things", "id", "ID"),
        ("SELECT * FROM things", "ID", "id"),
        ("SELECT t.* FROM things t", "Id", "id"),
        ("WITH s AS (SELECT id AS Mixed FROM things) SELECT * FROM s", "MIXED", "Mixed"),
        ("SELECT * FROM (SELECT id AS Mixed FROM things) AS s (Other)", "other", "Other"),
        ("SELECT id AS A FROM things UNION ALL SELECT id AS b FROM things", "a", "A"),
    ],
)
def test_names_keep_their_case_and_the_key_may_be_written_in_either(sql, key, spelled) -> None:
    assert look(sql, key=key, sinks="postgres").key == (spelled,)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("day - date '2020-01-01'", DayTimeIntervalType),
        ("at - at", DayTimeIntervalType),
        ("max(later) - min(day)", DayTimeIntervalType),
        ("CASE WHEN n > 1 THEN interval 1 day END", DayTimeIntervalType),
        ("2 * (at - timestamp '2020-01-01')", DayTimeIntervalType),
        ("make_interval(1)", DayTimeIntervalType),
        ("NULL", NullType),
        ("at - interval 1 day", StringType),
        ("day + interval 1 month", StringType),
        ("day - n", StringType),
        ("datediff(day, later)", StringType),
        ("n - n", StringType),
    ],
)
def test_intervals_and_nulls_are_known_before_spark_starts(value, kind) -> None:
    columns = {"id": INTEGER, "n": INTEGER, "day": DATE, "later": DATE, "at": TIMESTAMP}
    table = TableName("public", "moments")
    logged = tuple(LoggedColumn(name, name, each, nullable=True) for name, each in columns.items())
    schemas = {table: LoggedSchema(table, ("id",), logged)}
    text = f"-- key: id\nSELECT max(id) AS id, {value} AS x FROM moments"
    shape = analyse(parse_sql_view("v", Path("v.sql"), text), schemas).shape
    assert shape is not None
    assert isinstance(shape["x"].dataType, kind)


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


def test_a_key_of_computed_floats_is_refused_and_one_of_captured_ones_is_not() -> None:
    computed = look("SELECT sqrt(amount) AS k FROM things WHERE amount > 0", key="k")
    assert '"k" of its key is a float that does not come straight' in (computed.unprovable or "")
    both = "SELECT id AS k FROM things UNION SELECT sqrt(id) FROM shop.parts"
    assert "a float that does not come straight" in (look(both, key="k").unprovable or "")


def test_a_null_of_one_query_takes_the_type_of_the_other() -> None:
    shape = look("SELECT id, NULL AS n FROM things UNION ALL SELECT id, amount FROM things").shape
    assert shape is not None
    assert shape["n"].dataType == StringType()
    shape = look("SELECT id, NULL AS n FROM things").shape
    assert shape is not None
    assert shape["n"].dataType == NullType()


def test_an_error_inside_duckdb_refuses_one_view_alone() -> None:
    types = {THINGS: {"id": parse_type("int")}}
    query = translate("SELECT id FROM things", types)
    with Engine() as engine:
        assert engine.types_of(query, types) == ["INTEGER"]
        with pytest.raises(duckdb.InternalException):
            end(engine._database)
        with pytest.raises(UnverifiableError, match="FATAL Error"):
            engine.types_of(query, types)
        assert engine.types_of(query, types) == ["INTEGER"]
