"""What is removed in which order, and what stays with what stays."""

from __future__ import annotations

import io
from functools import partial

import pytest
from rich.console import Console

from changelog.capture.inspect.parts import MadePart
from changelog.contract.base.errors import ConfigurationError, LogError
from changelog.runtime.findings import Level
from changelog.runtime.progress.bar import StepBar
from views.operate.teardown import KINDS, Teardown, check_kinds


def parts(removed, *, failing=()):
    def remove(kind):
        if kind in failing:
            raise LogError(f"{kind} fails")
        removed.append(kind)

    return [MadePart(kind=kind, text=kind, remove=partial(remove, kind)) for kind in KINDS]


def test_everything_goes_in_its_order():
    removed: list[str] = []
    teardown = Teardown(parts(removed))
    teardown.carry_out(lambda _: True)
    assert removed == list(KINDS)
    assert teardown.findings.exit_code == 0


def test_all_questions_come_before_the_first_removal():
    removed: list[str] = []
    seen: list[int] = []
    teardown = Teardown(parts(removed))

    def agreed(_):
        seen.append(len(removed))
        return True

    teardown.carry_out(agreed)
    assert set(seen) == {0}


def test_what_is_declined_keeps_what_it_is_read_by():
    removed: list[str] = []
    teardown = Teardown(parts(removed))
    teardown.carry_out(lambda part: part.kind not in {"views", "subjects"})
    assert set(KINDS) - set(removed) == {"views", "state", "subjects", "frontiers"}
    assert teardown.findings.exit_code == 0


def test_what_fails_stops_no_other_but_keeps_what_it_is_found_by():
    removed: list[str] = []
    teardown = Teardown(parts(removed, failing={"publication", "topics"}))
    teardown.carry_out(lambda _: True)
    assert set(KINDS) - set(removed) == {"publication", "topics", "subjects", "frontiers"}
    problems = [each.text for each in teardown.findings.all if each.state is Level.PROBLEM]
    assert problems == ["publication fails", "topics fails"]
    assert teardown.findings.exit_code == 1


def test_a_slot_that_cannot_be_dropped_keeps_the_rest():
    removed: list[str] = []
    teardown = Teardown(parts(removed, failing={"slot"}))
    teardown.carry_out(lambda _: True)
    assert removed == []
    assert teardown.findings.exit_code == 1


def test_a_plan_removes_nothing():
    removed: list[str] = []
    teardown = Teardown(parts(removed))
    teardown.plan({"topics"})
    assert removed == []
    would = [each.check for each in teardown.findings.all if each.state is Level.MAKES]
    assert would == [kind for kind in KINDS if kind not in {"topics", "subjects", "frontiers"}]


def test_nothing_is_told_as_nothing():
    teardown = Teardown()
    teardown.carry_out(lambda _: True)
    assert [each.text for each in teardown.findings.all] == ["nothing of this project is left"]


def test_a_kind_that_there_is_not_is_refused():
    check_kinds(["topics"])
    with pytest.raises(ConfigurationError, match="there is no topic to keep"):
        check_kinds(["topic"])


def test_what_goes_is_counted_once_it_is_agreed_to():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60)

    def show(going):
        return StepBar(console, "removing", going)

    teardown = Teardown(parts([]))
    teardown.carry_out(lambda part: part.kind not in {"topics", "views"}, show)
    assert "5 of 5" in file.getvalue(), "topics and views stay, and three kinds with them"
