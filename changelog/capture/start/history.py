"""Find out whether a server still has the history that the log was written from.

A server whose files were restored from a disk snapshot or a cold copy keeps its system identifier
and timeline, but has lost transactions that are on the log. Its next transactions get LSNs before
the log's frontier: resuming at the frontier would skip them silently.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from changelog.capture.start.environment import Environment
from changelog.contract.base.errors import UnavailableSourceError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.backfill import BackfillRecord
from changelog.contract.log.frontier import Frontier, LastCommit
from changelog.source.connect.retention import SlotStatus
from changelog.source.stream.pgoutput import PLUGIN_OPTIONS, ROW_OPTIONS, Begin, Commit, decode
from changelog.source.stream.slot_reader import slot_reader
from changelog.source.stream.stream import ReplicationStream

_POLL_S = 0.2
_RELEASE_S = 10.0
"""How long to wait until the server lets the slot be read again; the next check reports it."""

_RELEASE_POLL_S = 0.01


def why_undone(
    environment: Environment,
    slot: SlotStatus,
    frontier: Frontier | None,
    backfill: BackfillRecord | None,
) -> str:
    """Compare the histories of server and log; describe the difference, or return "".

    The WAL up to the slot's position is the log's: the position is saved with the server's files
    and acknowledged only after a frontier. From there the server sends its changes again, and the
    last transaction before the frontier must be the one that the frontier names. The slot must have
    no reader and belong to the log's system and timeline.

    Raises UnavailableSourceError: a standby has not yet received all that is on the log; SlotError:
    the slot cannot be read.
    """
    latest = [record.lsn for record in (frontier, backfill) if record is not None]
    wal_end, reached = environment.current_lsn(), max(latest, default=Lsn(0))
    if wal_end < reached:
        if environment.is_standby:  # it lags behind its primary and will receive the rest
            raise UnavailableSourceError(
                f"the standby has received the WAL up to {wal_end}, and the log goes to {reached}"
            )
        return behind(wal_end, reached)
    slot_lsn = slot.confirmed_flush_lsn
    if slot_lsn is None or slot.wal_status == "lost":
        return ""
    if frontier is None or frontier.commit is None or slot_lsn >= frontier.lsn:
        return ""
    return _difference(environment, slot.together, frontier, frontier.commit)


def behind(wal_end: Lsn, reached: Lsn) -> str:
    """Describe a server whose WAL ends before the log does."""
    return (
        f"the server's WAL ends at {wal_end}, and the log goes to {reached}: "
        "the server was put back to an earlier state"
    )


def _difference(
    environment: Environment,
    slot_lsns: Mapping[str, Lsn | None],
    frontier: Frontier,
    expected: LastCommit,
) -> str:
    """Compare the server's last transaction before the frontier with the one the frontier names."""
    sent = [
        _last_commit(environment, slot, slot_lsn, frontier.lsn)
        for slot, slot_lsn in slot_lsns.items()
        if slot_lsn is not None and slot_lsn < frontier.lsn
    ]
    last = max((commit for commit in sent if commit is not None), default=None)
    if last == expected:
        return ""
    # A transaction before a slot's position is not sent again.
    is_acknowledged = expected.end <= max(slot_lsn or Lsn(0) for slot_lsn in slot_lsns.values())
    if is_acknowledged and (last is None or last.end < expected.end):
        return ""
    has = f"one that ends at {last.end}" if last is not None else "none"
    return (
        f"before {frontier.lsn} the log's last transaction ends at {expected.end}, "
        f"and the server has {has} there: it was put back to an earlier state"
    )


def _last_commit(environment: Environment, slot: str, start: Lsn, before: Lsn) -> LastCommit | None:
    """Return the last transaction that a slot sends and that ends by `before`, if any."""
    settings = environment.settings
    stream = ReplicationStream.open(
        settings.postgres,
        slot=slot,
        publication=settings.capture.slots[slot],
        start_lsn=start,
        options=PLUGIN_OPTIONS if slot == settings.slot else ROW_OPTIONS,
    )
    with stream:
        commits = _commits(stream, before)
        last = max((LastCommit(commit.end_lsn, commit.ts_us) for commit in commits), default=None)
    _await_release(environment, slot)
    return last


def _commits(stream: ReplicationStream, before: Lsn) -> Iterator[Commit]:
    """Yield the ends of the transactions that end by `before`."""
    while True:
        payloads = stream.poll(_POLL_S)
        for payload in payloads:
            if payload[:1] not in {b"B", b"C"}:
                continue
            message = decode(payload)
            if isinstance(message, Begin) and message.commit_lsn >= before:
                return
            if isinstance(message, Commit):
                yield message
        if not payloads:
            if stream.server_wal_end >= before:
                return
            stream.ask()


def _await_release(environment: Environment, slot: str) -> None:
    """Wait a limited time until the server has noticed that nobody reads a slot any more."""
    deadline = time.monotonic() + _RELEASE_S
    while slot_reader(environment.connection, slot) and time.monotonic() < deadline:
        time.sleep(_RELEASE_POLL_S)
