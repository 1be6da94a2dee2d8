"""Keys of a declared log in DuckDB: the row of each, if there is one, and its position.

For each key that the log ever named, its partition, the record of its row and its newest source
position are stored; one record gives at most one row. So newer statements can be applied without
the older records: the last statement of a key decides, and its row replaces the previous one. A
value that a record left out is taken from older records of the same batch, or from the stored row.

In a log ordered by the source's position this works for keys whose positions only grow. A record
that was sent again, or comes late, is refused: only a whole read can order it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain

import duckdb
import pyarrow as pa

from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import Order
from views.verify.log.declared import (
    GONE,
    ROW,
    TOMBSTONE,
    DeclaredDecoder,
    DeclaredReader,
    bundle_older,
    fold_statements,
)
from views.verify.log.left_out import HELD, unbundled
from views.verify.log.tables import (
    OFFSET_COLUMN,
    PARTITION_COLUMN,
    TableState,
    create_view,
    inexact_columns,
    load_state,
)
from views.verify.processes.scratch import fill, first_row, make_table, row_count, table_of_rows
from views.verify.records.read import BATCH_RECORDS, place
from views.verify.records.survivors import FoldedTable
from views.verify.values.types import quoted

_LAST = "QUALIFY row_number() OVER (PARTITION BY name ORDER BY off DESC, step DESC) = 1"
"""Chooses the last statement of each key."""
_HELD_SCHEMA = pa.schema([("part", pa.int32()), ("off", pa.int64()), ("name", pa.string())])
"""The name of a column that a record leaves out and the stored row of its key has."""
_WHOLE = "the log has to be read whole"


class KeptStatements:
    """The state that results from the statements of one log.

    `base`: name of the table of its rows; the names of the other tables begin with it.
    """

    def __init__(
        self, database: duckdb.DuckDBPyConnection, reader: DeclaredReader, base: str
    ) -> None:
        self._database, self._reader, self._log = database, reader, reader.log
        self._decoder = DeclaredDecoder(reader, None)
        log = reader.log
        self.state = TableState(log.table, log.topic, base, reader.columns, log.key)  # as it is
        self._names, self._touched = f"{base}_names", f"{base}_touched"
        self._layer, self._survivors = f"{base}_layer", f"{base}_survivors"
        self._came, self._held = f"{base}_came", f"{base}_held"

    def begin(self, statements: str) -> TableState:
        """Build the state from a table of statements.

        Raises CorruptRecordError: a key is in two partitions, or a row does not decode;
        VerdictError: a key is in two partitions, in an order that only a whole read knows.
        """
        fold_statements(self._database, self._log, statements, self._survivors)
        self._name(statements)
        if self._log.order is Order.LSN:
            self._require_one_place(statements)
        rows = FoldedTable(self._database, self._survivors)
        self.state = load_state(self._database, self.state, self._decoder, rows)
        self._require_alike()
        create_view(self._database, self.state)
        return self.state

    def advance(self, statements: str) -> tuple[TableState, int]:
        """Apply a table of statements to the state, or leave it unchanged on error.

        Returns:
            The state, and the number of keys that the statements name.

        Raises CorruptRecordError: a row does not decode; VerdictError: only a whole read can tell
        which of two records of a key is newer, or which value a record leaves out.
        """
        self._require_one_place(statements)
        if self._log.order is Order.LSN:
            self._require_ascending(statements)
        self._require_unlinked(statements)
        self._database.execute(
            f"CREATE OR REPLACE TABLE {quoted(self._touched)} AS "
            f"SELECT s.name, s.part, CASE WHEN s.kind = '{ROW}' THEN s.off END AS off, s.value, "
            "s.lacks, greatest(n.lsn, s.reached) AS lsn FROM ("
            "SELECT *, max(lsn) OVER (PARTITION BY name) AS reached "
            f"FROM {quoted(statements)} {_LAST}"
            f") AS s LEFT JOIN {quoted(self._names)} AS n ON s.name = n.name"
        )
        self._database.execute(
            f"CREATE OR REPLACE TABLE {quoted(self._survivors)} AS SELECT part, off, value, "
            f"len(lacks) > 0 AS is_partial, name FROM {quoted(self._touched)} WHERE off IS NOT NULL"
        )
        self._bundle(statements)
        layer = replace(self.state, base=self._layer)
        rows = FoldedTable(self._database, self._survivors)
        layer = load_state(self._database, layer, self._decoder, rows)
        self._fill_held(layer)
        self._replace_rows()
        touched = row_count(self._database, self._touched)
        for table in (self._layer, self._touched, self._held):
            self._database.execute(f"DROP TABLE {quoted(table)}")
        if self.state.inexact | layer.inexact:
            inexact = inexact_columns(self._database, self.state)
            self.state = replace(self.state, inexact=inexact)
        create_view(self._database, self.state)
        return self.state, touched

    def _name(self, statements: str) -> None:
        """Record the place of each key, and the creates that took values from a row's old key.

        During a resend the record of a key's row may be followed by an older one. If that one is a
        delete, `is_behind` is true, because the next tombstone belongs to it.
        """
        behind = f"arg_max(s.kind, (s.off, s.step)) = '{GONE}' AND count(v.off) > 0"
        is_behind = behind if self._log.order is Order.LSN else "false"
        self._database.execute(
            f"CREATE OR REPLACE TABLE {quoted(self._names)} AS "
            "SELECT s.name, min(s.part) AS part, max(v.off) AS off, max(s.lsn) AS lsn, "
            f"{is_behind} AS is_behind "
            f"FROM {quoted(statements)} AS s LEFT JOIN {quoted(self._survivors)} AS v "
            f"ON s.kind = '{ROW}' AND s.part = v.part AND s.off = v.off GROUP BY s.name"
        )
        self._database.execute(
            f"CREATE OR REPLACE TABLE {quoted(self._came)} AS SELECT DISTINCT lsn "
            f"FROM {quoted(statements)} WHERE begins AND len(lacks) > 0 AND lsn IS NOT NULL"
        )

    def _bundle(self, statements: str) -> None:
        """Bundle records with the values that they lack; note which of these stored rows have."""
        bundle_older(
            self._database,
            self._survivors,
            # Without LSNs no value is taken from the row of another key.
            "SELECT name, part, off, value, lacks, begins, NULL::BIGINT AS lsn FROM ("
            "SELECT name, part, off, step, value, lacks, begins "
            f"FROM {quoted(statements)} UNION ALL "
            "SELECT name, part, off, -1 AS step, ''::BLOB AS value, []::VARCHAR[] AS lacks, "
            f"true AS begins FROM {quoted(self._names)} WHERE off IS NOT NULL"
            f") WHERE name IN (SELECT name FROM {quoted(self._survivors)} WHERE is_partial) "
            "ORDER BY name, off, step",
        )
        make_table(self._database, self._held, _HELD_SCHEMA)
        with self._database.cursor() as reader:
            rows_held = reader.execute(
                f"SELECT t.part, t.off, t.lacks, v.value FROM {quoted(self._touched)} AS t "
                f"JOIN {quoted(self._survivors)} AS v ON t.part = v.part AND t.off = v.off "
                "WHERE len(t.lacks) > 0"
            )
            fill(self._database, self._held, self._from_held(rows_held))

    def _from_held(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[pa.Table]:
        while rows := cursor.fetchmany(BATCH_RECORDS):
            held_values = []
            for part, off, lacks, value in rows:
                older = unbundled(value)[1]
                missing = {*lacks}.difference(*(names for names, _ in older))
                mine = [*chain(*(names for names, record in older if record == HELD))]
                # A placeholder that was stored as a value may have another form in this record.
                if missing or not self._reader.standing.isdisjoint(mine):
                    raise VerdictError(
                        f"{place(self._log.topic, part, off)}: the source left out a value, which "
                        f"no older record of the key is known to have: {_WHOLE}"
                    )
                held_values += [(part, off, name) for name in mine]
            if held_values:
                yield table_of_rows(held_values, _HELD_SCHEMA)

    def _fill_held(self, layer: TableState) -> None:
        """Take the values that records lack from the stored rows of their keys."""
        counts = self._database.execute(
            f"SELECT name, count(*) FROM {quoted(self._held)} GROUP BY name"
        ).fetchall()
        for column, count in counts:
            taken = ", ".join(f"{quoted(n)} = b.{quoted(n)}" for n in self.state.stored(column))
            filled = first_row(
                self._database,
                f"UPDATE {quoted(layer.base)} AS l SET {taken} FROM {quoted(self._held)} AS h "
                f"JOIN {quoted(self._touched)} AS t ON h.part = t.part AND h.off = t.off "
                f"JOIN {quoted(self._names)} AS n ON t.name = n.name "
                f"JOIN {quoted(self.state.base)} AS b "
                f"ON n.part = b.{PARTITION_COLUMN} AND n.off = b.{OFFSET_COLUMN} "
                f"WHERE h.name = ? AND l.{PARTITION_COLUMN} = h.part AND l.{OFFSET_COLUMN} = h.off",
                [column],
            )
            if filled != (count,):
                raise self._unlike()

    def _require_ascending(self, statements: str) -> None:
        """Require that the statements about each key are in the source's order.

        Then the last statement is the newest. A tombstone counts by its offset, unless it directly
        follows the delete of its key, and so deletes nothing.
        """
        # Before a key's first position a tombstone counts as -1.
        late = first_row(
            self._database,
            "SELECT part, off FROM (SELECT s.part, s.off, s.kind, s.lsn, n.is_behind, "
            "greatest(n.lsn, -1, max(s.lsn) OVER (PARTITION BY s.name ORDER BY s.off, s.step "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS reached "
            f"FROM {quoted(statements)} AS s "
            f"LEFT JOIN {quoted(self._names)} AS n ON s.name = n.name) "
            f"WHERE lsn < reached OR (kind = '{TOMBSTONE}' AND is_behind) LIMIT 1",
        )
        if late is not None:
            raise VerdictError(
                f"{place(self._log.topic, *late)}: the record comes behind newer ones of its key, "
                f"so it was sent again: {_WHOLE}"
            )

    def _require_unlinked(self, statements: str) -> None:
        """Require that no new delete completes a key change whose row is already stored.

        A row that changed its key takes values from the row whose delete has the same position, and
        the stored row was completed without it.
        """
        linked = first_row(
            self._database,
            f"SELECT part, off FROM {quoted(statements)} WHERE kind = '{GONE}' "
            f"AND lsn IN (SELECT lsn FROM {quoted(self._came)}) LIMIT 1",
        )
        if linked is not None:
            raise VerdictError(
                f"{place(self._log.topic, *linked)}: a row that left out values changed its key "
                f"by this record: {_WHOLE}"
            )

    def _require_one_place(self, statements: str) -> None:
        torn = first_row(
            self._database,
            f"SELECT s.name FROM {quoted(statements)} AS s LEFT JOIN {quoted(self._names)} AS n "
            "ON s.name = n.name GROUP BY s.name "
            "HAVING min(s.part) <> max(s.part) OR min(s.part) <> min(n.part) LIMIT 1",
        )
        if torn is not None:
            raise VerdictError(
                f'topic "{self._log.topic}": key {torn[0]} stands in two partitions, and nothing '
                f"that is kept says which of its records is newer: {_WHOLE}"
            )

    def _replace_rows(self) -> None:
        """Replace the rows of the touched keys, all at once."""
        base, names = quoted(self.state.base), quoted(self._names)
        touched, layer = quoted(self._touched), quoted(self._layer)
        with closing(self._database.cursor()) as writer:
            writer.begin()
            try:
                replaced = first_row(
                    writer,
                    f"SELECT count(n.off) FROM {names} AS n SEMI JOIN {touched} AS t "
                    "ON n.name = t.name",
                )
                gone = first_row(
                    writer,
                    f"DELETE FROM {base} WHERE ({PARTITION_COLUMN}, {OFFSET_COLUMN}) IN ("
                    f"SELECT (n.part, n.off) FROM {names} AS n SEMI JOIN {touched} AS t "
                    "ON n.name = t.name WHERE n.off IS NOT NULL)",
                )
                if gone != replaced:
                    raise self._unlike()
                writer.execute(f"DELETE FROM {names} WHERE name IN (SELECT name FROM {touched})")
                writer.execute(
                    f"INSERT INTO {names} BY NAME "
                    f"SELECT name, part, off, lsn, false AS is_behind FROM {touched}"
                )
                writer.execute(f"INSERT INTO {base} BY NAME FROM {layer}")
                writer.commit()
            except BaseException:
                writer.rollback()
                raise

    def _require_alike(self) -> None:
        rows = row_count(self._database, self.state.base)
        if first_row(self._database, f"SELECT count(off) FROM {quoted(self._names)}") != (rows,):
            raise self._unlike()

    def _unlike(self) -> VerdictError:
        return VerdictError(f'topic "{self._log.topic}": the rows are not those of the keys')
