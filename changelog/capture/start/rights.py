"""Rights that the role needs for the tables, and the consent to alter them.

`--replica-identity full`: the users' tables are altered only when somebody has said yes.

It is asked when all else that can refuse a start has been looked at, so that a start which is
refused alters nothing. One that fails later gives back what the tables had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from changelog.capture.rows.rules import groups_of
from changelog.config import Project
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from changelog.source.connect.readiness import check_owned, not_owned, unreadable
from changelog.source.connect.replica_identity import Identity, tables_not_full
from changelog.source.connect.system import in_recovery
from changelog.source.tables.catalogue import Table
from changelog.source.tables.publication import NOT_OURS, published_tables

Agreed = Callable[[str], bool]
"""Is told which tables would be altered, and gives whether they may be."""


def nobody_agrees(_names: str) -> bool:
    """Say no: nobody was asked."""
    return False


def to_alter(connection: Connection, tables: Iterable[Table]) -> list[Identity]:
    """Return the present identity of each table to alter, partitions included."""
    return tables_not_full(connection, [table.relation for table in tables if table.will_be_full])


def check_agreed(connection: Connection, altered: Iterable[Identity], agreed: Agreed) -> None:
    """Check that tables can and may be altered.

    Raises SourceError: they belong to another role; ConfigurationError: nobody says yes.
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


def rights_lacking(
    connection: Connection, settings: Project, tables: Sequence[Table]
) -> dict[TableName, str]:
    """Return the tables that the role may not publish, alter as asked or read, with the reasons."""
    capture, publications = settings.capture, groups_of(settings.capture).publications
    sent = {table for name in publications for table in published_tables(connection, name)}
    unsent = [table.name for table in tables if table.name not in sent]
    if capture.create_publication and (settings.primary or not in_recovery(connection)):
        lacking = dict.fromkeys(not_owned(connection, unsent), NOT_OURS)
    else:
        # One that sends nothing, or is not there, is no matter of single tables.
        why = f'is not sent by the publication "{capture.publication}"'
        lacking = dict.fromkeys(unsent if sent else (), why)
    for table in tables if _unalterable(connection, tables) else ():
        for partition in _unalterable(connection, [table])[:1]:
            why = f"only its owner may alter table {partition.said}"
            lacking.setdefault(table.name, f"cannot get REPLICA IDENTITY FULL: {why}")
    relations = [table.relation for table in tables]
    if not capture.skip_snapshot and unreadable(connection, relations):
        for table in tables:  # what is refused may be a partition
            for refusal in unreadable(connection, [table.relation])[:1]:
                lacking.setdefault(table.name, f"cannot be read: {refusal.reason}")
    return lacking


def _unalterable(connection: Connection, tables: Sequence[Table]) -> list[TableName]:
    """Return the tables and partitions of other roles that are to get REPLICA IDENTITY FULL."""
    return not_owned(connection, [identity.table for identity in to_alter(connection, tables)])
