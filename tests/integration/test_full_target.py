"""Views in PostgreSQL whose disk is really full, by a rebuild and by a follower."""

from __future__ import annotations

import json
import tempfile
import uuid
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql
from psycopg2.extensions import make_dsn

from changelog.contract.base.errors import SinkError
from changelog.stack.base.places import server_user
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.matrix import first
from tests.support.shop import Shop
from tests.support.small_disk import small_disk
from tests.support.sql import execute
from views.sinks.postgres.forward import PostgresForward

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.root]

ROWS, LARGE = 200, 16 << 10
"""Four rows fill a page: 400 KiB a copy."""
TABLE = f"""
CREATE TABLE notes (id int PRIMARY KEY, note text NOT NULL);
INSERT INTO notes SELECT n, repeat(chr(97 + n % 26), 1900) FROM generate_series(1, {ROWS}) n;
"""
VIEW = "-- key: id\n-- sinks: postgres\nSELECT id, note FROM notes"
ADDED = f"""
INSERT INTO notes SELECT n, repeat('new', 633) FROM generate_series({ROWS + 1}, {3 * ROWS}) n
"""
CHANGED = "UPDATE notes SET note = reverse(note) || 'x'; DELETE FROM notes WHERE id % 7 = 0;"
FULL = "No space left on device"
HINT = "free space at the server"


class Target:
    """A view whose tables lie on a file system of their own, in a database that does not."""

    def __init__(self, shop, disk, view):
        self.shop, self.disk, self.view = shop, disk, view

    def change(self, statements):
        self.shop.change(statements)

    def served(self):
        return execute(self.shop.target, f"SELECT id, note FROM {self.view} ORDER BY id")

    def is_right(self):
        """The invariant: each row of the source, once."""
        assert self.served() == self.shop.project.query("SELECT id, note FROM notes ORDER BY id")

    def states(self):
        return [state for _, state in self.shop.project.history(self.view)]


@pytest.fixture
def disk():
    with (
        tempfile.TemporaryDirectory(prefix="changelog-disk-") as folder,
        small_disk(Path(folder) / "disk", LARGE, server_user()) as made,
    ):
        Path(folder).chmod(0o755)
        yield made


@pytest.fixture
def target(stack, disk, tmp_path):
    endpoints = stack.endpoints()
    name = f"full_{uuid.uuid4().hex[:10]}"
    with closing(psycopg2.connect(endpoints.postgres)) as connection:
        place = sql.Literal(str(disk.place)).as_string(connection)
    url = make_dsn(endpoints.postgres, dbname=name)
    for statement in (
        f"CREATE TABLESPACE {name} LOCATION {place}",
        f"CREATE DATABASE {name}",
        f"ALTER DATABASE {name} SET default_tablespace = {name}",
    ):
        execute(endpoints.postgres, statement)
    with captured_database(stack, tmp_path / "project", TABLE) as (project, _):
        path = project.root / "changelog.toml"
        path.write_text(f"sinks.postgres.url = {json.dumps(url)}\n" + path.read_text("utf-8"))
        view = f"notes_{uuid.uuid4().hex[:8]}"
        project.view(f"{view}.sql", VIEW)

        def made(mode):
            project.view(f"{view}.postgres.json", json.dumps({"mode": mode}))
            return Target(Shop(project, endpoints, url, {}), disk, view)

        yield made
    execute(endpoints.postgres, f"DROP DATABASE {name} WITH (FORCE)")
    execute(endpoints.postgres, f"DROP TABLESPACE {name}")


@pytest.fixture
def run(capsys, monkeypatch, spark):
    def run(target, *words):
        return rebuild_view(capsys, monkeypatch, target.shop.project, target.view, *words)

    return run


def is_refused(ran):
    assert ran.code == 1, ran.err
    said = " ".join(ran.err.split())
    assert FULL in said
    assert HINT in said
    assert "Traceback" not in said


@pytest.mark.parametrize("mode", first(1, ["exchange", "upsert", "insert"]))
def test_a_rebuild_leaves_readers_what_they_have_and_goes_on_once_there_is_room(target, run, mode):
    made = target(mode)
    assert run(made).code == 0
    made.is_right()
    before = made.served()
    made.change(ADDED if mode == "insert" else ADDED + ";" + CHANGED)
    made.disk.leave(100)
    is_refused(run(made))
    assert made.served() == before
    assert made.states()[-1] == "failed"
    is_refused(run(made))  # as long as it is full
    assert made.served() == before
    made.disk.resize(LARGE)
    ran = run(made, "--verify", "full")
    assert ran.code == 0, ran.err
    made.is_right()


@pytest.mark.matrix
@pytest.mark.parametrize("mode", first(1, ["exchange", "upsert"]))
def test_a_follower_ends_with_what_readers_have_and_the_next_goes_on(target, run, mode):
    made = target(mode)
    assert run(made, "--refresh").code == 0
    with made.shop.followed() as follower:
        before = made.served()
        made.change(CHANGED)
        made.disk.leave(100)
        outcome = follower.round()
        assert isinstance(outcome.error, SinkError), outcome.error
        assert FULL in str(outcome.error)
        assert HINT in str(outcome.error)
        assert made.served() == before
    # As long as it is full, the command ends by itself; it has nothing that an older one sent.
    is_refused(run(made, "--follow"))
    assert made.served() == before
    made.disk.resize(LARGE)
    with made.shop.followed() as follower:
        made.is_right()
        made.change("UPDATE notes SET note = 'short' WHERE id = 3")
        assert follower.round().error is None
        made.is_right()


@pytest.mark.matrix
def test_twin_whose_delta_goes_in_two_steps_leaves_readers_the_half(target, run, monkeypatch):
    made = target("exchange")
    assert run(made, "--refresh").code == 0
    sound = PostgresForward.apply

    def apart(self, cursor, delta, position):
        few = 10
        sound(self, cursor, delta.slice(0, few), position)
        cursor.connection.commit()
        sound(self, cursor, delta.slice(few), position)

    with made.shop.followed() as follower, monkeypatch.context() as patched:
        before = made.served()
        patched.setattr(PostgresForward, "apply", apart)
        made.change(CHANGED)
        made.disk.leave(100)
        assert FULL in str(follower.round().error)
        assert made.served() != before
