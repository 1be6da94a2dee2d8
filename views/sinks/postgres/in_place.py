"""Modes `upsert` and `insert`: the rows of a generation are brought into a table that stays.

One transaction makes the table hold a generation: rows that are new are inserted, those that
differ are replaced, those go that the generation before had and this one has not; what serves is
noted in it. So a reader sees one generation or the other, whatever his isolation, no lock keeps him
out, and a crash leaves the one or the other. Rows of keys that the view never had are not touched:
the table may have others, and columns of its own.

Rows are compared as they are stored (`record_image_ne`): PostgreSQL calls -0.0 and 0.0 equal, and
they are other values.
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

_HAS_ITS_OWN_MIND = """
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = %(table)s::regclass AND NOT tgisinternal)
    OR EXISTS (SELECT FROM pg_rewrite WHERE ev_class = %(table)s::regclass)
    OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = %(table)s::regclass AND attgenerated <> '')
"""
"""Whether what is written into a table may become something else there."""


@dataclass(frozen=True, slots=True)
class InPlace(Readers):
    """The plain table that readers open; `mode` replaces and removes rows, or only adds them."""

    mode: SwapMode

    def check(self, cursor: Any, columns: Columns = ()) -> None:  # noqa: ANN401
        """Raise when the table that readers open is somebody else's, or does not fit."""
        existing = self.stable.found(cursor)
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
        """Bring the rows of a sealed generation into the table."""
        before = self.current(cursor)
        if before == generation:
            return
        columns = columns_of(cursor, place(entry.relation))
        if self.auto_create and self.stable.found(cursor) is None:
            self._make(cursor, entry.relation, columns)
            self._note(cursor, generation)
            return
        self._fit(cursor, columns)
        # Readers read on; no other writer comes between the comparison and the rows.
        statement = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(statement.format(self.stable.name))
        # Rows that somebody has locked are all that can hold this up now.
        cursor.execute("SET LOCAL lock_timeout = '1s'")
        self._bring(cursor, entry, before, [name for name, _ in columns])
        self._note(cursor, generation)

    def _note(self, cursor: Any, generation: int) -> None:  # noqa: ANN401
        self.registry.note_made(cursor, self.stable.found(cursor))
        self.registry.note_serving(cursor, generation)

    def _make(
        self,
        cursor: Any,  # noqa: ANN401
        relation: str,
        columns: Columns,
    ) -> None:
        """Make the table with the rows of a generation: the key goes last, which is quicker."""
        cursor.execute(self._definition(columns, keyed=False))
        copied = sql.SQL("INSERT INTO {} SELECT * FROM {}")
        cursor.execute(copied.format(self.stable.name, place(relation)))
        keyed = sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})")
        keys = sql.SQL(", ").join(map(sql.Identifier, self.stable.key))
        cursor.execute(keyed.format(self.stable.name, keys))

    def drop(self, cursor: Any) -> None:  # noqa: ANN401
        """Remove the table; of one that a user made the view's rows, but where they only come."""
        existing, serving = self.stable.found(cursor), self.current(cursor)
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
        """Return that rows cannot be replaced, if the mode only adds them."""
        if self.mode is SwapMode.INSERT:
            return "its table in PostgreSQL gets new rows alone (mode insert)"
        return None

    def also(self, cursor: Any, generation: int) -> sql.Identifier | None:  # noqa: ANN401
        """Return the table, for the generation that it holds."""
        if self.current(cursor) != generation:
            return None
        if self._has_its_own_mind(cursor):
            raise SinkError(
                f"{self.stable.target} has triggers, rules or generated columns, so the rows of a "
                "delta may become others there",
                hint="rebuild the view, which compares all rows; or follow it in mode exchange",
            )
        return self.stable.name

    def _fit(self, cursor: Any, columns: Columns) -> None:  # noqa: ANN401
        if not self.auto_create:
            if reason := self._why_unfit(cursor, columns):
                raise self._unfit(reason)
        else:
            self.stable.follow(cursor, columns, keeps_rows=True)

    def _bring(
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
        if self._has_its_own_mind(cursor):
            self._require_same(cursor, new, names)

    def _has_its_own_mind(self, cursor: Any) -> bool:  # noqa: ANN401
        cursor.execute(_HAS_ITS_OWN_MIND, {"table": self.stable.name.as_string(cursor)})
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
        """Require that no row which the table has would have to change or to go."""
        keys = self._keys("t")
        changed = sql.SQL("SELECT {} FROM {} t JOIN {} g ON {} WHERE {} LIMIT 1").format(
            keys, self.stable.name, new, self._same("t", "g"), self._differs("t", "g", names)
        )
        queries = [("is another one now", changed)]
        if old is not None:
            lost = sql.SQL(
                "SELECT {} FROM {} t WHERE NOT EXISTS (SELECT FROM {} g WHERE {}) LIMIT 1"
            )
            queries.append(("is gone", lost.format(keys, old, new, self._same("t", "g"))))
        for change, query in queries:
            cursor.execute(query)
            if (row := cursor.fetchone()) is not None:
                raise SinkError(
                    f"{self.stable.target} gets new rows alone (mode insert), and the row with key "
                    f"({', '.join(map(str, row))}) {change}",
                    hint=f'"mode": "upsert" in {self.registry.view}.postgres.json replaces and '
                    "removes rows",
                )

    def _require_same(self, cursor: Any, new: sql.Composable, names: Sequence[str]) -> None:  # noqa: ANN401
        """Require that the written rows are there: triggers and rules may have changed them."""
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
                f"{self.stable.target} does not hold the row with key "
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
        if self.stable.found(cursor) is None:
            return "it does not exist"
        if not has_unique_key(cursor, self.stable.name, self.stable.key):
            return f"it has no primary key or unique index on ({', '.join(self.stable.key)})"
        types = dict(columns_of(cursor, self.stable.name))
        for name, kind in columns:
            if types.get(name) != kind:
                return f'its column "{name}" is {types.get(name, "missing")}, not {kind}'
        return None
