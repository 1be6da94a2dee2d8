"""From a captured table to a view that is served in PostgreSQL, in the captured database itself."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial

import psycopg2
import pytest
from psycopg2 import sql

from tests.support.captured_project import captured_database, rebuild_view
from tests.support.matrix import first
from tests.support.wait import wait_until
from views import command
from views.base.progress import Stages
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
CREATE TYPE grade AS ENUM ('poor', 'good', 'it''s "so"');
CREATE TABLE parts (id int PRIMARY KEY, order_id bigint, grade grade, price numeric(10, 2),
    at date);
INSERT INTO parts VALUES (1, 1, 'poor', 0.50, '2024-02-29'), (2, 1, 'good', NULL, NULL),
    (3, 1, 'it''s "so"', -1, '0001-01-01'), (4, 0, 'poor', 12, '9999-12-31'), (5, 2, NULL, 0, NULL);
"""
COPY = "-- key: id\n-- sinks: postgres, delta\nSELECT * FROM orders\n"
SUMS = (
    "-- key: customer\n-- sinks: postgres\nSELECT coalesce(customer, '?') AS customer, "
    "count(*) AS n, sum(amount) AS total, collect_set(id) AS ids FROM orders GROUP BY 1\n"
)
DOCUMENTS = """
SELECT o.id, min(p.grade) AS worst, coalesce(json_agg(
        json_build_object('grade', p.grade, 'price', p.price, 'at', p.at, 'tags', o.tags)
        ORDER BY p.grade DESC, p.id) FILTER (WHERE p.id IS NOT NULL), '[]') AS parts
  FROM orders o LEFT JOIN parts p ON p.order_id = o.id GROUP BY o.id
"""


@pytest.fixture(scope="module")
def project(stack, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("postgres"), TABLES) as (made, _):
        text = (made.root / "changelog.toml").read_text(encoding="utf-8")
        setting = f"sinks.postgres.url = {json.dumps(made.dsn)}\n"
        (made.root / "changelog.toml").write_text(setting + text, encoding="utf-8")
        made.view("copied.sql", COPY)
        made.view("sums.sql", SUMS)
        made.view(
            "documents.sql", f"-- key: id\n-- sinks: postgres\n-- dialect: postgres{DOCUMENTS}"
        )
        for name in ("copied", "sums", "documents"):
            made.view(f"{name}.postgres.json", json.dumps({"table": f"served.{name}"}))
        yield made


def test_views_are_built_proved_served_changed_and_rolled_back(spark, project, capsys, monkeypatch):
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
    assert done.code == 0, done.err
    assert {each["verified"] for each in done.results} == {True}
    assert project.query("TABLE served.copied EXCEPT TABLE orders") == []
    assert project.query("SELECT count(*) FROM served.copied") == [(201,)]
    project.execute("UPDATE orders SET amount = amount + 1 WHERE id <= 10; DELETE FROM orders "
                    "WHERE id = 11; UPDATE orders SET id = 1000 WHERE id = 12")  # fmt: skip
    project.capture()
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--refresh", "--json")
    assert done.code == 0, done.err
    assert {each["verified"] for each in done.results} == {True}
    same = "SELECT count(*) FROM (TABLE served.copied INTERSECT TABLE orders) x"
    assert project.query(same) == [(200,)]
    assert project.query("SELECT n, total FROM served.sums WHERE customer = 'c1'") == project.query(
        "SELECT count(*), sum(amount) FROM orders WHERE customer = 'c1'"
    )
    assert rebuild_view(capsys, monkeypatch, project, "copied", "--rollback").code == 0
    assert project.query("SELECT count(*) FROM served.copied") == [(201,)]


def test_documents_in_postgresqls_sql_are_what_the_source_itself_answers(
    spark, project, capsys, monkeypatch
):
    done = rebuild_view(capsys, monkeypatch, project, "documents", "--json")
    assert done.code == 0, done.err
    assert {each["verified"] for each in done.results} == {True}
    # Sinks write a decimal in a document as a text.
    query = DOCUMENTS.replace("p.price,", "p.price::text,")
    own = f"SELECT id, worst::text, parts::jsonb FROM ({query}) AS q"
    served = "SELECT id, worst, parts FROM served.documents"
    assert project.query(f"({own}) EXCEPT {served}") == []
    assert project.query(f"{served} EXCEPT {own}") == []


@pytest.mark.matrix
def test_a_row_that_is_wrong_in_the_table_is_refuted_and_not_published(
    spark, project, capsys, monkeypatch
):
    assert rebuild_view(capsys, monkeypatch, project, "sums").code == 0
    before = project.query("SELECT * FROM served.sums ORDER BY customer")
    make_key = PostgresSink._make_key

    def altered(self, cursor, relation):
        make_key(self, cursor, relation)
        statement = sql.SQL("UPDATE {} SET total = total + 0.01 WHERE customer = 'c2'")
        cursor.execute(statement.format(place(relation)))

    monkeypatch.setattr(PostgresSink, "_make_key", altered)
    done = rebuild_view(capsys, monkeypatch, project, "sums")
    assert done.code == 3, done.err
    assert "c2" in done.err + done.out
    assert project.query("SELECT * FROM served.sums ORDER BY customer") == before


@pytest.mark.matrix
def test_a_captured_table_is_never_overwritten(spark, project, capsys, monkeypatch):
    project.view("orders.sql", "-- key: id\n-- sinks: postgres\nSELECT id FROM orders\n")
    done = rebuild_view(capsys, monkeypatch, project, "orders")
    (project.root / "views" / "orders.sql").unlink()
    assert done.code == 1
    assert "public.orders was not created for this view" in done.err
    assert project.query("SELECT count(*) FROM orders WHERE amount IS NOT NULL") != [(0,)]
    assert project.dsn.split("password=")[-1] not in done.err or "password" not in project.dsn


