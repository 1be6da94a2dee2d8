"""Tables that match the settings and that the log does not have, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from changelog.capture.rows.rules import catalogue_of
from changelog.capture.state.newcomers import NOT_THERE
from changelog.contract.log.backfill import BackfillRecord, copies_of
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from changelog.sections import CaptureSettings
from changelog.source.tables.filter import TableFilter

NOT_YET = "no frontier speaks of it yet: a capture that runs takes it in a moment"


def matching(connection: Connection, capture: CaptureSettings) -> dict[TableName, str]:
    """Return the tables that match the settings now, each with the obstacle to capturing it.

    A table that the settings name and that is not there is one of them.
    """
    catalogue = catalogue_of(connection, capture)
    table_filter = TableFilter(capture.tables, capture.exclude)
    there = {table.name: table.obstacle for table in catalogue.tables()}
    matches = {table: obstacle for table, obstacle in there.items() if table_filter.wants(table)}
    return matches | {table: NOT_THERE for table in table_filter.named if table not in there}


def missing(
    matches: Mapping[TableName, str],
    frontier: Frontier | None,
    backfill: BackfillRecord | None,
    excluded: Mapping[TableName, str],
) -> dict[TableName, str]:
    """Return the matching tables of which the last frontier does not speak, and why it does not."""
    spoken = set(frontier.tables.values()) if frontier is not None else set()
    copied = {copy.table for copy in copies_of(backfill)}
    reasons = {}
    for table, obstacle in sorted(matches.items()):
        if table in spoken:
            continue
        if obstacle:
            reasons[table] = f"it {obstacle}"
        elif table in excluded:
            reasons[table] = f"it is excluded: {excluded[table]}"
        elif table in copied:
            reasons[table] = "it is being copied"
        else:
            reasons[table] = NOT_YET
    return reasons
