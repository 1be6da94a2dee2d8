"""docs/serving.md, docs/sinks.md and docs/reading.md: their views, settings and readers."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.captured_project import CapturedProject, captured_database, write_settings
from tests.support.page import blocks_of
from tests.support.page_lines import address_of, block_of, reader_of
from views import Project

pytestmark = pytest.mark.matrix
DOCS = Path(__file__).parents[2] / "docs"
SERVING, SINKS, READING = (DOCS / f"{name}.md" for name in ("serving", "sinks", "reading"))
FLIGHTS = """
CREATE TABLE flights (
    code text PRIMARY KEY, carrier text, flight int, city text, price numeric(8, 2));
INSERT INTO flights VALUES
    ('UA1545', 'UA', 1545, 'IAH-1', 99.5), ('DL461', 'DL', 461, 'ATL', 120)
"""
ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(10, 2));
INSERT INTO orders VALUES (1, 'Ann', 19.90), (2, 'Ann', 5), (3, 'Bo', 7.25)
"""
TOTALS = {("Ann", 2, "24.90"), ("Bo", 1, "7.25")}
CHAT = """
CREATE TABLE chat (customer text, text text);
ALTER TABLE chat REPLICA IDENTITY FULL;
CREATE TABLE parent (id integer PRIMARY KEY, text text);
CREATE TABLE child (more integer, PRIMARY KEY (id)) INHERITS (parent);
INSERT INTO parent VALUES (1, 'own');
INSERT INTO child VALUES (1, 'of the child', 5), (2, 'another', 6);
INSERT INTO chat VALUES ('Ann', 'hello'), ('Bo', 'hi'), ('Ann', 'again')
"""
NOTES = """
CREATE TABLE notes (id bigint PRIMARY KEY, text text);
INSERT INTO notes VALUES (1, 'one'), (2, 'two')
"""


def settings_are(root: Path, *more: str) -> None:
    """Put settings in front of those of a project."""
    path = root / "changelog.toml"
    path.write_text("\n".join([path.read_text("utf-8"), *more]), encoding="utf-8")


def rebuilt(project: CapturedProject) -> None:
    for each in Project.open(project.root).rebuild():
        assert each.verified, each


def shown_by(text: str) -> list[Any]:
    """Run a text as a prompt does; return what it would show, line by line."""
    names: dict[str, Any] = {}
    shown = []
    for each in ast.parse(text).body:
        if isinstance(each, ast.Expr):
            shown.append(eval(compile(ast.Expression(each.value), "page", "eval"), names))  # noqa: S307
        else:
            exec(compile(ast.Module([each], []), "page", "exec"), names)  # noqa: S102 - of our page
    return shown


def test_readers_of_a_cache_and_the_options_of_an_index(spark, stack, tmp_path):
    endpoints = stack.endpoints()
    with captured_database(stack, tmp_path, FLIGHTS) as (project, name):
        flights, legs, cities = (f"{name}_{each}" for each in ("flights", "legs", "cities"))
        project.view(
            f"{flights}.sql", "-- key: code\n-- sinks: cache\nSELECT code, city FROM flights"
        )
        query = (
            "-- key: carrier, flight\n-- sinks: cache\nSELECT carrier, flight, city FROM flights"
        )
        project.view(f"{legs}.sql", query)
        query = "-- key: code\n-- sinks: search\nSELECT code, city, price FROM flights"
        project.view(f"{cities}.sql", query)
        options = block_of(SERVING, "json", "{").text
        project.view(f"{cities}.search.json", options)
        rebuilt(project)
        (reader,) = (each.text for each in blocks_of(SERVING) if each.kind == "python")
        for page, here in {
            "redis://localhost:6379/0": str(endpoints.cache),
            '"flights"': f'"{flights}"',
            '"legs"': f'"{legs}"',
        }.items():
            assert page in reader
            reader = reader.replace(page, here)
        one, several = shown_by(reader)
        assert one == {"code": "UA1545", "city": "IAH-1"}
        assert [each["city"] for each in several] == ["IAH-1", "ATL"]
        index = f"{endpoints.search}/{cities}"
        (told,) = httpx.get(f"{index}/_settings", timeout=30).json().values()
        wanted = json.loads(options)["settings"]
        assert told["settings"]["index"]["number_of_shards"] == str(wanted["number_of_shards"])
        assert told["settings"]["index"]["number_of_replicas"] == str(wanted["number_of_replicas"])
        (told,) = httpx.get(f"{index}/_mapping", timeout=30).json().values()
        fields = told["mappings"]["properties"]
        assert fields["price"]["type"] == "keyword"
        assert fields["city"]["fields"]["codes"]["analyzer"] == "codes"
        by_code = httpx.get(f"{index}/_search?q=city.codes:IAH", timeout=30).json()
        assert [each["_id"] for each in by_code["hits"]["hits"]] == ["UA1545"]


