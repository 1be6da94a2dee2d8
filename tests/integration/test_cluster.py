"""A rebuild on a Spark cluster: processes of their own, one of which is killed in the middle."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.builders import TEXT, decimal_type, make_relation
from tests.support.captured_project import SHORT_LIVED, CapturedProject, rebuild_view
from tests.support.log_writer import LogWriter
from tests.support.spark_cluster import SparkCluster
from tests.support.wait import wait_until

pytestmark = [pytest.mark.matrix, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]
VIEW = "slow_things"
# Slow where the rows are written: there is time to kill a worker with its output half done.
SLOW = """
from pyspark.sql import functions as F
from views import view

@view(key="id", tables=["things"])
def slow_things(things):
    '''Things, each of which takes three milliseconds.'''
    slept = F.expr("java_method('java.lang.Thread', 'sleep', 3L)")
    return things.select("id", "name", "amount", slept.alias("slept"))
"""
PLAIN = "plain_things"
PLAIN_SQL = "-- key: id\nSELECT id, name, amount FROM things\n"
ROWS = 6_000
RECORDS = 3 * ROWS + ROWS // 10
MERGED = "spark.sql.adaptive.coalescePartitions.enabled"  # so few rows would be one task
REBUILD_S = 600


@pytest.fixture(scope="module")
def cluster(downloads, tmp_path_factory):
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def project(stack, tmp_path_factory):
    """A log with updates, deletes and records that were sent again, and the view's project."""
    from changelog.contract.base.connection import KafkaConnection, RegistryConnection

    endpoints = stack.endpoints()
    prefix = f"k{uuid.uuid4().hex[:10]}"
    columns = {"id": TEXT, "name": TEXT, "amount": decimal_type(12, 2)}
    log = LogWriter(
        KafkaConnection(brokers=endpoints.brokers),
        RegistryConnection(url=endpoints.schema_registry),
        make_relation(columns),
        prefix=prefix,
    )
    for version in range(2):
        for number in range(ROWS):
            log.put((b"%d" % number, b"name %d" % version, b"%d.25" % number))
    for number in range(0, ROWS, 10):
        log.delete_key(b"%d" % number)
    with log.sent_again():
        for number in range(ROWS):
            log.put((b"%d" % number, b"name 0", b"0.00"))
    log.freeze()
    root = tmp_path_factory.mktemp("project")
    (root / "changelog.toml").write_text(
        f'kafka.brokers = "{endpoints.brokers}"\nregistry.url = "{endpoints.schema_registry}"\n'
        f'[capture]\nslot = "slot"\ntopic_prefix = "{prefix}"\n'
        f'[spark.settings]\n"spark.driver.extraJavaOptions" = "{SHORT_LIVED}"\n'
        f'"spark.executor.extraJavaOptions" = "{SHORT_LIVED}"\n'
        '"spark.driver.host" = "127.0.0.1"\n"spark.driver.bindAddress" = "127.0.0.1"\n'
        '"spark.executor.memory" = "700m"\n"spark.sql.shuffle.partitions" = "2"\n'
        f'"{MERGED}" = "false"\n'
        "[rebuild]\nverify_cluster_offsets = 1\n",
        encoding="utf-8",
    )
    made = CapturedProject(root, dsn="")
    made.view(f"{PLAIN}.sql", PLAIN_SQL)
    made.view(f"{VIEW}.py", SLOW)
    return made


def digest(project, generation):
    """Hash the rows of a generation, in the order of their keys."""
    folder = project.warehouse / VIEW / "_generations" / f"{generation:06d}"
    rows = DeltaTable(str(folder)).to_pyarrow_table().sort_by("id").to_pylist()
    text = "\n".join(repr(sorted(row.items())) for row in rows)
    return len(rows), hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def expected(project, spark):
    """What `local[2]` makes of the log: generation 1."""
    with pytest.MonkeyPatch.context() as patch:
        capsys = _Silent()
        ran = rebuild_view(capsys, patch, project, VIEW, "--verify", "none", "--keep", "9")
    spark.conf.unset(MERGED)
    assert ran.code == 0, ran.err
    found = digest(project, 1)
    assert found[0] == ROWS - ROWS // 10
    return found


class _Silent:
    """Stands for pytest's capsys, which a fixture of a module cannot have."""

    out = err = ""

    def readouterr(self):
        return self


