"""`rebuild-view --all --follow` killed at each named step, while others read what it serves."""

from __future__ import annotations

import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import httpx
import pytest
import redis

from changelog.runtime.tls_trust import authorities
from tests.conformance.conftest import committed_records
from tests.soak.child import Child
from tests.support.captured_project import captured_database
from tests.support.shop import aim, target_database
from tests.support.sql import execute
from tests.support.wait import wait_until

DEADLINE_S = 240
"""Spark starts twice, on a machine that does other things besides."""
pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(4 * DEADLINE_S)]

GROUP = 8
"""So many rows have one number at any time: each change gives them the next one."""
ROWS = 40
TABLE = f"""
CREATE TABLE numbers (id int PRIMARY KEY, number int NOT NULL);
INSERT INTO numbers SELECT n, 0 FROM generate_series(1, {ROWS}) n;
"""
VIEW = "-- key: id\n-- sinks: {kind}\nSELECT id, number FROM numbers"
STAGES = ["scan", "merge", "prove", "verify", "apply", "record"]
MOMENTS = [
    f"{moment} {kind}"
    for kind in ("postgres", "cache", "search", "topic")
    for moment in ("within", "behind")
]
Rows = dict[int, int]


class Followed:
    """A project with a view in each kind of sink, and the readers of each."""

    def __init__(self, project, endpoints, target, prefix, *, captured=None):
        self.project, self._endpoints, self._target = project, endpoints, target
        self.captured = captured or project  # whose tables the views read
        self._armed = project.root / "armed"
        self._lives = 0
        names = {each: f"{each}_{uuid.uuid4().hex[:8]}" for each in self._readers()}
        for kind, name in names.items():
            project.view(f"{name}.sql", VIEW.format(kind=kind))
        project.view(f"{names['topic']}.topic.json", '{"value": "json"}')
        self.names, self.topic = names, f"{prefix}.views.{names['topic']}"

    def _readers(self) -> dict[str, Callable[[], Rows]]:
        return {
            "postgres": self._table,
            "cache": self._entries,
            "search": self._documents,
            "topic": self._records,
        }

    # --- the process ------------------------------------------------------------------------

    @contextmanager
    def following(self, *words):
        """Follow all views in a process of its own; `words` are those of `crashing_rebuild`."""
        self._lives += 1
        command = [
            "-m",
            "tests.support.crashing_rebuild",
            *words,
            "--armed",
            str(self._armed),
            "--",
        ]
        command = command if words else ["-m", "views"]
        more = ["--all", "--follow", "--json", "--project", str(self.project.root)]
        process = Child(self.project.root / f"said{self._lives}", *command, *more)
        try:
            yield process
        finally:
            process.kill()

    def wait(self, process, condition, what):
        def looks():
            assert process.code is None, process.said()
            return condition()

        return wait_until(looks, DEADLINE_S, what)

    def is_killed(self, process):
        """Arm it and change rows: the round that brings them is its last one."""
        self._armed.touch()
        self.change(2)
        assert process.ends(DEADLINE_S), process.said()
        assert process.code == -signal.SIGKILL, process.said()
        self._armed.unlink()

    # --- the source -------------------------------------------------------------------------

    def change(self, number):
        self.captured.execute(f"UPDATE numbers SET number = {number} WHERE id <= {GROUP}")
        self.captured.capture()

    def source(self) -> Rows:
        return dict(self.captured.query("SELECT id, number FROM numbers"))

    # --- readers ----------------------------------------------------------------------------

    def served(self) -> dict[str, Rows]:
        return {kind: read() for kind, read in self._readers().items()}

    def is_served(self):
        """Wait until each view shows what the source has, as long as nothing else is changed."""
        wanted = self.source()
        return all(rows == wanted for rows in self.served().values())

    @contextmanager
    def readers(self) -> Iterator[dict[str, Reader]]:
        """Read every view again and again."""
        with ExitStack() as entered:
            yield {
                kind: entered.enter_context(Reader(kind, read))
                for kind, read in self._readers().items()
            }

    def _table(self) -> Rows:
        rows = execute(self._target, f"SELECT id, number FROM {self.names['postgres']}")
        assert len(rows) == len({number for number, _ in rows})
        return dict(rows)

    def _entries(self) -> Rows:
        client: Any = redis.Redis.from_url(str(self._endpoints.cache), decode_responses=True)
        with closing(client):
            view = self.names["cache"]
            prefix = f"{view}:{client.get(f'{view}:current')}:"
            found = client.mget([f"{prefix}{n}" for n in range(1, ROWS + 3)])
        rows = [json.loads(each) for each in found if each]
        return {row["id"]: row["number"] for row in rows}

    def _documents(self) -> Rows:
        url = f"{self._endpoints.search}/{self.names['search']}/_search"
        body = {"size": 1000, "query": {"match_all": {}}}
        found = httpx.post(url, json=body, verify=authorities()).raise_for_status().json()
        rows = [hit["_source"] for hit in found["hits"]["hits"]]
        assert len(rows) == len({row["id"] for row in rows})
        return {row["id"]: row["number"] for row in rows}

    def _records(self) -> Rows:
        last = {key: value for _, key, value in self._sent()}
        rows = [json.loads(value) for value in last.values() if value is not None]
        return {row["id"]: row["number"] for row in rows}

    def _sent(self):
        return committed_records(self._endpoints.brokers, self.topic) or []

    def sent_of(self, number) -> list[int]:
        """Return what the topic was sent of a row, in its order."""
        rows = [json.loads(value) for _, _, value in self._sent() if value is not None]
        return [row["number"] for row in rows if row["id"] == number]


