"""Runs a command of this program as a child process, and reads its output."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.secret import redacted
from changelog.runtime.imports import SAFE_PATH
from changelog.runtime.process.ended import wait_or_end
from changelog.runtime.process.own_command import own_command
from changelog.runtime.setting import PREFIX

log = logging.getLogger("changelog.connect")

_END_S = 15.0  # how long a child may take to end in good order; the worker waits a little longer
_BOX = "╭╮╰╯│─ "  # the frame that typer draws around an error of usage
_LEVELS = {"debug": logging.DEBUG, "warning": logging.WARNING, "error": logging.ERROR}


class ChildError(ChangelogError):
    """A child process ended that should have gone on, or failed."""


@dataclass(frozen=True, slots=True)
class ExitResult:
    """The result of a command that has ended."""

    code: int
    output: str  # its standard output
    error: str  # the last line that it logged as an error, or else its last line
    stopped: bool  # whether it was asked to end


@dataclass(slots=True)
class _ChildOutput:
    """The output of a child process: its standard error is logged, its standard output kept."""

    name: str
    started: Callable[[], None]
    error: str = ""
    last: str = ""
    parts: list[str] = field(default_factory=list)

    def log_errors(self, lines: IO[str]) -> None:
        for line in lines:
            level, text = _read(line)
            text = text.strip(_BOX)
            if not text:
                continue
            self.last = redacted(text)
            if level == logging.ERROR:
                self.error = self.last
            log.log(level, "%s: %s", self.name, self.last)
            self.started()

    def keep(self, lines: IO[str]) -> None:
        self.parts.append(lines.read())


def run_child(
    words: Sequence[str],
    variables: Mapping[str, str],
    stop: threading.Event,
    *,
    name: str,
    folder: Path,
    started: Callable[[], None],
    environment: Mapping[str, str] | None = None,
) -> ExitResult:
    """Run a command until it ends by itself, or because `stop` is set.

    `variables` are the command's settings; those of this process are not passed on. `started` is
    called for each line that the command logs. Without `environment` it has this process's.
    """
    inherited = os.environ if environment is None else environment
    kept = {key: value for key, value in inherited.items() if not key.startswith(PREFIX)}
    process = subprocess.Popen(  # noqa: S603 - our own module, and words from settings
        own_command(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=folder,
        env={**kept, **SAFE_PATH, **variables},
        # A signal to the process group would reach it twice, and the second ends it at once.
        start_new_session=True,
    )
    output = _ChildOutput(name, started)
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
    with process.stdout, process.stderr:
        threads = [
            threading.Thread(target=output.log_errors, args=(process.stderr,), daemon=True),
            threading.Thread(target=output.keep, args=(process.stdout,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        stopped = wait_or_end(process, stop, end_s=_END_S)
        for thread in threads:
            thread.join()
    return ExitResult(
        process.returncode, "".join(output.parts), output.error or output.last, stopped
    )


def _read(line: str) -> tuple[int, str]:
    """Return the level and text of a log line, which may be a JSON object."""
    try:
        entry = json.loads(line)
    except ValueError:
        return logging.INFO, line.strip()
    if not isinstance(entry, dict):
        return logging.INFO, line.strip()
    return _LEVELS.get(str(entry.get("level")), logging.INFO), str(entry.get("message", ""))
