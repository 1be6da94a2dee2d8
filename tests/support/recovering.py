"""A project with the names that docs/recover.md uses, and its commands as a reader types them.

The page names a table `public.orders` and a view `order_search`, and its reader stands in the
project's folder. So do the tests: what differs from the page is this module alone.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from changelog.contract.base.errors import UnavailableLogError
from changelog.contract.log.backfill import copies_of
from changelog.contract.log.topic import frontier_topic
from changelog.sink.frontier import FrontierLog
from tests.support.capture_command import CrashingCapture
from tests.support.captured_project import SHORT_LIVED, Ran, run_here
from tests.support.recipes import Recipe
from tests.support.wait import wait_until

ROWS = 600
VIEW = "order_search"
DEADLINE_S = 240.0
CUSTOMERS = """
CREATE TABLE customers (id integer PRIMARY KEY, name text NOT NULL);
INSERT INTO customers SELECT n, 'name ' || n FROM generate_series(1, 20) n
"""
ORDERS = f"""
CREATE TABLE orders (
    id integer PRIMARY KEY, customer_id integer NOT NULL, amount numeric(10, 2) NOT NULL, note text,
    channel text
);
INSERT INTO orders SELECT n, 1 + n % 20, n * 0.5, 'order ' || n, 'web'
FROM generate_series(1, {ROWS}) n
"""
SQL = "SELECT o.id, o.amount, o.note, c.name FROM orders o JOIN customers c ON c.id = o.customer_id"
SERVERS = """
spark.master = "local[2]"
spark.settings = {{"spark.driver.extraJavaOptions" = {java}}}
"""

Typed = Callable[[Path, Sequence[str]], Ran]
"""Runs the words of a command in a folder."""


def typed_here(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Return what runs `rebuild-view` in this process, so that tests share a Spark session."""

    def run(folder: Path, words: Sequence[str]) -> Ran:
        with monkeypatch.context() as there:
            there.chdir(folder)
            return run_here(capsys, there, words)

    return run


