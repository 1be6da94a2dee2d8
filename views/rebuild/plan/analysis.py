"""What can be said of a view before Spark starts: its columns, its proof, and how a refresh goes.

The schemas of its tables are asked for; sqlglot and DuckDB, over empty tables, do the rest. So
what the verifier would refuse after the rows were computed is refused before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedSchema
from views.project.lineage import NO_DELTA, Untraceable, trace
from views.project.spec import SqlSource, ViewSpec, short_name
from views.verify.sql.translate import MACROS, Translation, UnverifiableError, translate
from views.verify.values.database import closed_database
from views.verify.values.names import folded, reading_name
from views.verify.values.types import Type, duckdb_type, logged_type, quoted

_UNKNOWN = re.compile(r"Column '?\"?([^'\"]+)'?\"? could not be resolved|Unknown column: (\S+)")
PYTHON = "a view in Python is not computed a second time: the tables that it reads are verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What is known of a view before it is built.

    Attributes:
        unprovable: why its rows cannot be computed a second time; None when they can.
        whole: why a refresh computes it whole; None when it computes the rows that changed.
    """

    unprovable: str | None
    whole: str | None

    def lines(self) -> list[str]:
        """Say it for people."""
        proof = "every row" if self.unprovable is None else f"none: {self.unprovable}"
        refresh = "the rows that changed" if self.whole is None else f"all rows: {self.whole}"
        return [f"proof: {proof}", f"a refresh computes {refresh}"]

    def words(self) -> tuple[str, str]:
        """Say it in a word each, for a list."""
        return (
            "every row" if self.unprovable is None else "none",
            "changed rows" if self.whole is None else "all rows",
        )

    def to_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "provable": self.unprovable is None,
            "unprovable": self.unprovable,
            "refresh": "rows" if self.whole is None else "whole",
            "refresh_whole": self.whole,
        }


def analyse(spec: ViewSpec, schemas: Mapping[TableName, LoggedSchema]) -> Analysis:
    """Look at a view over captured tables.

    Raises:
        ViewError: it reads a column that none of its tables has, or lacks a column of its key.
    """
    if not isinstance(spec.source, SqlSource):
        return Analysis(unprovable=PYTHON, whole="it is made by a function")
    own = {table: schemas[table] for table in spec.tables}
    columns = {table: [c.column for c in schema.columns] for table, schema in own.items()}
    keys = {table: schema.key for table, schema in own.items()}
    lineage = trace(spec.source, spec.key, columns, keys)
    whole = lineage.why if isinstance(lineage, Untraceable) else None
    if whole is None and "delta" not in spec.sinks:
        whole = f"{NO_DELTA}; --follow sends its sinks the changed keys alone"
    types = {
        table: {column.column: logged_type(column.type) for column in schema.columns}
        for table, schema in own.items()
    }
    try:
        translation = translate(spec.source.sql, types)
        _bind(translation, types)
    except UnverifiableError as error:
        _check_columns(spec, str(error), columns)
        return Analysis(unprovable=str(error.args[0]), whole=whole)
    missing = [name for name in spec.key if name not in translation.names]
    if missing:
        raise ViewError(
            f'view "{spec.name}" has no column {", ".join(missing)}, which its key names',
            hint=f"it has {', '.join(translation.names)}",
        )
    return Analysis(unprovable=None, whole=whole)


def _bind(translation: Translation, types: Mapping[TableName, Mapping[str, Type]]) -> None:
    """Let DuckDB look at the query over empty tables.

    Raises:
        UnverifiableError: it does not accept it.
    """
    with closed_database() as database:
        for macro in MACROS:
            database.execute(macro)
        for table, columns in types.items():
            listed = ", ".join(
                f"{quoted(folded(name))} {duckdb_type(kind)}" for name, kind in columns.items()
            )
            database.execute(f"CREATE TABLE {reading_name(table)} ({listed})")
        try:
            database.execute(f"DESCRIBE {translation.sql}")
        except duckdb.Error as error:
            first = str(error).partition("\n")[0]
            raise UnverifiableError(f"cannot verify this SQL: DuckDB: {first}") from error


def _check_columns(spec: ViewSpec, said: str, columns: Mapping[TableName, Sequence[str]]) -> None:
    """Refuse a column that is nowhere: neither in a table nor given a name in the query."""
    found = _UNKNOWN.search(said)
    if found is None:
        return
    name = (found[1] or found[2]).rpartition(".")[2]
    known = {column for listed in columns.values() for column in listed}
    if name.lower() in {each.lower() for each in known} | _given(spec.sql or ""):
        return
    near = get_close_matches(name, known, n=1)
    tables = "; ".join(f"{short_name(t)} has {', '.join(listed)}" for t, listed in columns.items())
    raise ViewError(
        f'view "{spec.name}" reads a column "{name}", which none of its tables has',
        hint=(f"did you mean {near[0]}? " if near else "") + tables,
    )


def _given(sql: str) -> set[str]:
    """Return the names that a query gives to columns itself, in lower case."""
    try:
        parsed = sqlglot.parse_one(sql, read="spark")
    except SqlglotError:
        return set()
    return {node.alias.lower() for node in parsed.find_all(exp.Alias)} | {
        column.name.lower() for node in parsed.find_all(exp.TableAlias) for column in node.columns
    }
