"""`--replica-identity full`: the users' tables are altered only when somebody has said yes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from changelog.capture.rows.rules import catalogue_of
from changelog.config import Project
from changelog.contract.base.errors import ConfigurationError
from changelog.source.connect.connect import connect
from changelog.source.connect.replica_identity import make_full, tables_not_full
from changelog.source.tables.catalogue import select_tables
from changelog.source.tables.filter import TableFilter

log = logging.getLogger("changelog.capture")


def ensure_identity(settings: Project, agreed: Callable[[str], bool]) -> None:
    """Set the captured tables to REPLICA IDENTITY FULL where that is asked for and they lack it.

    Args:
        settings: the project.
        agreed: is told which tables would be altered, and gives whether they may be.

    Raises:
        ConfigurationError: they may not.
        SourceError: one cannot be altered; those before it are.
    """
    capture = settings.capture
    if not capture.replica_identity:
        return
    with closing(connect(settings.postgres)) as connection:
        wanted = TableFilter(capture.tables, capture.exclude)
        found = catalogue_of(connection, capture).tables()
        selected = [table.relation for table in select_tables(found, wanted)]
        tables = tables_not_full(connection, selected)
        if not tables:
            return
        names = ", ".join(f'"{table}"' for table in tables)
        if not agreed(names):
            raise ConfigurationError(
                f"REPLICA IDENTITY FULL was asked for, and not agreed to, for {names}",
                hint="--yes does not ask; each update and delete then writes the old row too",
            )
        for table in tables:
            make_full(connection, table)
            log.info('table "%s" has REPLICA IDENTITY FULL now', table)
