"""What judges a storm finds what is wrong, and nothing else."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace

import pytest

from tests.soak import followers
from tests.soak.captures import Captures
from tests.soak.expected import _completed
from tests.soak.followers import Glances
from tests.soak.journal import Journal
from tests.soak.mart import MartJudge
from tests.soak.part import Part
from tests.soak.planned import LONG_MINUTES, missing_faults, never
from tests.soak.served import compared, differing, plain
from tests.soak.verified import SETTLE_S, Lags, Verified

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


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_is_drawn_before_one_of_no_weight_would_be(seed: int) -> None:
    part = Part("writer", seed, threading.Event())
    weights = dict.fromkeys("abcdef", 1.0) | {"rare": 1e-12}
    assert {part.draw(weights) for _ in range(200)} == {*weights}


def test_a_kind_that_did_not_happen_is_drawn_again() -> None:
    part = Part("writer", 1, threading.Event())
    weights = {"often": 1.0, "rare": 1e-12}
    drawn = []
    for _ in range(200):
        drawn.append(part.draw(weights))
        if drawn.count("rare") < 3:
            part.owe("rare")
    assert drawn.count("rare") == 3


def test_a_kind_of_transaction_that_changed_nothing_never_happened() -> None:
    done = Counter({"insert": 3, "truncate": 0})
    writers = {"writer 1": ({"insert": 30, "truncate": 0.1, "prune": 1}, done)}
    assert never(writers, 1.0) == ["writer 1: truncate"]
    assert never(writers, LONG_MINUTES) == ["writer 1: truncate", "writer 1: prune"]


def test_a_long_storm_has_every_kind_of_fault() -> None:
    named = {"minutes": LONG_MINUTES, "servers": ("kafka",), "follow": True}
    missing = missing_faults(Counter(), **named)
    assert "follower kill at" in missing
    assert "kafka SIGSTOP" in missing
    assert missing_faults(Counter({f"{name} something": 1 for name in missing}), **named) == []
    assert missing_faults(Counter(), **{**named, "minutes": 1.0}) == []


@pytest.mark.parametrize(
    ("shows", "count"),
    [
        ([(1, "0/1", [{"id": 1}]), (1, "0/2", [{"id": 2}]), (2, None, [{"id": 3}])], 0),
        ([(1, "0/1", [{"id": 1}]), (1, "0/1", [{"id": 1}]), (1, "0/1", [{"id": 2}])], 1),
        ([(1, None, [{"id": 1}]), (1, None, [])], 1),
    ],
)
def test_two_states_at_one_lsn_are_seen(monkeypatch, shows, count: int) -> None:
    journal = Journal()
    glances = Glances("", threading.Event(), journal)
    monkeypatch.setattr(followers, "SMALL", ("view",))
    for each in shows:
        monkeypatch.setattr(followers, "shown_by", lambda *_, each=each: each)
        glances._look(None)
    assert len(journal.violations) == count


class Shown(MartJudge):
    """A judge of views that show what it is told; they are right at the LSNs of `right`."""

    def __init__(self, shows, right) -> None:
        self._shown, self._right = iter(shows), right
        self._seen, self._ahead, self.judged, self.rows = set(), {}, Counter(), 0
        self.wrong = []

    def _shows(self, _view):
        return 1, next(self._shown), []

    def _differences(self, _view, lsn, _rows):
        return "" if lsn in self._right else "it differs"


@pytest.mark.parametrize(
    ("view", "shows", "wrong"),
    [
        ("nation_revenue", ["0/1"], 0),
        ("nation_revenue", ["0/2", "0/2"], 1),
        ("customer_cards", ["0/2"], 1),
        ("open_lines", ["0/2", "0/2", "0/2", "0/2"], 0),
        ("open_lines", ["0/2", "0/3", "0/1", "0/4", "0/5"], 0),
        ("open_lines", ["0/2", "0/3", "0/4"], 1),
    ],
)
def test_an_index_may_be_ahead_of_its_lsn_a_table_and_a_cache_never(view, shows, wrong) -> None:
    judge = Shown(shows, {"0/1"})
    for _ in shows:
        judge.look(view)
    assert len(judge.wrong) == wrong


def test_a_lag_is_the_time_since_the_source_was_where_the_line_is() -> None:
    lags = Lags()
    lags.note(100.0, 10, {"log": 10})
    lags.note(101.0, 20, {"log": 10})
    lags.note(102.0, None, {"log": 15})
    lags.note(103.0, 30, {"log": 15})
    assert lags.about("log", 103.0) == 2.0
    lags.note(150.0, 30, {"log": 30})
    assert lags.about("log", 150.0) == 0.0
    assert lags.longest == {"log": 2.0}
    assert lags.about("follower", 150.0) == 0.0


@pytest.fixture
def verified(tmp_path) -> Verified:
    endpoints = SimpleNamespace(postgres="host=here dbname=shop", search="http://here:9200")
    return Verified(endpoints, "soak", tmp_path, Journal(), None)


def told(verified_: bool | None, at: float) -> dict:
    ended = {"at": datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")}
    return {"verified": verified_, "ended": ended, "differences": [{"key": {"id": "7"}}]}


@pytest.mark.parametrize(
    ("report", "verdict", "count"),
    [
        (told(True, 200.0), "equal", 0),
        (told(None, 200.0), "undecided", 0),
        (told(False, 200.0), "false alarm", 1),
        (told(False, 300.0), "late", 0),
        ({"error": "the source does not answer", "exit_code": 1}, "unreachable", 0),
        ({"error": "keys kept changing", "exit_code": 4}, "undecided", 0),
        ({"error": "the source has no column", "exit_code": 2}, "refused", 1),
    ],
)
def test_a_difference_is_a_false_alarm_unless_the_copy_was_late(
    verified, report, verdict: str, count: int
) -> None:
    copy = next(each for each in verified._copies if each.name == "table")
    verified.lags.note(300.0 - SETTLE_S, 10, {"follower": 10})
    verified.lags.note(301.0 - SETTLE_S, 20, {"follower": 20})
    verified.lags.note(302.0 - SETTLE_S, 30, {"follower": 20})
    verified.lags.note(302.0, 40, {"follower": 20, "log": 40})
    assert verified.judge(copy, report) == verdict
    assert len(verified._journal.violations) == count


def test_a_copy_that_was_never_found_equal_is_missing(verified) -> None:
    names = [copy.name for copy in verified._copies]
    assert verified.missing() == [f"{name} is equal" for name in names]
    for copy in verified._copies:
        verified._take(copy, told(True, 200.0))
    assert verified.missing() == []
