"""No row is encoded many at a time: each is left to its caller, as one out of the ordinary is.

What the caller does then is the rule that C repeats: `RowCodec` and the texts of
changelog/contract/rows.
"""

from __future__ import annotations

from changelog.contract.rows.codec import SchemaIds
from changelog.contract.rows.relation import Relation
from changelog.native.base.selection import Selection
from changelog.native.plain.buffers import Records, Texts
from changelog.native.plain.runs import Run


class BatchCodec:
    """Leaves each row to its caller."""

    def __init__(
        self, relation: Relation, ids: SchemaIds, selection: Selection | None = None
    ) -> None:
        """Take the arguments of the codec in C."""

    def add_rows(self, messages: Texts, run: Run, first: int, to: Records) -> int | None:
        """Return the first row, which is to be added by the caller."""
        del messages, run, to
        return first

    def add_lines(
        self, lines: Texts, first: int, *, lsn: int, sequence: int, ts_us: int, to: Records
    ) -> int | None:
        """Return the first line that the caller has to add, or None at the end."""
        del lsn, sequence, ts_us, to
        return first if first < len(lines) else None
