"""`changelog doctor` on the real servers: what is well, what is not, and what mends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from changelog.config import load_project
from tests.support.captured_project import captured_database
from views.base.config import RebuildSettings
from views.generations.history import REFUTED, GenerationHistory, HistoryRow
from views.generations.lock import building
from views.generations.place import place_for

HOLDING = """
import pathlib, sys, time
from changelog.config import load_project
from views.base.config import RebuildSettings
from views.generations.lock import building
from views.generations.place import place_for
project = load_project(pathlib.Path(sys.argv[1]))
with building(place_for(RebuildSettings(project=project)), ["examined"]):
    print("holding", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def captured(stack, tmp_path):
    statements = "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)"
    with captured_database(stack, tmp_path / "project", statements) as (project, slot):
        project.view("examined.sql", "-- key: id\n-- sinks: delta, cache\nSELECT id FROM orders")
        yield project, slot


def examined(project):
    """Return the exit code, and what was found by how it stands and what it is."""
    ran = subprocess.run(
        [sys.executable, "-m", "changelog", "doctor", "--project", str(project.root), "--json"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    told = json.loads(ran.stdout)
    assert told["exit_code"] == ran.returncode, ran.stderr
    found: dict[str, dict] = {"problem": {}, "ok": {}, "note": {}}
    for each in told["checks"]:
        found[each["state"]][each["check"]] = each
    return ran.returncode, found


@pytest.mark.matrix
def test_the_doctor_finds_what_is_wrong_from_source_to_sinks(captured) -> None:
    project, slot = captured
    code, found = examined(project)
    assert (code, set(found["problem"])) == (1, {"capture"})
    assert found["ok"]["locks"]["found"] == f'nobody has one on "{slot}._locks"'
    assert found["problem"]["capture"]["found"].endswith("capture does not run")
    assert "1 can be read exactly" in found["ok"]["topics"]["found"]
    assert "was never built" in found["note"]["view examined"]["found"]
    project.view("examined.sql", "-- key: id\n-- sinks: delta\nSELECT id, gone FROM orders")
    _, found = examined(project)
    said = found["problem"]["view examined"]["found"]
    assert said.startswith("cannot be built as the tables are now: ")
    assert "gone" in said
    row = HistoryRow(view="examined", generation=1, state=REFUTED, note="a row differs")
    GenerationHistory(str(project.warehouse)).append([row])
    project.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    _, found = examined(project)
    assert found["problem"]["capture"]["found"] == "there is no slot"
    assert found["problem"]["view examined"]["exit_code"] == 3
    # The fixture drops it.
    project.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")


@pytest.mark.matrix
def test_the_doctor_names_who_works_on_a_view(captured) -> None:
    project, _ = captured
    settings = RebuildSettings(project=load_project(project.root))
    with building(place_for(settings), ["examined"]):
        _, found = examined(project)
    said = found["ok"]["locks"]["found"]
    assert said.startswith(f"view examined is rebuilt by process {os.getpid()} on ")
    assert "the lock lasts until" in said
    _, found = examined(project)
    assert found["ok"]["locks"]["found"].startswith("nobody has one")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(project.root)], stdout=subprocess.PIPE, text=True
    ) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "holding\n"
        _, found = examined(project)
        assert f"is rebuilt by process {holding.pid} on " in found["ok"]["locks"]["found"]
        holding.kill()
    _, found = examined(project)
    assert found["ok"]["locks"]["found"].startswith("nobody has one")
