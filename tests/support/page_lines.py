"""The commands of a page of the documents, one by one: those that end, and those that follow."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.page import blocks_of
from tests.support.wait import wait_until

DEADLINE_S = 120
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?P<comment>\s+#.*)")


def commands_of(page: Path) -> Iterator[str]:
    """Yield the commands of the page's blocks ```sh, but for those that say why they do not run."""
    for block in blocks_of(page):
        if block.kind == "sh" and not block.why_not:
            yield from (line for line in block.text.splitlines() if line.strip())


def plain(command: str) -> str:
    """Return a command without the comment behind it."""
    return _QUOTED.sub(lambda found: "" if found["comment"] else found[0], command).strip()


@dataclass(frozen=True)
class Shell:
    """Where commands run as a reader of the page runs them.

    Attributes:
        folder: the current one.
        environment: theirs.
    """

    folder: Path
    environment: Mapping[str, str]

    def run(self, command: str, answer: str = "") -> str:
        """Return what a command prints; it has to end with 0. `answer` is typed on a terminal."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            ran = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                stdin=theirs if answer else subprocess.DEVNULL,
                capture_output=True, text=True, cwd=self.folder, env=self.environment,
                timeout=DEADLINE_S, check=False,
            )  # fmt: skip
        finally:
            os.close(ours)
            os.close(theirs)
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def follow(self, command: str, is_there: Callable[[str], object]) -> str:
        """Return what a command has printed once that is enough; a signal has to end it well."""
        with tempfile.TemporaryFile("w+b") as said:
            following = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self.folder,
                env=self.environment, start_new_session=True,
            )  # fmt: skip

            def printed() -> str:
                return os.pread(said.fileno(), 1 << 20, 0).decode()

            try:
                wait_until(
                    lambda: is_there(printed()) or following.poll() is not None,
                    DEADLINE_S,
                    command,
                )
                assert following.poll() is None, f"{command}: {printed()}"
                following.send_signal(signal.SIGTERM)
                assert following.wait(DEADLINE_S) == 0, f"{command}: {printed()}"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(following.pid, signal.SIGKILL)
                following.wait()
            return printed()
