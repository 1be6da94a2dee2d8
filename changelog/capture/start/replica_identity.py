"""`--replica-identity full`: the users' tables are altered only when somebody has said yes.

It is asked when all else that can refuse a start has been looked at, so that a start which is
refused alters nothing. One that fails later gives back what the tables had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from changelog.contract.base.errors import ConfigurationError
from changelog.postgres.connection import Connection
from changelog.source.connect.readiness import check_owned
from changelog.source.connect.replica_identity import Identity, tables_not_full
from changelog.source.tables.catalogue import Table

Agreed = Callable[[str], bool]
"""Is told which tables would be altered, and gives whether they may be."""


def nobody_agrees(_names: str) -> bool:
    """Say no: nobody was asked."""
    return False


def to_alter(connection: Connection, tables: Iterable[Table]) -> list[Identity]:
    """Return the present identity of each table to alter, partitions included.

    Args:
        connection: to the source.
        tables: that are captured.
    """
    return tables_not_full(connection, [table.relation for table in tables if table.will_be_full])


def check_agreed(connection: Connection, altered: Iterable[Identity], agreed: Agreed) -> None:
    """Check that tables can and may be altered.

    Raises:
        SourceError: they belong to another role.
        ConfigurationError: nobody says yes.
    """
    tables = [identity.table for identity in altered]
    if not tables:
        return
    check_owned(connection, tables)
    names = ", ".join(f'"{table}"' for table in tables)
    if not agreed(names):
        raise ConfigurationError(
            f"REPLICA IDENTITY FULL was asked for, and not agreed to, for {names}",
            hint="--yes does not ask; each update and delete then writes the old row too",
        )
