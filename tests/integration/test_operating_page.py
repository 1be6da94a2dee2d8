"""docs/operating.md: its SQL, its settings and its commands, on real servers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from psycopg2.extensions import make_dsn

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.cluster import describe
from changelog.stack.base.ports import pick
from tests.support.captured_project import captured_database
from tests.support.page_lines import address_of, block_of, commands_of, plain, reader_of
from tests.support.sql import execute
from tests.support.standby import pair
from tests.support.wait import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, status text);
INSERT INTO orders SELECT n, 'open' FROM generate_series(1, 9) n;
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id int PRIMARY KEY);
"""
UNKEYED = """
CREATE TABLE notes (id int NOT NULL, note text);
CREATE UNIQUE INDEX notes_id ON notes (id);
ALTER TABLE notes REPLICA IDENTITY USING INDEX notes_id;
CREATE SCHEMA sales;
CREATE TABLE sales.marks (number int NOT NULL UNIQUE, mark text);
ALTER TABLE sales.marks REPLICA IDENTITY FULL;
INSERT INTO notes VALUES (1, 'a');
"""
WIDE = """
INSERT INTO notes SELECT 2, string_agg(md5(n::text), '') FROM generate_series(1, 100000) n
"""
"""More than Kafka takes unless told otherwise; digests are hard to compress."""
COPY = "-- key: id\n-- sinks: delta\nSELECT id, status FROM orders\n"


@pytest.fixture
def source(stack, tmp_path):
    """A captured database, its name, and a shell in the project's folder."""
    capture = 'tables = ["public.*", "sales.*"]'
    with captured_database(stack, tmp_path / "shop", ORDERS, capture=capture) as (project, name):
        yield project, name, reader_of(project.root, stack.endpoints(), project.dsn, name)


def status(shell):
    # Nothing captures just now, which is a problem unless it is said to be none.
    return json.loads(shell.run("changelog status --allow-inactive --json"))


@pytest.mark.matrix
def test_capture_is_asked_by_sql_and_the_wal_has_its_limit(source):
    _, _, shell = source
    try:
        shell.sql(block_of(PAGE, "sql", "ALTER SYSTEM SET max_slot_wal_keep_size").text)
        shell.run("changelog signal install")
        number = shell.sql(block_of(PAGE, "sql", "-- once, by `changelog signal install`").text)
        shell.run("changelog capture --until now")
        told = status(shell)
    finally:
        # The server is shared with other tests.
        shell.sql("ALTER SYSTEM RESET max_slot_wal_keep_size")
        shell.sql("SELECT pg_reload_conf()")
    assert told["frontier"]["signals"] == {number.strip(): "done"}
    (limit,) = (each for each in told["reserves"] if each["limit"] == "max_slot_wal_keep_size")
    assert 49 << 30 < limit["bytes_left"] < 51 << 30


@pytest.mark.matrix
def test_the_line_for_cron_tells_of_a_capture_that_is_down_and_else_nothing(source):
    _, name, shell = source
    fields, _, command = block_of(PAGE, "crontab", "*/5").text.partition("  ")
    assert fields == "*/5 * * * *"
    here = command.replace("/srv/shop", str(shell.folder))
    assert "no process reads the slot" in shell.run(here)
    with shell.capturing(name):
        assert shell.run(here) == ""


@pytest.mark.matrix
def test_unique_indexes_give_keys_and_rows_may_be_large(stack, tmp_path):
    keys, larger = (
        block_of(PAGE, "toml", each) for each in ("[capture.key_index]", "[capture.topic]")
    )
    capture = f'tables = ["public.*", "sales.*"]\n{keys.text}'
    with captured_database(stack, tmp_path, UNKEYED, capture=capture) as (project, name):
        endpoints = stack.endpoints()
        shell = reader_of(project.root, endpoints, project.dsn, name)
        assert status(shell)["key_indexes"] == {
            "public.notes": "notes_id", "sales.marks": "marks_number_key",
        }  # fmt: skip
        project.execute(WIDE)
        refused = shell.run("changelog capture --until now 2>&1 || test $? = 1")
        assert "max.message.bytes" in refused
        settings = project.root / "changelog.toml"
        settings.write_text(f"{settings.read_text('utf-8')}\n{larger.text}", encoding="utf-8")
        shell.run("changelog capture --until now --fix-topics")
        topic = f"{name}.notes"
        found = describe(KafkaConnection(brokers=endpoints.brokers), [topic])[topic]
        assert found.settings["max.message.bytes"] == "20971520"
        shell.run("changelog verify --json")


