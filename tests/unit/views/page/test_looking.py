"""Looks wait for nobody, and tell what they do not know."""

import threading
import time

from changelog.contract.base.errors import ChangelogError
from tests.support.wait import wait_until
from views.page.line import looking
from views.page.line.looking import Question, ask_all


def test_a_look_that_hangs_keeps_nobody_waiting() -> None:
    go = threading.Event()
    hangs: Question[object] = Question(go.wait, patience_s=0.05)
    quick: Question[object] = Question(lambda: 7)
    begun = time.monotonic()
    ask_all([hangs, quick], wait_s=0.3)
    assert time.monotonic() - begun < 20
    assert quick.answer.value == 7
    assert (hangs.answer.value, hangs.answer.why[:13]) == (None, "no answer for")
    go.set()
    wait_until(lambda: hangs.answer.value is True, 10, "it has answered")


def test_what_raises_is_unknown_with_its_reason() -> None:
    def refuse():
        raise ChangelogError("the broker is away", hint="start it")

    def break_off():
        raise ZeroDivisionError("by zero\nand more")

    questions = [Question(refuse), Question(break_off)]
    ask_all(questions, wait_s=10)
    assert [each.answer.value for each in questions] == [None, None]
    assert "the broker is away" in questions[0].answer.why
    assert questions[1].answer.why == "ZeroDivisionError: by zero"


def test_a_fresh_answer_is_not_asked_for_again(monkeypatch) -> None:
    counted = []
    look = Question(lambda: counted.append(1))
    ask_all([look], wait_s=10)
    ask_all([look], wait_s=10)
    assert len(counted) == 1
    monkeypatch.setattr(looking, "EVERY_S", 0.0)
    look.begin()
    wait_until(lambda: len(counted) == 2, 10, "it looks again")


def test_a_reason_is_told_until_there_is_another_answer(monkeypatch) -> None:
    monkeypatch.setattr(looking, "EVERY_S", 0.0)
    go = threading.Event()
    answers = iter([lambda: 1 / 0, go.wait])

    def answer():
        return next(answers)()

    look = Question(answer, patience_s=0.05)
    ask_all([look], wait_s=10)
    begun = time.monotonic()
    look.begin()
    wait_until(lambda: time.monotonic() - begun > 0.1, 10, "the second look is late")
    assert look.answer.why.startswith("ZeroDivisionError")
    go.set()
    wait_until(lambda: look.answer.value is True, 10, "it has answered")
