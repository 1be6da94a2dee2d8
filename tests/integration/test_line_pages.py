"""docs/topics.md and docs/loading.md: each command that they show, on a broker of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.cluster import describe
from changelog.stack.servers.postgres import bin_dir
from tests.support.captured_project import write_settings
from tests.support.page_lines import Shell, address_of, commands_of, plain
from tests.support.services import own_broker

DOCS = Path(__file__).parents[2] / "docs"
ORDERS = """
CREATE TABLE orders (id integer PRIMARY KEY, status text);
INSERT INTO orders SELECT n, 'open' FROM generate_series(1, 600) n
"""
DELETED = "SELECT NOT EXISTS (SELECT FROM warehouse.orders WHERE id = 17)"


@pytest.fixture
def shell(stack, prefix, dsn, tmp_path):
    """A shell that has the commands, a jq for the filter of the page, and the servers."""
    endpoints = stack.endpoints()
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "jq").write_text(
        f"#!{sys.executable}\nimport json, sys\nassert sys.argv[1:] == ['.value']\n"
        "for line in sys.stdin:\n    print(json.dumps(json.loads(line)['value']))\n"
    )
    (tools / "jq").chmod(0o755)
    folders = (str(tools), str(Path(sys.executable).parent), str(bin_dir()), os.environ["PATH"])
    with own_broker() as broker:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join(folders),
            "CHANGELOG_KAFKA_BROKERS": f"127.0.0.1:{broker.port}",
            "CHANGELOG_REGISTRY_URL": endpoints.schema_registry,
            "CHANGELOG_CAPTURE_SLOT": prefix,
            "DSN": address_of(dsn),
            "COLUMNS": "140",
        }
        write_settings(tmp_path, endpoints, dsn, prefix, capture='tables = ["public.orders"]')
        yield Shell(tmp_path, environment)


def captured(shell, topic_prefix):
    """Bring the table to the topic that a page names."""
    shell.run(f"changelog capture --until now --topic-prefix '{topic_prefix}'")


@pytest.mark.matrix
def test_the_commands_of_topics_by_hand_run(shell, execute):
    execute(ORDERS)
    captured(shell, "")
    (shell.folder / "lines.txt").write_text("one\ntwo\n")
    (shell.folder / "scores.tsv").write_text("x\t9\ny\t8\n")
    written: dict[str, str] = {}
    for command in map(plain, commands_of(DOCS / "topics.md")):  # in the order of the page
        written[command] = said(shell, command)
    assert len(written) >= 17
    orders = written["changelog read orders --exit"].splitlines()
    assert len(orders) == 600
    values = written["changelog read orders --json --exit | jq .value"].splitlines()
    assert {json.loads(each)["status"] for each in values} == {"open"}
    followed = written["changelog read orders --format '{lsn} {op} {key}'"]
    assert all(" r " in line or " c " in line for line in followed.splitlines())
    assert len(shell.run("changelog read copy -e").splitlines()) == 600
    # Lines without a key may lie in several partitions, which have no order among them.
    events = shell.run("changelog read events -e --format '{value}'").splitlines()
    assert sorted(events) == ["one", "two"]
    kafka = KafkaConnection(brokers=shell.environment["CHANGELOG_KAFKA_BROKERS"])
    assert {*describe(kafka, ["orders", "scores", "events"])} == {"orders", "events"}


def said(shell, command):
    """Return what a command of the page prints: to its end, or what a follower says at first."""
    if " --delete " in command:
        assert {"a\t1", "b\tNULL", "x\t9"} <= {*shell.run("changelog read scores -e").splitlines()}
        return shell.run(command, answer="y\n")
    ends = (" --create ", "--exit", " -e", " -L", "--until", "| changelog", " write ")
    is_bounded = any(each in command for each in ends)
    return shell.run(command) if is_bounded else shell.follow(command, str.strip)


@pytest.mark.matrix
def test_the_commands_of_loading_and_publishing_run(shell, execute):
    execute(ORDERS)
    captured(shell, "shop")
    (shell.folder / "totals.sql").write_text("SELECT day, shop, total FROM totals\n")
    totals = "CREATE TABLE totals (day date, shop text, total integer);"
    totals += "INSERT INTO totals VALUES ('2026-01-31', 'a', 1), ('2026-02-01', 'a', 2)"
    execute(totals)
    execute("CREATE TABLE customers (id integer, name text)")
    execute("INSERT INTO customers VALUES (1, 'Ann')")
    with duckdb.connect(str(shell.folder / "shop.duckdb")) as file:
        file.execute(totals)
    with duckdb.connect(str(shell.folder / "audit.duckdb")) as file:
        file.execute("CREATE TABLE audit AS SELECT 1 AS id, 'seen' AS what")
    shell.run("changelog topics --create events --create lines --create old --unkeyed")
    written: dict[str, list[dict[str, Any]]] = {
        "events": [{"key": {"user": "ann"}, "value": {"id": 1, "payload": {"a": 1}}}],
        "lines": [{"key": None, "value": "1;Ann"}],
        "old": [{"key": None, "value": {"id": 7}}],
    }
    for topic, records in written.items():
        lines = "".join(f"{json.dumps(each)}\n" for each in records)
        (shell.folder / topic).write_text(lines)
        shell.run(f"changelog write {topic} --json < {topic}")
    execute("CREATE SCHEMA warehouse")
    execute("CREATE TABLE events (id integer, who text, at timestamptz, doc jsonb)")
    execute("CREATE TABLE t (id integer, name text)")
    ran = 0
    for command in map(plain, commands_of(DOCS / "loading.md")):
        # The page's server; the captured table is in the same database here, under another name.
        here = command.replace("postgresql://me@db/warehouse", shell.environment["DSN"])
        here = here.replace("public.orders", "warehouse.orders")
        if " --follow" in here:
            execute("DELETE FROM orders WHERE id = 17")
            captured(shell, "shop")
            shell.follow(here, lambda _: execute(DELETED) == [(True,)])
        elif " --every " in here:
            shell.follow(here, lambda said: "the next run is at " in said)
        else:
            shell.run(here)
        ran += 1
    assert ran >= 9
    assert execute("SELECT count(*), min(status) FROM warehouse.orders") == [(599, "open")]
    assert execute("SELECT id, who, doc FROM events") == [(1, "ann", {"a": 1})]
    assert execute("SELECT id, name FROM t ORDER BY id") == [(1, "Ann"), (7, None)]
    published = shell.run("changelog read shop.totals -e --format '{key}'").splitlines()
    assert [json.loads(each)["shop"] for each in published] == ["a", "a"]
    assert "Ann" in shell.run("changelog read crm.customers -e")
    assert json.loads(shell.run("changelog read audit -e --format '{value}'"))["what"] == "seen"
