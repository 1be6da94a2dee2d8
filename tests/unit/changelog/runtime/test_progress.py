"""Progress of long work: a bar on a terminal, lines elsewhere, and no more than that."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from changelog.runtime.progress.bar import RowBar, StepBar
from tests.support.narrow import COLUMNS, misfits


@pytest.fixture
def lines(caplog, monkeypatch):
    """Give what is logged, a line at each step."""
    monkeypatch.setattr("changelog.runtime.progress.bar.LINE_EVERY_S", -1.0)
    monkeypatch.setattr(logging.getLogger("changelog"), "propagate", True)
    caplog.set_level(logging.INFO, "changelog.progress")
    return lambda: [record.getMessage() for record in caplog.records]


def _console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=COLUMNS, no_color=True)


def _shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_tell_rate_and_time_left(lines):
    with RowBar(_console(terminal=False), "orders", 100) as bar:
        bar.add(40)
    step, end = lines()
    assert step.startswith("orders: 40 of about 100 rows, ")
    assert step.endswith(" s left")
    assert end.startswith("orders: 40 rows in ")


def test_what_has_no_known_end_tells_the_rate_alone(lines):
    with RowBar(_console(terminal=False), "orders", says_sum=False) as bar:
        bar.add(40)
        bar.expect(400)
        bar.add(40)
    first, second = lines()
    assert (first.startswith("orders: 40 rows, "), "about" in first) == (True, False)
    assert second.startswith("orders: 80 of about 400 rows, ")


def test_a_terminal_has_a_bar_and_no_lines(lines):
    console = _console(terminal=True)
    with RowBar(console, "orders", 100, says_sum=False) as bar:
        bar.add(40)
    assert "orders" in _shown(console)
    assert "40 rows" in _shown(console)
    assert lines() == []


def test_a_narrow_terminal_has_all_numbers_of_a_bar_in_one_line():
    console = _console(terminal=True)
    with RowBar(console, "a snapshot of many tables", 90_000_000, says_sum=False) as bar:
        bar.add(1_000_000)
    said = _shown(console)
    assert misfits(said) == []
    assert [line for line in said.splitlines() if "1,000,000 rows, " in line and "/s" in line]


def test_steps_tell_what_is_at_work_how_many_are_done_and_the_time_left():
    console = _console(terminal=True)
    with StepBar(console, "removing", 3) as bar:
        bar.begin("topic [a] of a name that is longer than a narrow terminal is wide")
        bar.done()
        bar.done()
    said = _shown(console)
    assert misfits(said) == []
    (line, *_) = [each for each in said.splitlines() if "2 of 3, " in each]
    assert "removing: topic [a]" in line
    assert "/s" in line
    assert ":" in line.rpartition("/s")[2], "the time left"


def test_more_steps_become_known_on_the_way():
    console = _console(terminal=True)
    with StepBar(console, "looking at") as bar:
        bar.more(7)
        bar.more(2)
        bar.done(2)
    assert "2 of 9" in _shown(console)


def test_steps_say_nothing_without_a_terminal(lines):
    console = _console(terminal=False)
    with StepBar(console, "removing", 3) as bar:
        bar.begin("a topic")
        bar.done()
    assert _shown(console) == ""
    assert lines() == []
