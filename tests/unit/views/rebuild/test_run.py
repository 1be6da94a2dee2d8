"""One run over several views: whose an error is."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from changelog.contract.base.errors import VerdictError
from replay.verdict.watch import ReadWatch
from views.rebuild.run.run import RunContext


def run_with(reading: ReadWatch | None) -> RunContext:
    run = RunContext.__new__(RunContext)
    run.settings = SimpleNamespace(together=False)  # type: ignore[assignment]
    run.stop = lambda: False
    run.schemas = {}
    run.reading = reading
    return run


def a_build(name: str = "orders") -> Any:
    return SimpleNamespace(spec=SimpleNamespace(name=name, sql=None), error=None)


def work(run: RunContext, build: Any, text: str) -> None:
    with run.answerable(build):
        raise RuntimeError(text)


def test_a_view_that_fails_leaves_the_others_alone():
    build = a_build()
    work(run_with(None), build, "its query divides by zero")
    assert "divides by zero" in str(build.error)


def test_a_cancelled_job_is_no_reason_of_its_view():
    """The watch cancels the jobs of all views: what each says of it is no news to anybody."""

    def check() -> float:
        raise VerdictError("a topic was compacted meanwhile")

    cancelled = threading.Event()
    build = a_build()

    def read() -> None:
        with ReadWatch(check, cancelled.set, first_s=0) as reading:
            assert cancelled.wait(30)
            work(run_with(reading), build, "Job 52 cancelled as part of cancellation of all jobs")

    with pytest.raises(VerdictError, match="compacted meanwhile"):
        read()
    assert build.error is None
