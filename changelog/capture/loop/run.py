"""Capture from start to stop: one `CaptureSession` after the other, and the waits between them.

Retry, stop or skip is decided here and nowhere else. When a server that was reached before (broker,
registry, PostgreSQL) goes away, capture waits for it without a limit; any other error ends capture
with its message. Until all servers have been reached once, the wait is limited: see `patience`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from rich.console import Console

from changelog.capture.loop.session import CaptureSession, Earlier
from changelog.capture.start.rights import Agreed, nobody_agrees
from changelog.capture.start.roster import NewTablesError
from changelog.capture.start.start_undo import StartUndo
from changelog.capture.state.newcomers import Newcomers
from changelog.capture.state.patience import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    Patience,
    sleep,
    wait_for_slot,
)
from changelog.capture.state.policy import Reaction, answer, with_way_out
from changelog.capture.state.report import CaptureReport
from changelog.capture.state.start_state import Context
from changelog.config import Project
from changelog.contract.base.errors import (
    ChangelogError,
    LookAgainError,
    RecordRefusedError,
    RefusedAccessError,
    UnavailableError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.secret import redacted
from changelog.native.choice import warn_if_slow
from changelog.runtime.failpoints import Told, untold
from changelog.source.connect.connect import connect
from changelog.source.connect.system import current_lsn
from changelog.source.stream.slot import SlotBusyError

log = logging.getLogger("changelog.capture")


@dataclass(slots=True)
class CaptureRun:
    """Runs capture until it is asked to stop, or has reached an LSN."""

    settings: Project
    report: CaptureReport  # is filled while it runs
    stop: Callable[[], bool]  # is called often; True ends the run cleanly
    console: Console
    failpoint: Told = untold
    # the limit on the wait for servers at the start; None takes the one of the settings
    patience: Patience | None = None
    agreed: Agreed = nobody_agrees

    def run(self, until: Lsn | None = None) -> None:
        """Capture until a stop is requested, or until a frontier has passed `until`.

        Raises ChangelogError: an error that waiting does not cure; see each family.
        """
        warn_if_slow()
        undo = StartUndo(has_begun=lambda: bool(self.report.frontiers or self.report.rows))
        try:
            self._run_attempts(Earlier(undo), until)
        except ChangelogError:
            undo.take_back(self.settings)
            raise

    def _run_attempts(self, earlier: Earlier, until: Lsn | None) -> None:
        patience = self.patience or Patience(self.settings.capture.wait_s, self.stop)
        wait_s = FIRST_WAIT_S
        begun = False
        while not self.stop():
            context = Context(self.report, self.console, self.stop, self.failpoint)
            session = CaptureSession(self.settings, context, earlier, self.agreed)
            try:
                session.run(until)
            except SlotBusyError as error:
                self.report.errors[type(error).__name__] += 1
                limit_s = None if begun else self.settings.capture.wait_s
                wait_for_slot(self.settings, limit_s, self.stop)
            except RecordRefusedError as error:
                self._note_refused(error, earlier.refused)
            except UnavailableError as error:
                self.report.errors[type(error).__name__] += 1
                if self.stop():
                    log.warning("%s", redacted(str(error)))
                    return
                is_refused = isinstance(error, RefusedAccessError) and earlier.undo.is_first_start
                if is_refused or not (begun or session.connected):
                    patience.wait(error)
                    continue
                wait_s = FIRST_WAIT_S if session.connected else min(2 * wait_s, LONGEST_WAIT_S)
                log.warning("%s; trying again in %.1f s", redacted(str(error)), wait_s)
                self.report.restarts += 1
                sleep(wait_s, self.stop)
            except ChangelogError as error:
                if not _begins_again(error, earlier.newcomers):
                    raise
                self.report.errors[type(error).__name__] += 1
            else:
                return
            finally:
                begun = begun or session.connected

    def _note_refused(self, error: RecordRefusedError, refused: dict[str, ChangelogError]) -> None:
        """Keep the error for the next attempt, or raise it.

        Which table's record it was, the producer alone knows; and that is of no use any more.
        """
        stops = answer(error, self.settings.capture) is Reaction.STOP
        if stops or error.topic in refused or not error.topic:
            raise with_way_out(error) from error
        refused[error.topic] = error
        self.report.errors[type(error).__name__] += 1


def _begins_again(error: ChangelogError, newcomers: Newcomers) -> bool:
    """Tell whether a new attempt may do better at once."""
    if isinstance(error, NewTablesError):
        log.info("%s; beginning again", error.args[0])
        return True
    if isinstance(error, LookAgainError):
        newcomers.begin_again()
        log.warning("%s; beginning again", error.args[0])
        return True
    if newcomers.blame(error):
        log.warning("%s; beginning again without new tables, or with one of them", error)
        return True
    return False


def until_lsn(settings: Project, text: str | None) -> Lsn | None:
    """Read `--until`: an LSN, or `now` for the end of the WAL at this moment.

    Raises ConfigurationError: the text is neither; SourceError: the server cannot be asked.
    """
    if text is None:
        return None
    if text != "now":
        return Lsn.given(text)
    with closing(connect(settings.postgres)) as connection:
        return current_lsn(connection)