class Rebuilding:
    """`rebuild-view` on a cluster, as a process of its own."""

    def __init__(self, project, cluster, folder, *, defect=None, view=VIEW, verify="none"):
        self._folder, self._errors = project, folder / f"{uuid.uuid4().hex}.txt"
        words = [sys.executable, "-m", "tests.support.crashing_rebuild"]
        words += ["--defect", defect] if defect else []
        words += ["--", view, "--project", str(project.root), "--master", cluster.url]
        words += ["--verify", verify, "--keep", "9", "--json"]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors
            )

    def ended(self):
        """Return exit code and result."""
        out, _ = self._process.communicate(timeout=REBUILD_S)
        print(self.said())
        return self._process.returncode, json.loads(out)

    def said(self):
        """Return the end of what it wrote to standard error."""
        return self._errors.read_text("utf-8")[-3000:]

    def wait_until_waiting(self, tasks):
        """Wait until so many tasks of the proof have done their part, and give no receipt yet."""

        def waiting():
            assert self._process.poll() is None, self.said()
            return len([*(self._folder.warehouse / "waiting").glob("*")]) >= tasks

        wait_until(waiting, REBUILD_S, f"{tasks} tasks wait")

    def go_on(self):
        """Let the tasks that wait, and those that come, go on."""
        (self._folder.warehouse / "waiting" / "go").touch()

    def wait_until_writing(self, tasks):
        """Wait until so many tasks have begun a file of the new generation."""

        def begun():
            assert self._process.poll() is None, self.said()
            newest = max((self._folder.warehouse / VIEW / "_generations").iterdir())
            # A task writes below `_temporary`, and its file is moved when the task is done.
            return len([*newest.rglob("part-*.parquet")]) >= tasks

        before = {*(self._folder.warehouse / VIEW / "_generations").iterdir()}
        wait_until(
            lambda: {*(self._folder.warehouse / VIEW / "_generations").iterdir()} - before,
            REBUILD_S,
            "a new generation is begun",
        )
        wait_until(begun, REBUILD_S, f"{tasks} tasks write")


def test_a_cluster_of_two_workers_gives_what_one_process_gives(
    project, cluster, expected, tmp_path
):
    code, result = Rebuilding(project, cluster, tmp_path).ended()

    assert (code, result["published"]) == (0, True)
    assert digest(project, result["generation"]) == expected


def test_a_defect_of_the_fold_shows_in_the_hash(project, cluster, expected, tmp_path):
    """The twin: what was sent again decides since it arrived last."""
    code, result = Rebuilding(project, cluster, tmp_path, defect="arrival_decides").ended()

    assert code == 0
    assert digest(project, result["generation"]) != expected


@pytest.mark.parametrize("defect", [None, "lose_what_is_lost"])
def test_a_worker_killed_in_mid_rebuild_changes_nothing(
    project, cluster, expected, tmp_path, defect
):
    """The twin: what the lost worker had done is not done again."""
    try:
        rebuilding = Rebuilding(project, cluster, tmp_path, defect=defect)
        rebuilding.wait_until_writing(2)
        cluster.kill(cluster.workers.pop())
        code, result = rebuilding.ended()
    finally:
        cluster.add_worker()
        cluster.wait_until_whole()

    assert (code, result["published"]) == (0, True)
    assert (digest(project, result["generation"]) == expected) is (defect is None)
    assert "Lost executor" in rebuilding.said()


def proving(project, cluster, folder, **more):
    return Rebuilding(project, cluster, folder, view=PLAIN, verify="full", **more)


@pytest.fixture(scope="module")
def proved(project, cluster, tmp_path_factory):
    """A generation whose topic was read on the cluster for its proof; its result and its errors."""
    ran = proving(project, cluster, tmp_path_factory.mktemp("proved"))
    code, result = ran.ended()
    assert (code, result["published"], result["verified"]) == (0, True, True)
    assert "2 tasks have read, folded and decoded it for its proof" in ran.said()
    return result


def certificate(result):
    """Return what was proved: the hashes of ranges of rows, and how many records were read."""
    (report,) = result["certificates"].values()
    found = report["certificate"]
    assert found["ranges"]
    return found["ranges"], found["records_read"]


def test_a_proof_on_the_cluster_is_the_one_of_one_process(
    project, proved, spark, capsys, monkeypatch
):
    words = (PLAIN, "--verify", "full", "--keep", "9", "--verify-on", "driver", "--json")
    ran = rebuild_view(capsys, monkeypatch, project, *words)
    spark.conf.unset(MERGED)

    assert ran.code == 0, ran.err
    (alone,) = ran.results
    assert certificate(proved) == certificate(alone)
    assert [*certificate(proved)[1].values()] == [RECORDS]
    assert [*(project.warehouse / "_verify").glob("*")] == []


def test_a_record_that_a_task_of_the_proof_skips_refutes_it(project, cluster, tmp_path):
    """The twin: the proof is the tasks' own reading."""
    code, result = proving(project, cluster, tmp_path, defect="skip_in_parts").ended()

    assert (code, result["published"], result["verified"]) == (3, False, False)


@pytest.mark.parametrize("defect", ["wait_in_parts", "forget_parts"])
def test_a_worker_killed_in_mid_proof_changes_nothing(project, cluster, proved, tmp_path, defect):
    """The twin: nothing comes of what the lost worker had to do, which ends the proof."""
    shutil.rmtree(project.warehouse / "waiting", ignore_errors=True)
    try:
        running = proving(project, cluster, tmp_path, defect=defect)
        running.wait_until_waiting(2)
        cluster.kill(cluster.workers.pop())
        running.go_on()
        code, result = running.ended()
    finally:
        cluster.add_worker()
        cluster.wait_until_whole()

    assert "Lost executor" in running.said()
    if defect == "forget_parts":
        assert (code, result["published"]) == (1, False)
        assert "a task gave no receipt" in running.said()
    else:
        assert (code, result["published"], result["verified"]) == (0, True, True)
        assert certificate(result) == certificate(proved)
