"""Files of cases: `views/NAME.cases.toml`, next to the view (pure but for the reading)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType
from views.cases.values import CaseNumber, type_named, value_of
from views.project.history import refuse_history
from views.project.spec import ViewSpec, parse_table, short_name

SUFFIX = ".cases.toml"
_TOP = ("tables", "case")
_CASE = ("name", "tables", "rows", "contains", "error")
_WANTED = ("rows", "contains", "error")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case of a view."""

    name: str  # tells people what it shows
    tables: Mapping[TableName, Sequence[Row]]  # rows of each table; each row has all columns
    # the rows that the view must have, as they are written; None of an expected error
    rows: Sequence[Row] | None
    whole: bool = True  # whether these are all rows with all columns, or some of them
    error: str | None = None  # a part of what Spark must say; None where the view must give rows


@dataclass(frozen=True, slots=True)
class CaseFile:
    """The cases of one view."""

    # names and types of the columns of each table
    columns: Mapping[TableName, Mapping[str, ColumnType]]
    cases: Sequence[Case]  # in the order of the file


def path_of(spec: ViewSpec) -> Path:
    """Return the path of a view's cases."""
    return spec.path.with_name(spec.name + SUFFIX)


def read_cases(spec: ViewSpec) -> CaseFile:
    """Read the cases of a view."""
    path = path_of(spec)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ViewError(
            f"{path.name} cannot be read: {error}",
            hint=f"`changelog test --init {spec.name}` writes a first one",
        ) from error
    return parse_cases(spec, path.name, text)


def parse_cases(spec: ViewSpec, name: str, text: str) -> CaseFile:
    """Read the text of a file of cases."""
    refuse_history(
        spec, "a case has rows of tables, not their versions", "remove its file of cases"
    )
    try:
        raw = tomllib.loads(text, parse_float=CaseNumber)
    except tomllib.TOMLDecodeError as error:
        raise ViewError(f"{name}: {error}", hint="a file of cases is TOML") from error
    _known(name, raw, _TOP)
    columns = {
        _table_of(spec, name, table): _types(f"{name}: tables.{table}", listed)
        for table, listed in _mapping(f"{name}: tables", raw.get("tables", {})).items()
    }
    missing = [short_name(table) for table in spec.tables if table not in columns]
    if missing:
        raise ViewError(
            f"{name} does not say what columns {', '.join(missing)} has",
            hint=f'write [tables."{missing[0]}"] with a line `column = "type"` for each',
        )
    listed = _rows(f"{name}: case", raw.get("case", []))
    if not listed:
        raise ViewError(f"{name} holds no case", hint="begin one with [[case]]")
    cases = [
        _case(spec, name, raw_case, columns, number) for number, raw_case in enumerate(listed, 1)
    ]
    names = [case.name for case in cases]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ViewError(f"{name} has two cases called {twice!r}")
    return CaseFile(columns, cases)


def _case(
    spec: ViewSpec,
    file: str,
    raw: Row,
    columns: Mapping[TableName, Mapping[str, ColumnType]],
    number: int,
) -> Case:
    name = raw.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ViewError(f"{file}: case {number} has no name", hint='write name = "what it shows"')
    where = f"{file}: case {name!r}"
    _known(where, raw, _CASE)
    results = [word for word in _WANTED if word in raw]
    if len(results) != 1:
        raise ViewError(
            f"{where} says {' and '.join(results) or 'nothing'} of the result",
            hint="give rows (all of them), contains (some), or error (a part of its text)",
        )
    tables: dict[TableName, Sequence[Row]] = {table: [] for table in columns}
    for table, rows in _mapping(f"{where}: tables", raw.get("tables", {})).items():
        table_name = _table_of(spec, where, table)
        place = f"{where}: {table}"
        tables[table_name] = [_row(place, row, columns[table_name]) for row in _rows(place, rows)]
    if results == ["error"]:
        if not isinstance(raw["error"], str) or not raw["error"].strip():
            raise ViewError(f"{where}: error must be a part of its text")
        return Case(name=name, tables=tables, rows=None, error=raw["error"])
    rows = _rows(f"{where}: {results[0]}", raw[results[0]])
    if not rows and results == ["contains"]:
        raise ViewError(f"{where} contains nothing", hint="for no rows at all write rows = []")
    return Case(name=name, tables=tables, rows=rows, whole=results == ["rows"])


def _row(where: str, row: Row, columns: Mapping[str, ColumnType]) -> Row:
    _known(where, row, tuple(columns), "column")
    values = {}
    for column, kind in columns.items():
        try:
            values[column] = value_of(kind, row[column]) if column in row else None
        except ViewError as error:
            raise ViewError(f"{where}.{column}: {error.args[0]}") from error
    return values


def _types(where: str, raw: object) -> dict[str, ColumnType]:
    types = {}
    for column, name in _mapping(where, raw).items():
        if not isinstance(name, str):
            raise ViewError(f"{where}.{column} is no type", hint=f'write {column} = "bigint"')
        try:
            types[column] = type_named(name)
        except ViewError as error:
            raise ViewError(f"{where}.{column}: {error.args[0]}", hint=error.hint) from error
    if not types:
        raise ViewError(f"{where} has no columns", hint='write column = "type"')
    return types


def _table_of(spec: ViewSpec, where: str, text: str) -> TableName:
    table = parse_table(text)
    if table not in spec.tables:
        raise ViewError(
            f'{where}: view "{spec.name}" does not read {text}',
            hint=f"it reads {', '.join(map(short_name, spec.tables))}",
        )
    return table


def _known(where: str, raw: Row, allowed: Sequence[str], noun: str = "key") -> None:
    for key in raw:
        if key not in allowed:
            near = get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(allowed)}"
            raise ViewError(f"{where}: {noun} {key!r} is not known", hint=hint)


def _mapping(where: str, raw: object) -> Row:
    if not isinstance(raw, dict):
        raise ViewError(f"{where} must be a table of TOML")
    return raw


def _rows(where: str, raw: object) -> list[Row]:
    if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
        raise ViewError(f"{where} must be a list of rows", hint="write [{ id = 1 }, { id = 2 }]")
    return raw
