"""Brings a generation's table forward: all of a delta, and the position, in one transaction.

The rows are loaded by binary COPY into a temporary table, in the same types as in a rebuild. From
there each is cast to its final type, with the checks of a rebuild, and replaces the row of its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
from psycopg2 import sql
from pyspark.sql import Column

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from views.sinks.base import GONE
from views.sinks.forward import refuse_older
from views.sinks.postgres.column_types import ColumnForm, first_changed
from views.sinks.postgres.copy import Stream, tuples
from views.sinks.postgres.registry import GenerationRegistry, place
from views.sinks.values import json_texts

_DELTA = "changelog_delta"
_COLUMN = "__postgres_"


def columns_sent(forms: Sequence[ColumnForm]) -> list[Column]:
    """Return the expressions of a row's columns as they are sent."""
    return [form.values().alias(f"{_COLUMN}{number}") for number, form in enumerate(forms)]


def values_sent(forms: Sequence[ColumnForm], delta: pa.Table) -> dict[str, pa.Array]:
    """Return the columns to send of a delta that was computed without Spark.

    Raises NotRenderedError: a value is left to Spark.
    """
    return {
        f"{_COLUMN}{number}": (
            pa.array(json_texts(delta[form.name]), pa.string())
            if form.is_document
            else delta[form.name].combine_chunks()
        )
        for number, form in enumerate(forms)
    }


@dataclass(frozen=True, slots=True)
class PostgresForward:
    """The table of one generation."""

    registry: GenerationRegistry  # of the view
    generation: int  # its number
    forms: tuple[ColumnForm, ...]  # its columns
    key: tuple[str, ...]  # the columns of its primary key
    batch_rows: int  # the most rows that are turned into COPY's format at once
    also: sql.Identifier | None = None  # another table that the delta is applied to

    def apply(self, cursor: Any, delta: pa.Table, position: Position) -> int:  # noqa: ANN401
        """Apply a delta inside the transaction of a cursor; return the number of rows afterwards.

        Raises SinkError: another process has gone further, or a row has no exact form;
        psycopg2.Error: the server refuses a row.
        """
        self.registry.hold(cursor, self.generation)
        entry = self.registry.sealed(cursor, self.generation)
        reached = self.registry.position(cursor, self.generation)
        refuse_older(self.registry.view, self.generation, reached, position)
        relation = place(entry.relation)
        come = delta.filter(pc.invert(delta[GONE]))
        gone = delta.filter(delta[GONE])
        change = 0
        if gone.num_rows:
            change -= self._remove(cursor, relation, gone)
        if come.num_rows:
            change += self._put(cursor, relation, come)
        rows = (entry.rows or 0) + change
        self.registry.note_forward(cursor, self.generation, rows, position)
        return rows

    def _remove(self, cursor: Any, relation: sql.Composable, gone: pa.Table) -> int:  # noqa: ANN401
        """Remove the rows of keys; return how many there were."""
        keys = [form for form in self.forms if form.target in self.key]
        self._load(cursor, gone, keys)
        if self.also is not None:
            self._removed(cursor, self.also, keys)
        return self._removed(cursor, relation, keys)

    @staticmethod
    def _removed(cursor: Any, relation: sql.Composable, keys: Sequence[ColumnForm]) -> int:  # noqa: ANN401
        same = sql.SQL(" AND ").join(
            sql.SQL(f"t.{{0}} = d.{{0}}::{form.type}").format(sql.Identifier(form.target))
            for form in keys
        )
        statement = sql.SQL("DELETE FROM {} t USING pg_temp.{} d WHERE {}")
        cursor.execute(statement.format(relation, sql.Identifier(_DELTA), same))
        return int(cursor.rowcount)

    def _put(self, cursor: Any, relation: sql.Composable, come: pa.Table) -> int:  # noqa: ANN401
        """Insert or replace rows; return how many are new."""
        self._load(cursor, come, self.forms)
        delta = sql.SQL("pg_temp.{}").format(sql.Identifier(_DELTA))
        for form in self.forms:
            if form.type != form.loaded and (value := first_changed(cursor, delta, form)):
                raise SinkError(
                    f'column "{form.target}" holds {value!r}, which {form.type} does not hold '
                    "exactly",
                    hint=f"give it another type in {self.registry.view}.postgres.json",
                )
        if self.also is not None:
            self._replaced(cursor, self.also, delta)
        return self._replaced(cursor, relation, delta)

    def _replaced(self, cursor: Any, relation: sql.Composable, delta: sql.Composable) -> int:  # noqa: ANN401
        names = [sql.Identifier(form.target) for form in self.forms]
        values = [
            sql.SQL(f"{{}}::{form.type}").format(name)
            for form, name in zip(self.forms, names, strict=True)
        ]
        others = [sql.Identifier(form.target) for form in self.forms if form.target not in self.key]
        updates = [sql.SQL("{0} = excluded.{0}").format(name) for name in others]
        act = sql.SQL("DO UPDATE SET ") + sql.SQL(", ").join(updates) if updates else None
        statement = sql.SQL(
            "INSERT INTO {} AS t ({}) SELECT {} FROM {} ON CONFLICT ({}) {} RETURNING (xmax = 0)"
        ).format(
            relation,
            sql.SQL(", ").join(names),
            sql.SQL(", ").join(values),
            delta,
            sql.SQL(", ").join(map(sql.Identifier, self.key)),
            act or sql.SQL("DO NOTHING"),
        )
        # A replaced row has the lock of the update in `xmax`; a new one has none.
        counted = sql.SQL("WITH put (is_new) AS ({}) SELECT count(*) FROM put WHERE is_new")
        cursor.execute(counted.format(statement))
        return int(cursor.fetchone()[0])

    def _load(self, cursor: Any, rows: pa.Table, forms: Sequence[ColumnForm]) -> None:  # noqa: ANN401
        """Write rows into the temporary table, created again with these columns."""
        listed = sql.SQL(", ").join(
            sql.SQL(f"{{}} {form.loaded}").format(sql.Identifier(form.target)) for form in forms
        )
        name = sql.Identifier(_DELTA)
        cursor.execute(sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(name))
        statement = sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP")
        cursor.execute(statement.format(name, listed))
        numbers = [self.forms.index(form) for form in forms]
        chosen = rows.select([f"{_COLUMN}{number}" for number in numbers])
        stream = Stream(tuples(forms, iter(chosen.to_batches()), self.batch_rows))
        copy = sql.SQL("COPY pg_temp.{} FROM STDIN (FORMAT binary)").format(name)
        try:
            cursor.copy_expert(copy.as_string(cursor), stream, 1 << 18)
        except psycopg2.Error:
            if stream.failure is not None:
                raise stream.failure from None
            raise
