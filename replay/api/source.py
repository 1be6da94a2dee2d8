"""Tables of a log as a data source of Spark, so that its SQL reaches them by name.

`spark.dataSource.register(ChangelogSource)`, then `spark.read.format("changelog")` with the options
`project` and `table`, and perhaps `asOf`; or `CREATE TEMPORARY VIEW … USING changelog OPTIONS (…)`.

Spark asks for schema, partitions and rows in different processes. The frontier is frozen and judged
when it asks for partitions, once a query; each partition carries the cut and, at the end of its
task, checks again that its rows were exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError
from replay.api.log import Log
from replay.api.opened import OpenedTable
from replay.broker.client_options import travelling
from replay.cut.cut import Cut, recheck
from replay.decode.schemas import TopicSchemas
from replay.local.rows import RowReader
from replay.local.state import LocalScan
from replay.scan.range import PartitionRange

_PROJECT, _TABLE, _AS_OF = "project", "table", "asOf"


class ChangelogPartition(InputPartition):
    """The ranges of a topic that one task reads: a single one, or all of a topic that has grown."""

    def __init__(self, ranges: Sequence[PartitionRange], task: _Task) -> None:
        super().__init__(None)
        self.ranges, self.task = tuple(ranges), task


class _Task:
    """The values with which a task reads and judges its ranges."""

    def __init__(self, kafka: KafkaConnection, cut: Cut, schemas: TopicSchemas) -> None:
        self.kafka, self.cut, self.schemas = kafka, cut, schemas

    def batches(self, ranges: Sequence[PartitionRange]) -> Iterator[pa.RecordBatch]:
        scan = LocalScan(self.kafka, self.cut, self.schemas)
        for table in scan.tables(ranges):
            yield from table.to_batches()
        recheck(self.cut, self.kafka)


class ChangelogReader(DataSourceReader):
    """Reads the rows of one table for Spark."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Freeze the frontier and return the ranges of each task.

        Raises:
            VerdictError: the log cannot give the exact state.
        """
        opened = _opened(self._options)
        opened.cut.verdict.require()
        scan, kafka = opened.scan(), opened.reach.kafka
        kafka = replace(kafka, options=travelling(kafka.options))
        task = _Task(kafka, opened.cut, opened.schemas)
        ranges = scan.ranges()
        groups = [ranges] if scan.has_grown or not ranges else [[part] for part in ranges]
        return [ChangelogPartition(group, task) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, then check that they were exact.

        Raises:
            VerdictError: they are not, or not any more.
            LogError: a record or a value cannot be read.
        """
        assert isinstance(partition, ChangelogPartition)  # noqa: S101 - see `partitions`
        return partition.task.batches(partition.ranges)


class ChangelogSource(DataSource):
    """The data source `changelog`; options: `project`, `table`, `asOf`."""

    @classmethod
    def name(cls) -> str:
        """Return its name in `format(…)` and `USING …`."""
        return "changelog"

    def schema(self) -> StructType:
        """Return the columns, with Spark's types.

        Raises:
            ConfigurationError: an option is missing or unknown, or the table is not captured.
        """
        return from_arrow_schema(RowReader(_opened(self.options).schemas).schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is ours
        """Return the reader of the table."""
        return ChangelogReader(self.options)


def _opened(options: Mapping[str, Any]) -> OpenedTable:
    """Open the table that options name; Spark may change the case of their names."""
    names = {name.lower(): name for name in (_PROJECT, _TABLE, _AS_OF)}
    by_name = {names.get(name.lower(), name): value for name, value in options.items()}
    unknown = sorted({*by_name} - {*names.values()})
    if unknown or _TABLE not in by_name:
        wrong = f'has no option "{unknown[0]}"' if unknown else 'needs the option "table"'
        raise ConfigurationError(
            f"the data source changelog {wrong}", hint="options are project, table and asOf"
        )
    log = Log.open(Path(by_name.get(_PROJECT, ".")))
    opened = log.table(by_name[_TABLE]).at(by_name.get(_AS_OF)).opened()
    opened.require_local()
    return opened
