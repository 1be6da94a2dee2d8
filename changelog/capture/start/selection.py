"""The tables to capture by the settings, and the obstacles of each."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from changelog.capture.start.rights import rights_lacking
from changelog.capture.state.newcomers import NOT_THERE, Newcomers
from changelog.config import Project
from changelog.contract.base.errors import ConfigurationError, UncapturableTableError
from changelog.contract.log.topic import topic_name
from changelog.contract.rows.relation import TableName
from changelog.kafka.cluster import describe
from changelog.postgres.connection import Connection
from changelog.source.tables.catalogue import Catalogue, Table, check_capturable, no_such
from changelog.source.tables.filter import TableFilter

log = logging.getLogger("changelog.capture")


def wanted_tables(
    connection: Connection,
    catalogue: Catalogue,
    settings: Project,
    newcomers: Newcomers | None = None,
) -> tuple[tuple[Table, ...], dict[TableName, str]]:
    """Return the tables to capture, and the refused tables with their reasons.

    Raises:
        UncapturableTableError: a table is missing or cannot be captured, and there is no log yet
            that could continue without it; names all such tables.
        ConfigurationError: no table matches.
    """
    capture = settings.capture
    newcomers = newcomers or Newcomers()
    table_filter, tables = TableFilter(capture.tables, capture.exclude), catalogue.tables()
    there = {table.name for table in tables}
    missing = [name for name in table_filter.named if name not in there]
    if missing and not newcomers.goes_on:
        raise no_such(missing)
    matching = tuple(table for table in tables if table_filter.wants(table.name))
    obstacles = {table.name: table.obstacle for table in matching if table.obstacle}
    if newcomers.goes_on or capture.on_error == "log":
        of_log = newcomers.proven | obstacles.keys()
        new = [table for table in matching if table.name not in of_log]
        obstacles |= rights_lacking(connection, settings, new)
    there = {table.name for table in matching}
    refused = newcomers.refused(obstacles, there)
    if capture.on_error == "log":
        refused |= obstacles
    refused = {table: why for table, why in refused.items() if table in there}
    refused |= dict.fromkeys(missing, NOT_THERE)
    selected = tuple(table for table in matching if table.name not in refused)
    newcomers.listed(table.name for table in selected)
    # Without any table capture cannot start: the error then names the obstacle of each.
    check_capturable(selected or matching)
    if not selected:
        if refused:
            raise UncapturableTableError(
                "; ".join(f"table {name.said} {why}" for name, why in refused.items()),
                hint="no other table is left to capture; look at --tables and --exclude",
            )
        raise ConfigurationError(
            f"no table matches {', '.join(capture.tables)}",
            hint="look at --tables and --exclude; a pattern is schema.table, * for any text",
        )
    return selected, refused


def was_captured(settings: Project, refused: Collection[TableName], table: TableName) -> bool:
    """Tell whether a table was captured before: its topic exists."""
    return table in refused or bool(
        describe(settings.kafka, [topic_name(table, settings.topic_prefix)])
    )


def say_uncaptured(catalogue: Catalogue, settings: Project, selected: Sequence[Table]) -> None:
    """Log the objects that are not captured, or not in the way that one may expect."""
    table_filter = TableFilter(settings.capture.tables, settings.capture.exclude)
    for line in catalogue.uncaptured(table_filter):
        log.info("not captured: %s", line)
    for line in catalogue.unnoticed(selected):
        log.warning("%s", line)
    for table in selected:
        if table.relation.key_index is not None:
            log.info(
                "table %s has no primary key: the unique index %s gives its key",
                table.name.said,
                table.relation.key_index,
                extra={"table": str(table.name)},
            )
        if not table.relation.key:
            log.warning(
                "table %s has no primary key: its topic is not compacted, and the table can be "
                "rebuilt only while the topic's retention keeps all records",
                table.name.said,
            )