@pytest.mark.matrix
def test_two_databases_of_one_file_are_captured(stack, prefix, dsn, tmp_path):
    endpoints = stack.endpoints()
    execute(endpoints.postgres, f"CREATE DATABASE {prefix}")
    erp = make_dsn(dsn, dbname=prefix)
    shell = reader_of(tmp_path, endpoints, dsn)
    for each in (dsn, erp):
        shell.run(f"psql -q '{each}' <<'END'\n{ORDERS}\nEND")
    text = block_of(PAGE, "toml", '[capture]\ntopic_prefix = "shop"').text
    for page, here in (("crm", dsn), ("erp", erp)):
        text = text.replace(f"postgresql://capture@db.example.com/{page}", address_of(here))
    # The servers are shared: topics have a name of their own.
    (tmp_path / "changelog.toml").write_text(text.replace('"shop"', f'"{prefix}"'))
    try:
        shell.run("changelog capture --all-sources --until now")
        told = shell.run("changelog status --all-sources --allow-inactive --json").splitlines()
        assert [json.loads(each)["source"] for each in told] == ["crm", "erp"]
        # A topic that is named needs no source to be named.
        assert len(shell.run(f"changelog read {prefix}.crm.orders --exit").splitlines()) == 9
        shell.run("changelog verify sales.orders --source erp")
    finally:
        slots = "FROM pg_replication_slots WHERE slot_name IN ('crm', 'erp')"
        wait_until(lambda: "t" not in shell.sql(f"SELECT active {slots}"), 60, "nobody reads them")
        shell.sql(f"SELECT pg_drop_replication_slot(slot_name) {slots}")
        shell.sql(f"DROP DATABASE {prefix} WITH (FORCE)")


@pytest.mark.matrix
def test_a_standby_is_captured_with_its_primary_beside_it(endpoints, prefix, tmp_path):
    with pair(18) as servers:
        servers.primary.create_database(prefix)
        primary = servers.primary.database_dsn(prefix)
        text = block_of(PAGE, "toml", '[postgres]\ndsn = "postgresql://capture@replica').text
        for page, here in (("replica", servers.standby.database_dsn(prefix)), ("primary", primary)):
            text = text.replace(f"postgresql://capture@{page}.example.com/app", address_of(here))
        (tmp_path / "changelog.toml").write_text(text, encoding="utf-8")
        shell = reader_of(tmp_path, endpoints, primary, prefix)
        shell.sql(ORDERS)
        servers.replayed()
        shell.run("changelog capture --until now")
        assert len(shell.run(f"changelog read {prefix}.orders --exit").splitlines()) == 9


@pytest.mark.matrix
def test_a_view_is_staged_compared_and_published(source):
    project, _, shell = source
    project.view("orders_copy.sql", COPY)
    shell.run("rebuild-view orders_copy")
    project.execute("UPDATE orders SET status = 'sent' WHERE id = 4")
    project.capture()
    stage, diff, publish = (
        plain(each) for each in commands_of(PAGE) if each.startswith("rebuild-view orders_copy")
    )
    staged = shell.run(f"{stage} 2>&1")
    assert str(project.warehouse) in staged.replace("\n", "")
    assert project.delta("orders_copy")[3]["status"] == "open"
    assert "sent" in shell.run(f"{diff} 2>&1")
    shell.run(publish)
    assert project.delta("orders_copy")[3]["status"] == "sent"
    assert [state for _, state in project.history("orders_copy")][-1] == "published"


@pytest.mark.matrix
def test_a_rebuild_goes_to_a_spark_server_that_runs(source):
    project, _, shell = source
    project.view("orders_copy.sql", COPY)
    server, rebuild = (
        plain(each) for each in commands_of(PAGE) if "spark" in each or "sc://" in each
    )
    # The page's port may be taken on a machine where other tests run.
    port = pick()
    address = f"localhost:{port}"
    with shell.following(f"{server} --port {port}") as said:
        wait_until(lambda: re.search(rf"sc://\S+:{port}", said()), 240, "the server is up")
        shell.run(rebuild.replace("localhost:15002", address))
    assert len(project.delta("orders_copy")) == 9
