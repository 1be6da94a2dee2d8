"""Looks wait for nobody, and tell what they do not know."""

import threading
import time

from changelog.contract.base.errors import ChangelogError
from tests.support.wait import wait_until
from views.page.line import looking
from views.page.line.looking import Look, look_at


def test_a_look_that_hangs_keeps_nobody_waiting() -> None:
    go = threading.Event()
    hangs: Look[object] = Look(go.wait, patience_s=0.05)
    quick: Look[object] = Look(lambda: 7)
    begun = time.monotonic()
    look_at([hangs, quick], wait_s=0.3)
    assert time.monotonic() - begun < 20
    assert quick.seen.value == 7
    assert (hangs.seen.value, hangs.seen.why[:13]) == (None, "no answer for")
    go.set()
    wait_until(lambda: hangs.seen.value is True, 10, "it has answered")


def test_what_raises_is_unknown_with_its_reason() -> None:
    def refuse():
        raise ChangelogError("the broker is away", hint="start it")

    def break_off():
        raise ZeroDivisionError("by zero\nand more")

    looks = [Look(refuse), Look(break_off)]
    look_at(looks, wait_s=10)
    assert [each.seen.value for each in looks] == [None, None]
    assert "the broker is away" in looks[0].seen.why
    assert looks[1].seen.why == "ZeroDivisionError: by zero"


def test_a_fresh_answer_is_not_asked_for_again(monkeypatch) -> None:
    counted = []
    look = Look(lambda: counted.append(1))
    look_at([look], wait_s=10)
    look_at([look], wait_s=10)
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

    look = Look(answer, patience_s=0.05)
    look_at([look], wait_s=10)
    begun = time.monotonic()
    look.begin()
    wait_until(lambda: time.monotonic() - begun > 0.1, 10, "the second look is late")
    assert look.seen.why.startswith("ZeroDivisionError")
    go.set()
    wait_until(lambda: look.seen.value is True, 10, "it has answered")
