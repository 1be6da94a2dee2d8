"""Tables that appear or disappear while capture runs: new ones are captured, gone ones dropped.

The catalogue is read before each frontier, and twice a second between them. A wanted table that did
not exist at the start of this attempt (created, renamed or moved into a pattern, no longer a
partition) is captured by a new attempt, as at any start. An obstacle is logged and does not affect
the other tables. A captured table that was dropped, renamed, moved or made a partition is left out
of frontiers from then on; under its new name it is a new table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from changelog.capture.start.environment import Environment
from changelog.capture.start.rights import rights_lacking
from changelog.capture.state.newcomers import NOT_THERE, Newcomers
from changelog.contract.base.errors import LookAgainError
from changelog.contract.rows.relation import WAY_OUT, TableName, alone
from changelog.source.tables.catalogue import Table
from changelog.source.tables.filter import TableFilter

log = logging.getLogger("changelog.capture")

LOOK_S = 0.5
"""Time between two looks at the catalogue if no frontier is due."""

SETTLE_S = 0.5
"""Age at which a new table is captured: many scratch tables do not live so long."""

REST = 4.0
"""Shortest time that an attempt streams, in durations of its start, so that starts stay rare."""


class NewTablesError(LookAgainError):
    """Tables that are wanted and can be captured have appeared: a new attempt captures them."""


class RosterListener(Protocol):
    """Handles tables that are added, removed or excluded while capture runs."""

    def leave(self, table: TableName, why: str) -> None:
        """Leave a table out of frontiers from now on."""

    def inherit(self, children: Mapping[TableName, tuple[TableName, ...]]) -> None:
        """Set the tables that others inherit from, for the frontiers."""

    def refuse(self, refused: dict[TableName, str]) -> None:
        """Note the wanted tables that cannot be captured, each with the reason."""


class Roster:
    """Watches the list of the source's tables during one attempt."""

    def __init__(
        self,
        environment: Environment,
        tables: RosterListener,
        newcomers: Newcomers,
        *,
        start_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the tables of the attempt, whose start took `start_s` seconds."""
        self._environment = environment
        self._tables = tables
        self._newcomers = newcomers
        self._now = now
        self._not_before = now() + REST * start_s
        capture = environment.settings.capture
        self._table_filter = TableFilter(capture.tables, capture.exclude)
        self._names: dict[int, TableName] = {}
        self._children: dict[TableName, tuple[TableName, ...]] = {}
        self._seen: dict[tuple[int, TableName], float] = {}
        self._gone: set[TableName] = set()
        self._unsaid: set[TableName] = set()
        self._has_frontier = False
        self._next_step = 0.0

    def step(self) -> None:
        """Look at the catalogue if that is due.

        Raises NewTablesError: new tables can be captured.
        """
        if self._now() >= self._next_step:
            self.look()
            if self._seen:
                self._take_new()
            self._next_step = self._now() + LOOK_S

    def frontier_written(self) -> None:
        """Note that a frontier without the gone tables is on the log."""
        self._has_frontier = True
        self._unsaid.clear()

    def look(self) -> None:
        """List the tables of the source, and stop capturing the ones that are gone."""
        names = self._environment.catalogue.names()
        if names != self._names:
            self._names = names
            self._drop_gone()
            self._note_new()
        self._look_at_children()

    def _look_at_children(self) -> None:
        children = {
            table: tables
            for table, tables in self._environment.catalogue.children().items()
            if table in self._environment.relations
        }
        if children != self._children:
            for table in sorted(t for t in children if children[t] != self._children.get(t)):
                log.warning("%s | hint: %s", alone(table, children[table]), WAY_OUT)
            self._children = children
            self._tables.inherit(children)

    def _drop_gone(self) -> None:
        """Stop capturing tables that are gone, and forget refused tables that are gone."""
        for table, relation in self._environment.relations.items():
            now = self._names.get(relation.oid)
            if now != table and table not in self._gone:
                self._gone.add(table)
                self._unsaid.add(table)
                self._newcomers.proven.discard(table)
                self._tables.leave(table, why_gone(now))
        there = set(self._names.values())
        for table in self._newcomers.excluded.keys() - there:
            del self._newcomers.excluded[table]
        refused = self._environment.refused.items()
        self._refuse({t: why for t, why in refused if t in there or why == NOT_THERE})

    def _note_new(self) -> None:
        """Note the first sight of each table that is wanted and not captured."""
        captured = {
            (relation.oid, table)
            for table, relation in self._environment.relations.items()
            if table not in self._gone
        }
        self._seen = {
            listed: self._seen.get(listed, self._now())
            for listed in self._names.items()
            if listed not in captured and self._table_filter.wants(listed[1])
        }

    def _take_new(self) -> None:
        """Report the obstacles of new tables, and end this attempt if some have none."""
        late = self._now() - SETTLE_S
        settled = [oid for (oid, _), since in self._seen.items() if since <= late]
        if not settled:
            return
        settled_tables = [
            table
            for table in self._environment.catalogue.tables(settled)
            if (table.relation.oid, table.name) in self._seen
        ]
        names, excluded = {table.name for table in settled_tables}, self._newcomers.excluded
        self._newcomers.note(names, self._reasons(settled_tables))
        others = {t: why for t, why in self._environment.refused.items() if t not in names}
        self._refuse(others | {table: excluded[table] for table in names if table in excluded})
        fresh = names - excluded.keys()
        ready = self._has_frontier and self._now() >= self._not_before
        if fresh and ready and not fresh & self._unsaid:
            raise NewTablesError("new tables: " + ", ".join(map(str, sorted(fresh))))

    def _reasons(self, tables: Sequence[Table]) -> dict[TableName, str]:
        """Return the tables that cannot be captured now, each with the reason."""
        environment, capture = self._environment, self._environment.settings.capture
        reasons = {table.name: table.obstacle for table in tables if table.obstacle}
        others = [table for table in tables if not table.obstacle]
        if capture.temporary_slot:
            why = "appeared while capture runs, and the slot is temporary: the next start takes it"
            return reasons | {table.name: why for table in others}
        reasons |= rights_lacking(environment.connection, environment.settings, others)
        return reasons

    def _refuse(self, refused: dict[TableName, str]) -> None:
        """Set the refused tables, and log each new reason."""
        before = self._environment.refused
        if refused == before:
            return
        for table, why in sorted(refused.items()):
            if before.get(table) != why:
                fields = {"table": str(table)}
                log.error(
                    "the table %s matches and is not captured: it %s", table.said, why, extra=fields
                )
        self._tables.refuse(refused)


def why_gone(now: TableName | None) -> str:
    """Describe what happened to a table whose object id has the name `now`, or no name."""
    if now is None:
        return "was dropped, or is a partition now"
    return f'is called "{now}" now'
