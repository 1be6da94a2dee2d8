"""Help: by subject, with examples that exist, on narrow terminals and without colours."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import CliRunner
from typer.exceptions import TyperException

from changelog.cli import _SUBJECTS
from tests.unit.test_docs import _command, _walk
from views.cli import schedule_app
from views.rebuild.plan.options import Request

BIN = Path(sys.executable).parent
PROGRAMS = ("changelog", "rebuild-view", "rebuild-view schedule")
MOST_TOGETHER = 12
"""Of more options under one title nobody finds one."""


def helped(*words: str, **environment: str) -> str:
    return subprocess.run(
        [BIN / words[0], *words[1:], "--help"],
        capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "COLUMNS": "60", **environment},
    ).stdout  # fmt: skip


def test_each_command_has_a_subject_and_only_one() -> None:
    listed = [name for subject in _SUBJECTS for name in subject.commands]
    group = _command("changelog")
    assert sorted(listed) == sorted(group.list_commands(group.context_class(group)))


@pytest.mark.parametrize("subject", _SUBJECTS, ids=lambda subject: subject.title)
def test_the_example_of_a_subject_exists(subject) -> None:
    program, *words = shlex.split(subject.example)
    tree = dict(_walk(_command(program), ()))
    path = tuple(word for number, word in enumerate(words) if tuple(words[: number + 1]) in tree)
    known = {option for each in tree[path].params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert f"$ {subject.example}\n" in helped("changelog")


def test_what_stands_in_brackets_is_shown() -> None:
    """It is markup to what draws the boxes, and would vanish."""
    seen = 0
    for program in PROGRAMS:
        for path, command in _walk(_of(program), ()):
            texts = [command.help, command.epilog, *(each.help for each in command.params)]
            wanted = [
                part for text in texts if text for part in re.findall(r"\[[a-z][^]]*\]", text)
            ]
            if wanted:
                said = CliRunner().invoke(command, ["--help"], env={"COLUMNS": "200"}).output
                assert [part for part in wanted if part not in said] == [], path
                seen += len(wanted)
    assert seen > 3


def _of(program: str) -> Any:
    if program == "rebuild-view schedule":
        return typer.main.get_command(schedule_app)
    return _command(program)


def _commands() -> list[tuple[str, Any]]:
    """Return each command that does something, by the words that call it."""
    return [
        (" ".join((program, *path)), command)
        for program in PROGRAMS
        for path, command in _walk(_of(program), ())
        if not hasattr(command, "list_commands")
    ]


COMMANDS = dict(_commands())


def _called(text: str) -> list[list[str]]:
    """Return the calls of our programs that a text has in backticks."""
    found = []
    for line in re.findall(r"`([^`]+)`", text):
        for part in re.split(r" [|<] ", line):
            words = shlex.split(part)
            if words[0] in {"changelog", "rebuild-view"}:
                found.append(words)
    return found


def _parsed(words: list[str]) -> str:
    """Parse a call as its command does, up to where its work begins; return the command's name."""
    names = [" ".join(words[:number]) for number in range(1, len(words) + 1)]
    name = next(each for each in reversed(names) if each in COMMANDS)
    command = COMMANDS[name]
    left = words[len(name.split()) :]
    context = command.make_context(name, left)
    if name == "rebuild-view":
        given = context.params
        Request(**{each.name: given[each.name] for each in dataclasses.fields(Request)}).check()
    return name


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_an_example_of_itself_that_it_takes(name) -> None:
    calls = _called(COMMANDS[name].epilog or "")
    assert name in [_parsed(words) for words in calls]


def test_an_example_that_no_command_takes_is_found() -> None:
    wrong = (
        "`changelog load orders` lacks what is required",
        "`changelog status --max-lag-bytes many`",
        "`changelog topics --fast`",
        "`rebuild-view --all --publish --diff`",
    )
    for line in wrong:
        (words,) = _called(line)
        with pytest.raises(TyperException):
            _parsed(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_stand_by_subject(name) -> None:
    titles = Counter(
        getattr(each, "rich_help_panel", None)
        for each in COMMANDS[name].params
        if each.param_type_name == "option"
    )
    assert [title for title, count in titles.items() if count > MOST_TOGETHER] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_fits_a_terminal_of_sixty_columns(name) -> None:
    shown = CliRunner().invoke(COMMANDS[name], ["--help"], env={"COLUMNS": "60"}).output
    assert "Example" in shown
    assert [line for line in shown.splitlines() if len(line) > 60] == []


@pytest.mark.parametrize("words", [("changelog",), ("changelog", "teardown"), ("rebuild-view",)])
def test_help_fits_a_terminal_of_sixty_columns(words) -> None:
    said = helped(*words)
    assert [line for line in said.splitlines() if len(line) > 60] == []


@pytest.mark.parametrize("words", [("changelog", "capture"), ("rebuild-view",)])
def test_no_colours_where_they_are_not_wanted(words) -> None:
    coloured = re.compile(r"\x1b\[\d*(?:;\d+)*m")
    assert coloured.search(helped(*words, FORCE_COLOR="1")), "there are colours to leave out"
    for said in (helped(*words), helped(*words, FORCE_COLOR="1", NO_COLOR="1")):
        assert not re.search(r"\x1b\[3\d", said)
