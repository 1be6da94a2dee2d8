"""A warehouse in each kind of store: written, refreshed, read by others, rolled back, killed."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain

import pytest

from changelog.contract.base.errors import ConfigurationError, UnavailableError
from tests.support.captured_project import captured_database
from tests.support.matrix import first
from tests.support.own_session import own_session
from tests.support.stores import KINDS, emulated
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.spark]
SOURCE = """
CREATE TABLE orders (id int PRIMARY KEY, total numeric(12, 2), at timestamptz);
INSERT INTO orders SELECT n, n * 0.25, to_timestamp(n) FROM generate_series(1, 2000) AS n;
"""
VIEW = "-- key: id\nSELECT id, total, at FROM orders\n"
READ = """
import json, sys
import duckdb
from deltalake import DeltaTable, QueryBuilder
engine = QueryBuilder().register("t", DeltaTable(sys.argv[1]))
rows = engine.execute("SELECT id, total FROM t").read_all()
print(json.dumps(duckdb.from_arrow(rows).order("id").fetchall(), default=str))
"""


@pytest.fixture
def store(request, tmp_path):
    with emulated(request.param, tmp_path) as running:
        yield running


@pytest.fixture
def project(stack, store, tmp_path):
    with captured_database(stack, tmp_path / "project", SOURCE) as (made, _):
        with (made.root / "changelog.toml").open("a") as settings:
            settings.write(f'[rebuild]\nwarehouse = "{store.base}/views"\n')
            settings.write("deletion_vectors = true\n")
        made.view("orders_kept.sql", VIEW)
        yield made


def each_store(count=0):
    return pytest.mark.parametrize("store", first(count, KINDS), indirect=True)


def asked(store, code, *words, **environ):
    """Run a program in Python, in a process whose environment has the address of a store."""
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, **store.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def rows_of(store, place):
    """Read a table as delta-rs does, and as DuckDB does what that gives."""
    ran = asked(store, READ, place)
    assert ran.returncode == 0, ran.stderr
    return [(number, total) for number, total in json.loads(ran.stdout)]


def plain(rows):
    return [(number, str(total)) for number, total in rows]


@each_store(1)
def test_views(store, project):
    place = f"{store.base}/views/orders_kept"

    def rebuilt(*more):
        ran = session.run("rebuild-view", "orders_kept", "--project", str(project.root), *more)
        assert ran["code"] == 0, ran["err"]
        return ran["results"]

    def is_right(wanted):
        assert rows_of(store, place) == plain(wanted)
        assert session.run("count", place) == {"rows": len(wanted)}

    first_rows = project.query("SELECT id, total FROM orders ORDER BY id")
    with own_session(store.environ) as session:
        (result,) = rebuilt("--json", "--refresh", "--verify", "full")
        assert (result["generation"], result["verified"]) == (1, True)
        is_right(first_rows)
        folders = {f"{name}/".split("/")[1] for name in store.names()}
        assert folders >= {"orders_kept", "_history", "_checkpoints", "_proved"}

        project.execute("UPDATE orders SET total = 0 WHERE id = 7; DELETE FROM orders WHERE id = 8")
        project.capture()
        (result,) = rebuilt("--json", "--refresh")
        assert (result["generation"], result["verified"]) == (2, True)
        (certificate,) = [each["certificate"] for each in result["certificates"].values()]
        # What was proved is kept in the store, too: an update and a delete are read, no more.
        assert [*certificate["records_read"].values()] == [2], certificate["notes"]
        second = [name for name in store.names() if "/_generations/000002/" in name]
        # Files of the first generation got second names in the store, beside marks and new rows;
        # HDFS copies nothing, so there all rows are written.
        assert any(name.endswith(".bin") for name in second) is (store.kind != "hdfs"), second
        is_right(project.query("SELECT id, total FROM orders ORDER BY id"))
        rebuilt("--rollback")
        is_right(first_rows)

        told = session.run("settings")
        if store.secret:
            assert not [name for name, value in told["spark"].items() if store.secret in value]
            # Spark itself gives Hadoop what the environment says, under names that it hides.
            named = [name for name, value in told["hadoop"].items() if store.secret in value]
            assert all(re.search(told["spark"]["spark.redaction.regex"], name) for name in named)

        project.execute("UPDATE orders SET total = 1 WHERE id = 9")
        project.capture()
        rebuilt()
        session.run("rebuild-view", "orders_kept", "--project", str(project.root))
        # Removed generations leave nothing, no mark of a folder either; S3A marks the one of all.
        below = "views/orders_kept/_generations/"
        names = [name.removeprefix(below) for name in store.names() if name.startswith(below)]
        kept = {name.partition("/")[0] for name in names if name}
        assert kept == {name.partition("/")[0] for name in names if name.endswith(".json")}, names

        store.stop()
        ran = session.run("rebuild-view", "orders_kept", "--project", str(project.root), "--json")
        assert ran["code"] == UnavailableError.exit_code, ran["err"]
        assert f"the store of the warehouse {store.base}/views does not answer" in ran["err"]


def has_or_ended(store, mark, run):
    return store.has(mark) or run.done()


@each_store()
def test_a_process_that_is_killed_leaves_one_generation_or_the_other(store, project):
    place = f"{store.base}/views/orders_kept"
    words = ["rebuild-view", "orders_kept", "--project", str(project.root)]
    with own_session(store.environ) as session:
        assert session.run(*words)["code"] == 0
    old = project.query("SELECT id, total FROM orders ORDER BY id")
    project.execute("UPDATE orders SET total = total + 1")
    project.capture()
    new = project.query("SELECT id, total FROM orders ORDER BY id")
    # The second run removes what the first has left, and takes a number of its own.
    for mark in ("_generations/000002/", "_generations/000003/_delta_log/"):
        with own_session(store.environ) as session, ThreadPoolExecutor(1) as pool:
            run = pool.submit(session.run, *words)
            wait_until(partial(has_or_ended, store, mark, run), 120, "it writes")
            assert store.has(mark), run.result()
            session.kill()
        assert rows_of(store, place) in (plain(old), plain(new))
    with own_session(store.environ) as session:
        ran = session.run(*words)
        assert ran["code"] == 0, ran["err"]
    assert rows_of(store, place) == plain(new)


@each_store(1)
def test_a_bucket_that_is_not_there_is_said_before_anything_is_read(store, project):
    if not store.nowhere:
        pytest.skip("HDFS has folders alone, which are made")
    path = project.root / "changelog.toml"
    path.write_text(path.read_text().replace(store.base, store.nowhere))
    with own_session(store.environ) as session:
        ran = session.run("rebuild-view", "orders_kept", "--project", str(project.root))
    assert ran["code"] == ConfigurationError.exit_code, ran["err"]
    why = f"the warehouse {store.nowhere}/views cannot be written: there is no such bucket"
    assert why in ran["err"]


CHECK = """
import sys
from replay.spark.files import check_writable
try:
    check_writable(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error, getattr(error, "hint", ""))
