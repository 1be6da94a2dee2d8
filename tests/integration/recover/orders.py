"""A project with the names of docs/recover.md, in whose folder the page's commands run."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from changelog.contract.base.connection import KafkaConnection
from changelog.stack.stack import Stack
from tests.support.captured_project import CapturedProject, Ran, captured_database
from tests.support.wait import wait_until

REPOSITORY = Path(__file__).parents[3]
ROWS = 17
"""So that the next record stands where the page's command looks for a corrupt one."""
TABLES = f"""
CREATE TABLE orders (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(1, {ROWS}) AS n;
"""
VIEW = "order_search"
DEADLINE_S = 240
"""For a command that starts Spark on a busy machine."""


class Ended(NamedTuple):
    """How a command ended, and all that it printed, as one line."""

    code: int
    said: str


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    @property
    def said(self) -> str:
        return os.pread(self.output.fileno(), 1 << 20, 0).decode()

    def until(self, condition: Callable[[str], object], what: str) -> None:
        """Wait until what it has printed, or something else, is as wanted."""

        def is_there() -> bool:
            return bool(condition(self.said)) or self.process.poll() is not None

        wait_until(is_there, DEADLINE_S, what)
        assert condition(self.said), f"{what}: it ended before\n{self.said}"

    def reached(self, stage: str) -> None:
        """Wait until a rebuild pauses before a stage."""
        self.until(lambda said: f"at {stage}\n" in said, f"the rebuild is at {stage}")

    def go_on(self) -> Ended:
        """Let a rebuild that pauses go on to its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.end()

    def end(self, number: int | None = None) -> Ended:
        """Wait for the end, which a signal brings about where one is given."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        return Ended(code, " ".join(self.said.split()))


@dataclass(frozen=True)
class Orders:
    project: CapturedProject
    prefix: str
    kafka: KafkaConnection
    here: Callable[[Sequence[str]], Ran]

    @property
    def topic(self) -> str:
        return f"{self.prefix}.orders"

    def view(self, *sinks: str, name: str = VIEW) -> None:
        """Declare the page's view."""
        text = f"-- key: id\n-- sinks: {', '.join(sinks)}\nSELECT id, name FROM orders"
        self.project.view(f"{name}.sql", text)

    def change(self, statement: str) -> None:
        """Change the table, and bring the log up to that."""
        self.project.execute(statement)
        self.project.capture()

    def rename(self, name: str) -> None:
        self.change(f"UPDATE orders SET name = '{name}' WHERE id = 10")

    def words(self, command: str) -> list[str]:
        """Return the words of a command of the page, with names that are others here."""
        others = {"orders": self.topic, "VIEW": VIEW, "TABLE": "public.orders"}
        return [others.get(word, word) for word in shlex.split(command)]

    def run(self, command: str) -> Ended:
        """Run a command to its end, in the project's folder."""
        name, *words = self.words(command)
        if name == "rebuild-view":
            ran = self.here(words)
            return Ended(ran.code, " ".join((ran.out + ran.err).split()))
        done = subprocess.run(
            [_place(name), *words], cwd=self.project.root, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        return Ended(done.returncode, " ".join((done.stdout + done.stderr).split()))

    def done(self, command: str) -> str:
        """Run a command that has to end well; returns what it says."""
        ended = self.run(command)
        assert ended.code == 0, f"{command}: {ended.said}"
        return ended.said

    @contextmanager
    def started(self, command: str) -> Iterator[Running]:
        """Start a command that goes on, in the project's folder, while the block runs."""
        name, *words = self.words(command)
        with _running([_place(name), *words], self.project.root) as running:
            yield running

    @contextmanager
    def rebuilding(self, *options: str, asked: Sequence[str] = (VIEW,)) -> Iterator[Running]:
        """Start a rebuild that pauses, is killed or has a defect: see `crashing_rebuild`."""
        words = [sys.executable, "-m", "tests.support.crashing_rebuild", *options, "--", *asked]
        with _running([*words, "--project", str(self.project.root)], REPOSITORY) as running:
            yield running

    def crash(self, *options: str, asked: Sequence[str] = (VIEW,)) -> None:
        """Have a rebuild killed at its worst moment."""
        with self.rebuilding(*options, asked=asked) as running:
            ended = running.end()
        assert ended.code == -signal.SIGKILL, ended.said

    def served(self, view: str = VIEW) -> dict[int, str]:
        """Return the rows that readers of the Delta table see."""
        return {row["id"]: row["name"] for row in self.project.delta(view)}

    def source(self) -> dict[int, str]:
        return dict(self.project.query("SELECT id, name FROM orders"))

    def is_proved(self) -> None:
        """Rebuild the view, verify every row, and compare what is served with the source."""
        ran = self.here([VIEW, "--json"])
        assert ran.code == 0, ran.out + ran.err
        assert (ran.results[0]["verified"], ran.results[0]["published"]) == (True, True)
        assert self.served() == self.source()

    def is_whole(self) -> None:
        """Capture what is left, and compare the log with the source; then rebuild the view."""
        self.project.capture()
        assert self.run("changelog verify TABLE").code == 0
        self.is_proved()


@contextmanager
def orders_at(
    stack: Stack, root: Path, here: Callable[[Sequence[str]], Ran], *, brokers: str = ""
) -> Iterator[Orders]:
    """Capture the orders of a new database; their topic has one partition."""
    with captured_database(
        stack, root, TABLES, capture="partitions = 1", brokers=brokers
    ) as (project, prefix):  # fmt: skip
        kafka = KafkaConnection(brokers=brokers or stack.endpoints().brokers)
        yield Orders(project, prefix, kafka, here)


@contextmanager
def _running(words: Sequence[str], folder: Path) -> Iterator[Running]:
    with (
        tempfile.TemporaryFile("w+b") as output,
        subprocess.Popen(
            words, cwd=folder, stdin=subprocess.PIPE, stdout=output, stderr=output,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield Running(process, output)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _place(name: str) -> str:
    return str(Path(sys.executable).with_name(name))
