"""Modes `upsert` and `insert`: the rows of a generation are copied into a permanent table.

One transaction brings the table to a generation: it inserts new rows, replaces changed ones,
removes those that only the earlier generation has, and stores the number of the generation. So a
reader sees one generation or the other at any isolation level, is not locked out, and a crash
leaves one or the other. Rows with keys that the view never had are not touched: the table may have
other rows, and columns of its own.

Rows are compared as they are stored (`record_image_ne`), because PostgreSQL treats the different
values -0.0 and 0.0 as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2 import sql

from changelog.contract.base.errors import SinkError
from views.sinks.postgres.options import SwapMode
from views.sinks.postgres.readers import Readers
from views.sinks.postgres.registry import Entry, place
from views.sinks.postgres.stable import Columns, columns_of, foreign, has_unique_key

_MAY_CHANGE_ROWS = """
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = %(table)s::regclass AND NOT tgisinternal)
    OR EXISTS (SELECT FROM pg_rewrite WHERE ev_class = %(table)s::regclass)
    OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = %(table)s::regclass AND attgenerated <> '')
"""
"""Whether a table may change the rows that are written to it."""


@dataclass(frozen=True, slots=True)
class InPlace(Readers):
    """The plain table that readers open; `mode` is to replace and remove rows, or only to add."""

    mode: SwapMode

    def check(self, cursor: Any, columns: Columns = ()) -> None:  # noqa: ANN401
        """Refuse a table that was created by others, or does not fit."""
        existing = self.stable.oid(cursor)
        if existing is not None and self.stable.partition(cursor, existing) is not None:
            raise self._other_mode("has a generation as its partition")
        if self.auto_create:
            if existing is not None and existing != self.registry.made(cursor):
                raise foreign(self.stable.target)
        elif columns and (reason := self._why_unfit(cursor, columns)):
            raise self._unfit(reason, self._definition(columns).as_string(cursor))

    def _serving(self, cursor: Any, table: int) -> int | None:  # noqa: ANN401, ARG002
        return self.registry.serving(cursor)

    def move(self, cursor: Any, entry: Entry, generation: int) -> None:  # noqa: ANN401
        """Bring the table's rows to a sealed generation."""
        before = self.current(cursor)
        if before == generation:
            return
        columns = columns_of(cursor, place(entry.relation))
        if self.auto_create and self.stable.oid(cursor) is None:
            self._make(cursor, entry.relation, columns)
            self._note(cursor, generation)
            return
        self._fit(cursor, columns)
        # Readers are not blocked, but no one else can write between the comparison and our writes.
        statement = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(statement.format(self.stable.name))
        # From here on only locks on single rows can delay this.
        cursor.execute("SET LOCAL lock_timeout = '1s'")
        self._write_rows(cursor, entry, before, [name for name, _ in columns])
        self._note(cursor, generation)

    def _note(self, cursor: Any, generation: int) -> None:  # noqa: ANN401
        self.registry.note_made(cursor, self.stable.oid(cursor))
        self.registry.note_serving(cursor, generation)

    def _make(
        self,
        cursor: Any,  # noqa: ANN401
        relation: str,
        columns: Columns,
    ) -> None:
        """Create the table with the rows of a generation, and then its key, which is faster."""
        cursor.execute(self._definition(columns, keyed=False))
        copied = sql.SQL("INSERT INTO {} SELECT * FROM {}")
        cursor.execute(copied.format(self.stable.name, place(relation)))
        keyed = sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})")
        keys = sql.SQL(", ").join(map(sql.Identifier, self.stable.key))
        cursor.execute(keyed.format(self.stable.name, keys))

    def drop(self, cursor: Any) -> None:  # noqa: ANN401
        """Remove the table, or from a user's table the view's rows, unless the mode only adds."""
        existing, serving = self.stable.oid(cursor), self.current(cursor)
        if existing is not None and existing == self.registry.made(cursor):
            if self.auto_create:
                cursor.execute(sql.SQL("DROP TABLE {}").format(self.stable.name))
            elif serving is not None and self.mode is SwapMode.UPSERT:
                relation = place(self.registry.relation(serving))
                statement = sql.SQL("DELETE FROM {} t USING {} g WHERE {}")
                cursor.execute(statement.format(self.stable.name, relation, self._same("t", "g")))
        self.registry.note_made(cursor, None)
        self.registry.note_serving(cursor, None)

    def holds_back(self) -> str | None:
        """Return that rows cannot be replaced, in the mode that only adds them; else None."""
        if self.mode is SwapMode.INSERT:
            return "its table in PostgreSQL gets only new rows (mode insert)"
        return None

    def also(self, cursor: Any, generation: int) -> sql.Identifier | None:  # noqa: ANN401
        """Return the table if it has this generation's rows, or None.

        Raises SinkError: the table may change rows that are written to it.
        """
        if self.current(cursor) != generation:
            return None
        if self._may_change_rows(cursor):
            raise SinkError(
                f"{self.stable.target} has triggers, rules or generated columns, so it may change "
                "the rows of a delta",
                hint="rebuild the view, which compares all rows; or follow it in mode exchange",
            )
        return self.stable.name

    def _fit(self, cursor: Any, columns: Columns) -> None:  # noqa: ANN401
        if not self.auto_create:
            if reason := self._why_unfit(cursor, columns):
                raise self._unfit(reason)
        else:
            self.stable.follow(cursor, columns, keeps_rows=True)

    def _write_rows(
        self,
        cursor: Any,  # noqa: ANN401
        entry: Entry,
        before: int | None,
        names: Sequence[str],
    ) -> None:
        new, old = place(entry.relation), None
        if before is not None:
            old = place(self.registry.relation(before))
        if self.mode is SwapMode.INSERT:
            self._require_grown(cursor, new, old, names)
        elif old is not None:
            gone = sql.SQL(
                "DELETE FROM {} t USING {} o WHERE {} AND NOT EXISTS (SELECT FROM {} g WHERE {})"
            )
            cursor.execute(
                gone.format(self.stable.name, old, self._same("t", "o"), new, self._same("o", "g"))
            )
        cursor.execute(self._insert(new, names))
        if self._may_change_rows(cursor):
            self._require_same(cursor, new, names)

    def _may_change_rows(self, cursor: Any) -> bool:  # noqa: ANN401
        cursor.execute(_MAY_CHANGE_ROWS, {"table": self.stable.name.as_string(cursor)})
        return bool(cursor.fetchone()[0])

    def _insert(self, new: sql.Composable, names: Sequence[str]) -> sql.Composed:
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        others = [name for name in names if name not in self.stable.key]
        act: sql.Composable = sql.SQL("NOTHING")
        if others and self.mode is SwapMode.UPSERT:
            updates = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(n)) for n in others]
            act = sql.SQL("UPDATE SET {} WHERE {}").format(
                sql.SQL(", ").join(updates), self._differs("t", "excluded", names)
            )
        statement = "INSERT INTO {} AS t ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}"
        keys = sql.SQL(", ").join(map(sql.Identifier, self.stable.key))
        return sql.SQL(statement).format(self.stable.name, columns, columns, new, keys, act)

    def _require_grown(
        self,
        cursor: Any,  # noqa: ANN401
        new: sql.Composable,
        old: sql.Composable | None,
        names: Sequence[str],
    ) -> None:
        """Refuse a generation in which a row of the table is changed or missing."""
        keys = self._keys("t")
        changed = sql.SQL("SELECT {} FROM {} t JOIN {} g ON {} WHERE {} LIMIT 1").format(
            keys, self.stable.name, new, self._same("t", "g"), self._differs("t", "g", names)
        )
        queries = [("has changed", changed)]
        if old is not None:
            lost = sql.SQL(
                "SELECT {} FROM {} t WHERE NOT EXISTS (SELECT FROM {} g WHERE {}) LIMIT 1"
            )
            queries.append(("is gone", lost.format(keys, old, new, self._same("t", "g"))))
        for change, query in queries:
            cursor.execute(query)
            if (row := cursor.fetchone()) is not None:
                raise SinkError(
                    f"{self.stable.target} gets only new rows (mode insert), and the row with key "
                    f"({', '.join(map(str, row))}) {change}",
                    hint=f'"mode": "upsert" in {self.registry.view}.postgres.json replaces and '
                    "removes rows",
                )

    def _require_same(self, cursor: Any, new: sql.Composable, names: Sequence[str]) -> None:  # noqa: ANN401
        """Check that the table has the rows as written, unchanged by triggers and rules."""
        first = sql.Identifier("t", self.stable.key[0])
        query = sql.SQL(
            "SELECT {} FROM {} g LEFT JOIN {} t ON {} WHERE {} IS NULL OR {} LIMIT 1"
        ).format(
            self._keys("g"),
            new,
            self.stable.name,
            self._same("t", "g"),
            first,
            self._differs("t", "g", names),
        )
        cursor.execute(query)
        if (row := cursor.fetchone()) is not None:
            raise SinkError(
                f"{self.stable.target} does not have the row with key "
                f"({', '.join(map(str, row))}) as it was written: a trigger, a rule or a generated "
                "column of the table changes it",
                hint="let it leave the view's columns alone",
            )

    def _same(self, one: str, other: str) -> sql.Composed:
        pairs = [
            sql.SQL("{} = {}").format(sql.Identifier(one, name), sql.Identifier(other, name))
            for name in self.stable.key
        ]
        return sql.SQL(" AND ").join(pairs)

    def _keys(self, table: str) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(table, name) for name in self.stable.key)

    @staticmethod
    def _differs(one: str, other: str, names: Sequence[str]) -> sql.Composed:
        rows = [
            sql.SQL(", ").join(sql.Identifier(table, name) for name in names)
            for table in (one, other)
        ]
        return sql.SQL("record_image_ne(ROW({}), ROW({}))").format(*rows)

    def _definition(self, columns: Columns, *, keyed: bool = True) -> sql.Composed:
        parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(kind)) for n, kind in columns]
        if keyed:
            keys = sql.SQL(", ").join(map(sql.Identifier, self.stable.key))
            parts.append(sql.SQL("PRIMARY KEY ({})").format(keys))
        return sql.SQL("CREATE TABLE {} ({})").format(self.stable.name, sql.SQL(", ").join(parts))

    def _why_unfit(self, cursor: Any, columns: Columns) -> str | None:  # noqa: ANN401
        """Return the reason why a user's table cannot take these columns, or None."""
        if self.stable.oid(cursor) is None:
            return "it does not exist"
        if not has_unique_key(cursor, self.stable.name, self.stable.key):
            return f"it has no primary key or unique index on ({', '.join(self.stable.key)})"
        types = dict(columns_of(cursor, self.stable.name))
        for name, kind in columns:
            if types.get(name) != kind:
                return f'its column "{name}" is {types.get(name, "missing")}, not {kind}'
        return None