"""


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("store", "wrong", "why"),
    [
        (
            "abfs",
            {"AZURE_STORAGE_ACCOUNT_KEY": "bm90IGl0"},
            "written: AuthorizationFailure",
        ),
        ("gs", {"GOOGLE_SERVICE_ACCOUNT": "/nowhere.json"}, "/nowhere.json cannot be read"),
        ("hdfs", {"HADOOP_USER_NAME": "stranger"}, "written: HDFS: Permission denied"),
    ],
    indirect=["store"],
)
def test_who_may_not_or_is_nobody_is_told_so(store, wrong, why):
    ran = asked(store, CHECK, f"{store.base}/views", **wrong)
    assert ran.stdout.startswith("ConfigurationError"), ran.stdout + ran.stderr
    assert why in ran.stdout
    assert "bm90IGl0" not in ran.stdout + ran.stderr


FILES = """
import sys
from replay.spark.files import Files
files, root = Files(), sys.argv[1]
files.create(f"{root}/a/x", b"1", makes_folder=True)
files.replace(f"{root}/a/y", b"22")
files.replace(f"{root}/a/y", b"333")
assert files.names(root) == ["a"] and files.names(f"{root}/a") == ["x", "y"]
assert files.names(f"{root}/none") == [] and not files.exists(f"{root}/a/z")
assert files.sizes(root) == {"a/x": 1, "a/y": 3}
assert files.read(f"{root}/a/y") == b"333"
for act in (
    lambda: files.create(f"{root}/a/x", b"2"),
    lambda: files.read(f"{root}/a/none"),
    lambda: files.read(f"{root}/none/none"),
):
    try:
        act()
    except (FileExistsError, FileNotFoundError) as error:
        print(type(error).__name__)
files.remove_file(f"{root}/a/y")
assert files.names(f"{root}/a") == ["x"]
if root.startswith("abfs"):  # as Spark's client does
    files.replace(f"{root}/a", b"")
files.remove(f"{root}/a")
assert files.names(root) == []
"""
RACE = """
import sys
from pathlib import Path
from replay.spark.files import Files
name, root = sys.argv[1:]
won = []
Files().names(root)
print("ready", flush=True)
sys.stdin.read()
for number in range(30):
    try:
        Files().create(f"{root}/{number}", name.encode(), makes_folder=True)
        won.append(number)
    except FileExistsError:
        pass
print(won)
"""


@each_store(1)
def test_files(store):
    ran = asked(store, FILES, f"{store.base}/files")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["FileExistsError", "FileNotFoundError", "FileNotFoundError"]


@each_store(1)
def test_of_those_who_create_a_file_one_wins(store):
    root, names = f"{store.base}/race", ["one", "other", "third"]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RACE, name, root],
                    env={**os.environ, **store.environ},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for name in names
        ]
        pipes = [(process.stdin, process.stdout) for process in processes]
        for _, output in pipes:
            assert output is not None
            assert output.readline() == "ready\n"
        for start, _ in pipes:
            assert start is not None
            start.close()
        won = {
            name: json.loads(output.read())
            for name, (_, output) in zip(names, pipes, strict=True)
            if output is not None
        }
    assert sorted(chain(*won.values())) == list(range(30))
    read = "import sys; from replay.spark.files import Files; root = sys.argv[1]\n"
    read += "print(*[Files().read(f'{root}/{number}').decode() for number in range(30)])"
    written = asked(store, read, root).stdout.split()
    assert written == [next(n for n in names if number in won[n]) for number in range(30)]
