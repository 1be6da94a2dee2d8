"""What a run tells."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from changelog.contract.base.errors import RefutedError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.joined import joined
from changelog.contract.rows.relation import TableName
from views.generations.history import CHANGES, PUBLISHED, UNCHANGED, HistoryRow
from views.rebuild.result.report import (
    ViewResult,
    cut_lines,
    fitted,
    history_table,
    moment,
    results_table,
)
from views.verify.compare.report import VerifyReport

FRONTIER = Frontier(slot="s", epoch=2, lsn=Lsn.parse("1/A"), ts_us=1_600_000_000_123_456)
T = TableName("public", "t")
REPORT = VerifyReport(view="v", verified=True, rows_expected=3, rows_served=3, mismatches=0)
DONE = ViewResult(
    view="v",
    generation=4,
    frontier=FRONTIER,
    verdict="exact",
    records_read=9,
    rows=3,
    tombstones=1,
    seconds={"total": 1.25},
    verified=True,
    mismatches=0,
    published=True,
    sinks=("delta",),
    reports={"delta": REPORT},
)


def text_of(table) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_json_object_holds_what_is_promised() -> None:
    found = DONE.to_json()
    assert found["frontier"] == {"epoch": 2, "lsn": "1/A", "ts": "2020-09-13T12:26:40.123456+00:00"}
    promised = "view generation records_read rows tombstones seconds verdict verified mismatches"
    assert {*promised.split(), "published", "frontier"} <= set(found)
    assert "error" not in found


def test_the_frontiers_of_other_captures_are_named_wherever_the_first_is() -> None:
    other = replace(FRONTIER, slot="billing", epoch=7, lsn=Lsn.parse("0/B"), system_id="9")
    other = replace(other, tables={"b.t": T}, ends={"b.t": (3, 4)})
    both = joined(FRONTIER, {"b.t": (TableName("public", "paid"), other)})
    result = replace(DONE, frontier=both, topics=("a", "b.t"))
    (found,) = result.to_json()["other_frontiers"]
    assert found == {
        "slot": "billing",
        "system_id": "9",
        "epoch": 7,
        "lsn": "0/B",
        "ts": "2020-09-13T12:26:40.123456+00:00",
        "ends": {"b.t": [3, 4]},
    }
    row = result.to_history(PUBLISHED, "run")
    assert (row.lsn, row.note) == ("1/A", "beside LSN 0/B, epoch 7 of slot billing")
    shown = text_of(results_table([result]))
    assert "epoch 2 of slot s" in shown
    assert "LSN 0/B, epoch 7 of slot billing" in shown
    assert cut_lines(FRONTIER, ["a"]) == ["LSN 1/A, epoch 2"]
    # A view of the same run that reads the first log alone.
    assert "other_frontiers" not in replace(result, topics=("a",)).to_json()


def test_a_failure_says_why_without_secrets() -> None:
    error = RefutedError("password=hunter2\nis wrong", hint="look")
    found = ViewResult(view="v", error=error).to_json()
    assert (found["error"], found["exit_code"]) == ("password=*** is wrong | hint: look", 3)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (DONE, "equal, row by row"),
        (ViewResult(view="v", verified=True, mode="sample"), "sample equal"),
        (replace(DONE, reports={CHANGES: REPORT}, sinks=("delta",)), "changed rows equal"),
        (
            replace(DONE, reports={CHANGES: REPORT, "delta": REPORT}, sinks=("delta",)),
            "equal, row by row",
        ),
        (ViewResult(view="v", verified=False, mismatches=7), "refuted: 7 mismatches"),
        (ViewResult(view="v", published=True), "not verified"),
        (ViewResult(view="v", published=True, origin=UNCHANGED), "nothing has changed"),
        (ViewResult(view="v", published=True, reports={"delta": REPORT}), "inputs equal"),
    ],
)
def test_the_table_says_what_was_proved(result, words) -> None:
    assert words in text_of(results_table([result]))


def test_the_history_says_which_rows_were_compared() -> None:
    row = HistoryRow(view="v", generation=1, state=PUBLISHED, verified=True, sinks=("delta",))
    for certificate, words in (
        ({CHANGES: {}}, "changed rows equal"),
        ({"delta": {"certificate": {"mode": "sample"}}}, "sample equal"),
        ({CHANGES: {}, "delta": {}}, "equal, row by row"),
    ):
        assert words in text_of(history_table([replace(row, certificate=certificate)]))


def test_a_result_becomes_a_row_of_the_history() -> None:
    row = DONE.to_history(PUBLISHED, "run")
    assert (row.view, row.generation, row.lsn, row.ts) == ("v", 4, "1/A", moment(FRONTIER.ts_us))
    assert row.certificate["delta"]["rows_expected"] == 3
    assert "equal, row by row" in text_of(history_table([row]))
    assert "1/A" in text_of(
        history_table([row, HistoryRow(view="w", generation=1, state="failed")])
    )


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_gets_lines_in_place_of_a_table(width) -> None:
    console = Console(file=StringIO(), width=width)
    note = "a note that is longer than a narrow terminal is wide"
    row = HistoryRow(view="route_delays", generation=1, state=PUBLISHED, lsn="0/1", note=note)
    console.print(fitted(history_table([row]), console))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "  view: route_delays\n" in text
    assert "  state: published\n" in text
    assert "verified" not in text, "what is empty is left out"
    assert note in " ".join(text.split())
    wide = Console(file=StringIO(), width=200)
    table = history_table([row])
    assert fitted(table, wide) is table


def test_a_history_tells_of_certificates_what_came_of_them() -> None:
    whole = {"delta": {**REPORT.to_json(), "certificate": {"topics": ["t"] * 100}}}
    row = HistoryRow(view="v", generation=1, state=PUBLISHED, certificate=whole)
    assert row.to_json()["certificate"] == {
        "delta": {
            "verified": True,
            "rows_expected": 3,
            "rows_served": 3,
            "mismatches": 0,
            "notes": (),
        }
    }
    assert row.to_columns()["certificate"].count('"t"') == 100
