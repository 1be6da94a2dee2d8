"""The changes of a view that a real follower keeps fresh, at a client that is cut off at random.

Each transaction of the writer leaves its number in a row of the view. So what a client holds at a
frontier says by itself which of the writer's moments it has to be, row by row, as PostgreSQL has
answered then; and the numbers never go back.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg2
import pytest
from rich.console import Console

from changelog.config import load_project
from changelog.stack.base.ports import pick
from changelog.stack.stack import Stack
from tests.support.captured_project import CapturedProject, captured_database
from tests.support.connect_worker import FORGETS
from tests.support.connect_workers import running
from tests.support.proxy import Proxy
from tests.support.subscriber import Client, Reader
from tests.support.wait import wait_until
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.progress import Stages
from views.project.catalog import Catalog
from views.rebuild.follow import follow
from views.rebuild.rebuild import RebuildRun

DEADLINE_S = 300
COLD_S = 400
"""For a process that starts Spark on a busy machine."""
TABLES = """
CREATE TABLE accounts (id int PRIMARY KEY, owner text NOT NULL, amount int NOT NULL);
INSERT INTO accounts SELECT n, 'o' || n % 60, n FROM generate_series(1, 400) n;
INSERT INTO accounts VALUES (0, 'step', 0);
"""
QUERY = "SELECT owner, count(*) AS accounts, sum(amount) AS amount FROM accounts GROUP BY owner"
DECLARED = f"-- key: owner\n-- sinks: topic\n{QUERY}\n"
VIEW = "owners"
Rows = dict[str, tuple[int, int]]


@dataclass
class Writer:
    """Writes to the accounts in transactions, and knows what the view is behind each."""

    dsn: str
    chance: random.Random
    truth: list[Rows] = field(default_factory=list)

    def begin(self) -> None:
        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            self.truth = [self._rows(cursor)]

    def step(self, count: int = 1) -> None:
        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            for _ in range(count):
                for _ in range(self.chance.randint(1, 6)):
                    cursor.execute(self._statement(), {"id": self.chance.randint(1, 420)})
                number = len(self.truth)
                cursor.execute(f"UPDATE accounts SET amount = {number} WHERE id = 0")
                self.truth.append(self._rows(cursor))
                connection.commit()

    @property
    def newest(self) -> int:
        """Return the number of the last transaction."""
        return len(self.truth) - 1

    def _statement(self) -> str:
        owner, amount = f"'o{self.chance.randint(0, 80)}'", self.chance.randint(-50, 50)
        return self.chance.choice(
            (
                f"UPDATE accounts SET amount = amount + {amount} WHERE id = %(id)s",
                f"UPDATE accounts SET owner = {owner} WHERE id = %(id)s",
                "DELETE FROM accounts WHERE id = %(id)s",
                # All accounts of an owner: a row of the view goes.
                f"DELETE FROM accounts WHERE owner = {owner}",
                f"INSERT INTO accounts VALUES (%(id)s, {owner}, {amount}) ON CONFLICT DO NOTHING",
            )
        )

    @staticmethod
    def _rows(cursor) -> Rows:
        cursor.execute(QUERY)
        return {owner: (accounts, amount) for owner, accounts, amount in cursor.fetchall()}


@dataclass
class Line:
    """A captured table, a view of it, and who writes and follows."""

    stack: Stack
    project: CapturedProject
    writer: Writer

    def now(self) -> Rows:
        rows = self.project.query(QUERY)
        return {owner: (accounts, amount) for owner, accounts, amount in rows}

    @contextmanager
    def capturing(self) -> Iterator[None]:
        words = [sys.executable, "-m", "changelog", "capture", "--project", str(self.project.root)]
        said = self.project.root / "capture.log"
        with said.open("wb") as log, subprocess.Popen(words, stderr=log) as capture:
            try:
                yield
                assert capture.poll() is None, said.read_text()
            finally:
                capture.send_signal(signal.SIGTERM)
                capture.wait(DEADLINE_S)

    @contextmanager
    def served(self, *words: str) -> Iterator[Subscribers]:
        """Let clients follow the view, one of them through a network that can fail."""
        asked = (*words, "--project", str(self.project.root))
        group = f"g{uuid.uuid4().hex[:8]}"
        client = Client(VIEW, reader(), random.Random(11))  # noqa: S311
        watcher = Client(VIEW, reader())
        with ExitStack() as open_ones:
            url, _, _ = open_ones.enter_context(running(self.stack.endpoints(), group, *asked))
            proxy = open_ones.enter_context(Proxy(pick(), int(url.rpartition(":")[2])))
            client.url, watcher.url = f"http://127.0.0.1:{proxy.port}", url
            open_ones.enter_context(client)
            open_ones.enter_context(watcher)
            yield Subscribers(client, watcher, proxy, self.writer)


@dataclass
class Subscribers:
    """Who follows the view by HTTP while the writer writes."""

    client: Client
    watcher: Client
    proxy: Proxy
    writer: Writer

    def write(self, rounds: int) -> None:
        """Write, and cut the client off now and then, until it has all of it but a little."""
        chance = self.writer.chance
        for _ in range(rounds):
            self.writer.step(chance.randint(1, 4))
            if chance.random() < 0.4:
                self.proxy.reset()
            if chance.random() < 0.2:
                self.miss()
            self.reached(self.client, 2)

    def miss(self) -> None:
        """Let the view move while the client is away."""
        self.proxy.refuse()
        self.writer.step(3)
        self.reached(self.watcher)
        self.proxy.heal()

    def reached(self, client: Client, but: int = 0, deadline_s: float = DEADLINE_S) -> None:
        """Wait until a client has the view as it is now, or as it was some transactions ago."""
        number = self.writer.newest - but
        wait_until(
            lambda: number_of(client.reader.rows) >= number,
            deadline_s,
            f"the client has {number}, of {client.refused}",
        )

    def are_right(self, rows: Rows) -> None:
        """Require that all have the rows, and had a moment of the writer's at each frontier."""
        for client in (self.client, self.watcher):
            self.reached(client)
            assert client.refused == []
            assert wrong(client.reader, self.writer.truth) == []
            assert client.reader.rows == rows