class Reader:
    """Reads one view again and again in a thread; keeps each state of the group that it sees."""

    def __init__(self, kind, read):
        self.kind, self._read = kind, read
        self.seen: list[tuple[int, ...]] = []
        self._looks = 0
        self._failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        try:
            while not self._over.wait(0.05):
                rows = self._read()
                state = tuple(rows[number] for number in range(1, GROUP + 1) if number in rows)
                if not self.seen or self.seen[-1] != state:
                    self.seen.append(state)
                self._looks += 1
        except Exception as error:  # noqa: BLE001 - told by who waits for it
            self._failure = error

    def looks(self):
        """Wait until it has begun and ended another look."""
        begun = self._looks

        def has_looked():
            assert self._failure is None, f"{self.kind}: {self._failure!r}"
            return self._looks > begun + 1

        wait_until(has_looked, DEADLINE_S, f"a reader of {self.kind} looks")

    def saw_whole_changes(self):
        """Nothing missing, nothing mixed, never back."""
        assert self._failure is None, f"{self.kind}: {self._failure!r}"
        mixed = [state for state in self.seen if len(state) != GROUP or len({*state}) != 1]
        assert not mixed, f"{self.kind} showed {mixed}"
        assert self.seen == sorted(self.seen), f"{self.kind} went back: {self.seen}"
        assert len(self.seen) > 1, f"{self.kind} showed no change"


@pytest.fixture
def target(endpoints):
    with target_database(endpoints) as url:
        yield url


@pytest.fixture
def followed(stack, endpoints, target, tmp_path):
    with captured_database(stack, tmp_path / "project", TABLE) as (project, prefix):
        aim(project, target)
        yield Followed(project, endpoints, target, prefix)


@pytest.fixture
def followed_beside(stack, endpoints, target, tmp_path):
    """Views of a table that another project captures."""
    own = "CREATE TABLE own (id int PRIMARY KEY)"
    with (
        captured_database(stack, tmp_path / "numbers", TABLE) as (captured, numbers),
        captured_database(stack, tmp_path / "project", own) as (project, prefix),
    ):
        log = f'[logs.numbers]\ntopic = "{numbers}.numbers"\n'
        aim(project, target, f'{log}frontier = "{numbers}._frontier"\nslot = "{numbers}"\n')
        yield Followed(project, endpoints, target, prefix, captured=captured)


def killed(followed, moment, *defect):
    """Kill a follower at a moment, beside readers, and start it again; returns the readers."""
    with ExitStack() as entered:
        with followed.following("--kill", moment, *defect) as process:
            holds = "for rounds without Spark"
            followed.wait(process, lambda: holds in process.said(), "rounds without Spark")
            readers = entered.enter_context(followed.readers()).values()
            followed.change(1)
            followed.wait(process, followed.is_served, "all views have the first change")
            for each in readers:
                each.looks()
            followed.is_killed(process)
        for each in readers:
            each.looks()
        with followed.following() as process:
            # Of another row: what a sink lost of the group, nothing sends again.
            followed.captured.execute(f"UPDATE numbers SET number = 3 WHERE id = {ROWS}")
            followed.captured.execute(f"INSERT INTO numbers VALUES ({ROWS + 1}, 3)")
            followed.captured.capture()
            everywhere = {ROWS: 3, ROWS + 1: 3}.items()
            followed.wait(
                process,
                lambda: all(everywhere <= rows.items() for rows in followed.served().values()),
                "all views have the last change",
            )
            for each in readers:
                each.looks()
            process.send(signal.SIGTERM)
            assert process.ends(DEADLINE_S), process.said()
            assert process.code == 0, process.said()
        return list(readers)


def is_right(followed):
    """The invariant: each view has what the source has, in the one generation, each row once."""
    assert followed.served() == dict.fromkeys(followed.names, followed.source())
    for name in followed.names.values():
        assert {number for number, _ in followed.project.history(name)} == {1}, name
    assert followed.sent_of(1) == [0, 1, 2], "what the topic was sent"
    assert followed.sent_of(ROWS) == [0, 3], "what the topic was sent"


@pytest.mark.matrix
@pytest.mark.parametrize("moment", [*MOMENTS, "shown search", *STAGES])
def test_a_follower_that_is_killed_at_any_step_goes_on_where_each_sink_is(followed, moment):
    readers = killed(followed, moment)
    for each in readers:
        each.saw_whole_changes()
    is_right(followed)


@pytest.mark.matrix
def test_twin_whose_readers_have_a_delta_in_two_steps_is_seen_in_between(followed):
    readers = killed(followed, "within postgres:2", "--defect", "forward_in_halves")
    (table,) = (each for each in readers if each.kind == "postgres")
    with pytest.raises(AssertionError, match="postgres showed"):
        table.saw_whole_changes()


@pytest.mark.matrix
def test_twin_whose_place_is_ahead_of_its_rows_loses_them(followed):
    killed(followed, "within postgres:2", "--defect", "place_before_the_rows")
    assert followed.served()["postgres"] != followed.source()
    with pytest.raises(AssertionError):
        is_right(followed)


@pytest.mark.matrix
@pytest.mark.parametrize("moment", [*MOMENTS, "shown search", "scan", "apply"])
def test_a_killed_follower_of_another_capture_builds_anew_beside_what_serves(
    followed_beside, moment
):
    """Nobody knows any more where it was in that log: what serves is whole until the switch."""
    followed = followed_beside
    readers = killed(followed, moment)
    for each in readers:
        each.saw_whole_changes()
    assert followed.served() == dict.fromkeys(followed.names, followed.source())
    for name in followed.names.values():
        assert {number for number, _ in followed.project.history(name)} == {1, 2}, name
