"""A query in Spark's SQL over frames that have no names of their own."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.utils import is_remote

from views.project.own_calls import with_own_calls
from views.project.spec import TableReference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.observation import Observation

_STRANGE = re.compile(r"\W", re.ASCII)
_ANALYSED = threading.Lock()
_FILES = "spark.sql.runSQLOnFiles"

Text = Callable[[Mapping[TableReference, str]], str]
"""Returns a query's text, of the name that stands for each place; names have no quotes."""


def query(spark: SparkSession, frames: Mapping[TableReference, DataFrame], text: Text) -> DataFrame:
    """Return the rows of a query as a DataFrame that is not run; a server analyses it later."""
    named: dict[str, DataFrame] = {}
    by_frame: dict[int, str] = {}
    for reference, frame in frames.items():
        own = _STRANGE.sub("_", reference.table.table)  # a server takes only names without quotes
        name = by_frame.setdefault(id(frame), f"changelog_{len(by_frame)}_{own}")
        named[name] = frame
    query_text = with_own_calls(
        text({reference: by_frame[id(frame)] for reference, frame in frames.items()})
    )
    return _on_server(spark, query_text, named) if is_remote() else _here(spark, query_text, named)


def quoted(name: str) -> str:
    """Return a name as Spark's SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def _here(spark: SparkSession, text: str, named: Mapping[str, DataFrame]) -> DataFrame:
    """Register the frames as temporary views while the query is analysed.

    Their names are those of the session: another thread's query waits. No name stands for a file
    meanwhile: ``text.`/etc/passwd` `` is a table to us, and would be a path to Spark.
    """
    with _ANALYSED:
        for name, frame in named.items():
            frame.createOrReplaceTempView(quoted(name))
        reads_files = spark.conf.get(_FILES)
        spark.conf.set(_FILES, "false")
        try:
            return spark.sql(text)
        finally:
            spark.conf.set(_FILES, str(reads_files))
            for name in named:
                spark.catalog.dropTempView(name)


def _on_server(spark: SparkSession, text: str, named: Mapping[str, DataFrame]) -> DataFrame:
    """Put the frames into the query: views would be gone when a server looks for them.

    As `spark.sql(text, name=frame)` does, but for two things: what the frames observe is still
    told, and braces in the text stay what they are.
    """
    from pyspark.sql.connect import plan  # noqa: PLC0415 - needs gRPC
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame  # noqa: PLC0415

    class Query(plan.SQL):
        @property
        def observations(self) -> dict[str, Observation]:
            return {
                n: observation for view in aliases for n, observation in view.observations.items()
            }

    aliases: list[Any] = [
        plan.SubqueryAlias(cast("Any", frame)._plan, name) for name, frame in named.items()
    ]
    return RemoteFrame(Query(text, [], {}, aliases), cast("Any", spark))