def reader() -> Reader:
    return Reader(key=lambda key: key["owner"], row=lambda row: (row["accounts"], row["amount"]))


def number_of(rows: dict[Any, Any]) -> int:
    """Return the number of the writer's transaction that rows are true at."""
    return rows["step"][1] if "step" in rows else -1


def wrong(held: Reader, truth: list[Rows]) -> list[str]:
    """Return the frontiers at which the client did not hold a moment of the writer's, in order."""
    found, last = [], -1
    for lsn, generation, rows in held.frontiers:
        number = number_of(rows)
        if number < last or rows != truth[number]:
            found.append(f"{lsn} of generation {generation}: {number} behind {last}")
        last = number
    return found


@pytest.fixture(scope="module")
def line(stack, spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("followed") / "project"
    with captured_database(stack, root, TABLES) as (project, _):
        project.view(f"{VIEW}.sql", DECLARED)
        made = Line(stack, project, Writer(project.dsn, random.Random(7)))  # noqa: S311
        made.writer.begin()
        yield made


def settings_of(line, **settings):
    return RebuildSettings(project=load_project(line.project.root), **settings)


def quiet():
    return Stages(Console(quiet=True))


@contextmanager
def follower(line):
    """Follow the view in this process, so that all tests share one Spark session."""
    over = threading.Event()
    specs = Catalog.of(line.project.root).load_all()
    settings = settings_of(line, verify=VerifyMode.CHANGED, source=RowsSource.REFRESH)

    def follow_on():
        told = follow(specs, settings, stages=quiet, stop=over.is_set, show=lambda _: None)
        assert told.error is None or over.is_set(), told.error

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow_on)
        try:
            yield following
        finally:
            over.set()
        following.result(DEADLINE_S)


def rebuild(line):
    """Build the view anew from the start of its log; returns the generation that serves then."""
    settings = settings_of(line, verify=VerifyMode.FULL, source=RowsSource.START)
    outcome = RebuildRun(settings, quiet()).run(Catalog.of(line.project.root).load_all())
    assert outcome.error is None, outcome.error
    return outcome.results[0].generation


@pytest.mark.matrix
def test_a_client_that_is_cut_off_has_what_the_source_has(line):
    rebuild(line)
    with line.capturing(), follower(line), line.served() as subscribers:
        subscribers.write(10)
        # A full rebuild takes over under the stream, while the writer goes on.
        with ThreadPoolExecutor(1) as pool:
            rebuilding = pool.submit(rebuild, line)
            while not rebuilding.done():
                subscribers.write(1)
        subscribers.miss()
        subscribers.are_right(line.now())
    client = subscribers.client
    generations = [generation for _, generation, _ in client.reader.frontiers]
    assert generations == sorted(generations)
    assert len(set(generations)) > 1
    assert rebuilding.result() == generations[-1]
    assert client.connected > 2


class Followers:
    """`rebuild-view --follow` as a process, ended and started again as often as one likes."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._process: subprocess.Popen[str] | None = None
        self.found: list[dict] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process = process_of(self._line, "--follow")
        threading.Thread(target=self._read, args=[self._process], daemon=True).start()

    def kill(self) -> None:
        """End it as `kill -9` does, and Spark's JVM too."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            self.found.extend(json.loads(line) for line in lines if line.startswith("{"))


def process_of(line: Line, *words: str) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("rebuild-view")), VIEW, *words]
    return subprocess.Popen(
        [*command, "--json"],
        cwd=line.project.root,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.matrix
def test_processes_that_are_killed_lose_nothing(line):
    rebuild(line)
    with line.capturing(), Followers(line) as followers, line.served() as subscribers:

        def goes_on():
            """Wait for a process that has to start Spark."""
            line.writer.step()
            subscribers.reached(subscribers.client, deadline_s=COLD_S)

        goes_on()
        subscribers.write(20)
        for _ in range(2):
            line.writer.step(3)
            followers.kill()
            line.writer.step(3)
            followers.start()
            goes_on()
            subscribers.write(10)
        with process_of(line, "--verify", "full") as whole:
            assert whole.stdout is not None
            while whole.poll() is None:
                subscribers.write(1)
            (result,) = [json.loads(said) for said in whole.stdout if said.startswith("{")]
        assert whole.returncode == 0
        assert result["published"]
        subscribers.write(10)
        subscribers.are_right(line.now())
        assert subscribers.client.reader.frontiers[-1][1] == result["generation"]
    assert subscribers.client.connected > 5


@pytest.mark.matrix
def test_twin_a_server_that_forgets_where_its_client_was_is_seen(line):
    rebuild(line)
    with line.capturing(), follower(line), line.served(FORGETS) as subscribers:
        subscribers.write(4)
        subscribers.miss()
        line.writer.step()
        subscribers.reached(subscribers.client)
        with pytest.raises(AssertionError):
            subscribers.are_right(line.now())
    assert wrong(subscribers.client.reader, line.writer.truth)
    assert not wrong(subscribers.watcher.reader, line.writer.truth)
