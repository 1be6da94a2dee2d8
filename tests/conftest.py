"""What every test shares: Hypothesis profiles, markers, the one Spark session."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.support import warm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = [
    "tests.support.services",
    "tests.support.native_ways",
    "tests.support.commands",
]

# No deadline: a busy machine is not a failing law. The same examples at every run, so that nobody's
# first run fails by chance; `make properties` looks further, and what it finds becomes an example.
settings.register_profile("fixed", deadline=None, derandomize=True, database=None, max_examples=50)
settings.register_profile(
    "random",
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")
# What tests ask of a server may take its time, on a machine that does other things besides.
httpx._config.DEFAULT_TIMEOUT_CONFIG.read = 60.0

_HERE = Path(__file__).parent
_OPEN_SOCKETS = (
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)
_MARK_OF_FOLDER = {"integration": "services", "notebooks": "notebook", "benchmarks": "slow"}
_LONG_FIRST = ("notebook", "slow", "spark", "services")
_MARK_OF_FIXTURE = {"stack": "services", "spark": "spark", "disk": "root", "full_disk": "root"}
# One process for each: a Spark session that has run nothing yet is slow and costs a minute of CPU,
# a search server half of one; what a whole module shares is made once.
_GROUPS = {
    "sinks": ("tests/conformance/", "tests/integration/test_verify.py"),
    "spark": (
        "tests/integration/test_archive.py",
        "tests/integration/test_bad_records.py",
        "tests/integration/test_certificate.py",
        "tests/integration/test_changes_followed.py",
        "tests/integration/test_checkpoints.py",
        "tests/integration/test_cluster.py",
        "tests/integration/test_dbt.py",
        "tests/integration/test_committed.py",
        "tests/integration/test_committed_spark.py",
        "tests/integration/recover/",
        "tests/integration/test_page_actions.py",
        "tests/integration/test_compaction.py",
        "tests/integration/test_telemetry.py",
        "tests/integration/test_lineage.py",
        "tests/integration/test_compared_types.py",
        "tests/integration/test_connect.py",
        "tests/integration/test_declared_follow.py",
        "tests/integration/test_declared_logs.py",
        "tests/integration/test_erase.py",
        "tests/integration/test_every_type.py",
        "tests/integration/test_expressions.py",
        "tests/integration/test_postgres_dialect.py",
        "tests/integration/test_forms.py",
        "tests/integration/test_forward.py",
        "tests/integration/test_verify_views.py",
        "tests/integration/test_wait.py",
        "tests/integration/test_followed_logs.py",
        "tests/integration/test_http_views.py",
        "tests/integration/test_followed_whole.py",
        "tests/integration/test_full_target.py",
        "tests/integration/test_history.py",
        "tests/integration/test_serve_rebuild.py",
        "tests/integration/test_two_followers.py",
        "tests/integration/test_unkeyed_views.py",
        "tests/integration/test_kept_proofs.py",
        "tests/integration/test_iceberg_view.py",
        "tests/integration/test_keys.py",
        "tests/integration/test_leases.py",
        "tests/integration/test_local_queries.py",
        "tests/integration/test_moving.py",
        "tests/integration/test_log_history.py",
        "tests/integration/test_names.py",
        "tests/integration/test_read_columns.py",
        "tests/integration/test_read_page.py",
        "tests/integration/test_stores.py",
        "tests/integration/test_other_captures.py",
        "tests/integration/test_postgres_view.py",
        "tests/integration/test_provable.py",
        "tests/integration/test_python_page.py",
        "tests/integration/test_rebuild.py",
        "tests/integration/test_rebuild_apart.py",
        "tests/integration/test_recorded_logs.py",
        "tests/integration/test_refresh.py",
        "tests/integration/test_refused_rows.py",
        "tests/integration/test_replay.py",
        "tests/integration/test_row_digests.py",
        "tests/integration/test_session_shut.py",
        "tests/integration/test_sinks_apart.py",
        "tests/integration/test_spark_progress.py",
        "tests/integration/test_strange_views.py",
        "tests/integration/test_splits.py",
        "tests/integration/test_staged.py",
        "tests/integration/test_started_followers.py",
        "tests/integration/test_switch_refused.py",
        "tests/integration/test_takeover.py",
        "tests/integration/test_teardown.py",
        "tests/integration/test_tls.py",
        "tests/integration/test_topic_view.py",
        "tests/integration/test_values.py",
        "tests/integration/test_view_cases.py",
        "tests/integration/test_view_pages.py",
        "tests/integration/test_view_reach.py",
        "tests/property/test_fold.py",
    ),
    "notebooks": ("tests/notebooks/",),
    "stack": ("tests/integration/test_stack.py",),
    "source": ("tests/integration/test_source.py",),
    "versions": ("tests/integration/test_versions.py",),
    "verifier": ("tests/property/test_verify_fold.py",),
}


def group_of(nodeid: str) -> str | None:
    """Return the name of the group of tests that one process runs; None: any process may."""
    found = (name for name, places in _GROUPS.items() if nodeid.startswith(places))
    return next(found, None)


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands each group to one process, and the other tests one by one to whoever is free.

    Files of the group "spark" go to the process that began with it, and to the one of the sinks
    when it is done with these: both have a Spark session that is warm.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        # By default what has the most tests comes first. But a file of one test may take minutes,
        # so the order of collection stays, which has long modules first.
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._with_spark: set[Any] = set()

    def _split_scope(self, nodeid: str) -> str:
        group = group_of(nodeid)
        if group == "spark":
            return f"spark {nodeid.partition('::')[0]}"
        return group or nodeid

    def _assign_work_unit(self, node: Any) -> None:
        """Assign the next unit that suits a process."""
        wants_spark = not self._with_spark or node in self._with_spark
        suits = (unit for unit in self.workqueue if unit.startswith("spark ") == wants_spark)
        unit = next(suits, next(iter(self.workqueue)))
        if unit == "sinks" or unit.startswith("spark "):
            self._with_spark.add(node)
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    """Share the tests out by groups, which the marks of xdist cannot do with this pytest."""
    return Groups(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """End as on Ctrl-C when somebody ends the run, so that its servers end too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    warm.install()
    if version("pyspark") < "4.2":  # its sockets are closed when they are collected
        config.addinivalue_line("filterwarnings", _OPEN_SOCKETS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among ten thousand tests, which all stay: a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its folder and by what it asks for, so that none can be forgotten."""
    folders = {path: path.relative_to(_HERE).parts[0] for path in {item.path for item in items}}
    for item in items:
        folder = folders[item.path]
        marks = {_MARK_OF_FOLDER.get(folder)}
        marks |= {_MARK_OF_FIXTURE.get(name) for name in getattr(item, "fixturenames", ())}
        for mark in sorted(mark for mark in marks if mark):
            item.add_marker(mark)
        if "spark" in marks and group_of(item.nodeid) is None:
            raise pytest.UsageError(f"{item.nodeid} needs Spark: name its file in {__name__}")
    # Long modules first: what is left at the end of a run should be small enough to share out.
    ranks: dict[Path, int] = {}
    for item in items:
        ranks[item.path] = min(ranks.get(item.path, len(_LONG_FIRST)), _rank(item))
    items.sort(key=lambda item: ranks[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how long each notebook took, which no test asks for: machines differ."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "notebook":
                terminalreporter.write_line(f"notebook {text}")


def _rank(item: pytest.Item) -> int:
    found = (rank for rank, mark in enumerate(_LONG_FIRST) if item.get_closest_marker(mark))
    return min(found, default=len(_LONG_FIRST))


_JVM: list[subprocess.Popen[bytes]] = []
"""Of the one Spark session of this process, while nobody has noticed its end."""
_CRASHED = Path(tempfile.gettempdir()) / f"changelog-tests-jvm-{os.getpid()}.log"
"""Where it tells of an end that it did not want."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, downloads: None) -> Iterator[SparkSession]:
    """The one Spark session of the run."""
    from replay.spark.session import SessionSettings, session
    from tests.support.captured_project import SHORT_LIVED

    made = session(
        SessionSettings(
            master="local[2]",
            app_name="tests",
            warehouse=str(tmp_path_factory.mktemp("warehouse")),
            # All that a thousand tests leave behind fills 2 GB: collecting then takes a core.
            extra={
                "spark.driver.memory": "4g",
                "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -XX:ErrorFile={_CRASHED}",
            },
        )
    )
    _JVM.append(made.sparkContext._gateway.proc)  # type: ignore[union-attr]
    yield made
    if _JVM:
        made.stop()


@pytest.fixture(autouse=True)
def _logs_are_its_own() -> Iterator[None]:
    """Undo what a command that ran in this process has set up, so that `caplog` hears once."""
    yield
    ours = logging.getLogger("changelog")
    ours.handlers.clear()
    ours.setLevel(logging.NOTSET)
    ours.propagate = True


@pytest.fixture(autouse=True)
def _the_jvm_lives() -> Iterator[None]:
    """Fail the test in which Spark's JVM ends: all later ones would find a refused connection."""
    yield
    if _JVM and (ended := _JVM[0].poll()) is not None:
        _JVM.clear()
        told = _CRASHED.read_text()[:8_000] if _CRASHED.exists() else ""
        pytest.fail(f"the JVM of Spark has ended with code {ended} in this test\n{told}")
