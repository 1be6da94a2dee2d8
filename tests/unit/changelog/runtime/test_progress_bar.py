"""Progress of long work: a bar on a terminal, lines elsewhere, and no more than that."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from changelog.runtime import progress_bar
from changelog.runtime.progress_bar import RowBar


@pytest.fixture
def lines(caplog, monkeypatch):
    """Give what is logged, a line at each step."""
    monkeypatch.setattr(progress_bar, "LINE_EVERY_S", -1.0)
    monkeypatch.setattr(logging.getLogger("changelog"), "propagate", True)
    caplog.set_level(logging.INFO, "changelog.progress")
    return lambda: [record.getMessage() for record in caplog.records]


def _console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=60)


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
    assert isinstance(console.file, io.StringIO)
    assert "orders" in console.file.getvalue()
    assert "40 rows" in console.file.getvalue()
    assert lines() == []
