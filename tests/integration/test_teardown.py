"""`changelog teardown` on the real servers: what is ours goes, what is not stays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg2.extras import LogicalReplicationConnection

from changelog.capture.inspect import left_on_log
from changelog.config import load_project
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.page import blocks_of, missing
from tests.support.page_lines import Shell, commands_of, plain, reader_of
from tests.support.wait import wait_until
from views import Project
from views.operate.teardown import look

PAGE = Path(__file__).parents[2] / "docs" / "remove.md"

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY);
INSERT INTO orders VALUES (1);
CREATE TABLE notes (id int PRIMARY KEY, note text)
"""


@pytest.fixture
def captured(stack, tmp_path):
    with captured_database(stack, tmp_path / "project", TABLES) as (project, slot):
        yield project, slot
        if not project.query(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}'"):
            # The fixture drops it.
            project.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")


@pytest.fixture
def kafka(stack):
    return AdminClient({"bootstrap.servers": stack.endpoints().brokers, "log_level": 0})


def torn_down(project, *options):
    """Return the exit code, and what was found by how it stands: kind and text of each."""
    words = [sys.executable, "-m", "changelog", "teardown", "--project", str(project.root)]
    ran = subprocess.run(
        [*words, "--json", *options],
        capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    told = json.loads(ran.stdout)
    found: dict[str, list] = {"problem": [], "ok": [], "note": [], "would do": []}
    for each in told.get("checks", []):
        found[each["state"]].append((each["check"], each["found"]))
    return ran.returncode, found, told


def kinds(found):
    return [kind for kind, _ in found]


def topics_of(kafka, slot):
    return sorted(name for name in kafka.list_topics(timeout=60).topics if name.startswith(slot))


def gone(kafka, name):
    """Delete a topic as somebody else would, and wait until it is gone."""
    kafka.delete_topics([name])[name].result(timeout=60)
    wait_until(lambda: name not in kafka.list_topics(timeout=60).topics, 120, f"{name} is there")


def made(kafka, name):
    kafka.create_topics([NewTopic(name, 1)])[name].result(timeout=60)
    wait_until(lambda: name in kafka.list_topics(timeout=60).topics, 120, f"{name} is not there")


@pytest.mark.matrix
def test_all_that_a_project_has_made_goes_and_nothing_else(
    captured, kafka, spark, capsys, monkeypatch
):
    project, slot = captured
    project.command("signal", "install")
    project.command("ddl", "install")
    project.view(
        "torn_down.sql", "-- key: id\n-- sinks: delta, cache, iceberg\nSELECT id FROM orders"
    )
    assert rebuild_view(capsys, monkeypatch, project, "torn_down").code == 0
    made(kafka, f"{slot}.somebody")
    (project.warehouse / "report").mkdir()

    code, found, _ = torn_down(project, "--plan")
    everything = [
        "slot", "publication", "signals", "triggers", "views", "state", "topics", "subjects",
        "frontiers",
    ]  # fmt: skip
    assert (code, kinds(found["would do"])) == (0, everything)
    assert (
        "torn_down (delta, cache, iceberg), generations: 1 in delta, 1 in cache, 1 in iceberg"
        in found["would do"][4][1]
    )
    assert len(topics_of(kafka, slot)) == 5, "a plan removes nothing"

    code, found, _ = torn_down(project)
    assert code == 2, "nobody is there to ask"
    assert len(topics_of(kafka, slot)) == 5

    code, found, _ = torn_down(project, "--yes")
    assert (code, kinds(found["ok"])) == (0, everything)
    assert topics_of(kafka, slot) == [f"{slot}.somebody"]
    left = project.query(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() "
        "UNION ALL SELECT pubname FROM pg_publication UNION ALL SELECT evtname FROM "
        "pg_event_trigger UNION ALL SELECT nspname FROM pg_namespace WHERE nspname = 'changelog'"
    )
    assert left == []
    assert [path.name for path in project.warehouse.iterdir()] == ["report"]
    assert sorted(path.name for path in project.root.iterdir()) == [
        "changelog.toml", "views", "warehouse",
    ]  # fmt: skip

    code, found, _ = torn_down(project, "--yes")
    assert (code, found["ok"]) == (0, [("everything", "nothing of this project is left")])
    # And it can begin anew.
    project.capture()
    assert len(topics_of(kafka, slot)) == 4


@pytest.mark.matrix
def test_the_commands_of_the_page_show_and_remove_what_it_says(stack, kafka, spark, tmp_path):
    plan = next(each for each in blocks_of(PAGE) if each.prints)
    table = "CREATE TABLE orders (id int PRIMARY KEY)"
    with captured_database(stack, tmp_path / "shop", table) as (project, slot):
        shell = reader_of(project.root, stack.endpoints(), project.dsn, slot)
        project.view("orders_copy.sql", "-- key: id\n-- sinks: delta\nSELECT id FROM orders")
        Project.open(project.root).rebuild()
        look_first, ask, agree, keep = map(plain, commands_of(PAGE))
        assert plan.text.strip() == look_first
        said = shell.run(f"{look_first} 2>&1").replace(str(project.root), "/srv/shop")
        # How much WAL is kept is another number each time.
        shown = tuple(re.sub(r"[\d,]+ bytes", "… bytes", line) for line in plan.prints)
        assert list(missing(shown, said.replace(slot, "shop"))) == []
        shell.run(ask, answer="n\n" * 7)
        assert len(topics_of(kafka, slot)) == 3
        shell.run(keep, answer="y\n" * 4)
        assert len(topics_of(kafka, slot)) == 3
        assert (
            project.query(f"SELECT slot_name FROM pg_replication_slots WHERE slot_name = '{slot}'")
            == []
        )
        shell.run(agree)
        assert topics_of(kafka, slot) == []
        # The end of the block drops it.
        project.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")


def test_each_part_is_asked_about_and_stays_where_the_answer_is_no(captured, kafka):
    project, slot = captured
    shell = Shell(project.root, {**os.environ, "COLUMNS": "200"})
    command = f"{sys.executable} -m changelog teardown 2>&1"
    said = shell.run(command, answer="y\nn\nn\n")
    # Subjects and frontiers say what the topics hold: they stay with these, unasked.
    assert re.findall(r"Remove (\w+):", said) == ["slot", "publication", "topics"]
    assert re.findall(r"(\w+) +│ note │ kept", said) == [
        "publication", "topics", "subjects", "frontiers",
    ]  # fmt: skip
    assert project.query("SELECT count(*) FROM pg_publication") == [(1,)]
    assert len(topics_of(kafka, slot)) == 3
    assert project.query(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}'") == []


@pytest.mark.matrix
def test_a_capture_that_runs_keeps_everything(captured, kafka):
    project, slot = captured
    factory = LogicalReplicationConnection
    with closing(psycopg2.connect(project.dsn, connection_factory=factory)) as reader:
        options = {"proto_version": "1", "publication_names": slot}
        reader.cursor().start_replication(slot_name=slot, options=options)
        code, _, told = torn_down(project, "--yes")
    assert code == 1
    assert f'slot "{slot}" is read by' in told["error"]
    assert len(topics_of(kafka, slot)) == 3
    assert project.query("SELECT count(*) FROM pg_publication") == [(1,)]


def test_a_topic_that_somebody_made_anew_stays(captured, kafka, monkeypatch):
    project, slot = captured
    gone(kafka, f"{slot}.notes")
    made(kafka, f"{slot}.notes")
    found = look(load_project(project.root))
    (strange,) = (each for each in found.strange if each.kind == "topics")
    assert strange.text.startswith(f"{slot}.notes was made anew by somebody else")
    (topics,) = (part for part in found.parts if part.kind == "topics")
    assert topics.names == (f"{slot}.orders",)

    # The twin: who believes names alone would take it away.
    seen = left_on_log._of_slot
    monkeypatch.setattr(left_on_log, "_of_slot", lambda *given: dict.fromkeys(seen(*given), ""))
    found = look(load_project(project.root))
    (topics,) = (part for part in found.parts if part.kind == "topics")
    assert topics.names == (f"{slot}.notes", f"{slot}.orders")


@pytest.mark.matrix
def test_what_another_capture_has_too_stays(captured, kafka):
    project, slot = captured
    other = f"{slot}_b"
    settings = (project.root / "changelog.toml").read_text("utf-8")
    second = project.root.parent / "second"
    second.mkdir()
    (second / "changelog.toml").write_text(
        settings.replace(f'slot = "{slot}"', f'slot = "{other}"\ntables = ["public.orders"]')
    )
    # Two that write one topic are refused, but not when the slot of one is gone.
    project.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    words = [sys.executable, "-m", "changelog"]
    ran = subprocess.run(
        [*words, "capture", "--until", "now", "--project", str(second)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    project.command("signal", "install")
    code, found, _ = torn_down(project, "--yes")
    assert code == 0
    assert [kind for kind, said in found["note"] if "left alone" in said] == [
        "signals", "topics", "frontiers",
    ]  # fmt: skip
    assert topics_of(kafka, slot) == [f"{slot}._frontier", f"{slot}.orders"]
    still = project.query("SELECT pubname FROM pg_publication")
    assert still == [(other,)]
    project.execute(f"SELECT pg_drop_replication_slot('{other}')")


@pytest.mark.matrix
def test_a_server_that_is_away_keeps_nothing_else_and_is_told(captured, kafka):
    project, slot = captured
    path = project.root / "changelog.toml"
    settings = path.read_text("utf-8")
    path.write_text(re.sub(r"(registry.url = ).*", r'\1"http://127.0.0.1:9"', settings))
    code, found, told = torn_down(project, "--yes")
    assert code == 1
    assert kinds(found["ok"]) == ["slot", "publication"]
    assert kinds(found["problem"]) == ["log"]
    assert "no schema registry answers" in told["problems"][0]
    assert len(topics_of(kafka, slot)) == 3

    path.write_text(settings)
    code, found, _ = torn_down(project, "--yes")
    assert (code, kinds(found["ok"])) == (0, ["topics", "subjects", "frontiers"])
    assert topics_of(kafka, slot) == []


@pytest.mark.matrix
def test_what_is_to_be_kept_keeps_what_it_is_read_by(captured, kafka):
    project, slot = captured
    code, found, _ = torn_down(project, "--yes", "--keep", "topics")
    assert (code, kinds(found["ok"])) == (0, ["slot", "publication"])
    assert kinds(found["note"]) == ["topics", "subjects", "frontiers"]
    assert len(topics_of(kafka, slot)) == 3
    code, _, told = torn_down(project, "--keep", "topic")
    assert code == 2
    assert "there is no topic to keep" in told["error"]
