"""Declared schedules: read, run one at a time, ended with the process that runs them."""

import re
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from changelog.contract.base.errors import ConfigurationError
from tests.support.wait import wait_until
from views import cli, scheduling
from views.base.sections import Planned
from views.runs.scheduled import Due, Scheduled, due_of

WRITES = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[2])
words = sys.argv[3:]
number = len(list(folder.glob("begun*")))
if os.getsid(0) != os.getpid():
    words = ["a signal to the group reaches it and us"]
(folder / f"begun{number}").write_text(" ".join(words))
if "long" in words:
    signal.signal(signal.SIGTERM, lambda *_: ((folder / "asked").touch(), sys.exit(1)))
    while True:
        time.sleep(0.05)
"""


class EachSecond:
    """What no cron has: a test cannot wait for minutes."""

    def after(self, moment: datetime) -> datetime:
        return moment.replace(microsecond=0) + timedelta(seconds=1)


EACH_SECOND = EachSecond()


def test_a_schedule_is_read_with_its_time_zone() -> None:
    (due,) = due_of(
        {"nightly": Planned(cron="30 2 * * *", timezone="Europe/Berlin", run="--all --wait 60")}
    )
    assert due.words == ("--all", "--wait", "60")
    found = due.times.after(datetime(2026, 6, 1, 12, tzinfo=UTC))
    assert found.astimezone(UTC) == datetime(2026, 6, 2, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("planned", "words"),
    [
        ({"cron": "61 * * * *"}, "schedule.x:"),
        ({"cron": "* * *"}, "no schedule of cron"),
        ({"cron": "0 3 * * *", "timezone": "Atlantis/City"}, "Atlantis/City"),
        ({"cron": "0 3 * * *", "run": "--all 'a"}, "No closing quotation"),
        ({"cron": "0 3 * * *", "run": "--follow --all"}, "cannot have --follow"),
        ({"cron": "0 3 * * *", "run": "--project=/x a"}, "cannot have --project=/x"),
        ({"cron": "0 3 * * *", "run": "--all --drop --yes"}, "cannot have --drop"),
        ({"cron": "0 3 * * *", "run": ""}, "run is empty"),
    ],
)
def test_what_cannot_be_read_is_named(planned, words) -> None:
    with pytest.raises(ConfigurationError) as error:
        due_of({"x": Planned(**planned)})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("a --foo", "schedule.x: run: No such option: --foo"),
        ("a --verify nope", "'nope' is not one of"),
        ("--all --keep 0", "Invalid value for '--keep': "),
        ("--all --timeout", "requires an argument"),
    ],
)
def test_options_are_read_before_they_fall_due(tmp_path: Path, words, problem) -> None:
    (tmp_path / "changelog.toml").write_text(
        'kafka.brokers = "b:1"\nregistry.url = "http://r"\n'
        f'[schedule.x]\ncron = "0 3 * * *"\nrun = "{words}"\n'
    )
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        scheduling.run(tmp_path, cli.app, next_times=True)


def test_a_project_without_schedules_is_told_how_one_looks() -> None:
    with pytest.raises(ConfigurationError, match=r"no schedule.*\[schedule.nightly\]"):
        due_of({})


@pytest.fixture
def running(tmp_path: Path):
    """Runs schedules in a thread until the test is over."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def start(*schedules: Due) -> Path:
        command = (sys.executable, "-c", WRITES)
        made = Scheduled(tmp_path, list(schedules), command=command)
        threads.append(threading.Thread(target=made.run_until, args=(over.is_set,)))
        threads[0].start()
        return tmp_path

    def end() -> None:
        over.set()
        for thread in threads:
            thread.join(60)

    start.end = end  # type: ignore[attr-defined]
    yield start
    end()


def test_what_is_due_runs_again_and_again_with_its_options(running) -> None:
    folder = running(Due("quick", EACH_SECOND, ("--all", "--wait", "5")))
    wait_until(lambda: len(list(folder.glob("begun*"))) >= 2, 60, "it has run twice")
    running.end()
    assert (folder / "begun0").read_text() == "--all --wait 5"


def test_one_runs_at_a_time_is_told_and_asked_to_end_with_us(running, caplog) -> None:
    folder = running(Due("slow", EACH_SECOND, ("long",)))
    wait_until((folder / "begun0").exists, 60, "it runs")
    begun = datetime.now(UTC)
    wait_until(lambda: datetime.now(UTC) > begun + timedelta(seconds=2), 60, "two more are due")
    assert len(list(folder.glob("begun*"))) == 1
    running.end()
    assert (folder / "asked").exists()
    assert len(list(folder.glob("begun*"))) == 1
    assert "left out once, or more" in caplog.text
