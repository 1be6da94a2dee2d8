"""The demo: real servers, real flights, a writer at work, three views with proof."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from changelog.capture.inspect.status import last_frontier
from changelog.config import STACK_FOLDER, Project, load_project
from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.lsn import Lsn
from changelog.source.connect.connect import connect
from changelog.source.connect.system import current_lsn
from changelog.stack.download.artifacts import all_artifacts
from changelog.stack.download.fetch import resolve
from changelog.stack.stack import Stack
from views.demo.flights import load_flights, write_changes

SEED = 20130101
CATCH_UP_S = 300.0
_NAP_S = 0.1

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of the demo."""

    capture: dict[str, Any]  # the report of the capture process
    changed: dict[str, int]  # rows that the writer changed, by kind
    rebuilds: Sequence[dict[str, Any]]  # the report of each view, as `rebuild-view --json` gives it
    seconds: float  # from the first step to the last, downloads left out
    stages: dict[str, float]  # seconds of each step

    @property
    def proven(self) -> bool:
        """Tell whether every view was verified without a mismatch."""
        return all(view["verified"] is True for view in self.rebuilds)

    def to_json(self) -> dict[str, object]:
        """Return the result as one JSON object."""
        return {
            "rows_captured": self.capture["rows_captured"],
            "seconds": round(self.seconds, 2),
            "stages": {name: round(took, 2) for name, took in self.stages.items()},
            "changes": self.changed,
            "capture": self.capture,
            "views": list(self.rebuilds),
        }


class _Clock:
    """Times the steps of the demo."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._started = self._last = time.monotonic()
        self.stages: dict[str, float] = {}

    def done(self, stage: str, detail: str = "") -> None:
        now = time.monotonic()
        self.stages[stage] = now - self._last
        self._last = now
        self._say(f"{stage:<10} {self.stages[stage]:6.1f} s  {detail}")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started


def run_demo(
    directory: Path,
    *,
    transactions: int,
    rebuild: Callable[[Project], Sequence[dict[str, Any]]],
    say: Say,
) -> DemoResult:
    """Run the demo in a folder; a second run there goes on from where the first one ended.

    `directory`: takes the servers' data, the project and the warehouse. `transactions`: how many
    the writer commits while capture runs. `rebuild`: rebuilds and verifies every view of a project,
    and gives their reports. `say`: told one line a step.

    Raises ChangelogError: a step failed; the message says which.
    """
    write_demo_project(directory)
    resolve(all_artifacts())  # with its own progress bar, and before the clock starts
    stack = Stack(directory / STACK_FOLDER, with_=("search", "cache"))
    clock = _Clock(say)
    with stack:
        clock.done("servers", "PostgreSQL, Kafka, registry, OpenSearch, Valkey")
        project = load_project(directory)
        rows: list[int] = []
        fresh = load_flights(project.postgres, on_table=lambda _table, count: rows.append(count))
        clock.done("load", f"{sum(rows):,} rows" if fresh else "the tables are there already")
        with _CaptureProcess(directory, directory / "capture.log") as capture:
            changed = write_changes(project.postgres, transactions=transactions, seed=SEED)
            clock.done("writer", ", ".join(f"{count:,} {kind}" for kind, count in changed.items()))
            lsn = await_frontier(project, _end_of_wal(project), capture.check)
        clock.done("capture", f"{capture.report['rows_captured']:,} rows, complete to {lsn}")
        rebuilds = rebuild(project)
        clock.done("rebuild", f"{len(rebuilds)} views, verified row by row")
    return DemoResult(capture.report, dict(changed), rebuilds, clock.seconds, clock.stages)


def write_demo_project(directory: Path) -> None:
    """Write the demo's settings and views, unless they are there."""
    directory.mkdir(parents=True, exist_ok=True)
    with as_file(files("views.demo").joinpath("project")) as source:
        for path in sorted(source.rglob("*")):
            target = directory / path.relative_to(source)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            elif not target.exists():
                shutil.copyfile(path, target)


def await_frontier(project: Project, lsn: Lsn, check: Callable[[], None]) -> Lsn:
    """Wait until the log is complete to `lsn`; returns the frontier's own LSN."""
    deadline = time.monotonic() + CATCH_UP_S
    while time.monotonic() < deadline:
        check()
        record = last_frontier(project)
        if record is not None and record.frontier.lsn >= lsn:
            return record.frontier.lsn
        time.sleep(_NAP_S)
    raise ChangelogError(
        f"the log is not complete to {lsn} after {CATCH_UP_S:.0f} s",
        hint="look at capture.log in the demo's folder",
    )


def _end_of_wal(project: Project) -> Lsn:
    with closing(connect(project.postgres)) as connection:
        return current_lsn(connection)


_STOP_S = 60


class _CaptureProcess:
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
        """Make sure that capture still runs."""
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
            out, _ = self._process.communicate(timeout=_STOP_S)
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

        Raises ChangelogError: it did not end well.
        """
        if self._process is not None and self._process.returncode != 0:
            self.check()
        self.report = json.loads(out.decode("utf-8").splitlines()[-1])
