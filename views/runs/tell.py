"""Report a run: to a command of the user's, a webhook, a file or gateway of metrics.

Whatever of it fails is a warning: it changes nothing of the run, nor of its exit code.
"""

from __future__ import annotations

import json
import logging
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.secret import redacted
from changelog.runtime.edge import one_line
from changelog.runtime.tls_trust import authorities
from views.base.config import RebuildSettings
from views.base.sections import Runs, Told
from views.generations.history import PUBLISHED, History
from views.rebuild.result.outcome import Outcome
from views.rebuild.result.report import ViewResult
from views.runs.metrics import RunMetrics
from views.runs.summary import summary

log = logging.getLogger("changelog.views")

_COMMAND_S = 60
_REQUEST_S = 10
_TRIES = 4
_FIRST_WAIT_S = 0.5


@contextmanager
def told(views: Sequence[str], settings: RebuildSettings) -> Iterator[Callable[[Outcome], None]]:
    """Report the run in the block to the receivers in the settings, however it ends.

    Args:
        views: the views of the run.
        settings: of the run.

    Yields:
        A function that takes the outcome; a run that could not begin has none.
    """
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    try:
        yield outcomes.append
    except ChangelogError as error:
        failed = (ViewResult(view=name, error=error) for name in views)
        outcomes.append(Outcome(tuple(failed), error))
        raise
    finally:
        if outcomes:
            run = summary(
                outcomes[-1].results,
                outcomes[-1].error,
                project=str(settings.project.root),
                seconds=time.monotonic() - begun,
            )
            _tell_of(run, settings.runs, settings.warehouse)


def _tell_of(run: Mapping[str, Any], settings: Runs, warehouse: str) -> None:
    """Report a run to the receivers in the settings.

    Args:
        run: what `views.runs.summary` says of it.
        settings: who hears of it.
        warehouse: where the history lies, for the time at which each view was last published.
    """
    has_failed = run["status"] == "failed"
    if settings.on_failure and has_failed:
        _warned("on_failure", lambda: _command(settings.on_failure, run))
    if settings.webhook and (has_failed or settings.webhook_on is Told.ALWAYS):
        _warned("the webhook", lambda: _post(settings.webhook, run))
    if settings.metrics_file or settings.push_gateway:
        _warned("metrics", lambda: _measured(run, settings, warehouse))


def _warned(receiver: str, tell: Callable[[], None]) -> None:
    try:
        tell()
    except (ChangelogError, OSError, subprocess.SubprocessError, httpx.HTTPError) as error:
        log.warning("%s was not told of the run: %s", receiver, one_line(error))


def _command(command: str, run: Mapping[str, Any]) -> None:
    """Run the user's command, with the object on its standard input."""
    ended = subprocess.run(  # noqa: S602 - a command line of the user's own settings
        command,
        shell=True,
        check=False,
        input=json.dumps(run) + "\n",
        text=True,
        timeout=_COMMAND_S,
        stdout=subprocess.DEVNULL,
    )
    if ended.returncode:
        raise ChangelogError(f"`{redacted(command)}` ended with {ended.returncode}")


def _post(url: str, run: Mapping[str, Any]) -> None:
    """Send the object, again where the server does not answer or says that it cannot now."""
    for attempt in Retrying(
        retry=retry_if_exception(_passes),
        stop=stop_after_attempt(_TRIES),
        wait=wait_exponential(multiplier=_FIRST_WAIT_S, max=10),
        reraise=True,
    ):
        with attempt:
            answer = httpx.post(url, json=run, timeout=_REQUEST_S, verify=authorities())
            if answer.is_error:
                raise _RefusedError(answer.status_code)


class _RefusedError(ChangelogError):
    """The webhook answered, but not well."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it answered {status}")
        self.status = status


def _passes(error: BaseException) -> bool:
    if isinstance(error, _RefusedError):
        return (
            error.status >= httpx.codes.INTERNAL_SERVER_ERROR
            or error.status == httpx.codes.TOO_MANY_REQUESTS
        )
    return isinstance(error, httpx.TransportError)


def _measured(run: Mapping[str, Any], settings: Runs, warehouse: str) -> None:
    published = {
        row.view: row
        for row in History(warehouse).rows([view["view"] for view in run["views"]])
        if row.state == PUBLISHED
    }
    metrics = RunMetrics(run, published)
    if settings.metrics_file:
        metrics.write(settings.metrics_file)
    if settings.push_gateway:
        metrics.push(settings.push_gateway)
