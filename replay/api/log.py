"""Open a log by a project's settings, or by the addresses of its servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from changelog.config import BROKERS, FILE_NAME, REGISTRY, Project, load_project
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.joined import CapturedLog
from changelog.contract.rows.relation import TableName
from changelog.sections import CaptureSettings
from replay.api.foreign import ForeignTable
from replay.api.reach import LogAccess, Moment, table_of
from replay.api.table import LogTable
from replay.api.values import LogFrontier, LogFrontiers, LogTables, LogVerdict
from replay.base.config import ReplaySettings
from replay.base.sections import Logs, Spark, warehouse_of
from replay.broker.topics import read_frontiers
from replay.cut.cut import make_cut
from replay.cut.others import table_of_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Log:
    """A change log: tables of PostgreSQL, captured to Kafka.

    It connects to a server only when a method needs one.
    """

    def __init__(
        self,
        *,
        kafka: str,
        registry: str,
        slot: str = "",
        topic_prefix: str = "",
        kafka_options: Mapping[str, str] | None = None,
        registry_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """Name the servers of a log.

        Args:
            kafka: `host:port` of brokers, separated by commas.
            registry: URL of the schema registry.
            slot: the slot that it was captured from; capture's own default when left out.
            topic_prefix: of its topics.
            kafka_options: further settings of the client, by librdkafka's names.
            registry_options: further settings of the client, by confluent-kafka's names.
            spark: an existing session; when left out, one is started when it is needed.
        """
        self._reach = LogAccess(
            kafka=KafkaConnection(brokers=kafka, options=dict(kafka_options or {})),
            registry=RegistryConnection(
                url=registry.rstrip("/"), options=dict(registry_options or {})
            ),
            slot=slot or CaptureSettings().slot,
            topic_prefix=topic_prefix,
            session=lambda: spark or _session(Spark(), None),
        )
        self._logs: Mapping[TableName, DeclaredLog | CapturedLog] = {}

    @classmethod
    def open(cls, place: str | Path = ".", *, spark: SparkSession | None = None) -> Self:
        """Open the log of a project.

        Args:
            place: its folder, or the `changelog.toml` in it.
            spark: an existing session; when left out, one is started when it is needed.

        Raises:
            ConfigurationError: the settings cannot be used, or name no brokers.
        """
        return cls.of(load_project(folder_of(place), needs=[BROKERS, REGISTRY]), spark=spark)

    @classmethod
    def of(cls, project: Project, *, spark: SparkSession | None = None) -> Self:
        """Return the log of a project whose settings were read already."""
        log = cls.__new__(cls)
        chosen = project.section(Spark)
        log._reach = LogAccess(
            kafka=project.kafka,
            registry=project.registry,
            slot=project.slot,
            topic_prefix=project.topic_prefix,
            settings=ReplaySettings(task_memory_mb=chosen.task_memory_mb),
            session=lambda: spark or _session(chosen, warehouse_of(project)),
        )
        log._logs = {log.table: log for log in project.section(Logs).all}
        return log

    def __repr__(self) -> str:
        """Name slot and brokers; options may hold secrets."""
        return f"Log(slot={self._reach.slot!r}, kafka={self._reach.kafka.brokers!r})"

    def frontier(self) -> LogFrontier:
        """Return the newest frontier.

        Raises:
            NoFrontierError: nothing is captured yet.
            UnavailableLogError: the brokers do not answer.
        """
        return LogFrontier.of(self._reach.newest())

    def frontiers(self) -> LogFrontiers:
        """Return every frontier that is still on the log; raises as `frontier`."""
        reach = self._reach
        records = read_frontiers(reach.kafka, reach.frontier_topic, reach.slot)
        return LogFrontiers(tuple(map(LogFrontier.of, records)))

    def tables(self) -> LogTables:
        """Return the tables that the newest frontier contains; raises as `frontier`."""
        record = self._reach.newest()
        tables = sorted(record.frontier.tables.values())
        return LogTables.of(make_cut(self._reach.kafka, record, tables))

    def verdict(
        self, tables: Sequence[str] | None = None, *, at: Moment | None = None
    ) -> LogVerdict:
        """Return whether the log can give exact states, and until when.

        Args:
            tables: names; all that are captured when left out.
            at: the moment of the states; now when left out.

        Raises:
            ConfigurationError: a table is not captured.
            VerdictError: there is no frontier of that moment.
            NoFrontierError: nothing is captured yet.
        """
        if tables is None:
            chosen_tables = sorted(self._reach.newest().frontier.tables.values())
        else:
            chosen_tables = [table_of(name) for name in tables]
        return LogVerdict.of(self._reach.cut(chosen_tables, at))

    def table(self, name: str) -> LogTable:
        """Return a table; whether it is captured is checked when it is read.

        A name under `[logs]` of a project is the log of another program, which is read whole, or
        a table of another capture, read at that one's frontiers, which say its name there.

        Raises:
            ConfigurationError: it is no name of a table; or the other capture has no such topic.
            LogError: the other capture has no frontier.
        """
        table, reach = table_of(name), self._reach
        match self._logs.get(table):
            case DeclaredLog() as log:
                return ForeignTable(reach, table, _log=log)
            case CapturedLog() as log:
                there = replace(reach, slot=log.slot, frontiers=log.frontier_topic)
                return LogTable(there, table_of_source(reach.kafka, log))
            case None:
                return LogTable(reach, table)


def folder_of(place: str | Path) -> Path:
    """Return the folder of a project that is named by itself or by its `changelog.toml`.

    Raises:
        ConfigurationError: that file is not there.
    """
    path = Path(place)
    if path.name != FILE_NAME:
        return path
    if not path.is_file():
        raise ConfigurationError(
            f"{path} is not there", hint="`changelog init DIR` makes a project"
        )
    return path.parent


def _session(chosen: Spark, warehouse: str | None) -> SparkSession:
    from replay.spark.session import SessionSettings, session  # noqa: PLC0415 - imports Spark

    return session(
        SessionSettings(
            master=chosen.master, app_name="log", warehouse=warehouse, extra=chosen.settings
        )
    )
