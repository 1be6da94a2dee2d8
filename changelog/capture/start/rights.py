"""Rights that the role needs for the tables, and the consent to alter them.

With `--replica-identity full` the users' tables are altered only after somebody has agreed. The
question comes after all other checks, so that a refused start alters nothing. A start that fails
later restores the former identities.
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
"""Called with the names of the tables to alter; returns whether they may be altered."""


def nobody_agrees(_names: str) -> bool:
    """Refuse: there is nobody to ask."""
    return False


def to_alter(connection: Connection, tables: Iterable[Table]) -> list[Identity]:
    """Return the present identity of each table to alter, partitions included."""
    return tables_not_full(connection, [table.relation for table in tables if table.will_be_full])


def check_agreed(connection: Connection, altered: Iterable[Identity], agreed: Agreed) -> None:
    """Check that tables can and may be altered.

    Raises SourceError: they belong to another role; ConfigurationError: nobody has agreed.
    """
    tables = [identity.table for identity in altered]
    if not tables:
        return
    check_owned(connection, tables)
    names = ", ".join(f'"{table}"' for table in tables)
    if not agreed(names):
        raise ConfigurationError(
            f"REPLICA IDENTITY FULL was requested for {names}, but nobody agreed",
            hint="--yes does not ask; each update and delete then writes the old row too",
        )


def rights_lacking(
    connection: Connection, settings: Project, tables: Sequence[Table]
) -> dict[TableName, str]:
    """Return the tables that the role may not publish, alter or read, with the reasons."""
    capture, publications = settings.capture, groups_of(settings.capture).publications
    sent = {table for name in publications for table in published_tables(connection, name)}
    unsent = [table.name for table in tables if table.name not in sent]
    if capture.create_publication and (settings.primary or not in_recovery(connection)):
        lacking = dict.fromkeys(not_owned(connection, unsent), NOT_OURS)
    else:
        # A publication that is missing or empty is reported once, not for each table.
        why = f'is not sent by the publication "{capture.publication}"'
        lacking = dict.fromkeys(unsent if sent else (), why)
    for table in tables if _unalterable(connection, tables) else ():
        for partition in _unalterable(connection, [table])[:1]:
            why = f"only its owner may alter table {partition.said}"
            lacking.setdefault(table.name, f"cannot get REPLICA IDENTITY FULL: {why}")
    relations = [table.relation for table in tables]
    if not capture.skip_snapshot and unreadable(connection, relations):
        for table in tables:  # one by one, because the refused relation may be a partition
            for refusal in unreadable(connection, [table.relation])[:1]:
                lacking.setdefault(table.name, f"cannot be read: {refusal.reason}")
    return lacking


def _unalterable(connection: Connection, tables: Sequence[Table]) -> list[TableName]:
    """Return the tables and partitions of other roles that are to get REPLICA IDENTITY FULL."""
    return not_owned(connection, [identity.table for identity in to_alter(connection, tables)])
