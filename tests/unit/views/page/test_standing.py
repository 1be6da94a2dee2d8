"""What the page says of a view: the worst of its states, and never more than is known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from views.generations.history import FAILED, PUBLISHED, REFUTED, SEALED, STAGED, HistoryRow
from views.page.line.cells import cells
from views.page.line.charts import charts
from views.page.line.looking import LastAnswer
from views.page.line.sources import Line, refused_of
from views.page.line.standing import (
    DeclaredView,
    LogProgress,
    Severity,
    SinkState,
    log_of,
    view_line,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
TOTALS = DeclaredView(name="totals", sinks=("delta", "cache"), tables=("public.orders",))


def row(generation=2, state=PUBLISHED, **told):
    given: dict[str, Any] = {
        "lsn": "0/100",
        "ts": NOW - timedelta(minutes=5),
        "verified": True,
        "rows": 40,
    }
    return HistoryRow(view="totals", generation=generation, state=state, at=NOW, **given | told)


def seen(delta=2, cache=2, lsn=None):
    return {"delta": LastAnswer(SinkState(delta)), "cache": LastAnswer(SinkState(cache, lsn))}


def line(rows=(row(),), sinks=None, log=LogProgress(), refused=None, declared=TOTALS):  # noqa: B008
    return view_line(
        declared,
        sinks=seen() if sinks is None else sinks,
        history=rows if isinstance(rows, LastAnswer) else LastAnswer([*rows]),
        log=log,
        refused=refused or {},
        due=None,
        now=NOW,
    )


def test_a_proof_of_changed_rows_says_no_more() -> None:
    found = line([row(certificate={"changes": {"rows_expected": 3}}, sinks=("delta", "cache"))])
    assert found.proof == "changed rows proved"
    assert found.worst.text.startswith("its changed rows are proved")


def test_what_is_refuted_while_it_serves_is_told_until_it_is_proved() -> None:
    refuted = row(2, REFUTED, verified=False, note="a row differs")
    found = line([row(), refuted, row(3, FAILED, note="no disk")])
    assert (found.worst.level, found.proof) == (Severity.PROBLEM, "refuted")
    assert any("2 is refuted and serves" in each.text for each in found.standings)


def test_a_proved_view_is_well() -> None:
    found = line()
    assert (found.worst.level, found.serving, found.proof) == (Severity.OK, 2, "proved")
    assert found.rows == 40


@pytest.mark.parametrize(
    ("found", "level", "said"),
    [
        (line([row(), row(3, REFUTED, note="a row differs")]), Severity.PROBLEM, "3 was refuted"),
        (line([row(), row(3, FAILED, note="no disk")]), Severity.PROBLEM, "failed: no disk"),
        (line(sinks=seen(2, 1)), Severity.PROBLEM, "delta 2, cache 1"),
        (line(refused={"public.orders": "compacted"}), Severity.PROBLEM, "compacted"),
        (line([row(verified=False)]), Severity.PROBLEM, "refuted and serves"),
        (line([row(verified=None)]), Severity.NOTE, "is not proved"),
        (line([row(), row(3, STAGED)]), Severity.NOTE, "3 is staged"),
        (line([], seen(None, None)), Severity.NOTE, "was never built"),
        (line(sinks=seen(None, None)), Severity.PROBLEM, "though generation 2 was published"),
        (line(LastAnswer(None, "no answer yet")), Severity.UNKNOWN, "no answer yet"),
        (line([row(7)]), Severity.UNKNOWN, "is not in the history"),
        (line(declared=DeclaredView(name="totals", error="no key")), Severity.PROBLEM, "no key"),
    ],
)  # fmt: skip
def test_the_worst_is_told_first_with_what_mends_it(found, level, said) -> None:
    assert found.worst.level is level
    assert said in found.worst.text
    assert "totals" in found.worst.mend or "changelog" in found.worst.mend


def test_a_sink_that_does_not_tell_is_unknown_and_so_is_what_depends_on_it() -> None:
    found = line(sinks={**seen(), "cache": LastAnswer(None, "no answer for 20 s")})
    assert found.worst.level is Severity.UNKNOWN
    assert found.worst.text == "cache: no answer for 20 s"
    assert (found.serving, found.lsn, found.lag_s) == (None, None, None)


def test_a_problem_is_worse_than_what_is_unknown() -> None:
    away = {**seen(), "cache": LastAnswer(None, "away")}
    found = line([row(), row(3, REFUTED)], away)
    assert [each.level for each in found.standings] == [
        Severity.PROBLEM,
        Severity.UNKNOWN,
    ]


def test_how_far_a_view_is_behind() -> None:
    log = LogProgress(lsn="0/200", lag_s=1.5, wal_lsn="0/300")
    old = line(log=log)
    assert (old.lsn, old.lag_s, old.lag_bytes) == ("0/100", 300.0, 0x200)
    # The least of its sinks counts: one never went forward.
    assert line(sinks=seen(lsn="0/200"), log=log).lag_s == 300.0
    forward = {
        "delta": LastAnswer(SinkState(2, "0/200")),
        "cache": LastAnswer(SinkState(2, "0/200")),
    }
    assert line(sinks=forward, log=log).lag_s == 1.5
    assert line([row(ts=None)], log=log).lag_s is None


def test_what_a_status_without_an_answer_says_of_the_log() -> None:
    assert log_of(None) == log_of({"error": "away"}) == LogProgress()
    said: dict[str, Any] = {"problems": [], "frontier": None, "lag_s": None, "wal_lsn": "0/1"}
    assert log_of(said) == LogProgress(wal_lsn="0/1")


def test_a_topic_is_refused_unless_its_verdict_says_otherwise() -> None:
    def topic(table, verdict):
        return {"table": table, "verdict": verdict, "reasons": [], "text": "why"}

    found = [topic("a", "exact"), topic("b", "exact-until"), topic("c", "late"), topic(None, "x")]
    assert refused_of({"topics": found, "missing": ["t"]}) == {
        "c": "why",
        "t": "it does not exist any more",
    }


def test_charts_go_from_nothing_to_the_largest() -> None:
    rows = [row(n, SEALED, rows=n * 10, seconds={"total": 1.0}) for n in range(1, 51)]
    first = charts(rows)[0]
    assert (len(first.bars), first.last, first.bars[-1].height) == (40, "500", 72)
    assert first.bars[0].height == round(110 / 500 * 72)
    assert charts(rows[:1]) == []


SAID: dict[str, Any] = {
    "problems": [],
    "unanswered": {},
    "exists": True,
    "active": True,
    "wal_status": "reserved",
    "lag_s": 0.5,
    "lag_bytes": 100,
    "frontier": {"lsn": "0/100", "age_s": 240.0},
    "wal_lsn": "0/164",
    "retained_bytes": 300,
    "reserves": [],
}
NO_LOG = {
    "lag_s": None,
    "lag_bytes": None,
    "frontier": None,
    "unanswered": {"log": "no broker answers"},
}
NO_SOURCE = {
    "exists": None,
    "active": None,
    "wal_status": None,
    "lag_s": None,
    "lag_bytes": None,
    "wal_lsn": None,
    "retained_bytes": None,
    "reserves": None,
    "unanswered": {"source": "no server answers"},
}


@pytest.mark.parametrize(
    ("told", "level", "said", "slot", "frontier"),
    [
        ({}, Severity.OK, "capture runs", "active, WAL reserved", "0/100"),
        (
            {"unanswered": {"registry": "no registry"}, "problems": ["no registry"]},
            Severity.UNKNOWN,
            "capture runs; no registry",
            "active, WAL reserved",
            "0/100",
        ),
        (
            {**NO_LOG, "problems": ["no broker answers"]},
            Severity.UNKNOWN,
            "capture runs; its progress is unknown: no broker answers",
            "active, WAL reserved",
            "unknown",
        ),
        (
            {**NO_LOG, "active": False, "problems": ["no broker answers", "nobody reads the slot"]},
            Severity.PROBLEM,
            "nobody reads the slot",
            "idle, WAL reserved",
            "unknown",
        ),
        (
            {**NO_SOURCE, "problems": ["no server answers", "the last frontier is old"]},
            Severity.UNKNOWN,
            "no server answers",
            "unknown",
            "0/100, 4 min old",
        ),
        ({"frontier": None, "problems": ["none"]}, Severity.PROBLEM, "none", None, "none yet"),
    ],
)
def test_source_and_log_are_told_each_without_the_other(told, level, said, slot, frontier) -> None:
    capture: LastAnswer[Any] = LastAnswer(SAID | told)
    found = Line(
        at=NOW, folder="", slot="", capture=capture, topics=LastAnswer(None, "away"), views=()
    )
    assert (found.source.level, found.source.text) == (level, said)
    shown = cells(found)
    assert shown["capture.frontier"].text == frontier
    assert slot is None or shown["capture.slot"].text == slot
    if not told.get("reserves", True):
        assert shown["capture.room"].text == shown["capture.retained"].text == "unknown"
