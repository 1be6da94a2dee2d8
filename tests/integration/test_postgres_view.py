"""From a captured table to a view that is served in PostgreSQL, in the captured database itself."""

from __future__ import annotations

import json
from contextlib import closing

import psycopg2
import pytest
from psycopg2 import sql

from tests.support.captured_project import captured_database, rebuild_view
from views.sinks.postgres.registry import place
from views.sinks.postgres.sink import PostgresSink

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(10, 2), at timestamptz,
    tags text[]);
INSERT INTO orders SELECT n, 'c' || n % 3, n * 1.25, '2020-01-01'::timestamptz + n * interval '1 s',
    ARRAY['a', NULL] FROM generate_series(1, 200) n;
INSERT INTO orders VALUES (0, NULL, NULL, 'infinity', '{}');
CREATE SCHEMA served;
"""
COPY = "-- key: id\n-- sinks: postgres, delta\nSELECT * FROM orders\n"
SUMS = (
    "-- key: customer\n-- sinks: postgres\nSELECT coalesce(customer, '?') AS customer, "
    "count(*) AS n, sum(amount) AS total, collect_set(id) AS ids FROM orders GROUP BY 1\n"
)


@pytest.fixture(scope="module")
def project(stack, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("postgres"), TABLES) as (made, _):
        text = (made.root / "changelog.toml").read_text(encoding="utf-8")
        setting = f"sinks.postgres.url = {json.dumps(made.dsn)}\n"
        (made.root / "changelog.toml").write_text(setting + text, encoding="utf-8")
        made.view("copied.sql", COPY)
        made.view("sums.sql", SUMS)
        for name in ("copied", "sums"):
            made.view(f"{name}.postgres.json", json.dumps({"table": f"served.{name}"}))
        yield made


def select(project, query):
    with closing(psycopg2.connect(project.dsn)) as link, link.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def test_views_are_built_proved_served_changed_and_rolled_back(spark, project, capsys, monkeypatch):
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
    assert done.code == 0, done.err
    assert {each["verified"] for each in done.results} == {True}
    assert select(project, "TABLE served.copied EXCEPT TABLE orders") == []
    assert select(project, "SELECT count(*) FROM served.copied") == [(201,)]
    project.execute("UPDATE orders SET amount = amount + 1 WHERE id <= 10; DELETE FROM orders "
                    "WHERE id = 11; UPDATE orders SET id = 1000 WHERE id = 12")  # fmt: skip
    project.capture()
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--refresh", "--json")
    assert done.code == 0, done.err
    assert {each["verified"] for each in done.results} == {True}
    same = "SELECT count(*) FROM (TABLE served.copied INTERSECT TABLE orders) x"
    assert select(project, same) == [(200,)]
    assert select(project, "SELECT n, total FROM served.sums WHERE customer = 'c1'") == select(
        project, "SELECT count(*), sum(amount) FROM orders WHERE customer = 'c1'"
    )
    assert rebuild_view(capsys, monkeypatch, project, "copied", "--rollback").code == 0
    assert select(project, "SELECT count(*) FROM served.copied") == [(201,)]


def test_a_row_that_is_wrong_in_the_table_is_refuted_and_not_published(
    spark, project, capsys, monkeypatch
):
    assert rebuild_view(capsys, monkeypatch, project, "sums").code == 0
    before = select(project, "SELECT * FROM served.sums ORDER BY customer")
    make_key = PostgresSink._make_key

    def altered(self, cursor, relation):
        make_key(self, cursor, relation)
        statement = sql.SQL("UPDATE {} SET total = total + 0.01 WHERE customer = 'c2'")
        cursor.execute(statement.format(place(relation)))

    monkeypatch.setattr(PostgresSink, "_make_key", altered)
    done = rebuild_view(capsys, monkeypatch, project, "sums")
    assert done.code == 3, done.err
    assert "c2" in done.err + done.out
    assert select(project, "SELECT * FROM served.sums ORDER BY customer") == before


def test_a_captured_table_is_never_overwritten(spark, project, capsys, monkeypatch):
    project.view("orders.sql", "-- key: id\n-- sinks: postgres\nSELECT id FROM orders\n")
    done = rebuild_view(capsys, monkeypatch, project, "orders")
    (project.root / "views" / "orders.sql").unlink()
    assert done.code == 1
    assert "public.orders was not made for this view" in done.err
    assert select(project, "SELECT count(*) FROM orders WHERE amount IS NOT NULL") != [(0,)]
    assert project.dsn.split("password=")[-1] not in done.err or "password" not in project.dsn
