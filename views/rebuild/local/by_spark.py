"""Compute a view's rows from few rows of its tables by Spark, where DataFusion is not known to.

The session has plans for few rows. It still takes some tenths of a second a view. It is a module
of its own: a run of Spark alone needs no DataFusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql.utils import is_remote

from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.decode.decode import decode
from replay.decode.schemas import TopicSchemas
from views.project.query import query
from views.project.spec import SqlSource, TableReference
from views.project.sql import rewritten
from views.sinks.base import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_QUICK = {
    # A plan over some thousand rows runs for less time than its code takes to be compiled.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
_OURS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.variable.substitute",
    "spark.sql.avro.datetimeRebaseModeInRead",
)


class BySpark:
    """Computes a view by Spark.

    `spark`: a session, of whose context this has one of its own.
    """

    def __init__(
        self, spark: SparkSession, source: SqlSource, schemas: Mapping[TableName, TopicSchemas]
    ) -> None:
        self._session = spark
        if not is_remote():  # a server plans for all sizes alike
            self._session = spark.newSession()
            for name in _OURS:
                self._session.conf.set(name, str(spark.conf.get(name)))
            for name, value in _QUICK.items():
                self._session.conf.set(name, value)
        self._gateway = SparkContext._gateway
        self._source, self._schemas = source, schemas
        self.used: Mapping[TableReference, Sequence[str]] = {}  # it takes records

    @property
    def is_alive(self) -> bool:
        """Tell whether the session has not ended."""
        return is_remote() or self._gateway is SparkContext._gateway

    def rows(self, rows: Mapping[TableReference, pa.Table]) -> pa.Table:
        """Return the view's rows, of records; see `RowsQuery`."""
        frames = {
            place: decode(self._session.createDataFrame(some), self._schemas[place.table]).frame
            for place, some in rows.items()
        }
        with translated():
            return query(self._session, frames, partial(rewritten, self._source)).toArrow()

    def change(self, rows: pa.Table, keys: pa.Table, schema: StructType) -> Change:
        """Return rows that were computed, and the affected keys, as frames."""
        return Change(
            prior=0,
            gone=self._session.createDataFrame(keys),
            keys=keys.num_rows,
            rows=self._session.createDataFrame(rows, schema=schema),
        )
