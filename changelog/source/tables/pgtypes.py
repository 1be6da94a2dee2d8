"""Type oids and modifiers of PostgreSQL to the contract's column types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changelog.contract.rows.types import ColumnType, Kind, TypType, array_type, column_type
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors

TypeRef = tuple[int, int]  # a type's oid and the modifier of the column that has it, -1 for none

# An array is what is written as one: typelem alone is also set for types like int2vector, whose
# text is another.
_TYPE = """
SELECT t.typname, t.typtype::text, t.typnamespace = 'pg_catalog'::regnamespace,
       t.typbasetype, t.typtypmod,
       CASE WHEN t.typoutput = 'pg_catalog.array_out'::regproc THEN t.typelem ELSE 0::oid END,
       coalesce(e.typdelim::text, ''),
       ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum
              WHERE enumtypid = t.oid ORDER BY enumsortorder)
  FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
 WHERE t.oid = %s
"""
_FORMAT = "SELECT format_type(%s, %s)"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A row of `pg_type`."""

    name: str
    form: str
    builtin: bool
    base: int
    base_typmod: int
    element: int
    delimiter: str
    labels: list[str]


class TypeResolver:
    """Looks types up once; a domain counts as its base type, whose text form it has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._resolved: dict[TypeRef, ColumnType] = {}

    def resolve(self, refs: Iterable[TypeRef]) -> list[ColumnType]:
        """Return the column type of each reference."""
        return [self._cached(ref) for ref in refs]

    def _cached(self, ref: TypeRef) -> ColumnType:
        if ref not in self._resolved:
            with source_errors(self._connection, "cannot look a type up"):
                self._resolved[ref] = self._look_up(*ref)
        return self._resolved[ref]

    def _look_up(self, oid: int, typmod: int) -> ColumnType:
        entry, oid, typmod = self._base(oid, typmod)
        if entry is None:
            # Dropped since: its values in the stream are text all the same.
            return ColumnType(f"type {oid}", Kind.STRING, mapped=False)
        if entry.element:
            # Not the array's own name, which is that of a domain if its elements have one.
            element = self._look_up(entry.element, typmod)
            return array_type(element, f"{element.name}[]", entry.delimiter)
        formatted = self._formatted(oid, typmod)
        form = TypType(entry.form)
        return column_type(
            entry.name, formatted, form=form, builtin=entry.builtin, labels=entry.labels
        )

    def _base(self, oid: int, typmod: int) -> tuple[_Entry | None, int, int]:
        entry = self._entry(oid)
        while entry is not None and entry.form == "d":
            oid, typmod = entry.base, entry.base_typmod
            entry = self._entry(oid)
        return entry, oid, typmod

    def _entry(self, oid: int) -> _Entry | None:
        with self._connection.cursor() as cursor:
            cursor.execute(_TYPE, (oid,))
            row = cursor.fetchone()
        return None if row is None else _Entry(*row)

    def _formatted(self, oid: int, typmod: int) -> str:
        with self._connection.cursor() as cursor:
            cursor.execute(_FORMAT, (oid, typmod))
            (text,) = cursor.fetchone() or ("",)
        return str(text)
