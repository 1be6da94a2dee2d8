"""Rebuilds on a Spark Connect server that runs already: the same rows, the same errors.

One server for all of it; what a session of the tests' own makes is what it is compared with.
"""

from __future__ import annotations

import re
import signal
import stat

import psutil
import pytest
from deltalake import DeltaTable

from replay.spark.server_token import token_file
from tests.support.builders import INTEGER, TEXT, make_relation
from tests.support.captured_project import (
    CapturedProject,
    captured_database,
    rebuild_view,
    write_settings,
)
from tests.support.connect_server import ConnectServer, Rebuilding
from tests.support.log_writer import LogWriter
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.spark]
TABLES = """
CREATE TABLE "the-customers" (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer int NOT NULL, amount numeric(12, 2), at timestamptz,
    score float8, note text, born date
);
INSERT INTO "the-customers" SELECT n, 'name ' || n FROM generate_series(1, 20) AS n;
INSERT INTO orders SELECT n, 1 + n % 20, n * 0.25, to_timestamp(n), sqrt(n), 'note ' || n,
    DATE '1582-10-10' + n::int FROM generate_series(1, 600) AS n;
UPDATE orders SET note = NULL, at = 'infinity' WHERE id % 3 = 0;
DELETE FROM orders WHERE id % 7 = 0;
"""
VIEWS = {
    "copied.sql": "-- key: id\n-- sinks: delta, cache\nSELECT * FROM orders\n",
    "totals.sql": """-- key: name
SELECT c.name, '{}' AS braces, count(o.id) AS orders, sum(o.amount) AS amount, max(p.id) AS newest
FROM public.`the-customers` AS c
LEFT JOIN orders o ON o.customer = c.id LEFT JOIN orders p ON p.id = o.id
WHERE c.id IN (SELECT q.customer FROM orders AS q) GROUP BY c.name
""",
    "large.py": """
from pyspark.sql import functions as F
from views import view

@view(key="id", tables=["orders"])
def large(orders):
    '''Large ones.'''
    return orders.where(F.col("amount") > 10).select("id", F.expr("amount * 2 AS twice"))
""",
}
SLOW = """
from pyspark.sql import functions as F
from views import view

@view(key="id", tables=["orders"])
def slow(orders):
    '''Orders, each of which takes 30 milliseconds.'''
    return orders.select("id", F.expr("java_method('java.lang.Thread', 'sleep', 30L) AS slept"))
"""
BROKEN = make_relation({"id": INTEGER, "name": TEXT})


@pytest.fixture(scope="module")
def server(downloads, tmp_path_factory):
    with ConnectServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def shared(stack, spark, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("connect"), TABLES) as made:
        yield made


@pytest.fixture
def project(shared):
    found, _ = shared
    for path in (found.root / "views").glob("*.*"):
        path.unlink()
    return found


def rows(project, view, generation):
    folder = project.warehouse / view / "_generations" / f"{generation:06d}"
    table = DeltaTable(str(folder)).to_pyarrow_table()
    return table.sort_by(table.column_names[0]).combine_chunks()


def hashes(result):
    """Return the hash of each range of keys, as the verifier has made it."""
    return result["certificates"]["delta"]["certificate"]["ranges"]


def hash_of(result):
    """Return the hash of all rows, which a proof by what changed has too."""
    return result["certificates"]["delta"]["certificate"]["hash"]


@pytest.mark.matrix
def test_a_server_gives_the_rows_that_a_session_of_our_own_gives(
    project, server, capsys, monkeypatch
):
    for name, text in VIEWS.items():
        project.view(name, text)
    here = rebuild_view(capsys, monkeypatch, project, "--all", "--json", "--keep", "9")
    assert here.code == 0, here.err
    local = {each["view"]: each for each in here.results}
    before = server.sessions()

    there = Rebuilding(project, server.url, "--all", "--keep", "9").results()

    for view, own in local.items():
        assert rows(project, view, there[view]["generation"]).equals(
            rows(project, view, own["generation"])
        )
        assert there[view]["published"]
        for fact in ("rows", "records_read", "tombstones", "verified", "frontier"):
            assert there[view][fact] == own[fact], (view, fact)
    for view in ("copied", "totals"):
        assert there[view]["verified"]
        assert hashes(there[view]) == hashes(local[view])
    assert server.sessions() == before


@pytest.mark.matrix
def test_a_refresh_on_a_server_gives_what_a_rebuild_gives(project, server, capsys, monkeypatch):
    views = ("copied", "totals")
    for view in views:
        project.view(f"{view}.sql", VIEWS[f"{view}.sql"])
    words = ("--all", "--keep", "9", "--refresh")
    Rebuilding(project, server.url, *words).results()
    project.execute(
        "UPDATE orders SET amount = 7 WHERE id % 100 = 1; DELETE FROM orders WHERE id % 50 = 3"
    )
    project.capture()

    merged = Rebuilding(project, server.url, *words).results()
    whole = rebuild_view(capsys, monkeypatch, project, "--all", "--json", "--keep", "9")

    assert whole.code == 0, whole.err
    for own in whole.results:
        found = merged[own["view"]]
        assert found["verified"]
        assert hash_of(found) == hash_of(own) != ""
        assert rows(project, own["view"], found["generation"]).equals(
            rows(project, own["view"], own["generation"])
        )
    assert (merged["copied"]["verify"], merged["totals"]["verify"]) == ("changed", "changed")
    assert "changed rows merged" in merged["copied"]["origin"]


@pytest.mark.matrix
def test_a_session_that_nobody_ends_stays_on_its_server(project, server):
    """The twin of what every other test here looks at."""
    project.view("copied.sql", VIEWS["copied.sql"])
    before = server.sessions()
    Rebuilding(project, server.url, "copied", defect="keep_the_session").results()
    assert server.sessions() == before + 1


