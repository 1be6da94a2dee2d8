"""Answers of our other commands, asked with `--json` as scripts ask them.

They look at parts that views know nothing of. Each is a process of its own, and they go side by
side.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.findings import Findings, Level
from changelog.runtime.progress.steps import Steps

_ANSWER_S = 120.0


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer of a command."""

    code: int  # its exit code
    result: Mapping[str, Any]  # its last JSON object, empty where it gave none
    error: str  # its last line on standard error

    def refusal(self) -> ChangelogError:
        """Return the error for a command that gave no result."""
        message = str(self.result.get("error") or self.error.removeprefix("error: "))
        text, _, hint = message.partition(" | hint: ")
        error = ChangelogError(text or "no answer", hint=hint)
        error.exit_code = self.code or 1
        return error


def ask(
    project: Path, commands: Mapping[str, Sequence[str]], steps: Steps
) -> dict[str, CommandAnswer]:
    """Return the answer of each command."""
    with ThreadPoolExecutor(len(commands), "asked") as pool:
        going = {name: pool.submit(ask_one, project, words) for name, words in commands.items()}
        for _ in as_completed(going.values()):
            steps.done()
        return {name: answer.result() for name, answer in going.items()}


def ask_one(project: Path, words: Sequence[str]) -> CommandAnswer:
    """Return one command's answer, or an error when its time is up."""
    command = [sys.executable, "-m", "changelog", *words, "--project", str(project), "--json"]
    try:
        ran = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        return CommandAnswer(1, {}, f"changelog {' '.join(words)}: no answer in {_ANSWER_S:.0f} s")
    objects = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    lines = ran.stderr.strip().splitlines() or [""]
    return CommandAnswer(ran.returncode, json.loads(objects[-1]) if objects else {}, lines[-1])


def note_capture(findings: Findings, status: CommandAnswer) -> None:
    """Add capture's state to the findings, from the answer of `changelog status`."""
    if not status.result or "problems" not in status.result:
        _unanswered(findings, "capture", status)
        return
    for problem in status.result["problems"]:
        findings.refused("capture", ChangelogError(problem, hint="changelog status says more"))
    if not status.result["problems"]:
        lag = status.result.get("lag_s")
        late = "" if lag is None else f", at most {lag:,.1f} s behind"
        findings.add("capture", Level.OK, f"slot {status.result['slot']}{late}")


def note_topics(findings: Findings, topics: CommandAnswer) -> None:
    """Note whether topics can be read exactly, by the answer of `changelog topics`."""
    if "topics" not in topics.result:
        _unanswered(findings, "topics", topics)
        return
    refused = [
        *topics.result.get("missing", []),
        *(topic["topic"] for topic in topics.result["topics"] if _is_refused(topic)),
    ]
    for topic in refused:
        error = ChangelogError(
            f'topic "{topic}" cannot be read exactly', hint=f"changelog topics {topic} says why"
        )
        error.exit_code = topics.code
        findings.refused("topics", error)
    if not refused:
        readable = topics.result["topics"]
        deadlines = [topic["deadline"] for topic in readable if topic.get("deadline")]
        until = f", until {min(deadlines)}" if deadlines else ""
        findings.add("topics", Level.OK, f"{len(readable)} can be read exactly{until}")


def _is_refused(topic: Mapping[str, Any]) -> bool:
    return topic["table"] is not None and topic["verdict"] not in {"exact", "exact-until"}


def note_check(
    findings: Findings, check: CommandAnswer, status: CommandAnswer | None = None
) -> None:
    """Add the findings of `changelog capture --check`; one line for all that is well.

    `status`: of `changelog status`, which looks at the reader of the slot and its progress.
    """
    if "checks" not in check.result:
        _unanswered(findings, "source and log", check)
        return
    for entry in check.result["checks"]:
        state = Level(entry["state"])
        if _is_of_capture(entry) and status is not None and "problems" in status.result:
            if status.result["problems"]:
                whose = "a capture of this project, or another, which needs a slot of its own"
                findings.add(entry["check"], Level.NOTE, f"{entry['found']}: {whose}")
        elif state is Level.PROBLEM:
            error = ChangelogError(entry["found"], hint=entry["hint"])
            error.exit_code = entry["exit_code"] or 1
            findings.refused(entry["check"], error)
        elif state is Level.NOTE:
            findings.add(entry["check"], state, entry["found"])
    well = sum(entry["state"] == Level.OK.value for entry in check.result["checks"])
    findings.add("source and log", Level.OK, f"{well} checks passed (changelog capture --check)")


def _is_of_capture(entry: Mapping[str, Any]) -> bool:
    """Tell whether a problem is that a process reads the slot."""
    return entry["check"] == "slot" and "is read by" in entry["found"]


def _unanswered(findings: Findings, subject: str, answer: CommandAnswer) -> None:
    findings.refused(subject, answer.refusal())
