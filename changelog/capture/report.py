"""What a capture run has done, counted while it works."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from changelog.contract.lsn import Lsn
from changelog.contract.relation import TableName


@dataclass(slots=True)
class CaptureReport:
    """Counts of one run of capture.

    Attributes:
        snapshot_rows: rows copied, per table.
        changes: row changes streamed, per table; sent again ones are not counted twice.
        records: records written by the stream, tombstones included.
        transactions: transactions streamed.
        frontiers: frontiers written.
        restarts: times that capture began again after a server was away.
        lsn: the last frontier.
    """

    snapshot_rows: Counter[TableName] = field(default_factory=Counter)
    changes: Counter[TableName] = field(default_factory=Counter)
    records: int = 0
    transactions: int = 0
    frontiers: int = 0
    restarts: int = 0
    lsn: Lsn = Lsn(0)  # noqa: RUF009 - immutable

    def to_json(self) -> dict[str, object]:
        """Give the counts as one JSON object."""
        return {
            "rows_captured": self.snapshot_rows.total() + self.changes.total(),
            "snapshot_rows": {str(t): n for t, n in sorted(self.snapshot_rows.items())},
            "changes": {str(t): n for t, n in sorted(self.changes.items())},
            "records": self.records,
            "transactions": self.transactions,
            "frontiers": self.frontiers,
            "restarts": self.restarts,
            "lsn": str(self.lsn),
        }

    def summary(self) -> str:
        """Give one line for people."""
        return (
            f"captured {self.snapshot_rows.total():,} snapshot rows and "
            f"{self.changes.total():,} changes of {self.transactions:,} transactions; "
            f"the log is complete to {self.lsn}"
        )
