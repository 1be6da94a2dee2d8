"""The doctor's way through a project, without servers."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from changelog.runtime.findings import Level
from changelog.runtime.progress.bar import StepBar
from views.generations.history import REFUTED, History, HistoryRow
from views.operate.asked import Answer
from views.operate.doctor import COMMANDS, examine

CHECKED = Answer(0, {"checks": []}, "")
STATUS = Answer(0, {"problems": [], "slot": "s"}, "")
TOPICS = Answer(0, {"topics": []}, "")


def answers(_folder, commands, steps):
    assert commands is COMMANDS
    steps.done(len(commands))
    return {"check": CHECKED, "status": STATUS, "topics": TOPICS}


def never(*_):
    raise AssertionError("nothing is asked")


def test_settings_that_cannot_be_read_are_the_first_problem(tmp_path: Path) -> None:
    (tmp_path / "changelog.toml").write_text("[capture]\nslto = 1\n")
    found = examine(tmp_path, asking=never)
    assert (found.all[0].what, found.all[0].state, found.exit_code) == (
        "settings",
        Level.PROBLEM,
        2,
    )


def test_settings_without_servers_say_what_to_do(tmp_path: Path) -> None:
    found = examine(tmp_path, asking=never)
    assert found.exit_code == 2
    assert found.all[-1].hint == "changelog init, and changelog stack up"


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
    History(str(warehouse)).append(
        [HistoryRow(view="wrong", generation=4, state=REFUTED, note="a row differs")]
    )
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60)
    with StepBar(console, "looking at") as steps:
        found = {each.what: each for each in examine(tmp_path, asking=answers, steps=steps).all}
    assert "8 of 8" in file.getvalue(), "the machine, three commands, locks, three views"
    assert found["view broken"].state is Level.PROBLEM
    assert (found["view fresh"].state, found["view fresh"].said) == (
        Level.NOTE, "was never built: rebuild-view fresh",
    )  # fmt: skip
    wrong = found["view wrong"]
    assert (wrong.exit_code, wrong.said) == (3, "generation 4 was refuted: a row differs")
    assert found["capture"].state is found["topics"].state is Level.OK
    assert found["locks"].said == "hold in the project's folder alone (rebuild.lock)"
