"""The rows of a query as capture has the rows of a table: a relation, and lines of COPY's text.

So their values are written by capture's own encoders, exactly as those of a table would be.
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
        """Return names and types of the columns; raises where the query cannot be run."""

    def lines(self) -> Iterator[Texts]:
        """Return the rows as lines of COPY's text, some at a time.

        The lines of one are gone when the next are asked for.
        """

    def close(self) -> None:
        """End the query and its connection."""


def relation_of(
    topic: str, columns: Sequence[tuple[str, ColumnType]], key: Sequence[str]
) -> Relation:
    """Return the relation of which the rows of a query are.

    Raises ConfigurationError: two columns have one name, or the key names one that is not there.
    """
    names = [name for name, _ in columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigurationError(
            f'the query has two columns "{twice[0]}"', hint="give one another name: AS"
        )
    lacking = [name for name in key if name not in names]
    if lacking:
        raise ConfigurationError(
            f'the query has no column "{lacking[0]}", which --key names',
            hint=f"it has {', '.join(names)}",
        )
    relation_columns = tuple(Column(name, kind) for name, kind in columns)
    return Relation(0, TableName("query", topic), relation_columns, tuple(key))


def bare(query: str) -> str:
    """Return a query that may stand in brackets on lines of its own.

    >>> bare("SELECT 1 ; ")
    'SELECT 1'
    """
    return query.rstrip().removesuffix(";").rstrip(" ")
