"""Groups of tables: each has its own slot and publication, in addition to the main one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from changelog.source.tables.filter import TableFilter
from changelog.source.tables.publication import (
    PublicationChange,
    WantedPublication,
    make_publication,
    published_tables,
)


class TableGroups:
    """The publication of each table."""

    def __init__(self, main: str, groups: Mapping[str, Iterable[str]]) -> None:
        """Take the publications.

        `main` sends what no group covers; of the groups, the first whose patterns cover a table
        sends it.

        Raises ConfigurationError: a pattern does not parse.
        """
        self._main = main
        self._groups = {name: TableFilter(patterns) for name, patterns in groups.items()}

    @property
    def publications(self) -> tuple[str, ...]:
        """Return all publications, the main one first."""
        return (self._main, *self._groups)

    def of(self, table: TableName) -> str:
        """Return the publication that sends a table."""
        covering = (name for name, tables in self._groups.items() if tables.wants(table))
        return next(covering, self._main)

    def sent(self, connection: Connection) -> frozenset[TableName]:
        """Return the tables that their own publication sends, and no other."""
        tables_of = {name: published_tables(connection, name) for name in self.publications}
        return frozenset(
            table
            for name, tables in tables_of.items()
            for table in tables
            if self.of(table) == name
            and not any(table in other for at, other in tables_of.items() if at != name)
        )

    def elsewhere(
        self, connection: Connection, tables: Collection[TableName]
    ) -> dict[TableName, str]:
        """Return the tables that another publication than their own sends, with that one."""
        if not self._groups:
            return {}
        return {
            table: name
            for name in self.publications
            for table in published_tables(connection, name)
            if table in tables and self.of(table) != name
        }

    def make(
        self, connection: Connection, publication: WantedPublication, *, rehearse: bool
    ) -> PublicationChange:
        """Make each publication send its tables; see `make_publication`."""
        changes = [
            make_publication(
                connection,
                name,
                replace(
                    publication,
                    tables={
                        table: where
                        for table, where in publication.tables.items()
                        if self.of(table) == name
                    },
                ),
                rehearse=rehearse,
            )
            for name in self.publications
        ]
        return joined(changes)


def joined(changes: list[PublicationChange]) -> PublicationChange:
    """Return several changes as one."""
    if len(changes) == 1:
        return changes[0]
    return PublicationChange(
        created=any(change.created for change in changes),
        added=frozenset[TableName]().union(*(change.added for change in changes)),
        removed=frozenset[TableName]().union(*(change.removed for change in changes)),
        refiltered=frozenset[TableName]().union(*(change.refiltered for change in changes)),
        filters={table: text for change in changes for table, text in change.filters.items()},
        vanished=frozenset[TableName]().union(*(change.vanished for change in changes)),
        generated=any(change.generated for change in changes),
    )
