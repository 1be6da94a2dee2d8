"""docs/connect.md: its worker, and what curl asks of it, as they stand there."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import pytest

from tests.support.page import blocks_of
from tests.support.page_lines import block_of, plain, reader_of
from tests.support.wait import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "connect.md"
DEADLINE_S = 120
ROWS = "".join(
    json.dumps({"key": None, "value": {"id": n, "status": "open"}}) + "\n" for n in (1, 2)
)


@pytest.fixture
def shell(endpoints, dsn, prefix, tmp_path):
    return reader_of(tmp_path, endpoints, dsn, prefix)


# As Kafka 4.0 ships it, what stands there behind a # as well.
DISTRIBUTED = """
bootstrap.servers group.id key.converter value.converter key.converter.schemas.enable
value.converter.schemas.enable offset.storage.topic offset.storage.replication.factor
offset.storage.partitions config.storage.topic config.storage.replication.factor
status.storage.topic status.storage.replication.factor status.storage.partitions
offset.flush.interval.ms listeners rest.advertised.host.name rest.advertised.port
rest.advertised.listener plugin.path
"""


@contextmanager
def served(shell, prefix, start="changelog serve --broker localhost:9092  "):
    """Run the worker of the page; gives its address."""
    command, _, asked = block_of(PAGE, "sh", start).text.partition("\n")
    here = plain(command).replace("localhost:9092", "$CHANGELOG_KAFKA_BROKERS")
    # A group and a port of its own: servers and machine are shared.
    with shell.following(f"{here} --group {prefix} --port 0") as said:
        found = wait_until(
            lambda: re.search(r"serving on http://(\S+)", said()), DEADLINE_S, "it serves"
        )
        assert found is not None
        yield found[1], asked


def test_a_worker_that_stands_for_one_of_kafka_connect(shell, prefix):
    start = "changelog serve --broker localhost:9092 --group connect-cluster"
    with served(shell, prefix, start) as (address, _):
        told = json.loads(shell.run(f"curl -sSf {address}/"))
        assert told["version"].startswith("4.")
    (table,) = re.findall(r"(?s)\| key of `connect-distributed.*?\n\n", PAGE.read_text("utf-8"))
    for key in DISTRIBUTED.split():
        shortened = f"`{key.removesuffix('.replication.factor').removesuffix('.partitions')}.topic`"
        assert f"`{key}`" in table or shortened in table, key


def is_running(shell, address, name):
    told = json.loads(shell.run(f"curl -sSf {address}/connectors/{name}/status"))
    states = [each["state"] for each in (told["connector"], *told["tasks"])]
    assert "FAILED" not in states, told
    return len(states) > 1 and {*states} == {"RUNNING"}


def put_here(asked, address, changed):
    for page, here in {"localhost:8083": address, "curl ": "curl -sSf ", **changed}.items():
        assert page in asked
        asked = asked.replace(page, here)
    return asked


@pytest.mark.matrix
def test_a_topic_goes_to_a_table(shell, prefix):
    parts = psycopg2.extensions.parse_dsn(shell.environment["DATABASE"])
    shell.sql("CREATE TABLE orders (id int PRIMARY KEY, status text)")
    topic = f"{prefix}.orders"
    shell.run(f"changelog topics --create {topic} --unkeyed")
    shell.run(f"changelog write {topic} --json <<'END'\n{ROWS}END")
    with served(shell, prefix) as (address, asked):
        changed = {
            "db:5432/shop": f"{parts['host']}:{parts['port']}/{parts['dbname']}",
            '"connection.user": "sink"': f'"connection.user": "{parts["user"]}"',
            '"topics": "orders"': f'"topics": "{topic}"',
        }
        shell.run(put_here(asked, address, changed))
        there = "SELECT string_agg(id || status, ' ' ORDER BY id) FROM orders"
        wait_until(lambda: shell.sql(there).strip() == "1open 2open", DEADLINE_S, "rows are there")
        wait_until(lambda: is_running(shell, address, "orders"), DEADLINE_S, "it runs")


@pytest.mark.matrix
def test_a_database_is_captured(endpoints, dsn, prefix, tmp_path):
    shell = reader_of(tmp_path, endpoints, dsn)
    parts = psycopg2.extensions.parse_dsn(dsn)
    # Without a prefix the topic has the table's name alone.
    shell.sql(f"CREATE TABLE {prefix} (id int PRIMARY KEY); INSERT INTO {prefix} VALUES (7)")
    changed = {
        "connectors/shop": f"connectors/{prefix}",
        '"capture.slot": "shop"': f'"capture.slot": "{prefix}"',
        '"db"': f'"{parts["host"]}", "database.port": "{parts["port"]}"',
        '"database.user": "capture"': f'"database.user": "{parts["user"]}"',
        '"database.dbname": "shop"': f'"database.dbname": "{parts["dbname"]}"',
    }
    slot = f"FROM pg_replication_slots WHERE slot_name = '{prefix}'"
    with served(shell, prefix) as (address, _):
        (asked,) = (each.text for each in blocks_of(PAGE) if "PostgresSource" in each.text)
        shell.run(put_here(asked, address, changed))
        wait_until(lambda: is_running(shell, address, prefix), DEADLINE_S, "it runs")
        there = f"SELECT count(*) {slot} AND confirmed_flush_lsn IS NOT NULL"
        wait_until(lambda: shell.sql(there).strip() == "1", DEADLINE_S, "there is a slot")
        following = f"changelog read {prefix} --format '{{value}}'"
        shell.follow(following, lambda said: '"id": 7' in said or '"id":7' in said)
    wait_until(lambda: "t" not in shell.sql(f"SELECT active {slot}"), DEADLINE_S, "nobody reads it")
