"""Compute a view's rows in DuckDB, in the types that the view has."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from changelog.contract.rows.relation import TableName
from views.verify.compare.compare import Equality
from views.verify.log.tables import INEXACT, exact_values
from views.verify.processes.scratch import first_row
from views.verify.sql.bags import BagPlaces, in_order
from views.verify.sql.ends import OWN
from views.verify.sql.sqltypes import INTEGERS
from views.verify.sql.translate import MACROS, Translation, UnverifiableError, translate
from views.verify.values.types import Type, duckdb_type, literal, quoted

_INEXACT = ("DOUBLE", "FLOAT")
_OF_VALUES = (
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
)
"""DuckDB's errors about a single value."""
_DECIMAL = r"DECIMAL\(\d+,\d+\)"
_CONSTANTS = {*INTEGERS, "string", "date", "boolean"}
"""Types whose keys are written into a query as constants."""
_MOST_CONSTANTS, _FEW_CONSTANTS = 20_000, 200
_COUNTED_S = 60.0
"""How long the size of the largest table counts."""
_ROWS_A_CONSTANT = 100
"""Rows of the largest table for each constant: with more constants, to plan them takes longer than
to compute the rows of all keys."""


def computed_float(name: str) -> str:
    """Return the refusal of a view whose key has a float that it computes."""
    return (
        f'cannot verify this view: "{name}" of its key is a float that does not come straight '
        "from a table, so that its last digits may differ: CAST it to a decimal"
    )


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Facts about a view's columns for their comparison."""

    floats: Mapping[str, Equality]  # for each column, how its floats are compared
    # for columns with lists in an order that Spark leaves open, where these lists are
    bags: Mapping[str, BagPlaces]


