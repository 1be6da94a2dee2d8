"""How capture is doing: the slot at the source beside the last frontier on the log."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from rich.table import Table

from changelog.config import Project
from changelog.contract.errors import SlotError
from changelog.contract.frontier import FrontierRecord
from changelog.contract.topic import frontier_topic
from changelog.sink.frontier import FrontierLog
from changelog.source.connect import connect
from changelog.source.slot import SlotStatus, drop_slot, inspect_slot


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """What source and log say at one moment.

    Attributes:
        slot_name: the slot that was asked for.
        slot: the slot, or None when there is none.
        frontier: the last frontier, or None.
        now_ms: when it was asked, milliseconds since 1970.
    """

    slot_name: str
    slot: SlotStatus | None
    frontier: FrontierRecord | None
    now_ms: int

    @property
    def frontier_age_s(self) -> float | None:
        """Give the age of the last frontier, in seconds."""
        if self.frontier is None:
            return None
        return (self.now_ms - self.frontier.appended_ms) / 1000

    def to_json(self) -> dict[str, object]:
        """Give the status as one JSON object."""
        slot, record = self.slot, self.frontier
        return {
            "slot": self.slot_name,
            "exists": slot is not None,
            "active": slot.active if slot else None,
            "wal_status": slot.wal_status if slot else None,
            "lag_bytes": slot.lag_bytes if slot else None,
            "retained_bytes": slot.retained_bytes if slot else None,
            "frontier": None
            if record is None
            else {
                "epoch": record.frontier.epoch,
                "lsn": str(record.frontier.lsn),
                "ts": record.frontier.ts_us,
                "age_s": self.frontier_age_s,
                "tables": sorted(str(table) for table in record.frontier.tables.values()),
            },
        }

    def table(self) -> Table:
        """Give the status for people."""
        table = Table(title=f'slot "{self.slot_name}"', show_header=False)
        slot, record = self.slot, self.frontier
        table.add_row("slot", "missing" if slot is None else "active" if slot.active else "idle")
        if slot is not None:
            table.add_row("WAL", slot.wal_status)
            table.add_row("behind", f"{slot.lag_bytes or 0:,} bytes")
            table.add_row("retained", f"{slot.retained_bytes or 0:,} bytes of WAL")
        if record is None:
            table.add_row("frontier", "none yet")
        else:
            table.add_row("frontier", f"{record.frontier.lsn}, epoch {record.frontier.epoch}")
            table.add_row("frontier's age", f"{self.frontier_age_s:,.0f} s")
            table.add_row("tables", str(len(record.frontier.tables)))
        return table


def capture_status(settings: Project) -> CaptureStatus:
    """Ask source and log.

    Raises:
        UnavailableError: one of the two does not answer.
    """
    with closing(connect(settings.postgres)) as connection:
        slot = inspect_slot(connection, settings.slot)
    topic = frontier_topic(settings.topic_prefix)
    with FrontierLog(settings.kafka, topic) as frontiers:
        record = frontiers.last(settings.slot)
    return CaptureStatus(settings.slot, slot, record, time.time_ns() // 1_000_000)


def drop_slot_of(settings: Project) -> None:
    """Drop the project's slot.

    Raises:
        SlotError: it is not there, or a process reads it.
    """
    with closing(connect(settings.postgres)) as connection:
        if inspect_slot(connection, settings.slot) is None:
            raise SlotError(f'there is no slot "{settings.slot}"')
        drop_slot(connection, settings.slot)