class Recovering(CrashingCapture):
    """The project: a fault befalls it, a recipe mends it, and all that is served is proved."""

    def __init__(self, *, typed: Typed, sinks: str = "delta", more: str = "", **servers: Any):
        """Make the project's files; `more` is text for the beginning of changelog.toml."""
        super().__init__(**servers)
        self._typed, self.heard = typed, ""
        self._numbers = itertools.count(1)
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "COLUMNS": "300",  # what is quoted stands in one line
        }
        self.settings = self.folder / "changelog.toml"
        before = SERVERS.format(java=json.dumps(SHORT_LIVED)) + more
        self.settings.write_text(before + self.settings.read_text())
        (self.folder / "views").mkdir()
        self.define(f"-- key: id\n-- sinks: {sinks}\n{SQL}\n")

    def define(self, text: str, view: str = VIEW) -> None:
        (self.folder / "views" / f"{view}.sql").write_text(text)

    def set(self, **settings: Any) -> None:
        """Add to the section of capture, which is the last one."""
        more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        self.settings.write_text(self.settings.read_text() + more)

    def begins(self) -> None:
        """Make the tables, bring them to the log, and build the view."""
        self.sql(CUSTOMERS, ORDERS)
        self.builds()

    def builds(self) -> None:
        """Bring the tables to the log, and build the view."""
        self.types("changelog capture --until now")
        self.types("rebuild-view --all")
        self.heard = ""

    def change(self) -> None:
        """Change rows: some are other rows then, and some are gone."""
        number = next(self._numbers)
        self.sql(
            f"UPDATE orders SET note = 'change {number} of ' || id WHERE id % 3 = {number % 3}",
            f"DELETE FROM orders WHERE id IN ({number}, {number + 100})",
            f"INSERT INTO orders VALUES ({100_000 + number}, 1, {number}, 'new')",
            f"UPDATE orders SET id = id + 200000 WHERE id = {ROWS - number}",
        )

    def nobody_reads(self) -> None:
        """Wait until the server has noticed that the reader of the slot is gone."""
        statement = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self.prefix}'"
        wait_until(lambda: self.query(statement) == [(False,)], DEADLINE_S, "the slot is free")

    # --- commands -------------------------------------------------------------------------

    def types(self, command: str, *, code: int | None = 0, answer: str = "") -> str:
        """Run a command of the page as it stands there; returns what it prints.

        A capture that would go on for ever is ended by SIGTERM once the log holds all that the
        source has. `code` is what the command has to end with; None for any. `answer` is what the
        reader says where it asks.
        """
        words = shlex.split(command)
        if words[0] == "rebuild-view":
            ran = self._typed(self.folder, words)
            ended, said = ran.code, ran.out + ran.err
        elif words[:2] == ["changelog", "capture"] and not {"--until", "--check"} & {*words}:
            ended, said = self._followed(command)
        else:
            done = subprocess.run(
                ["bash", "-c", command],
                input=answer, capture_output=True, text=True, cwd=self.folder,
                env=self.environment, timeout=DEADLINE_S, check=False,
            )  # fmt: skip
            ended, said = done.returncode, done.stdout + done.stderr
        self.heard += said
        assert code in (None, ended), f"{command} ended with {ended}\n{said}"
        return said

    def carries_out(self, wanted: Recipe) -> None:
        """Run the commands of a recipe, one after the other, once what it says was seen."""
        assert wanted.is_seen_in(self.heard), f"{wanted.sees}\n{self.heard}"
        for command in wanted.commands:
            self.types(command)

    def launches(self, *more: str) -> None:
        """Start `changelog capture` in the background; `hears` brings what it says."""
        with (self.folder / "capture.log").open("wb") as log:
            self.running = subprocess.Popen(
                ["changelog", "capture", *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=self.environment,
            )  # fmt: skip

    def hears(self) -> str:
        """Add what the capture in the background has said so far; returns it."""
        said: str = self.said()
        self.heard += said
        return said

    def ends(self, *, code: int = 0) -> None:
        """End the capture in the background by a signal."""
        assert self.running is not None
        with suppress(ProcessLookupError):
            self.running.send_signal(signal.SIGTERM)
        assert self.running.wait(DEADLINE_S) == code, self.said()
        self.running = None

    def _followed(self, command: str) -> tuple[int, str]:
        before = self.frontier()
        self.launches(*shlex.split(command)[2:])
        running = self.running
        assert running is not None
        try:
            self.catches_up(before)
            if running.poll() is None:
                running.send_signal(signal.SIGTERM)
            return running.wait(DEADLINE_S), self.said()
        finally:
            self.kill()
            self.running = None

    def catches_up(self, before: Any = None) -> None:
        """Wait until the log holds all that the source has, or the capture has ended.

        `before` is a frontier that does not count: that of a history that the source has left.
        """
        self.sql("SELECT pg_logical_emit_message(true, 'test', '')")
        end, passed = self.end_of_wal(), _place(before)

        def holds_all() -> bool:
            if self.running is not None and self.running.poll() is not None:
                return True
            with suppress(UnavailableLogError):  # a broker that comes back takes its time
                found = self.frontier()
                if found is None or _place(found) == passed or found.lsn < end:
                    return False
                return not self._copies()
            return False

        wait_until(holds_all, DEADLINE_S, f"the log holds all\n{self._told()}")

    def _told(self) -> str:
        return self.said() if (self.folder / "capture.log").exists() else ""

    def _copies(self) -> list[Any]:
        """Return the copies of tables that are not whole yet."""
        with FrontierLog(self.kafka, frontier_topic(self.prefix)) as frontiers:
            record = frontiers.backfill(self.prefix)
        return [each for each in copies_of(record) if not each.fault]

    # --- what is served, and whether it is right --------------------------------------------

    def served(self) -> list[tuple[Any, ...]]:
        """Return what readers of the view see, by its key."""
        rows = DeltaTable(str(self.folder / "warehouse" / VIEW)).to_pyarrow_table().to_pylist()
        return sorted(tuple(row[name] for name in ("id", "amount", "note", "name")) for row in rows)

    def wanted(self) -> list[tuple[Any, ...]]:
        """Return what the source answers to the same question."""
        return self.query(f"{SQL} ORDER BY o.id")  # type: ignore[no-any-return]

    def is_well(self) -> None:
        """Prove it: the view against the log, the log against the source, each row."""
        said = self.types("rebuild-view --all --verify full --json")
        results = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        assert results
        assert all(each["verified"] and each["published"] for each in results), said
        said = self.types("changelog verify --json")
        tables = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        assert tables
        assert all(each["verified"] for each in tables), said
        assert self.served() == self.wanted()


def _place(frontier: Any) -> tuple[int, int] | None:
    return None if frontier is None else (frontier.epoch, frontier.lsn)
