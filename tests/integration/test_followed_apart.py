"""`rebuild-view --all --follow`: no view waits for one that Spark writes whole in each round."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.captured_project import captured_database
from tests.support.wait import wait_until
from views.client import Cache

DEADLINE_S = 240
"""Two sessions of Spark start, on a machine that does other things besides."""
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, amount int);
INSERT INTO orders SELECT n, n FROM generate_series(1, 50) n;
CREATE TABLE seen (what text);
ALTER TABLE seen REPLICA IDENTITY FULL;
INSERT INTO seen VALUES ('a'), ('a');
"""
ROWS = "-- key: id\n-- sinks: {sink}\nSELECT id, amount FROM orders"
COUNTED = "-- key: what\nSELECT what, count(*) AS times FROM seen GROUP BY what"


class Followed:
    """A project that a process follows, with processes of its own beside it."""

    def __init__(self, project, cache_url):
        self.project = project
        self.quick, self.whole = (f"{name}_{uuid.uuid4().hex[:8]}" for name in ("quick", "whole"))
        project.view(f"{self.quick}.sql", ROWS.format(sink="cache"))
        project.view(f"{self.whole}.sql", ROWS.format(sink="delta"))
        self._cache = Cache(self.quick, url=str(cache_url))
        self._said = project.root / "said"
        self.process: Any = None

    def said(self):
        return self._said.read_text()

    @contextmanager
    def running(self, *words):
        command = [sys.executable, "-m", "views", "--all", "--follow", "--json", *words]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*command, "--project", str(self.project.root)],
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            yield self
        finally:
            for number in [self.process.pid, *self.beside().values()]:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGCONT)
                    os.kill(number, signal.SIGKILL)
            self.process.wait(DEADLINE_S)

    def beside(self):
        found = re.findall(r"process (\d+) follows (.+)", self.said())
        return {names: int(number) for number, names in found}

    def process_of(self, view):
        return self.wait(lambda: self.beside().get(view), f"a process follows {view}")

    def wait(self, condition, what):
        def looks():
            assert self.process.poll() is None, self.said()
            return condition()

        return wait_until(looks, DEADLINE_S, what)

    def change(self, amount):
        self.project.execute(f"UPDATE orders SET amount = {amount} WHERE id = 7")
        self.project.capture()

    def shows(self, amount):
        """Wait until the cache has it."""
        wanted = {"id": 7, "amount": amount}
        self.wait(lambda: self._cache.get(7) == wanted, f"the cache has {amount}: {self.said()}")

    def table(self):
        """Return what the view has that is written whole."""
        return {row["id"]: row["amount"] for row in self.project.delta(self.whole)}[7]

    def ends(self):
        """End it and its Java, as `timeout` and services do; its processes are gone as well."""
        beside = self.beside().values()
        os.killpg(self.process.pid, signal.SIGTERM)
        assert self.process.wait(DEADLINE_S) == 0, self.said()
        assert not re.findall(r"Traceback|Exception|\tat ", self.said()), self.said()
        assert not [number for number in beside if is_alive(number)]


def is_alive(number):
    try:
        state = Path(f"/proc/{number}/stat").read_text()
        return state.rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def followed(stack, tmp_path):
    unkeyed = "allow_unkeyed = true"
    with captured_database(stack, tmp_path / "project", TABLES, capture=unkeyed) as (project, _):
        yield Followed(project, stack.endpoints().cache)


@pytest.mark.matrix
def test_a_view_that_is_written_whole_keeps_no_other_waiting(followed):
    with followed.running():
        beside = followed.process_of(followed.whole)
        os.kill(beside, signal.SIGSTOP)  # a round of Spark's that does not end
        for amount in (100, 101):
            followed.change(amount)
            followed.shows(amount)
        os.kill(beside, signal.SIGCONT)
        followed.wait(lambda: followed.table() == 101, f"it follows: {followed.said()}")
        followed.ends()


@pytest.mark.matrix
def test_views_that_are_to_go_together_have_one_process(followed):
    """The twin: what stands still then is followed by nobody else."""
    with followed.running("--together"):
        followed.wait(lambda: f'"view": "{followed.whole}"' in followed.said(), "a first round")
        followed.change(100)
        followed.shows(100)
        followed.wait(lambda: followed.table() == 100, "the table has it")
        assert followed.beside() == {}
        followed.ends()


@pytest.mark.matrix
def test_a_table_without_a_key_and_a_delta_table_have_processes_of_their_own(followed):
    followed.project.view("counted.sql", COUNTED)
    with followed.running():
        unkeyed, whole = followed.process_of("counted"), followed.process_of(followed.whole)
        os.kill(unkeyed, signal.SIGSTOP)
        os.kill(whole, signal.SIGSTOP)
        followed.project.execute("INSERT INTO seen VALUES ('a')")
        followed.change(100)
        followed.shows(100)
        os.kill(unkeyed, signal.SIGCONT)
        counted = [{"what": "a", "times": 3}]
        followed.wait(lambda: followed.project.delta("counted") == counted, "it counts")
        os.kill(whole, signal.SIGCONT)
        followed.wait(lambda: followed.table() == 100, "the table has it")
        followed.ends()


@pytest.mark.matrix
def test_a_process_that_ends_is_started_again_and_all_end_with_the_first(followed):
    with followed.running():
        killed = followed.process_of(followed.whole)
        os.kill(killed, signal.SIGKILL)
        followed.wait(lambda: followed.process_of(followed.whole) != killed, "it is started again")
        assert f"the process that followed {followed.whole} has ended" in followed.said()
    with followed.running():
        beside = followed.process_of(followed.whole)
        followed.process.kill()
        followed.process.wait(DEADLINE_S)
        wait_until(lambda: not is_alive(beside), DEADLINE_S, "it ends with its parent")
    with followed.running():
        followed.process_of(followed.whole)
        followed.change(102)
        followed.shows(102)
        followed.wait(lambda: followed.table() == 102, f"it follows: {followed.said()}")
        followed.ends()
