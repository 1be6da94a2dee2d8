"""Build one generation of one view aside: its rows, then every sink written and sealed.

That each row has a key of its own, without a null, is the sinks' to check: they count what they
hold, which also finds what got lost on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.errors import PySparkException

from changelog.contract.base.errors import SinkError, ViewError
from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from views.base.failure import analysed
from views.project.python import python_frame
from views.project.query import quoted
from views.project.spec import SqlSource, ViewSpec
from views.project.sql import sql_frame
from views.sinks.base import Change, ChangeableSink, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from views.base.address import Address
    from views.base.progress import Stages
    from views.generations.served import Served


def frame_of(
    spark: SparkSession, spec: ViewSpec, states: Mapping[TableName, DataFrame]
) -> DataFrame:
    """Return the rows of a view, analysed but not computed.

    Raises ViewError: Spark does not accept the query, the function fails, a column's name comes
    twice, or a key column is missing.
    """
    own = {table: read_of(spec, table, states[table]) for table in spec.tables}
    try:
        if isinstance(spec.source, SqlSource):
            frame = sql_frame(spark, spec.source, own)
        else:
            frame = python_frame(spec.source, own)
        columns = frame.columns
    except PySparkException as error:
        raise analysed(error, spec.name, spec.path, spec.sql) from error
    except Exception as error:
        if isinstance(spec.source, SqlSource):
            raise
        raise analysed(error, spec.name, spec.path) from error
    _check_columns(spec, columns)
    return frame


def read_of(
    spec: ViewSpec, table: TableName, state: DataFrame, also: Sequence[str] = ()
) -> DataFrame:
    """Return the columns of a table that a view is given: all, or the declared ones."""
    declared = spec.columns.get(table)
    if declared is None:
        return state
    missing = [name for name in declared if name not in state.columns]
    if missing:
        raise ViewError(
            f'view "{spec.name}" declares column {", ".join(missing)}, which table "{table}" has '
            "not",
            hint=f"it has {', '.join(state.columns)}",
        )
    names = [name for name in state.columns if name in declared or name in also]
    return state.select(*map(quoted, names))


def _check_columns(spec: ViewSpec, columns: list[str]) -> None:
    lowered = [column.lower() for column in columns]
    twice = sorted({column for column in columns if lowered.count(column.lower()) > 1})
    if twice:
        raise ViewError(
            f'view "{spec.name}" has two columns called {" and ".join(twice)}',
            hint="give each column its own name with AS; names that differ in case are the same",
        )
    missing = [column for column in spec.key if column not in columns]
    if missing:
        raise ViewError(
            f'view "{spec.name}" has no column {", ".join(missing)}, which its key names',
            hint=f"it has {', '.join(columns)}",
        )


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame once for everything inside."""
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


def write(
    served: Served,
    generation: int,
    rows: DataFrame | Change,
    schema: StructType,
    stages: Stages,
) -> dict[str, Address]:
    """Write and seal a generation in every sink of a view; returns where each can be read.

    `served`: the view and its sinks. `rows`: all of them, or for a sink that can do it what differs
    from another generation.
    """
    addresses = {}
    for name, sink in served.sinks.items():
        text = f"{served.view}: generation {generation} to {name}"
        with stages.stage("write", text, served.view), translated():
            sink.open(generation, schema)
            if not isinstance(rows, Change):
                sink.write(rows)
            elif isinstance(sink, ChangeableSink):
                sink.change(rows)
            else:
                raise SinkError(f"{name} takes no changes, only all rows of a view")
            addresses[name] = sink.seal()
    counts = {name: rows_of(sink, generation) for name, sink in served.sinks.items()}
    if len(set(counts.values())) > 1:
        raise SinkError(
            f'the sinks of view "{served.view}" hold different numbers of rows: {counts}'
        )
    return addresses
