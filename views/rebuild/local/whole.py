"""A view whose changed keys nobody can tell: computed whole in each round, and compared.

Only the rows that differ from those of the round before are sent. The rows of its tables are here,
so this takes no longer than the query over them (`views.rebuild.local.rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from changelog.contract.rows.relation import TableName
from views.rebuild.local.engine import LocalQuery, differing
from views.rebuild.local.table import MOST_WHOLE, LocalTable
from views.rebuild.plan.dialect import UnknownValueError


class WholeView:
    """The rows of a view as they were, and its query.

    Raises UnknownValueError: its rows cannot be computed or compared here, or its tables have too
    many.
    """

    def __init__(
        self, query: LocalQuery, key: Sequence[str], tables: Mapping[TableName, LocalTable]
    ) -> None:
        self._query, self._key = query, key
        self._earlier: list[pa.Table] = []
        self._rows = self._computed(tables)
        for name in key:
            kind = self._rows.schema.field(name).type
            if pa.types.is_floating(kind) or pa.types.is_nested(kind):
                raise UnknownValueError(f'rows are not compared here by "{name}", a {kind}')
        self._differing(self._rows)

    def also(self, tables: Mapping[TableName, LocalTable]) -> None:
        """Take note of rows that some sink still has: tables are here as they were at that time."""
        self._earlier.append(self._computed(tables))

    def changed(self, tables: Mapping[TableName, LocalTable]) -> tuple[pa.Table, pa.Table]:
        """Return its rows now, and the keys of all rows that changed; some may come twice."""
        earlier, self._earlier = [self._rows, *self._earlier], []
        self._rows = self._computed(tables)
        return self._rows, pa.concat_tables(map(self._differing, earlier))

    def _differing(self, before: pa.Table) -> pa.Table:
        return differing(before, self._rows, self._key)

    def _computed(self, tables: Mapping[TableName, LocalTable]) -> pa.Table:
        used = self._query.used
        count = sum(tables[table].count for table in {place.table for place in used})
        if count > MOST_WHOLE:
            raise UnknownValueError(
                f"all its rows are computed in each round, from {count:,} rows of its tables, more "
                f"than {MOST_WHOLE:,}"
            )
        return self._query.rows(
            {place: tables[place.table].whole(columns) for place, columns in used.items()}
        )