class Prepared:
    """Translations, and the functions that they call, kept for the next evaluations in a database.

    To make them takes longer than a query for few keys.
    """

    def __init__(self) -> None:
        self._translations: dict[object, Translation] = {}
        self._types: dict[object, list[str]] = {}
        self._has_functions = False
        self._most_constants, self._counted_at = 0, -math.inf

    def functions(self, database: duckdb.DuckDBPyConnection) -> None:
        """Make the functions, once."""
        if not self._has_functions:
            for macro in MACROS:
                database.execute(macro)
        self._has_functions = True

    def translation(self, sql: str, tables: Mapping[TableName, Mapping[str, Type]]) -> Translation:
        """Return the translation of a query; raises UnverifiableError as `translate` does."""
        cache_key = _cache_key(sql, tables)
        if cache_key not in self._translations:
            self._translations[cache_key] = translate(sql, tables)
        return self._translations[cache_key]

    def most_constants(self, database: duckdb.DuckDBPyConnection) -> int:
        """Return the number of keys that are written into a query as constants, at most."""
        if time.monotonic() - self._counted_at >= _COUNTED_S:
            (rows,) = first_row(database, "SELECT max(estimated_size) FROM duckdb_tables()") or (0,)
            most = max(int(rows or 0) // _ROWS_A_CONSTANT, _FEW_CONSTANTS)
            self._most_constants, self._counted_at = min(most, _MOST_CONSTANTS), time.monotonic()
        return self._most_constants

    def types(
        self,
        database: duckdb.DuckDBPyConnection,
        sql: str,
        tables: Mapping[TableName, Mapping[str, Type]],
        query: str,
    ) -> list[str]:
        """Return DuckDB's types of the columns of a translated query."""
        cache_key = _cache_key(sql, tables)
        if cache_key not in self._types:
            described = database.execute(f"DESCRIBE {query}").fetchall()
            self._types[cache_key] = [str(kind) for _, kind, *_ in described]
        return self._types[cache_key]


def _cache_key(sql: str, tables: Mapping[TableName, Mapping[str, Type]]) -> object:
    return sql, tuple((table, tuple(columns.items())) for table, columns in tables.items())


def evaluate(
    database: duckdb.DuckDBPyConnection,
    table: str,
    sql: str,
    tables: Mapping[TableName, Mapping[str, Type]],
    columns: Sequence[tuple[str, Type]],
    *,
    only: Keys | None = None,
    prepared: Prepared | None = None,
) -> Evaluated:
    """Compute a view's query over the states.

    A query that makes each row from one row becomes a view of DuckDB, computed when it is read,
    without a copy. Its errors about values then arise while it is read, which has to happen in
    `computing`.

    `table`: name of the result. `sql`: the view's query in Spark SQL. `tables`: the captured tables
    and the types of their columns. `columns`: names and types of the view's columns. `only`: the
    keys whose rows are computed; None for all rows. `prepared`: kept from earlier evaluations in
    this database; None to keep nothing.

    Returns:
        The facts that the comparison of the columns needs.

    Raises UnverifiableError: the query has no known equal in DuckDB, or DuckDB refuses it;
    LogError: its column's type cannot hold a value that it reads.
    """
    rows = rows_of(database, sql, tables, columns, only=only, prepared=prepared)
    with computing():
        relation = "VIEW" if rows.is_by_row and only is None else "TABLE"
        for old in ("VIEW", "TABLE"):  # DuckDB refuses to drop one as the other
            with suppress(duckdb.CatalogException):
                database.execute(f"DROP {old} IF EXISTS {quoted(table)}")
        with locating(database, f"({rows.uncast})", rows.places):
            database.execute(f"CREATE {relation} {quoted(table)} AS {rows.query}")
    return rows.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRows:
    """A view's rows as a query in DuckDB, in the types that the view has."""

    query: str
    uncast: str  # the same before the columns are cast
    places: Mapping[str, str]  # the columns of the uncast query, by the view's names for them
    is_by_row: bool  # whether each row is made from one row of a table
    facts: Evaluated


def rows_of(
    database: duckdb.DuckDBPyConnection,
    sql: str,
    tables: Mapping[TableName, Mapping[str, Type]],
    columns: Sequence[tuple[str, Type]],
    *,
    only: Keys | None,
    prepared: Prepared | None,
) -> ViewRows:
    """Return the rows of a view's query, not computed yet; see `evaluate`."""
    prepared = prepared or Prepared()
    translation = prepared.translation(sql, tables)
    expected = [name for name, _ in columns]
    if [name.lower() for name in translation.names] != [name.lower() for name in expected]:
        raise UnverifiableError(
            f"cannot verify this SQL: it gives the columns {', '.join(translation.names)}, "
            f"the view has {', '.join(expected)}"
        )
    prepared.functions(database)
    places = [f"c{place}" for place in range(len(columns))]
    uncast = f"SELECT * FROM ({translation.sql}) AS q({', '.join(places)})"
    with computing():
        computed = prepared.types(database, sql, tables, uncast)
    if only is not None:
        most = prepared.most_constants(database)
        uncast += f" WHERE {only.condition(columns, computed, most)}"
    casts = []
    for place, (name, kind), result_type in zip(places, columns, computed, strict=True):
        _check_exact(name, kind, result_type)
        value = f"CAST({place} AS {duckdb_type(kind)})"
        casts.append(f"{ordered(value, name, kind, translation.bags)} AS {quoted(name)}")
    bare = {name.lower() for name in translation.bare}
    as_it_stands = Equality.ZEROS if translation.groups else Equality.EXACT
    floats = {name: as_it_stands if name.lower() in bare else Equality.NEAR for name in expected}
    return ViewRows(
        query=f"SELECT {', '.join(casts)} FROM ({uncast})",
        uncast=uncast,
        places=dict(zip(expected, places, strict=True)),
        is_by_row=translation.by_row,
        facts=Evaluated(floats, translation.bags),
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """Some keys of a view."""

    relation: str  # of the database; has each of them once, in columns with the view's names
    values: pa.Table  # the same, in the view's types

    def condition(
        self, columns: Sequence[tuple[str, Type]], computed: Sequence[str], most: int
    ) -> str:
        """Return the condition that a row `(c0, c1, …)` has one of the keys.

        It also has the weaker condition that each column is one of some constants, because DuckDB
        can push that down to the tables that the column comes from, and so computes little more
        than the rows of these keys.

        `columns`: names and types of the view's columns. `computed`: the types of the query's
        result. `most`: of the constants.
        """
        parts, same = [], []
        for place, (name, kind) in enumerate(columns):
            if name not in self.values.column_names:
                continue
            same.append(f"k.{quoted(name)} = c{place}")
            texts = _texts(self.values[name], kind)
            if texts is not None and len(texts) <= most:
                constants = [_constant(text, kind, computed[place]) for text in texts]
                parts.append(f"c{place} IN ({', '.join(constants) or 'NULL'})")
        if len(same) > 1 or not parts:  # one column's constants are the keys
            parts.append(f"EXISTS (FROM {quoted(self.relation)} k WHERE {' AND '.join(same)})")
        return " AND ".join(parts)


def _texts(values: pa.ChunkedArray, kind: Type) -> list[str] | None:
    """Return the texts of the distinct values of a key's column, or None if they have none here."""
    if kind.name not in _CONSTANTS or values.null_count:
        return None
    texts: list[str] = pc.unique(values).cast(pa.string()).to_pylist()
    # Before the year 1 Arrow has another text of a date than DuckDB.
    is_early = kind.name == "date" and any(text.startswith("-") for text in texts)
    return None if is_early else texts


def _constant(text: str, kind: Type, computed: str) -> str:
    """Return the SQL of a key's value.

    It is not cast where the result already has a constant's own type: DuckDB takes longer to bind a
    thousand casts than to compute the rows.
    """
    if computed == duckdb_type(kind):
        if kind.name in INTEGERS:
            return text
        if kind.name == "string":
            return literal(text)
    return f"CAST({literal(text)} AS {duckdb_type(kind)})"


@contextmanager
def computing() -> Iterator[None]:
    """Raise DuckDB's errors about a view's query as errors of ours.

    Raises UnverifiableError: DuckDB refuses it; LogError: its column's type cannot hold a value
    that it reads.
    """
    try:
        with exact_values():
            yield
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        first = str(error).partition("\n")[0]
        _, own, message = first.partition(OWN)
        why = message if own else f"DuckDB: {first}"
        raise UnverifiableError(f"cannot verify this SQL: {why}") from error


@contextmanager
def locating(
    database: duckdb.DuckDBPyConnection, relation: str, columns: Mapping[str, str]
) -> Iterator[None]:
    """Name the columns of a relation that cannot be computed for some of its values.

    `relation`: its SQL after FROM. `columns`: SQL of its columns, by the view's names for them.

    Raises duckdb.Error: the error as it is, with the columns before it.
    """
    try:
        yield
    except _OF_VALUES as error:
        first = str(error).partition("\n")[0]
        failing = [] if INEXACT in first else _failing(database, relation, columns)
        if not failing:
            raise
        listed = " and ".join(f'"{name}"' for name in failing)
        _, own, message = first.partition(OWN)
        raise type(error)(f"{OWN}column {listed}: {message if own else first}") from error


def _failing(
    database: duckdb.DuckDBPyConnection, relation: str, columns: Mapping[str, str]
) -> list[str]:
    """Return the columns that fail; none if all do, or the relation itself fails."""
    failing = []
    for name, value in columns.items():
        try:
            database.execute(f"SELECT max(hash({value})) FROM {relation}").fetchall()
        except _OF_VALUES:
            failing.append(name)
    return failing if len(failing) < max(len(columns), 2) else []


def ordered(value: str, name: str, kind: Type, bags: Mapping[str, BagPlaces]) -> str:
    """Return the SQL of a column's value with its unordered lists sorted."""
    bag = {column.lower(): list_bag for column, list_bag in bags.items()}.get(name.lower())
    return value if bag is None else in_order(value, kind, bag)


def _check_exact(name: str, kind: Type, result_type: str) -> None:
    """Refuse a result that a cast to the view's type would round."""
    if kind.name == "array" and result_type.endswith("[]"):
        _check_exact(name, kind.fields[0][1], result_type.removesuffix("[]"))
        return
    inexact = result_type in _INEXACT
    scale = int(result_type.rpartition(",")[2][:-1]) if re.fullmatch(_DECIMAL, result_type) else 0
    rounds = (
        kind.name == "decimal" and (inexact or ("DECIMAL(" in result_type and scale > kind.scale))
    ) or (kind.name in INTEGERS and (inexact or scale > 0))
    if rounds:
        raise UnverifiableError(
            f'cannot verify this SQL: column "{name}" is {duckdb_type(kind)} in Spark '
            f"but {result_type} in DuckDB"
        )