@pytest.fixture
def broken(kafka, registry, prefix, endpoints, tmp_path):
    """A log of things, two of them whole, and a project with a view of it."""
    log = LogWriter(kafka, registry, BROKEN, prefix=prefix)
    for number in (1, 2):
        log.put((b"%d" % number, b"whole"))
    project = CapturedProject(tmp_path / "project", "")
    write_settings(project.root, endpoints, "", prefix)
    project.view("named.sql", "-- key: id\nSELECT id, name FROM things")
    return log, project


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("found", "defect"),
    first(2, [("by a task", None), ("in decoding", None), ("by a task", "hear_the_first_line")]),
)
def test_a_corrupt_record_is_told_with_its_place(broken, prefix, server, found, defect):
    """The twin: of what the server says the first line alone is heard."""
    log, project = broken
    key = log.codec.encode_key((b"3",))
    log.put_raw(
        b"strange" if found == "by a task" else key, log.codec.encode_value((b"3", None))[:5]
    )
    log.freeze(slot=prefix)

    ran = Rebuilding(project, server.url, "named", defect=defect).ended()

    assert ran.code == 1
    (result,) = ran.results
    told = re.match(
        rf'view "named": topic "{log.topic}", partition \d+, offset \d+: ', result["error"]
    )
    assert (told is not None) is (defect is None), ran.out
    assert ("capture did not write this record" in result["error"]) is (defect is None)
    assert project.history("named") == [(1, "failed")]


@pytest.mark.matrix
@pytest.mark.parametrize("defect", [None, "take_settings_on_trust"])
def test_settings_that_a_server_does_not_have_are_refused(broken, prefix, server, defect):
    """The twin: nobody asks, and the rebuild goes on with another heap than it was told."""
    log, project = broken
    log.freeze(slot=prefix)
    settings = project.root / "changelog.toml"
    settings.write_text(settings.read_text("utf-8") + '"spark.driver.memory" = "3g"\n', "utf-8")
    before = server.sessions()

    ran = Rebuilding(project, server.url, "named", defect=defect).ended()

    assert ran.code == (2 if defect is None else 0)
    assert ("spark.driver.memory=3g" in ran.out) is (defect is None)
    assert ("changelog spark-server" in ran.out) is (defect is None)
    assert bool(project.history("named")) is (defect is not None)  # nothing was begun
    assert server.sessions() == before


@pytest.mark.matrix
@pytest.mark.parametrize("defect", first(1, [None, "cancel_nothing"]))
def test_a_signal_ends_the_job_on_the_server(project, server, defect):
    """The twin: the job goes on to its end, and so does the command."""
    project.view("slow.py", SLOW)
    sessions, failed = server.sessions(), server.jobs("failed")
    folder = project.warehouse / "slow" / "_generations"

    rebuilding = Rebuilding(project, server.url, "slow", "--verify", "none", defect=defect)
    wait_until(
        lambda: server.jobs("running") and [*folder.glob("**/*.parquet")], 120, "rows are written"
    )
    rebuilding.process.send_signal(signal.SIGTERM)
    ran = rebuilding.ended()

    assert ran.code == 1
    assert "asked to stop" in ran.out
    assert (server.jobs("failed") > failed) is (defect is None)
    assert (server.jobs("running"), server.sessions()) == (0, sessions)
    assert not list(folder.glob("*"))


@pytest.mark.matrix
def test_a_server_without_the_jars_is_refused(broken, prefix, tmp_path):
    log, project = broken
    log.freeze(slot=prefix)
    bare = {
        "spark.jars": "",
        "spark.sql.extensions": "",
        "spark.sql.catalog.spark_catalog": "builtin",
    }
    (tmp_path / "bare").mkdir()
    with ConnectServer(tmp_path / "bare", bare) as server:
        ran = Rebuilding(project, server.url, "named").ended()
        assert server.sessions() == 0
    assert ran.code == 2
    for word in ("spark-avro", "delta-spark", "spark.sql.extensions", "changelog spark-server"):
        assert word in ran.out


@pytest.mark.matrix
def test_a_server_that_goes_away_is_told_and_the_next_one_does_it(project, tmp_path):
    project.view("slower.py", SLOW.replace("def slow(", "def slower("))
    folder = project.warehouse / "slower" / "_generations"
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with ConnectServer(tmp_path / "other") as other:
        one = ConnectServer(tmp_path / "one")
        one.start()
        rebuilding = Rebuilding(project, one.url, "slower", "--verify", "none")
        wait_until(lambda: [*folder.glob("**/*.parquet")], 120, "rows are written")
        one.stop()
        ran = rebuilding.ended()
        assert ran.code == 1
        assert "the Spark Connect server went away" in ran.out
        assert Rebuilding(project, other.url, "slower", "--verify", "none").results()


def test_the_token_is_asked_for_and_told_to_nobody(project, server, tmp_path, monkeypatch):
    project.view("copied.sql", VIEWS["copied.sql"])
    place = token_file(server.port)
    token = place.read_text()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600

    rebuilding = Rebuilding(project, server.url, "copied")
    ran = rebuilding.ended()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # as another user, who has no such file
    stranger = Rebuilding(project, server.url, "copied").ended()

    assert ran.code == 0, ran.err
    assert (stranger.code, "it asks for a token" in stranger.err) == (2, True), stranger.err
    words = "".join(
        " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])
    )
    for told in (server.said(), server.environment, words, ran.out, ran.err, stranger.err):
        assert token not in told
    written = [path for path in project.root.rglob("*") if path.is_file()]
    assert [path for path in written if token.encode() in path.read_bytes()] == []
    assert "\tat org." not in server.said()  # what clients ask on purpose fills no terminal
