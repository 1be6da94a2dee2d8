"""Several databases of one server under one command: told apart, ended together."""

import json
import signal
import subprocess
import sys

import pytest

from changelog.contract.log.topic import frontier_topic
from changelog.sink.frontier import FrontierLog
from changelog.stack.servers.postgres import DATABASE
from tests.support.sql import execute
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

SETTINGS = """
[kafka]
brokers = "{brokers}"
[registry]
url = "{registry}"
[capture]
topic_prefix = "{prefix}"
frontier_interval_ms = 100
[sources.{prefix}_crm]
dsn = "{first}"
[sources.{prefix}_erp]
dsn = "{second}"
exclude = ["history"]
"""


class Project:
    """Two databases and a folder."""

    def __init__(self, folder, databases, prefix, kafka):
        self.folder, self.databases, self.prefix, self.kafka = folder, databases, prefix, kafka
        self.names = [f"{prefix}_crm", f"{prefix}_erp"]

    def run(self, name, *more):
        words = [sys.executable, "-m", "changelog", name, "--project", str(self.folder), *more]
        return subprocess.run(words, check=False, capture_output=True, text=True, timeout=180)

    def start(self, log):
        words = [sys.executable, "-m", "changelog", "capture", "--project", str(self.folder)]
        return subprocess.Popen([*words, "--all-sources"], stdout=log, stderr=log)

    def frontier(self, name):
        with FrontierLog(self.kafka, frontier_topic(f"{self.prefix}.{name}")) as frontiers:
            record = frontiers.last(name)
        return record.frontier if record else None


@pytest.fixture
def project(endpoints, dsn, kafka, registry, prefix, tmp_path):
    second = endpoints.postgres.replace(f"/{DATABASE}", f"/{prefix}_2")
    execute(endpoints.postgres, f"CREATE DATABASE {prefix}_2")
    for each in (dsn, second):
        execute(each, "CREATE TABLE notes (id integer PRIMARY KEY)", "INSERT INTO notes VALUES (1)")
    execute(second, "CREATE TABLE history (id integer PRIMARY KEY)")
    text = SETTINGS.format(
        brokers=kafka.brokers, registry=registry.url, prefix=prefix, first=dsn, second=second
    )
    (tmp_path / "changelog.toml").write_text(text)
    made = Project(tmp_path, [dsn, second], prefix, kafka)
    yield made
    execute(
        endpoints.postgres,
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        f" WHERE slot_name LIKE '{prefix}%' AND NOT active",
        f"DROP DATABASE {prefix}_2 WITH (FORCE)",
    )


@pytest.mark.matrix
def test_all_sources_are_captured_at_once_and_end_with_one_signal(project):
    with (project.folder / "log").open("wb") as log:
        running = project.start(log)
    try:
        wait_until(
            lambda: all(project.frontier(name) for name in project.names), 120, "two frontiers"
        )
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
    said = (project.folder / "log").read_text()
    for name in project.names:
        assert f"{name} | " in said
    assert [sorted(map(str, project.frontier(name).tables.values())) for name in project.names] == [
        ["public.notes"]
    ] * 2
    shown = project.run("status", "--all-sources", "--json", "--allow-inactive")
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [each["source"] for each in found] == project.names
    assert shown.returncode == 0, shown.stdout
    # One of several has to be named where one log is read.
    asked = project.run("verify", "--json")
    assert (asked.returncode, "which of the sources" in asked.stderr) == (2, True), asked.stderr
    proved = project.run("verify", "--json", "--source", project.names[1])
    assert json.loads(proved.stdout)["verified"] is True, proved.stderr


def test_the_worst_exit_code_counts_and_the_others_go_on_to_their_end(project):
    execute(project.databases[1], "ALTER TABLE notes DROP CONSTRAINT notes_pkey")
    done = project.run("capture", "--all-sources", "--until", "now", "--json")
    assert done.returncode == 2, done.stderr
    found = {each["source"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert found[project.names[0]]["rows_captured"] == 1
    assert found[project.names[1]]["exit_code"] == 2
    assert f"{project.names[1]} | " in done.stderr
    assert f'the capture of source "{project.names[1]}" ended with 2' in done.stderr
