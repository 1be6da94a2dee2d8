"""The doctor's way through a project, without servers."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from changelog.config import Project, load_project
from changelog.contract.base.errors import ChangelogError, StackError
from changelog.runtime.findings import Findings, Level
from changelog.runtime.progress.bar import StepBar
from changelog.stack.stack import Stack
from tests.unit.views.fakes import FakeSink
from views.generations.history import (
    DROPPED,
    FAILED,
    PUBLISHED,
    REFUTED,
    SEALED,
    GenerationHistory,
    HistoryRow,
)
from views.generations.served import Served
from views.generations.succession import SinkGenerations
from views.leases.decide import Tenure
from views.leases.record import Owner
from views.operate.doctor import COMMANDS, examine, lasts
from views.operate.other_commands import CommandAnswer
from views.operate.served import look_at_views
from views.project.spec import ViewSpec
from views.sinks.base import UnavailableSinkError

CHECKED = CommandAnswer(0, {"checks": []}, "")
STATUS = CommandAnswer(0, {"problems": [], "slot": "s"}, "")
TOPICS = CommandAnswer(0, {"topics": []}, "")


def answers(_folder, commands, steps):
    assert commands is COMMANDS
    steps.done(len(commands))
    return {"check": CHECKED, "status": STATUS, "topics": TOPICS}


def none_refused(*_):
    return {}


def never(*_):
    raise AssertionError("nothing is asked")


def test_settings_that_cannot_be_read_are_the_first_problem(tmp_path: Path) -> None:
    (tmp_path / "changelog.toml").write_text("[capture]\nslto = 1\n")
    found = examine(tmp_path, asking=never)
    assert (found.all[0].check, found.all[0].state, found.exit_code) == (
        "settings",
        Level.PROBLEM,
        2,
    )


def test_settings_without_servers_say_what_to_do(tmp_path: Path) -> None:
    found = examine(tmp_path, asking=never)
    assert found.exit_code == 2
    assert "postgres.dsn is not set and no embedded servers run" in found.all[-1].text
    assert found.all[-1].hint.endswith("or run `changelog stack up`")


def test_a_server_of_the_stack_that_has_crashed_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "changelog.toml").write_text('postgres.dsn = "host=127.0.0.1 port=1"\n')
    (tmp_path / ".stack").mkdir()

    def endpoint(_stack: Stack, name: str) -> str | None:
        if name != "brokers":
            return None
        raise StackError("the stack does not run: no kafka", hint="start it")

    monkeypatch.setattr(Stack, "endpoint", endpoint)
    found = examine(tmp_path, asking=never)
    said = (
        "kafka.brokers is not set, and the stack does not run: no kafka; nothing else was looked at"
    )
    assert (found.exit_code, found.all[-1].text) == (2, said)
    assert found.all[-1].hint.startswith("start it, or set it in changelog.toml")


def test_views_that_cannot_be_read_were_refuted_or_never_built_are_told(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    (tmp_path / "changelog.toml").write_text(
        'postgres.dsn = "host=127.0.0.1 port=1"\nkafka.brokers = "127.0.0.1:1"\n'
        f'rebuild.warehouse = "{warehouse}"\nrebuild.lock = "local"\n'
    )
    (tmp_path / "views").mkdir()
    for name, text in {
        "broken": "SELECT 1",
        "fresh": "-- key: id\n-- sinks: delta\nSELECT id FROM t",
        "wrong": "-- key: id\n-- sinks: delta\nSELECT id FROM t",
    }.items():
        (tmp_path / "views" / f"{name}.sql").write_text(text)
    GenerationHistory(str(warehouse)).append(
        [HistoryRow(view="wrong", generation=4, state=REFUTED, note="a row differs")]
    )
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60)
    with StepBar(console, "looking at") as steps:
        found = {
            each.check: each
            for each in examine(tmp_path, asking=answers, plan=none_refused, steps=steps).all
        }
    assert "8 of 8" in file.getvalue(), "the machine, three commands, locks, three views"
    assert found["view broken"].state is Level.PROBLEM
    assert (found["view fresh"].state, found["view fresh"].text) == (
        Level.NOTE, "was never built: rebuild-view fresh",
    )  # fmt: skip
    wrong = found["view wrong"]
    assert (wrong.exit_code, wrong.text) == (3, "generation 4 was refuted: a row differs")
    assert found["capture"].state is found["topics"].state is Level.OK
    assert found["locks"].text == "hold in the project's folder alone (rebuild.lock)"


def test_a_view_that_serves_and_cannot_be_built_any_more_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("-- key: id\n-- sinks: delta\nSELECT id FROM t")
    project = load_project(tmp_path, needs=[])
    GenerationHistory(str(project.root / "warehouse")).append(
        [HistoryRow(view="v", generation=2, state=PUBLISHED, verified=True)]
    )
    findings, error = Findings(), ChangelogError("there is no column id", hint="name another one")
    error.exit_code = 2

    def make_served(spec: ViewSpec, *_: Any) -> Any:
        return Served(spec.name, {"delta": FakeSink(2, [2])})

    look_at_views(findings, project, plan=lambda *_: {"v": error}, make_served=make_served)
    (found,) = findings.all
    assert (found.state, found.exit_code, found.text, found.hint) == (
        Level.PROBLEM,
        2,
        "cannot be built as the tables are now: there is no column id",
        "name another one; generation 2 serves",
    )


@pytest.mark.parametrize("epoch", [None, 4, 5])
def test_a_view_of_a_history_that_is_gone_is_a_problem(tmp_path: Path, epoch: int | None) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("-- key: id\n-- sinks: delta\nSELECT id FROM t")
    project = load_project(tmp_path, needs=[])
    published = HistoryRow(view="v", generation=2, state=PUBLISHED, verified=True)
    GenerationHistory(str(project.root / "warehouse")).append(
        [replace(published, epoch=4, lsn="0/10")]
    )
    findings = Findings()

    def make_served(spec: ViewSpec, *_: Any) -> Any:
        return Served(spec.name, {"delta": FakeSink(2, [2])})

    look_at_views(findings, project, make_served=make_served, epoch=epoch)
    (finding,) = findings.all
    assert (finding.exit_code, "older epoch than the log's, 5" in finding.text) == (
        (1, True) if epoch == 5 else (0, False)
    )


def test_a_sink_that_is_away_is_waited_for_once(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    for name in "abc":
        text = "-- key: id\n-- sinks: search\nSELECT id FROM t"
        (tmp_path / "views" / f"{name}.sql").write_text(text)
    findings, asked = Findings(), []

    class Away(FakeSink):
        def published(self) -> int | None:
            asked.append(self)
            raise UnavailableSinkError("the server is away")

    def make_served(spec: ViewSpec, *_: Any) -> Any:
        return Served(spec.name, {"search": Away(None, [])})

    look_at_views(findings, load_project(tmp_path, needs=[]), make_served=make_served)
    assert [each.text for each in findings.all] == ["the server is away"] * 3
    assert len(asked) == 1


def test_what_serves_is_told_of_a_view_that_failed_or_whose_file_is_gone(tmp_path: Path) -> None:
    settings = (
        'postgres.dsn = "host=127.0.0.1 port=1"\nkafka.brokers = "127.0.0.1:1"\n'
        f'rebuild.warehouse = "{tmp_path / "warehouse"}"\nrebuild.lock = "local"\n'
    )
    (tmp_path / "changelog.toml").write_text(settings)
    (tmp_path / "views").mkdir()
    for name in ("served", "unserved", "cut_off", "lost"):
        (tmp_path / "views" / f"{name}.sql").write_text("-- key: id\nSELECT id FROM t")
    steps = [
        ("served", 7, FAILED), ("unserved", 8, FAILED), ("without_file", 3, PUBLISHED),
        ("dropped", 2, PUBLISHED), ("dropped", 2, DROPPED), ("never_served", 1, FAILED),
        ("cut_off", 2, PUBLISHED), ("cut_off", 4, SEALED),
        ("lost", 5, PUBLISHED),
    ]  # fmt: skip
    GenerationHistory(str(tmp_path / "warehouse")).append(
        HistoryRow(view=view, generation=number, state=state, sinks=("delta",), note="it broke")
        for view, number, state in steps
    )
    findings, numbers = Findings(), {"served": 6, "without_file": 3, "cut_off": 4}

    def make_served(spec: ViewSpec, _project: Project, _spark: Any) -> Any:
        held = {name: SinkGenerations(numbers.get(spec.name), frozenset()) for name in spec.sinks}
        return SimpleNamespace(held_without_listing=lambda: held)

    look_at_views(findings, load_project(tmp_path, needs=[]), make_served=make_served)
    found = {each.check: each for each in findings.all}
    assert set(found) == {
        f"view {name}" for name in ("served", "unserved", "without_file", "cut_off", "lost")
    }
    hint = "rebuild-view {} --history; {}"
    assert found["view served"].hint == hint.format("served", "generation 6 serves")
    assert found["view unserved"].hint == hint.format("unserved", "nothing serves yet")
    cut_off = found["view cut_off"]
    assert (cut_off.state, cut_off.exit_code) == (Level.PROBLEM, 1)
    assert "generation 4 serves, and the history says generation 2" in cut_off.text
    lost = found["view lost"]
    assert (lost.state, lost.exit_code, lost.hint) == (
        Level.PROBLEM, 1, "rebuild-view lost writes it again",
    )  # fmt: skip
    assert lost.text == (
        "nothing serves in delta, and the history says generation 5: it was removed there"
    )
    without_file = found["view without_file"]
    assert without_file.state is Level.NOTE
    assert without_file.text == (
        "its file is gone, and it still serves: generation 3 in delta; rebuild-view without_file "
        "--drop removes it"
    )


def test_a_lock_that_ended_or_whose_process_is_dead_is_nobodys() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    def tenure(*, pid: int = os.getpid(), place: str = "here", until_ms: int = 2_000) -> Tenure:
        owner = Owner(host="h", pid=pid, started="", command="")
        return Tenure(
            id="a", token=1, offset=1, until_ms=until_ms, is_over=False, owner=owner, place=place
        )

    assert lasts(tenure(), "here", 1_000)
    assert not lasts(tenure(until_ms=999), "here", 1_000)
    assert not lasts(replace(tenure(), is_over=True), "here", 1_000)
    assert not lasts(tenure(pid=ended.pid), "here", 1_000)
    # Of a process of another machine nothing is known but its lease.
    assert lasts(tenure(pid=ended.pid, place="there"), "here", 1_000)
    assert lasts(tenure(pid=ended.pid, place=""), "", 1_000)
