"""A source whose files were put back, from a snapshot of a disk or a cold copy.

It keeps its identifier and its timeline, has lost what the log holds, and gives the LSNs of that
to what is committed next.
"""

import json
import shutil

import pytest

from changelog.stack.base.location import own
from changelog.stack.base.places import server_user
from tests.integration.test_incompatible import Capture
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

LOST = (
    "INSERT INTO notes VALUES (100, 'lost')",
    "UPDATE notes SET text = 'lost' WHERE id = 1",
    "DELETE FROM notes WHERE id = 2",
)
NEXT = ("INSERT INTO notes SELECT n, 'next' FROM generate_series(200, 220) n",)
MUCH = (
    "CREATE TABLE uncaptured (text text)",
    "INSERT INTO uncaptured SELECT repeat('x', 500) FROM generate_series(1, 4000)",
    "DROP TABLE uncaptured",
)
SAID = "was put back to an earlier state"


class PutBack(Capture):
    """A capture of `notes`, whose server can be put back."""

    def keep(self, server):
        """Copy the server's files."""
        server.stop()
        shutil.copytree(server.work_directory, self.folder / "kept")
        server.start()

    def put_back(self, server):
        """Put the copy in the place of the files."""
        server.stop()
        shutil.rmtree(server.work_directory)
        shutil.copytree(self.folder / "kept", server.work_directory)
        own(server.work_directory, server_user())
        server.start()

    def in_groups(self):
        """Give the second table a slot of its own."""
        path = self.folder / "changelog.toml"
        path.write_text(path.read_text() + '[capture.groups]\none = ["other"]\n')

    def problems(self):
        _, out, _ = self.run_other("status", "--json", "--allow-inactive")
        return json.loads(out)["problems"]


server = server_of([16])
capture = capture_of(
    PutBack,
    "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
    "INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, 50) n",
    "CREATE TABLE other (id integer PRIMARY KEY, text text)",
)

FORWARD = {
    "nothing": (),
    "less than was lost": NEXT,
    "more than was lost": (*NEXT, *MUCH),
    "the same again": LOST,
    "the same again and more": (*LOST, *MUCH),
    "what is not captured": MUCH,
}
"""Statements that run after the files are put back and before capture starts again."""


@pytest.mark.parametrize("name", first(1, FORWARD))
def test_every_table_is_copied_when_the_server_was_put_back(capture, server, name):
    capture.finish()
    capture.keep(server)
    capture.sql(*LOST)
    capture.finish()
    before = capture.frontier()
    capture.put_back(server)
    capture.sql(*FORWARD[name])
    if capture.end_of_wal() < before.lsn:
        assert [each for each in capture.problems() if SAID in each]
    _, _, said = capture.run("--check")
    assert SAID in said, said
    assert SAID in capture.finish()
    if name in {"nothing", "what is not captured"}:
        capture.sql(*NEXT)
    assert SAID not in capture.finish()
    assert capture.frontier().epoch == before.epoch + 1
    assert capture.differing("notes") == []
    assert capture.problems() == []


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["less than was lost", "more than was lost"])
def test_twin_what_is_committed_then_is_lost_in_silence(capture, server, name):
    capture.finish()
    capture.keep(server)
    capture.sql(*LOST)
    capture.finish()
    capture.put_back(server)
    capture.sql(*FORWARD[name])
    capture.finish(defect="believe_the_server")
    assert capture.differing("notes")


@pytest.mark.matrix
def test_a_running_capture_notices_it_too(capture, server):
    capture.finish()
    capture.keep(server)
    capture.start()
    capture.sql(*LOST)
    capture.settle()
    capture.put_back(server)
    capture.sql(*NEXT)
    wait_until(lambda: capture.frontier().epoch == 2, 60, "a new epoch")
    capture.settle()
    capture.stop()
    assert SAID in capture.said()
    assert capture.differing("notes") == []


@pytest.mark.matrix
def test_with_groups_of_tables_too(capture, server):
    capture.in_groups()
    capture.finish()
    capture.keep(server)
    capture.sql("INSERT INTO other VALUES (1, 'lost')")
    capture.finish()
    capture.put_back(server)
    capture.sql(*NEXT, *MUCH)
    assert SAID in capture.finish()
    assert [capture.differing(table) for table in ("notes", "other")] == [[], []]


@pytest.mark.matrix
def test_a_copy_that_lacks_nothing_copies_nothing(capture, server):
    capture.finish()
    capture.sql(*LOST)
    capture.finish()
    capture.keep(server)
    capture.put_back(server)
    capture.sql(*NEXT)
    capture.finish()
    assert capture.frontier().epoch == 1
    assert capture.differing("notes") == []


@pytest.mark.matrix
@pytest.mark.parametrize("groups", first(1, [False, True]), ids=["one slot", "groups"])
def test_a_server_that_crashed_copies_nothing(capture, server, groups):
    """Its slot is where the last checkpoint has left it, before what capture has acknowledged."""
    if groups:
        capture.in_groups()
    capture.finish()
    for number in range(300, 303):
        for table in ("notes", "other"):
            capture.sql(f"INSERT INTO {table} VALUES ({number}, 'more')")
            capture.finish()
    server.kill()
    server.start()
    capture.sql(*NEXT)
    capture.finish()
    assert capture.frontier().epoch == 1
    assert [capture.differing(table) for table in ("notes", "other")] == [[], []]


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["frontier written", "transaction produced"])
def test_a_capture_that_crashed_copies_nothing(capture, point):
    capture.finish()
    capture.sql(*LOST)
    capture.crash(point)
    capture.sql(*NEXT)
    capture.finish()
    assert capture.frontier().epoch == 1
    assert capture.differing("notes") == []
