"""A view's rows as DuckDB computes them, in the types that the view has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from changelog.contract.relation import TableName
from views.verify.compare import Equality
from views.verify.sqltypes import INTEGERS
from views.verify.tables import exact_values
from views.verify.translate import MACROS, UnverifiableError, translate
from views.verify.types import Type, duckdb_type, quoted

_INEXACT = ("DOUBLE", "FLOAT")


def evaluate(
    database: duckdb.DuckDBPyConnection,
    table: str,
    sql: str,
    tables: Mapping[TableName, Mapping[str, Type]],
    columns: Sequence[tuple[str, Type]],
) -> dict[str, Equality]:
    """Compute a view's query over the states into a new table.

    Args:
        database: holds the states under the names of `views.verify.names`.
        table: name of the new table.
        sql: the view's query in Spark SQL.
        tables: the captured tables and the types of their columns.
        columns: names and types of the view's columns.

    Returns:
        How the floats of each column are to be compared.

    Raises:
        UnverifiableError: the query has no known equal in DuckDB, or DuckDB refuses it.
        LogError: a value that it reads has no exact place in its column.
    """
    translation = translate(sql, tables)
    wanted = [name for name, _ in columns]
    if [name.lower() for name in translation.names] != [name.lower() for name in wanted]:
        raise UnverifiableError(
            f"cannot verify this SQL: it gives the columns {', '.join(translation.names)}, "
            f"the view has {', '.join(wanted)}"
        )
    for macro in MACROS:
        database.execute(macro)
    places = [f"c{place}" for place in range(len(columns))]
    inner = f"SELECT * FROM ({translation.sql}) AS q({', '.join(places)})"
    try:
        with exact_values():
            _compute(database, table, inner, places, columns)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        first = str(error).partition("\n")[0]
        raise UnverifiableError(f"cannot verify this SQL: DuckDB: {first}") from error
    bare = {name.lower() for name in translation.bare}
    as_it_stands = Equality.ZEROS if translation.groups else Equality.EXACT
    return {name: as_it_stands if name.lower() in bare else Equality.NEAR for name in wanted}


def _compute(
    database: duckdb.DuckDBPyConnection,
    table: str,
    query: str,
    places: Sequence[str],
    columns: Sequence[tuple[str, Type]],
) -> None:
    """Make a table of a query, each of its columns in the type that the view has."""
    described = database.execute(f"DESCRIBE {query}").fetchall()
    casts = []
    for place, (name, kind), row in zip(places, columns, described, strict=True):
        _check_exact(name, kind, str(row[1]))
        casts.append(f"CAST({place} AS {duckdb_type(kind)}) AS {quoted(name)}")
    database.execute(
        f"CREATE OR REPLACE TABLE {quoted(table)} AS SELECT {', '.join(casts)} FROM ({query})"
    )


def _check_exact(name: str, kind: Type, found: str) -> None:
    """Refuse a result that a cast to the view's type would round."""
    inexact = found in _INEXACT
    scale = int(found.rpartition(",")[2].rstrip(")")) if found.startswith("DECIMAL(") else 0
    rounds = (
        kind.name == "decimal" and (inexact or ("DECIMAL(" in found and scale > kind.scale))
    ) or (kind.name in INTEGERS and (inexact or scale > 0))
    if rounds:
        raise UnverifiableError(
            f'cannot verify this SQL: column "{name}" is {duckdb_type(kind)} in Spark '
            f"but {found} in DuckDB"
        )
