"""Findings of a check: which code it ends with, and what it never shows."""

import io

from rich.console import Console

from changelog.contract.base.errors import ConfigurationError, SlotError
from changelog.runtime.findings import Findings, Level


def raising(error):
    def look():
        raise error

    return look


def test_the_code_is_that_of_the_first_refusal():
    found = Findings()
    found.add("a", Level.OK, "fine")
    assert (found.exit_code, found.to_json()["ok"]) == (0, True)
    assert found.ask("b", lambda: 7) == 7
    assert found.ask("c", raising(SlotError("in use", hint="stop it"))) is None
    assert not found.passes("d", raising(ConfigurationError("no")), "never said")
    assert found.exit_code == SlotError.exit_code == 1
    assert [(each.check, each.state.value) for each in found.all] == [
        ("a", "ok"),
        ("c", "problem"),
        ("d", "problem"),
    ]
    assert found.to_json()["problems"] == ["in use", "no"]


def test_no_secret_is_shown_and_brackets_are_plain():
    found = Findings()
    found.add("a", Level.NOTE, "password=canary")
    found.ask("b", raising(SlotError("x", hint="see postgresql://ann:canary@db/app [here]")))
    page = io.StringIO()
    Console(width=120, file=page).print(found.table("Looked at"))
    shown = page.getvalue()
    assert "canary" not in shown + str(found.to_json())
    assert "[here]" in shown
