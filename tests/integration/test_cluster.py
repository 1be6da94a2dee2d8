"""A rebuild on a Spark cluster: processes of their own, one of which is killed in the middle."""

from __future__ import annotations

import hashlib
import json
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
ROWS = 6_000
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
        f'"{MERGED}" = "false"\n',
        encoding="utf-8",
    )
    made = CapturedProject(root, dsn="")
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

    def __init__(self, project, cluster, folder, *, defect=None):
        self._folder, self._errors = project, folder / f"{uuid.uuid4().hex}.txt"
        words = [sys.executable, "-m", "tests.support.crashing_rebuild"]
        words += ["--defect", defect] if defect else []
        words += ["--", VIEW, "--project", str(project.root), "--master", cluster.url]
        words += ["--verify", "none", "--keep", "9", "--json"]
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
