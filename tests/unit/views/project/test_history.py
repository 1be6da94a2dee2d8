"""Histories: what a view with `-- history: scd2` may say, and what is refused before anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlglot

from changelog.config import load_project
from changelog.contract.base.errors import ConfigurationError, ViewError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.form import Envelope, Form
from changelog.contract.log.frontier import Frontier, Growth
from changelog.contract.log.scope import Scope
from changelog.contract.log.versions import VERSION_COLUMNS, with_versions
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Kind
from replay.cut.asof import parse_as_of
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.spark_sql import SparkSql
from views.project.catalog import with_views
from views.project.history import check_columns
from views.project.sql import parse_sql_view
from views.rebuild.plan.histories import analyse_history, check_logs, check_options, most_bytes

ORDERS = TableName("public", "orders")
PATH = Path("prices.sql")
WHEN = "valid_from_lsn, valid_to_lsn, complete_from_lsn"
HEADER = "-- key: id, valid_from_lsn\n-- history: scd2\n"


def column(name: str, kind: Kind) -> LoggedColumn:
    return LoggedColumn(name, name, ColumnType(kind.value, kind), nullable=True)


SCHEMA = LoggedSchema(ORDERS, ("id",), (column("id", Kind.INT), column("note", Kind.STRING)))


def history(query: str, header: str = HEADER):
    return parse_sql_view("prices", PATH, f"{header}{query}")


def test_a_query_of_one_table_is_a_history():
    spec = history(f"SELECT id, upper(note) AS note, {WHEN} FROM orders WHERE id > 1")
    assert spec.history
    assert spec.key == ("id", "valid_from_lsn")
    assert not parse_sql_view("p", PATH, "-- key: id\nSELECT id FROM orders").history


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT o.id FROM orders o JOIN items i ON o.id = i.id", "a join"),
        ("SELECT o.id FROM orders o, items i", "a join"),
        ("SELECT count(*) AS n FROM orders", "aggregate"),
        ("SELECT id FROM orders GROUP BY id", "GROUP BY"),
        ("SELECT DISTINCT id FROM orders", "DISTINCT"),
        ("SELECT id FROM orders ORDER BY id", "ORDER BY"),
        ("SELECT id FROM orders ORDER BY id LIMIT 1", "ORDER BY"),
        ("SELECT id, lag(id) OVER (ORDER BY id) AS b FROM orders", "window function"),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM items)", "subquery"),
        ("SELECT id FROM (SELECT id FROM orders) AS o", "subquery"),
        ("WITH o AS (SELECT id FROM orders) SELECT id FROM o", "WITH"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM items", "UNION"),
        ("SELECT explode(array(id)) AS id FROM orders", "several rows"),
        ("SELECT id, x FROM orders LATERAL VIEW explode(array(1)) t AS x", "LATERAL VIEW"),
    ],
)
def test_what_is_of_several_rows_is_refused_by_name(query, why):
    with pytest.raises(ViewError, match=why) as refused:
        history(query)
    assert "one captured table" in refused.value.hint


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("-- key: id\n-- history: scd1\n", "no kind of history"),
        ("-- key: id\n-- history:\n", "no kind of history"),
        ("-- key: id\n-- history: scd2\n-- sinks: search\n", "cannot be served by search"),
        ("-- key: id\n-- history: scd2\n-- dialect: postgres\n", "Spark's SQL"),
    ],
)
def test_other_headers_are_refused(header, why):
    with pytest.raises(ViewError, match=why):
        history("SELECT id FROM orders", header)


def checked(query: str, key: tuple[str, ...] = ("id", "valid_from_lsn")) -> None:
    spec = history(query, f"-- key: {', '.join(key)}\n-- history: scd2\n")
    select = sqlglot.parse_one(query, read=SparkSql)
    assert isinstance(select, sqlglot.exp.Select)
    check_columns(spec, select, SCHEMA)


def test_the_columns_that_readers_need_are_required():
    checked("SELECT * FROM orders")
    checked(f"SELECT id, {WHEN} FROM orders")
    checked(f"SELECT o.id AS order_id, {WHEN} FROM orders o", ("order_id", "valid_from_lsn"))
    with pytest.raises(ViewError, match="without the column complete_from_lsn"):
        checked("SELECT id, valid_from_lsn, valid_to_lsn FROM orders")
    with pytest.raises(ViewError, match="without the column valid_from_lsn"):
        checked("SELECT id, valid_from_lsn + 1 AS valid_from_lsn, valid_to_lsn FROM orders")


@pytest.mark.parametrize("key", [("id",), ("note", "valid_from_lsn"), ("id", "valid_to_lsn")])
def test_a_key_that_does_not_tell_versions_apart_is_refused(key):
    with pytest.raises(ViewError, match="does not tell apart") as refused:
        checked("SELECT * FROM orders", key)
    assert "-- key: id, valid_from_lsn" in refused.value.hint


def test_a_computed_key_is_refused():
    with pytest.raises(ViewError, match="does not tell apart"):
        checked(f"SELECT id % 2 AS id, {WHEN} FROM orders")


def test_a_table_with_a_column_by_such_a_name_is_refused():
    clash = LoggedSchema(ORDERS, ("id",), (*SCHEMA.columns, column("is_current", Kind.BOOLEAN)))
    with pytest.raises(ViewError, match='has a column "is_current"'):
        with_versions(clash)


def test_a_history_is_analysed_with_the_columns_of_versions():
    analysis = analyse_history(history("SELECT * FROM orders"), {ORDERS: SCHEMA})
    assert analysis.unprovable is None
    assert analysis.shape is not None
    assert analysis.shape.names == ["id", "note", *VERSION_COLUMNS]
    assert analysis.follow.sent == "whole"


def test_views_do_not_read_a_history_and_a_history_reads_no_view():
    prices = history(f"SELECT id, {WHEN} FROM orders")
    plain = parse_sql_view("plain", Path("plain.sql"), "-- key: id\nSELECT id FROM prices")
    with pytest.raises(ViewError, match="that is a history"):
        with_views(plain, {"prices": prices})
    over = history(f"SELECT id, {WHEN} FROM plain")
    with pytest.raises(ViewError, match="is a history"):
        with_views(over, {"plain": plain})


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"source": RowsSource.REFRESH}, "--refresh"),
        ({"source": RowsSource.CHECKPOINT}, "--from checkpoint"),
        ({"source": RowsSource.ARCHIVE}, "--from archive"),
        ({"as_of": parse_as_of("0/1")}, "--as-of"),
        ({"verify": VerifyMode.NONE}, "--verify full"),
        ({"verify": VerifyMode.SAMPLE}, "--verify full"),
        ({"stage": True}, "--stage"),
        ({"certificate": True}, "--certificate"),
    ],
)
def test_options_that_are_not_for_histories_are_refused_for_them_alone(options, hint, tmp_path):
    (tmp_path / "changelog.toml").write_text("", encoding="utf-8")
    settings = RebuildSettings(project=load_project(tmp_path, needs=[]), **options)
    plain = parse_sql_view("plain", Path("plain.sql"), "-- key: id\nSELECT id FROM orders")
    check_options([plain], settings)
    with pytest.raises(ConfigurationError, match="is a history") as refused:
        check_options([plain, history(f"SELECT id, {WHEN} FROM orders")], settings)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("frontier", "why"),
    [
        ({"scopes": {"t": Scope(keyed=False)}}, "no primary key"),
        ({"scopes": {"t": Scope(form=Form(envelope=Envelope.NESTED))}}, "is captured as"),
        ({"grown": {"t": Growth(1, Lsn(1))}}, "more partitions"),
    ],
)
def test_logs_without_versions_are_refused(frontier, why):
    spec = history(f"SELECT id, {WHEN} FROM orders")
    base = Frontier(slot="s", epoch=1, lsn=Lsn(9), ts_us=0, tables={"t": ORDERS})
    check_logs([spec], [], base)
    with pytest.raises(ViewError, match=why):
        check_logs([spec], [], replace(base, **frontier))
    with pytest.raises(ViewError, match="not of this project's capture"):
        check_logs([spec], [ORDERS], base)


@pytest.mark.parametrize(
    ("name", "kind", "fits"),
    [
        ("numeric(38,2)", Kind.DECIMAL, True),
        ("character varying(400)", Kind.STRING, True),
        ("character varying(600)", Kind.STRING, False),
        ("character varying", Kind.STRING, False),
        ("text", Kind.STRING, False),
        ("integer[]", Kind.ARRAY, False),
        ("bytea", Kind.BYTES, False),
        ("uuid", Kind.UUID, True),
    ],
)
def test_rows_that_cannot_have_values_apart_are_told_from_others(name, kind, fits):
    other = LoggedColumn("c", "c", ColumnType(name, kind), nullable=True)
    schema = LoggedSchema(ORDERS, ("id",), (column("id", Kind.INT), other))
    assert (most_bytes(schema) < 2_000) is fits
