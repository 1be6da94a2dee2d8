"""What other commands say, as findings of the doctor."""

from __future__ import annotations

import pytest

from changelog.runtime.findings import Findings, Level
from views.operate.other_commands import CommandAnswer, note_capture, note_check, note_topics

EXACT = {"topic": "a", "table": "public.a", "verdict": "exact", "deadline": "2026-01-02T00:00:00Z"}


def found(note, answer: CommandAnswer) -> list[tuple[str, Level, str, str, int]]:
    findings = Findings()
    note(findings, answer)
    return [(each.check, each.state, each.text, each.hint, each.exit_code) for each in findings.all]


def test_problems_of_capture_are_problems_here() -> None:
    said = {"problems": ["the slot is lost", "the log has no frontier yet"], "slot": "s"}
    (lost, none) = found(note_capture, CommandAnswer(1, said, ""))
    assert lost == ("capture", Level.PROBLEM, "the slot is lost", "changelog status says more", 1)
    assert none[2] == "the log has no frontier yet"
    ((_, state, text, _, _),) = found(
        note_capture, CommandAnswer(0, {"problems": [], "slot": "s", "lag_s": 2.5}, "")
    )
    assert (state, text) == (Level.OK, "slot s, at most 2.5 s behind")


def test_a_topic_that_is_refused_or_gone_has_the_code_of_the_verdict() -> None:
    late = {**EXACT, "topic": "b", "verdict": "past"}
    foreign = {**EXACT, "topic": "c", "verdict": "past", "table": None}
    answer = CommandAnswer(
        4, {"topics": [EXACT, late, foreign], "missing": ["d"]}, "error: 2 are not exact"
    )
    assert [(text, code) for _, _, text, _, code in found(note_topics, answer)] == [
        ('topic "d" cannot be read exactly', 4),
        ('topic "b" cannot be read exactly', 4),
    ]
    ((_, state, text, _, _),) = found(note_topics, CommandAnswer(0, {"topics": [EXACT]}, ""))
    assert (state, text) == (Level.OK, "1 can be read exactly, until 2026-01-02T00:00:00Z")


@pytest.mark.parametrize("note", [note_capture, note_topics, note_check])
def test_a_command_that_fails_is_a_problem_with_its_own_words(note) -> None:
    said = {"error": "no broker answers | hint: look at kafka.brokers", "exit_code": 1}
    ((_, state, text, hint, code),) = found(note, CommandAnswer(1, said, ""))
    assert (state, text, hint, code) == (
        Level.PROBLEM,
        "no broker answers",
        "look at kafka.brokers",
        1,
    )
    ((_, state, text, _, code),) = found(note, CommandAnswer(2, {}, "error: no such setting"))
    assert (state, text, code) == (Level.PROBLEM, "no such setting", 2)


def test_of_a_check_problems_and_notes_are_shown_and_the_rest_counted() -> None:
    checks = [
        {"check": "PostgreSQL", "state": "ok", "found": "16", "hint": "", "exit_code": 0},
        {"check": "topics", "state": "would do", "found": "make 2", "hint": "", "exit_code": 0},
        {"check": "tables", "state": "note", "found": "no key: x", "hint": "", "exit_code": 0},
        {
            "check": "slot",
            "state": "problem",
            "found": "moved",
            "hint": "resnapshot",
            "exit_code": 1,
        },
    ]
    assert found(note_check, CommandAnswer(1, {"checks": checks}, "")) == [
        ("tables", Level.NOTE, "no key: x", "", 0),
        ("slot", Level.PROBLEM, "moved", "resnapshot", 1),
        ("source and log", Level.OK, "1 checks passed (changelog capture --check)", "", 0),
    ]


def test_that_a_process_reads_the_slot_is_no_problem_where_status_answers() -> None:
    busy = {
        "check": "slot",
        "state": "problem",
        "found": 'slot "s" is read by the server process 7',
        "hint": "end the other capture",
        "exit_code": 1,
    }
    check = CommandAnswer(1, {"checks": [busy]}, "")

    def slot(status: CommandAnswer) -> list[tuple[Level, str]]:
        findings = Findings()
        note_check(findings, check, status)
        return [(each.state, each.hint) for each in findings.all if each.check == "slot"]

    assert slot(CommandAnswer(0, {"problems": [], "slot": "s"}, "")) == []
    excluded = {"problems": ["the table a.b is excluded: too large"], "slot": "s"}
    assert slot(CommandAnswer(1, excluded, "")) == [(Level.NOTE, "")]
    no_answer = CommandAnswer(1, {}, "error: no broker answers")
    assert slot(no_answer) == [(Level.PROBLEM, "end the other capture")]
