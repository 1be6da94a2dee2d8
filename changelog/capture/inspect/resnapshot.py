"""Request new copies of tables from capture, and follow their progress.

The request is a message in the WAL: it needs no right but to connect, reaches a capture that runs
within moments, and waits in the slot for one that does not.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass

from rich.console import Console

from changelog.capture.copy.backfill import RESNAPSHOT
from changelog.config import Project
from changelog.contract.base.errors import ConfigurationError, LogError, NoFrontierError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord, copies_of
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from changelog.runtime.progress.bar import RowBar
from changelog.sink.frontier import FrontierLog
from changelog.source.connect.connect import connect
from changelog.source.connect.standby import Primary
from changelog.source.connect.system import identify, in_recovery
from changelog.source.connect.versions import SENDS_MESSAGES, need
from changelog.source.snapshot.snapshot import estimated_rows
from changelog.source.stream.message import OWN_PREFIX, emit
from changelog.source.stream.slot import inspect_slot
from changelog.source.tables.filter import TableFilter

log = logging.getLogger("changelog.capture")

_POLL_S = 0.3


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A request that is in the WAL."""

    tables: tuple[TableName, ...]  # what was asked for
    lsn: Lsn  # where the request is; a copy begun after it is the answer
    active: bool  # whether a capture reads the slot now
    estimate: int  # about how many rows the tables have

    def to_json(self) -> dict[str, object]:
        """Return it as one JSON object."""
        return {
            "tables": [str(table) for table in self.tables],
            "lsn": str(self.lsn),
            "active": self.active,
        }


def ask_resnapshot(settings: Project, patterns: Sequence[str]) -> CopyRequest:
    """Ask for fresh copies of the captured tables that some patterns cover.

    Raises:
        NoFrontierError: the log has no frontier yet: its first snapshot is not whole.
        ConfigurationError: a pattern covers no captured table.
        UnavailableError: source or broker do not answer.
    """
    with FrontierLog(settings.kafka, frontier_topic(settings.topic_prefix)) as frontiers:
        record = frontiers.last(settings.slot)
        backfill = frontiers.backfill(settings.slot)
    if record is None:
        raise NoFrontierError(
            f'the log of slot "{settings.slot}" has no frontier yet',
            hint="its first snapshot is not whole: let `changelog capture` finish it",
        )
    copies = (copy.table for copy in copies_of(backfill))
    captured = {*record.frontier.tables.values(), *record.frontier.excluded, *copies}
    tables = _covered(patterns, captured)
    content = json.dumps({"slot": settings.slot, "tables": [list(name) for name in tables]})
    with closing(connect(settings.postgres)) as connection:
        need(
            connection.server_version,
            SENDS_MESSAGES,
            "`changelog resnapshot`",
            hint="capture without the table once (--exclude), then with it: it is copied again",
        )
        estimate = estimated_rows(connection, tables)
        status = inspect_slot(connection, settings.slot)
        mark = RESNAPSHOT + content.encode()
        with closing(_writer(settings, connection)) as writer:
            lsn = emit(writer, OWN_PREFIX, mark, transactional=True)
    return CopyRequest(tables, lsn, status is not None and status.active, estimate)


def _writer(settings: Project, source: Connection) -> Connection:
    """Return a connection to where the request can be written: not to a standby."""
    if not in_recovery(source):
        return connect(settings.postgres)
    return Primary(settings.primary, identify(settings.postgres)).connection()


def _covered(patterns: Sequence[str], captured: Collection[TableName]) -> tuple[TableName, ...]:
    tables: set[TableName] = set()
    for pattern in patterns:
        table_filter = TableFilter([pattern])
        covered = {table for table in captured if table_filter.wants(table)}
        if not covered:
            raise ConfigurationError(
                f'"{pattern}" is no captured table',
                hint=f"captured: {', '.join(map(str, sorted(captured)))}",
            )
        tables |= covered
    return tuple(sorted(tables))


def follow(
    settings: Project, request: CopyRequest, *, console: Console, stop: Callable[[], bool]
) -> bool:
    """Wait until a frontier has the fresh copies; False when stopped.

    Raises LogError: capture has met the request, and does not copy a table; UnavailableLogError:
    the broker does not answer.
    """
    title = f"snapshot of {len(request.tables)} tables"
    with (
        FrontierLog(settings.kafka, frontier_topic(settings.topic_prefix)) as frontiers,
        RowBar(console, title, request.estimate) as bar,
    ):
        shown, was_met = 0, False
        while not stop():
            # In this order: a copy that has ended meanwhile is in the frontier.
            backfill, record = frontiers.backfill(settings.slot), frontiers.last(settings.slot)
            if record is not None and _is_done(record.frontier, request):
                bar.add(max(0, request.estimate - shown))
                return True
            if record is not None:
                if was_met:
                    _check_copied(record.frontier, backfill, request)
                was_met = record.frontier.lsn > request.lsn
            rows = _rows(backfill, request)
            bar.add(max(0, rows - shown))
            shown = max(shown, rows)
            time.sleep(_POLL_S)
    return False


def _is_done(frontier: Frontier, request: CopyRequest) -> bool:
    place = Position(frontier.epoch, request.lsn, 0)
    topics = [frontier.topic_of(table) for table in request.tables]
    since = [frontier.since.get(topic) if topic is not None else None for topic in topics]
    return all(position is not None and position > place for position in since)


def _check_copied(
    frontier: Frontier, backfill: BackfillRecord | None, request: CopyRequest
) -> None:
    """Check that capture, which has met the request, copies the tables or has copied them."""
    faulty = {copy.table: copy.fault for copy in copies_of(backfill)}
    for table in request.tables:
        if faulty.get(table) == "" or table in frontier.tables.values():
            continue
        if table in frontier.excluded or table not in faulty:
            # The frontier may be of before the copy failed.
            fault = faulty.get(table)
            why = f"is excluded: {fault}" if fault else frontier.why_absent(table)
            raise LogError(
                f"the table {table.said} is not copied: it {why}",
                hint="mend that, and ask once more",
            )


def _rows(backfill: BackfillRecord | None, request: CopyRequest) -> int:
    if backfill is None:
        return 0
    return sum(table.rows for table in backfill.tables.values() if table.table in request.tables)
