"""Runs are told to OpenLineage by a thread of its own, where its configuration asks for it.

Neither a server that is away nor an error in what is told delays or ends the run itself: it is one
line in the log, and the end of the command waits for what is on its way for a few seconds at most.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.edge import one_line
from changelog.runtime.lineage.facts import NOTHING_KNOWN, Event, Job, RunState

if TYPE_CHECKING:
    from changelog.runtime.lineage.events import Client

log = logging.getLogger("changelog.lineage")

_LAST_S = 5.0
"""How long the end of a command waits for the server."""
_EVERY_S = 300.0
"""Between two events of a run that goes on."""
_FILE = "openlineage.yml"
State = Callable[[], RunState]


def is_asked_for() -> bool:
    """Tell whether the environment, or a file where OpenLineage looks for it, asks for events."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return (
        any(map(os.environ.get, ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")))
        or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ)
        or any((folder / _FILE).is_file() for folder in (Path(), _own_folder()))
    )


def _own_folder() -> Path:
    return Path("~/.openlineage").expanduser()


def _is_ready() -> bool:
    if not is_asked_for():
        return False
    if find_spec("openlineage"):
        return True
    log.warning("OpenLineage: nothing is sent without changelog-store[openlineage]")
    return False


@dataclass(slots=True, eq=False)
class ReportedRun:
    """A run whose beginning is told."""

    job: Job
    state: State  # tells what is known of its datasets by now; called in another thread
    _put: Callable[[_Told], None]
    id: str = ""  # of OpenLineage, once it is told
    is_ended: bool = False
    _is_known: bool = field(default=False)

    def know(self) -> None:
        """Tell once that the datasets are known now; later events of the run have them, too."""
        if not (self._is_known or self.is_ended):
            self._is_known = True
            self._put(_Told("RUNNING", self))

    def end(self, error: ChangelogError | None = None) -> None:
        """Tell its end."""
        if not self.is_ended:
            self.is_ended = True
            kind = "COMPLETE" if error is None else "FAIL"
            self._put(_Told(kind, self, "" if error is None else one_line(error)))

    def abort(self) -> None:
        """Tell that it was broken off."""
        if not self.is_ended:
            self.is_ended = True
            self._put(_Told("ABORT", self))


@dataclass(frozen=True, slots=True)
class _Told:
    kind: str  # of OpenLineage's event types
    run: ReportedRun
    error: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Sender:
    """Sends the events of this process's runs, in their order."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._events: queue.SimpleQueue[_Told | None] = queue.SimpleQueue()
        self._open: list[ReportedRun] = []
        self._has_failed = False
        self._thread = threading.Thread(target=self._work, name="lineage", daemon=True)
        self._thread.start()

    def begin(self, job: Job, state: State) -> ReportedRun:
        """Tell that a run begins."""
        run = ReportedRun(job, state, self._events.put)
        self._events.put(_Told("START", run))
        return run

    def close(self, last_s: float = _LAST_S) -> None:
        """Wait for the events that are on their way, for a few seconds."""
        self._events.put(None)
        self._thread.join(last_s)
        if self._thread.is_alive():
            self._fail(f"it has not taken them within {last_s:g} s")

    def _work(self) -> None:
        try:
            # Of an extra, and slow: nobody waits for it.
            from changelog.runtime.lineage.events import Client  # noqa: PLC0415

            client = Client()
        except Exception as error:  # noqa: BLE001 - of the library and its configuration
            self._fail(one_line(error))
            return
        while True:
            try:
                event = self._events.get(timeout=self._every_s)
            except queue.Empty:
                for run in self._open:
                    self._send(client, _Told("RUNNING", run))
                continue
            if event is None:
                break
            self._send(client, event)
        client.close()

    def _send(self, client: Client, event: _Told) -> None:
        from changelog.runtime.lineage.events import new_run_id  # noqa: PLC0415 - of an extra

        run = event.run
        run.id = run.id or new_run_id()
        if event.kind == "START":
            self._open.append(run)
        elif event.kind != "RUNNING":
            self._open.remove(run)
        try:
            state = run.state()
        except Exception as error:  # noqa: BLE001 - what is told of a run must not change it
            log.warning("OpenLineage: the datasets of %s are not told: %r", run.job.name, error)
            state = NOTHING_KNOWN
        try:
            client.send(
                Event(
                    kind=event.kind,
                    at=event.at,
                    run_id=run.id,
                    job=run.job,
                    state=state,
                    error=event.error,
                )
            )
        except Exception as error:  # noqa: BLE001 - any transport's
            self._fail(one_line(error))

    def _fail(self, why: str) -> None:
        """Say once that events are lost."""
        log.log(
            logging.DEBUG if self._has_failed else logging.WARNING,
            "OpenLineage: events of this run are not told: %s",
            why,
        )
        self._has_failed = True


class Ends(Protocol):
    """A run, or several, whose end is told."""

    def end(self, error: ChangelogError | None = None) -> None:
        """Tell that it has ended, or failed."""

    def abort(self) -> None:
        """Tell that it was broken off."""


@contextmanager
def ended_with_block(run: Ends) -> Iterator[None]:
    """Tell the end of a run with the end of the block: completed, failed or broken off."""
    try:
        yield
    except ChangelogError as error:
        run.end(error)
        raise
    except BaseException:
        run.abort()
        raise
    run.end()


@contextmanager
def sending() -> Iterator[Sender | None]:
    """Send events while the block runs; yields None where nobody asks for them."""
    if not _is_ready():
        yield None
        return
    sender = Sender()
    try:
        yield sender
    finally:
        sender.close()
