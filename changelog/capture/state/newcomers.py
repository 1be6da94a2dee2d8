"""Keep track, in one process, of wanted tables that the log does not have.

The first start of a log refuses what it cannot capture, so that the settings are mended. A log that
goes on has promised nothing about a table that appears, whether capture runs at that moment or is
started again later: the table is excluded, with the reason in the log, in frontiers and in
`changelog status`, and the others go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from changelog.contract.base.errors import SlotError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import TableName

TRIED = "cannot be captured: "
"""How a reason begins that a start was refused for; it stands until somebody asks."""
NOT_THERE = "is named in the settings and is not there"
WAITS = "waits until other new tables have been tried: with all of them no start was possible"


@dataclass(slots=True)
class Newcomers:
    """Tables that are wanted, and that the log did not have when the process began."""

    goes_on: bool = False  # whether there is a log already, which goes on without them

    excluded: dict[TableName, str] = field(default_factory=dict)  # why some are not captured
    # tables that the log has, or with which an attempt has begun to stream
    proven: set[TableName] = field(default_factory=set)
    # those with which the present attempt is the first to try
    trying: set[TableName] = field(default_factory=set)
    # tables that are tried one by one, since an attempt with all of them could not begin
    apart: list[TableName] = field(default_factory=list)
    # excluded tables that were looked at again since a copy was asked for, and where in the WAL
    # that was: the stream brings the same request again to the next attempt
    looked: dict[TableName, Lsn] = field(default_factory=dict)
    # tables with which alone an attempt could not begin, and why. They are excluded once one
    # without them has begun; if none does, it is not the new tables that fail
    suspected: dict[TableName, str] = field(default_factory=dict)

    def spoken(self, tables: Iterable[TableName]) -> None:
        """Note that there is a log, and which tables it has."""
        if not self.goes_on:
            self.goes_on = True
            self.proven |= {*tables}

    def refused(
        self, obstacles: Mapping[TableName, str], there: Collection[TableName]
    ) -> dict[TableName, str]:
        """Return the tables to begin without: none where there is no log yet.

        A table that the log has is excluded as well: what is wrong with it may have come while
        capture ran, which then has not met a row of it.
        """
        if not self.goes_on:
            return {}
        refused = self.suspected | self.excluded | {**obstacles}
        # Else the others would wait for ever behind one that is gone, or is excluded meanwhile.
        tried = [table for table in self.apart if table in there and table not in refused]
        return dict.fromkeys(tried[1:], WAITS) | refused

    def listed(self, tables: Iterable[TableName]) -> None:
        """Note the tables that an attempt begins with."""
        self.trying = {*tables} - self.proven

    def began(self) -> dict[TableName, str]:
        """Note that the attempt streams; returns the tables that are excluded from now on."""
        guilty, self.suspected = self.suspected, {}
        self.excluded |= guilty
        self.goes_on = True
        self.proven |= self.trying
        self.apart = [table for table in self.apart if table not in self.proven]
        self.trying = set()
        return guilty

    def begin_again(self) -> None:
        """Forget why tables were excluded: the obstacle may be gone."""
        self.excluded.clear()
        self.suspected.clear()

    def blame(self, error: Exception) -> bool:
        """Look for the new table with which an attempt cannot begin; False without new ones.

        One alone is suspected. Several are tried one by one: the others are innocent. That the
        slot cannot be used is the fault of none.
        """
        if not self.goes_on or not self.trying or isinstance(error, SlotError):
            return False
        self.apart = [table for table in self.apart if table not in self.trying]
        if len(self.trying) > 1:
            self.apart = sorted({*self.apart, *self.trying})
        else:
            message = str(error.args[0]) if error.args else type(error).__name__
            self.suspected.update(dict.fromkeys(self.trying, TRIED + message))
        self.trying = set()
        return True

    def note(self, tables: Iterable[TableName], reasons: Mapping[TableName, str]) -> None:
        """Note the obstacles of some tables now; the reasons of a refused start stay."""
        for table in tables:
            if table in reasons:
                self.excluded[table] = reasons[table]
            elif not self.excluded.get(table, "").startswith(TRIED):
                self.excluded.pop(table, None)
