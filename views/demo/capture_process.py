"""`changelog capture` as a process of its own, the way a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from changelog.contract.base.errors import ChangelogError

STOP_S = 60


class CaptureProcess:
    """Runs capture for a project in the background; its log goes to a file.

    After the `with` block, `report` holds the JSON object that capture ended with.
    """

    def __init__(self, project: Path, log: Path) -> None:
        self._project = project
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self.report: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Start capture."""
        self._stderr = self._log.open("ab")
        command = [sys.executable, "-m", "changelog", "capture", "--json"]
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--project", str(self._project)],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        return self

    def check(self) -> None:
        """Make sure that capture still runs.

        Raises:
            ChangelogError: it has ended; says its last lines.
        """
        if self._process is not None and self._process.poll() is not None:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise ChangelogError(
                f"capture ended with {self._process.returncode}: {' / '.join(lines[-3:])}",
                hint=f"its log is {self._log}",
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop capture as Ctrl-C would, and wait for its end."""
        if self._process is None or self._stderr is None:
            return
        try:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
            out, _ = self._process.communicate(timeout=STOP_S)
            if error is None:
                self.check_ended(out)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        finally:
            self._stderr.close()

    def check_ended(self, out: bytes) -> None:
        """Take capture's report.

        Raises:
            ChangelogError: it did not end well.
        """
        if self._process is not None and self._process.returncode != 0:
            self.check()
        self.report = json.loads(out.decode("utf-8").splitlines()[-1])
