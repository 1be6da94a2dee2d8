"""Records of another program's log as a list, and what the verifier keeps of them: no broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.forms.declared import DeclaredLog, ValueShape, declared_columns
from changelog.contract.rows.relation import TableName
from views.verify.kept.statements import KeptStatements
from views.verify.log.declared import DeclaredReader, load_statements
from views.verify.log.registry import WriterSchemas
from views.verify.values.types import quoted

NOWHERE = WriterSchemas(RegistryConnection(url="http://127.0.0.1:9"))
THINGS = TableName("public", "things")
COLUMNS = {"id": "int", "name": "string", "price": "decimal(10,2)"}


def things(shape: ValueShape, **more: Any) -> DeclaredLog:
    columns = declared_columns(COLUMNS, "logs.things")
    return DeclaredLog(
        table=THINGS, topic="things", shape=shape, key=("id",), columns=columns, **more
    )


@dataclass(frozen=True, slots=True)
class Told:
    part: int
    off: int
    told_key: bytes | None
    told_value: bytes | None

    def partition(self) -> int:
        return self.part

    def offset(self) -> int:
        return self.off

    def key(self) -> bytes | None:
        return self.told_key

    def value(self) -> bytes | None:
        return self.told_value

    def error(self) -> None:
        return None


@dataclass
class ToldLog:
    records: list[Told] = field(default_factory=list)

    def end(self, partition: int) -> int:
        return 1 + max((each.off for each in self.records if each.part == partition), default=-1)

    def put(self, key: Any, value: Any, partition: int = 0) -> Told:
        raw = [None if each is None else json.dumps(each).encode() for each in (key, value)]
        made = Told(partition, self.end(partition), *raw)
        self.records.append(made)
        return made


class Kept:
    """Captured log lines, with the rows and keys in them."""

    def __init__(self, database: duckdb.DuckDBPyConnection, log: DeclaredLog, base: str = "kept"):
        self.database, self.base = database, base
        self.reader = DeclaredReader(log, NOWHERE, 0)
        self.kept = KeptStatements(database, self.reader, base)
        self.touched = 0

    def begin(self, records: Sequence[Told]) -> None:
        load_statements(self.database, f"{self.base}_said", self.reader, records, None)  # type: ignore[arg-type]
        self.kept.begin(f"{self.base}_said")

    def advance(self, records: Sequence[Told]) -> None:
        load_statements(self.database, f"{self.base}_said", self.reader, records, None)  # type: ignore[arg-type]
        _, self.touched = self.kept.advance(f"{self.base}_said")

    def rows(self) -> list[tuple[Any, ...]]:
        return all_rows(self.database, self.base)

    def names(self) -> list[tuple[Any, ...]]:
        found = self.database.execute(f"FROM {quoted(f'{self.base}_names')} ORDER BY name")
        return found.fetchall()

    def columns(self) -> list[tuple[Any, ...]]:
        return self.database.execute(f"DESCRIBE {quoted(self.base)}").fetchall()


def all_rows(database: duckdb.DuckDBPyConnection, base: str) -> list[tuple[Any, ...]]:
    """Return the rows of a state in the order of their places."""
    return database.execute(f"FROM {quoted(base)} ORDER BY __partition, __offset").fetchall()