def test_a_view_is_a_table_and_a_topic_that_another_project_reads(spark, stack, tmp_path):
    endpoints = stack.endpoints()
    with captured_database(stack, tmp_path / "one", ORDERS) as (project, name):
        project.execute("CREATE SCHEMA served")
        table = block_of(SINKS, "toml", "[sinks.postgres]").text
        asked = "postgresql://views:${PGPASSWORD}@db.example.com/app?sslmode=verify-full&sslrootcert=/etc/pki/db.pem"
        assert asked in table
        settings_are(project.root, table.replace(asked, address_of(project.dsn)))
        for view, start in {
            "by_customer": "-- key: customer\n-- sinks: postgres, delta",
            "totals": "-- key: customer\n-- sinks: topic",
            "in_iceberg": "-- key: customer\n-- sinks: iceberg",
        }.items():
            project.view(f"{view}.sql", block_of(SINKS, "sql", start).text)
        rebuilt(project)
        found = project.query("SELECT customer, orders, total::text FROM public.by_customer")
        assert {*found} == TOTALS
        (reader,) = (each.text for each in blocks_of(SINKS) if each.kind == "python")
        for page, here in {
            '"warehouse/_iceberg"': f'"{project.warehouse}/_iceberg"',
            '"views.totals"': '"views.in_iceberg"',
        }.items():
            assert page in reader
            reader = reader.replace(page, here)
        rows, _ = shown_by(reader)
        assert {(each["customer"], each["orders"], str(each["total"])) for each in rows} == TOTALS
        other = CapturedProject(tmp_path / "two", "")
        write_settings(other.root, endpoints, "dbname=none", f"{name}b")
        log = block_of(SINKS, "toml", "[logs.totals]").text
        assert '"shop.views.totals"' in log
        settings_are(other.root, log.replace("shop.views", f"{name}.views"))
        other.view("again.sql", "-- key: customer\n-- sinks: delta\nSELECT * FROM totals")
        rebuilt(other)
        rows = other.delta("again")
        assert {(each["customer"], each["orders"], str(each["total"])) for each in rows} == TOTALS


def test_rows_without_a_key_and_rows_of_children_are_views(spark, stack, tmp_path):
    with captured_database(stack, tmp_path, CHAT, capture="allow_unkeyed = true") as (project, _):
        project.view("messages.sql", block_of(READING, "sql", "-- key: customer").text)
        project.view("family.sql", block_of(READING, "sql", "-- key: origin, id").text)
        rebuilt(project)
        said = {
            each["customer"]: [one["text"] for one in each["messages"]]
            for each in project.delta("messages")
        }
        assert said == {"Ann": ["hello", "again"], "Bo": ["hi"]}
        family = sorted(
            (each["origin"], each["id"], each["text"]) for each in project.delta("family")
        )
        assert family == [
            ("child", 1, "of the child"), ("child", 2, "another"), ("parent", 1, "own"),
        ]  # fmt: skip


def event(op, row, lsn):
    value = {"before": None, "after": row, "op": op, "source": {"lsn": lsn}}
    return json.dumps({"key": {"id": 1}, "value": value})


def test_logs_that_are_declared_are_views(spark, stack, tmp_path):
    endpoints = stack.endpoints()
    labelled = 'envelope = "labelled"\noutput_format = "json"'
    with captured_database(stack, tmp_path / "one", NOTES, capture=labelled) as (project, name):
        project.execute("DELETE FROM notes WHERE id = 2")
        project.capture()
        topic = f"{name}.public.orders"
        shell = reader_of(tmp_path, endpoints, project.dsn, name)
        shell.run(f"changelog topics --create {topic} --unkeyed")
        rows = ({"id": 1, "status": each, "total": "19.90"} for each in ("sent", "open"))
        # The one that was written last is the older one.
        events = "\n".join(event("u", row, lsn) for row, lsn in zip(rows, (20, 10), strict=True))
        shell.run(f"changelog write {topic} --json <<'END'\n{events}\nEND")
        other = CapturedProject(tmp_path / "two", "")
        write_settings(other.root, endpoints, "dbname=none", f"{name}b")
        for start, page, here in (
            ("[logs.notes]", '"notes"', f'"{name}.notes"'),
            ("[logs.orders]", '"dbserver1.public.orders"', f'"{topic}"'),
        ):
            text = block_of(READING, "toml", start).text
            assert f"topic = {page}" in text
            settings_are(other.root, text.replace(f"topic = {page}", f"topic = {here}"))
        query = "SELECT id, text, __table AS source, __ingested AS written FROM notes"
        other.view("notes_of.sql", f"-- key: id\n-- sinks: delta\n{query}")
        query = "SELECT id, status, total FROM orders"
        other.view("orders_of.sql", f"-- key: id\n-- sinks: delta\n{query}")
        rebuilt(other)
        (note,) = other.delta("notes_of")
        assert (note["id"], note["text"], note["source"]) == (1, "one", "notes")
        (order,) = other.delta("orders_of")
        assert (order["status"], str(order["total"])) == ("sent", "19.90")
