"""Rebuilds as connectors: schedules, what is asked for, what runs when."""

import sys
import threading

import pytest

from changelog.connect.jobs import children
from changelog.connect.jobs import rebuild as rebuild_module
from changelog.connect.jobs.children import ChildError, ExitResult, run_child
from changelog.connect.jobs.rebuild import RunCallbacks, run_rebuild
from changelog.connect.rules.kinds import problems
from changelog.connect.rules.rebuilds import parse_rebuild

LEAST = {"name": "s", "connector.class": "changelog.Rebuild", "project": "p", "views": "a, b"}


def test_words_of_a_rebuild():
    assert parse_rebuild(LEAST).words == ("a", "b")
    more = {"views": "*", "verify": "sample", "from": "checkpoint", "refresh": "true"}
    assert parse_rebuild({**LEAST, **more}).words == (
        "--all", "--verify", "sample", "--from", "checkpoint", "--refresh",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"views": "--drop"}, "views"),
        ({"views": ""}, "views"),
        ({"project": "../x"}, "project"),
        ({"project": "/etc"}, "project"),
        ({"project": "a/../../x"}, "project"),
        ({"schedule": "daily"}, "schedule"),
        ({"schedule": "0 0 31 2 *"}, "schedule"),
        ({"verify": "maybe"}, "verify"),
        ({"topics": "t"}, "topics"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_key(wrong, key):
    assert key in problems({**LEAST, **wrong})


class Told:
    """What a run tells; runs are faked, since their words and codes are all that counts here."""

    def __init__(self, monkeypatch, tmp_path, codes):
        (tmp_path / "p").mkdir()
        self.root, self.results, self.ran = tmp_path, [], 0
        self.stop = threading.Event()
        codes = iter(codes)

        def fake(words, variables, stop, **_):
            self.ran += 1
            assert words[:1] == ["rebuild-view"]
            code = next(codes)
            return ExitResult(code, '{"view": "a"}\n', "no way" if code else "", stopped=False)

        monkeypatch.setattr(rebuild_module, "run_child", fake)

    def run(self, config, last=None):
        def ended(result, why):
            self.results.append((result, why))
            if len(self.results) == 2:
                self.stop.set()

        telling = RunCallbacks(
            run="r-0", last=last, started=lambda: None, waits=lambda _: None, ended=ended
        )
        run_rebuild(self.root, parse_rebuild(config), self.stop, telling)


def test_what_is_done_once_is_not_done_again(monkeypatch, tmp_path):
    told = Told(monkeypatch, tmp_path, [0])
    told.stop.set()
    told.run(LEAST)
    result, why = told.results[0]
    assert (result["code"], result["views"], why) == (0, [{"view": "a"}], "")
    told.run(LEAST, last=result)
    assert told.ran == 1


def test_one_that_failed_stays_failed_until_it_is_asked_again(monkeypatch, tmp_path):
    told = Told(monkeypatch, tmp_path, [3, 0])
    with pytest.raises(ChildError, match="code 3: no way"):
        told.run(LEAST)
    last = told.results[0][0]
    with pytest.raises(ChildError, match="code 3"):
        told.run(LEAST, last=last)
    assert told.ran == 1
    told.stop.set()
    told.run(LEAST, last={**last, "run": "r-1"})
    assert told.ran == 2


def test_a_schedule_goes_on_after_a_failure(monkeypatch, tmp_path):
    told = Told(monkeypatch, tmp_path, [1, 0])
    monkeypatch.setattr(rebuild_module, "_stopped_before", lambda _moment, stop: stop.is_set())
    told.run({**LEAST, "schedule": "0 * * * *"})
    assert [why for _, why in told.results] == ["rebuild-view ended with code 1: no way", ""]


def test_a_signal_to_the_group_reaches_a_child_through_us_alone(monkeypatch, tmp_path):
    words = [sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"]
    monkeypatch.setattr(children, "own_command", lambda _: words)
    stop = threading.Event()
    ended = run_child([], {}, stop, name="r", folder=tmp_path, started=lambda: None)
    assert (ended.code, ended.output.strip()) == (0, "True")