PAIR = ("first", "second")
WAITS = """
SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity USING (pid)
WHERE NOT l.granted AND datname = current_database() AND application_name LIKE 'changelog%')
"""


def served(project, mode):
    """Read a row that changes as readers of both views see it, in both sinks."""
    tables = [f"SELECT amount FROM served.{name}_{mode} WHERE id = 20" for name in PAIR]
    ((one, other),) = project.query(f"SELECT ({tables[0]}), ({tables[1]})")
    in_delta = [row["amount"] for name in PAIR for row in project.delta(name) if row["id"] == 20]
    return {"postgres": [one, other], "delta": in_delta}


def drop(project, capsys, monkeypatch, names):
    for name in names:
        assert rebuild_view(capsys, monkeypatch, project, name, "--drop", "--yes").code == 0
        for path in (project.root / "views").glob(f"{name}.*"):
            path.unlink()


def seen_while_one_is_used(project, capsys, monkeypatch, mode):
    """Move two views together while somebody uses the second: what is served before, then, after.

    A row that is locked holds `upsert` up, a query that runs `exchange`.
    """
    query = "-- key: id\n-- sinks: delta, postgres\nSELECT id, amount FROM orders\n"
    for name, how in zip(PAIR, ("upsert", mode), strict=True):
        project.view(f"{name}.sql", query)
        options = json.dumps({"table": f"served.{name}_{mode}", "mode": how})
        project.view(f"{name}.postgres.json", options)
    done = rebuild_view(capsys, monkeypatch, project, *PAIR)
    assert done.code == 0, done.err
    project.execute("UPDATE orders SET amount = amount + 1 WHERE id = 20")
    project.capture()
    seen = [served(project, mode)]
    use = f"SELECT * FROM served.second_{mode}"
    with closing(psycopg2.connect(project.dsn)) as user, ThreadPoolExecutor(1) as beside:

        def let_go():
            wait_until(lambda: project.query(WAITS) == [(True,)], 60, "somebody to wait")
            seen.append(served(project, mode))
            user.rollback()

        def before(stage):
            if stage == "publish":
                user.cursor().execute(use + (" FOR UPDATE" if mode == "upsert" else ""))
                looked.append(beside.submit(let_go))

        looked: list[Future[None]] = []
        with monkeypatch.context() as patched:
            patched.setattr(command, "Stages", partial(Stages, before=before))
            done = rebuild_view(capsys, patched, project, *PAIR, "--together")
        looked[0].result()
    assert done.code == 0, done.err
    seen.append(served(project, mode))
    drop(project, capsys, monkeypatch, PAIR)
    return seen


@pytest.mark.matrix
def test_a_foreign_key_between_views_holds_at_the_end_of_all(spark, project, capsys, monkeypatch):
    project.execute("INSERT INTO orders VALUES (5000)")
    project.capture()
    for name, query in {
        "parents": "SELECT id, amount FROM orders",
        "children": "SELECT id, id AS parent FROM orders",
    }.items():
        project.view(f"{name}.sql", f"-- key: id\n-- sinks: postgres, delta\n{query}\n")
        options = json.dumps({"table": f"served.{name}", "mode": "upsert"})
        project.view(f"{name}.postgres.json", options)
    done = rebuild_view(capsys, monkeypatch, project, "children", "parents")
    assert done.code == 0, done.err
    project.execute("ALTER TABLE served.children ADD FOREIGN KEY (parent) "
                    "REFERENCES served.parents (id) DEFERRABLE")  # fmt: skip
    project.execute("DELETE FROM orders WHERE id = 5000; INSERT INTO orders VALUES (5001)")
    project.capture()
    done = rebuild_view(capsys, monkeypatch, project, "children", "parents", "--together")
    assert done.code == 0, done.err
    assert project.query("SELECT max(parent), count(*) FROM served.children") == project.query(
        "SELECT max(id), count(*) FROM orders"
    )
    project.execute("INSERT INTO orders VALUES (5002)")
    project.capture()
    refused = rebuild_view(capsys, monkeypatch, project, "children")
    assert refused.code == 1
    assert "foreign key" in refused.err
    assert max(row["id"] for row in project.delta("children")) == 5001, "nothing has moved"
    drop(project, capsys, monkeypatch, ["children", "parents"])
    project.execute("DELETE FROM orders WHERE id >= 5000")  # other tests count the rows
    project.capture()


@pytest.mark.matrix
@pytest.mark.parametrize("mode", first(1, ["upsert", "exchange"]))
def test_no_view_moves_while_one_that_is_to_move_with_it_waits_for_a_lock(
    spark, project, capsys, monkeypatch, mode
):
    before, meanwhile, after = seen_while_one_is_used(project, capsys, monkeypatch, mode)
    assert meanwhile == before
    assert after == {sink: [value + 1 for value in values] for sink, values in before.items()}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["upsert", "exchange"])
def test_twin_that_moves_one_after_the_other_leaves_them_apart(
    spark, project, capsys, monkeypatch, mode
):
    monkeypatch.setattr("views.generations.swap.TransactionalSink", type(None))
    before, meanwhile, _ = seen_while_one_is_used(project, capsys, monkeypatch, mode)
    assert meanwhile["postgres"][0] != before["postgres"][0]
