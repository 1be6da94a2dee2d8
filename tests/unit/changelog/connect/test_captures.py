"""Captures as connectors: keys to settings, and the child that ends with its parent."""

import signal
import subprocess
import sys

import psutil
import pytest
from psycopg2.extensions import parse_dsn

from changelog.connect.rules.captures import parse_capture
from changelog.connect.rules.kinds import kind_of, masked, problems, validation
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from tests.support.wait import wait_until

OURS = {
    "name": "s",
    "connector.class": "changelog.PostgresSource",
    "capture.slot": "shop",
    "database.hostname": "db",
}
DEBEZIUM = {
    "name": "s",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "slot.name": "shop",
    "database.hostname": "db",
}


def variables(config):
    kafka = KafkaConnection(brokers="k:9092", options={"sasl.password": "x"})
    return parse_capture(config).variables(kafka, RegistryConnection(url="http://r"))


def test_debeziums_keys_are_our_settings():
    found = variables(
        {
            **DEBEZIUM,
            "database.password": "p w",
            "table.include.list": r"public\.orders, shop\..*",
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "no_data",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }
    )
    assert found["CHANGELOG_CAPTURE_SLOT"] == "shop"
    assert found["CHANGELOG_CAPTURE_TABLES"] == "public.orders,shop.*"
    assert found["CHANGELOG_CAPTURE_CREATE_PUBLICATION"] == "false"
    assert found["CHANGELOG_CAPTURE_SKIP_SNAPSHOT"] == "true"
    assert found["CHANGELOG_CAPTURE_OUTPUT_FORMAT"] == "json"
    assert found["CHANGELOG_CAPTURE_ENVELOPE"] == "nested"
    source = parse_dsn(found["CHANGELOG_POSTGRES_DSN"])
    assert (source["host"], source["password"]) == ("db", "p w")
    assert found["CHANGELOG_KAFKA_OPTIONS"] == '{"sasl.password": "x"}'
    assert found["CHANGELOG_REGISTRY_URL"] == "http://r"


def test_groups_of_tables_are_an_object_and_have_slots():
    given = {**OURS, "capture.groups": '{"sales": ["sales.*"], "large": ["public.lines"]}'}
    assert parse_capture(given).slots == ("shop", "shop_large", "shop_sales")
    assert parse_capture(OURS).slots == ("shop",)
    wrong = {"capture.groups": "large=public.lines", "capture.failover_slot": "true"}
    for key, value in wrong.items():
        said = validation("PostgresSource", {**given, key: value})["configs"]
        assert [each["value"]["name"] for each in said if each["value"]["errors"]] == [key]


def test_our_own_class_has_the_defaults_of_the_command():
    found = variables({**OURS, "capture.mask": '{"public.t.a": "redact"}'})
    assert "CHANGELOG_CAPTURE_ENVELOPE" not in found
    assert found["CHANGELOG_CAPTURE_MASK"] == '{"public.t.a": "redact"}'
    assert kind_of(OURS).type == "source"


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"capture.slot": ""}, "capture.slot"),
        ({"slot.name": "other"}, "slot.name"),
        ({"capture.envelope": "tall"}, "capture.envelope"),
        ({"capture.frontier_interval_ms": "1"}, "capture.frontier_interval_ms"),
        ({"capture.mask": "x"}, "capture.mask"),
        ({"table.include.list": "public.(a|b)"}, "table.include.list"),
        ({"table.include.list": "public.a", "capture.tables": "public.b"}, "table.include.list"),
        ({"snapshot.mode": "when_needed"}, "snapshot.mode"),
        ({"plugin.name": "decoderbufs"}, "plugin.name"),
        ({"postgres.dsn": "host=x"}, "database.hostname"),
        ({"heartbeat.interval.ms": "1"}, "heartbeat.interval.ms"),
        ({"value.converter": "x.StringConverter"}, "value.converter"),
        ({"topics": "t"}, "topics"),
    ],
)
def test_what_means_something_else_is_refused_by_its_key(wrong, key):
    assert key in problems({**OURS, **wrong})


def test_secrets_of_a_capture_are_masked():
    config = {**OURS, "database.password": "hunter2", "capture.mask_key": "hunter3"}
    assert "hunter" not in str(masked(config))
    assert "hunter" not in str(validation("PostgresSource", config))
    assert "hunter" not in repr(parse_capture(config))


_CHILD = """
import ctypes, sys, time
from changelog.runtime.process import own_command as child

class Sleeper:
    def load(self):
        return lambda: (print("up", flush=True), time.sleep(600))

child.entry_points = lambda **_: [Sleeper()]
if sys.argv[3] == "twin":
    child.ctypes.CDLL = lambda _: type("Libc", (), {"prctl": staticmethod(lambda *_: 0)})
child.main()
"""
_PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid()), "x", sys.argv[2]],
                         stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def _orphan(how):
    """Return the child of a parent that was killed."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, _CHILD, how], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    return child


def _is_gone(child):
    return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_child_ends_with_its_killed_parent():
    child = _orphan("child")
    wait_until(lambda: _is_gone(child), 20, "the child has ended")


def test_twin_without_the_signal_it_lives_on():
    """The seeded defect: nobody tells the child that its parent died."""
    child = _orphan("twin")
    try:
        assert not _is_gone(child)
    finally:
        child.kill()
