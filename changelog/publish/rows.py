"""The rows of a query in the form of a captured table: a relation, and lines of COPY's text.

So capture's own encoders write their values, exactly like the rows of a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.types import ColumnType
from changelog.native import Texts

BATCH_ROWS = 5_000
BATCH_BYTES = 4 << 20


class QueryRows(Protocol):
    """The rows of a query, read once."""

    def columns(self) -> list[tuple[str, ColumnType]]:
        """Return the names and types of the columns.

        Raises SourceError: the query cannot be run; ConfigurationError: it cannot be published.
        """

    def lines(self) -> Iterator[Texts]:
        """Return the rows as lines of COPY's text, in batches.

        A batch is only valid until the next one is read.
        """

    def close(self) -> None:
        """End the query, and close the connection or file."""


def relation_of(
    topic: str, columns: Sequence[tuple[str, ColumnType]], key: Sequence[str]
) -> Relation:
    """Return the relation that the rows of a query belong to.

    Raises ConfigurationError: two columns have the same name, or the key names a missing column.
    """
    names = [name for name, _ in columns]
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise ConfigurationError(
            f'the query has two columns "{duplicates[0]}"', hint="rename one of them with AS"
        )
    missing = [name for name in key if name not in names]
    if missing:
        raise ConfigurationError(
            f'the query has no column "{missing[0]}", which --key names',
            hint=f"it has {', '.join(names)}",
        )
    relation_columns = tuple(Column(name, kind) for name, kind in columns)
    return Relation(0, TableName("query", topic), relation_columns, tuple(key))


def bare(query: str) -> str:
    """Return a query without its final semicolon, so that it can be put in brackets.

    >>> bare("SELECT 1 ; ")
    'SELECT 1'
    """
    return query.rstrip().removesuffix(";").rstrip(" ")
