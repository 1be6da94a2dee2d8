"""Help: by subject, with examples that exist, on narrow terminals and without colours."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import CliRunner

from changelog.cli import _SUBJECTS
from tests.unit.test_docs import _command, _walk
from views.cli import schedule_app

BIN = Path(sys.executable).parent


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
    for program in ("changelog", "rebuild-view", "rebuild-view schedule"):
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
