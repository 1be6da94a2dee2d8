"""What every test shares: Hypothesis profiles, markers, the one Spark session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.services"]

# No deadline: a busy machine is not a failing law. In CI the same examples at every run.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_HERE = Path(__file__).parent
_MARK_OF_FOLDER = {"integration": "services", "notebooks": "notebook", "benchmarks": "slow"}
_LONG_FIRST = ("notebook", "slow", "spark", "services")
_MARK_OF_FIXTURE = {"stack": "services", "spark": "spark"}


def pytest_configure() -> None:
    """End as on Ctrl-C when somebody ends the run, so that its servers end too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its folder and by what it asks for, so that none can be forgotten.

    A Spark session that has run nothing yet is slow and costs a minute of CPU; so two processes
    have one and the others none.
    """
    for item in items:
        folder = item.path.relative_to(_HERE).parts[0]
        marks = {_MARK_OF_FOLDER.get(folder)}
        marks |= {_MARK_OF_FIXTURE.get(name) for name in getattr(item, "fixturenames", ())}
        for mark in sorted(mark for mark in marks if mark):
            item.add_marker(mark)
        if folder == "conformance":
            item.add_marker(pytest.mark.xdist_group("sinks"))
        elif "spark" in marks:
            item.add_marker(pytest.mark.xdist_group("spark"))
    # Long modules first: what is left at the end of a run should be small enough to share out.
    ranks: dict[Path, int] = {}
    for item in items:
        ranks[item.path] = min(ranks.get(item.path, len(_LONG_FIRST)), _rank(item))
    items.sort(key=lambda item: ranks[item.path])


def _rank(item: pytest.Item) -> int:
    found = (rank for rank, mark in enumerate(_LONG_FIRST) if item.get_closest_marker(mark))
    return min(found, default=len(_LONG_FIRST))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, downloads: None) -> Iterator[SparkSession]:
    """The one Spark session of the run."""
    from replay.session import SessionSettings, session
    from tests.support.captured_project import SHORT_LIVED

    made = session(
        SessionSettings(
            master="local[2]",
            app_name="tests",
            warehouse=str(tmp_path_factory.mktemp("warehouse")),
            shuffle_partitions=2,
            extra={"spark.driver.extraJavaOptions": SHORT_LIVED},
        )
    )
    yield made
    made.stop()
