"""What judges a storm finds what is wrong, and nothing else."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.soak.captures import Captures
from tests.soak.expected import _completed
from tests.soak.journal import Journal
from tests.soak.served import compared, differing, plain

ROW = {"id": 7, "amount": Decimal("1.50"), "doc": "long", "flag": True, "note": None}
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_rows_that_are_equal_have_no_difference() -> None:
    assert compared([ROW], [dict(ROW)]) == ""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([{**ROW, "note": ""}], "note: None is "),
        ([{**ROW, "doc": None}], "doc: "),
        ([{**ROW, "amount": Decimal("1.51")}], "amount: 1.50 is 1.51"),
        ([], "key 7: missing"),
        ([ROW, {**ROW, "id": 8}], "key 8: too many"),
        ([ROW, ROW], "key 7 twice"),
        ([{name: ROW[name] for name in ROW if name != "note"}], "note: None is -"),
    ],
)
def test_a_row_that_differs_is_told_by_its_columns(found: list[dict], said: str) -> None:
    assert said in compared([ROW], found)


def test_a_row_is_completed_by_the_columns_that_came_and_went_after_its_change() -> None:
    content = '{"id": 7, "gone": 1, "at": "2026-01-01T00:00:00+00:00"}'
    altered = [(3, "add", "before", "5"), (5, "add", "more", "42"), (6, "drop", "gone", None)]
    row = _completed(content, 4, altered)
    assert row == {"id": 7, "at": AT, "more": Decimal(42)}
    assert differing({"7": row}, [{"id": 7, "at": AT, "more": 42}]) == []
    assert differing({"7": row}, [{"id": 7, "at": AT, "more": None}]) != []
    assert plain({"flag": True, "id": 1}) == {"flag": True, "id": Decimal(1)}


class Ended:
    number, began, log = 1, 1000.0, "capture-1.txt"

    def __init__(self, code: int, text: str) -> None:
        self.code, self._text = code, text

    def said(self) -> str:
        return self._text

    def last_lines(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("code", "text", "count"),
    [
        (0, "streaming", 0),
        (1, "error: another capture reads the slot", 0),
        (1, "hint: changelog slot drop, then start again", 1),
        (4, "error: the log is not exact", 1),
    ],
)
def test_a_capture_is_judged_by_its_code_and_by_its_advice(
    tmp_path, code: int, text: str, count: int
) -> None:
    journal = Journal()
    captures = Captures(tmp_path, 1, threading.Event(), journal)
    captures._judge(Ended(code, text), "beside one that runs", {0}, allowed={1})
    assert len(journal.violations) == count


def test_an_outage_excuses_what_overlaps_it_alone() -> None:
    journal = Journal()
    assert not journal.disturbed(0.0)
    with journal.outage("kafka SIGTERM"):
        assert journal.disturbed(1e12)
    assert journal.disturbed(0.0)
    assert not journal.disturbed(1e12)
    assert journal.faults == {"kafka SIGTERM": 1}
