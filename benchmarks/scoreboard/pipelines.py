"""The pipelines: how each is started, killed, started again, and where its copies lie.

Settings are the ones that each program's own documents recommend for copies with deletes; where
they describe a setting against a loss that the workload has, it is set. What a program's documents
name as a limit is in `limits`, by table.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import psycopg2
from psycopg2.extensions import make_dsn, parse_dsn

from benchmarks import pgsync
from benchmarks.kafka_connect import WORKER, fetch_jars, fetch_plugin, start_worker
from benchmarks.orders import execute
from benchmarks.scoreboard import programs
from benchmarks.scoreboard.workload import ALL_TABLES, SETUP
from changelog.stack.base.state import Endpoints
from changelog.stack.servers.postgres import bin_dir

_LONG_S = 600.0
_ENDS_S = 30.0
SUPERVISED = ("sh", "-c", 'while :; do "$@"; sleep 1; done', "supervised")
"""Before a command: it is started again whenever it ends."""


class Pipeline(ABC):
    """A program, or several, that keep copies of all tables of one database."""

    name: ClassVar[str]
    version: ClassVar[str]
    kind: ClassVar[str] = "PostgreSQL"
    limits: ClassVar[Mapping[str, str]] = {}
    left_out: ClassVar[Mapping[str, str]] = {}
    """Tables that it is not given, and why: its documents say that it cannot have them so."""
    settings: ClassVar[str]
    """The settings that matter, in one sentence."""

    def __init__(self, at: Endpoints, source: str, target: str, folder: Path, cache: Path) -> None:
        """Take the servers, the databases, a folder of its own, and one that is kept."""
        self.at, self.source, self.target, self.folder = at, source, target, folder
        self.cache = cache
        self.processes: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Do what is done once, before the first start."""

    @abstractmethod
    def start(self) -> None:
        """Start it, or start it again after a kill."""

    def copy_of(self, table: str) -> Sequence[str]:
        """Return the options of `changelog verify` that name the copy of a table."""
        return ["--target", f"postgres:{uri_of(self.target)}/public.{table}"]

    def kill(self) -> None:
        """End all its processes by SIGKILL."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def stop(self) -> None:
        """End it in its own way."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDS_S)
        self.kill()

    def ended(self) -> list[str]:
        """Return the processes that have ended by themselves, with their exit codes."""
        return [
            f"{' '.join(map(str, process.args[-3:]))}: ended with {process.returncode}"  # type: ignore[index]
            for process in self.processes
            if process.poll() is not None
        ]

    def run(self, name: str, words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start a process of it in a group of its own; it writes to a log of that name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    words, stdout=log, stderr=log, cwd=self.folder, env=env, start_new_session=True
                )
            )

    def run_once(self, name: str, words: Sequence[str], env: Mapping[str, str]) -> None:
        """Run a command of it to its end; it writes to a log of that name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            subprocess.run(
                words, stdout=log, stderr=log, cwd=self.folder, env=env, check=True, timeout=_LONG_S
            )

    def text_of_logs(self) -> str:
        """Return the end of all its logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(
            f"== {log.name}\n{log.read_text('utf-8', 'replace')[-3000:]}" for log in logs
        )


class ChangelogStore(Pipeline):
    """This project: capture, and a follower of one view a table."""

    name = "changelog-store"
    version = "this commit"
    settings = '`on_incompatible = "resnapshot"`; views `SELECT *`, followed, proved as by default'

    def prepare(self) -> None:
        """Write the project."""
        (self.folder / "views").mkdir()
        tables = ", ".join(f'"public.{table}"' for table in ALL_TABLES)
        (self.folder / "changelog.toml").write_text(
            f'postgres.dsn = "{self.source}"\nkafka.brokers = "{self.at.brokers}"\n'
            f'registry.url = "{self.at.schema_registry}"\n'
            f'[capture]\nslot = "ours"\ntopic_prefix = "ours"\ntables = [{tables}]\n'
            'on_incompatible = "resnapshot"\n'
            f'[sinks]\npostgres.url = "{self.target}"\n',
            encoding="utf-8",
        )
        for table in ALL_TABLES:
            key = "a, b" if table == "moved" else "id"
            (self.folder / "views" / f"{table}.sql").write_text(
                f"-- dialect: postgres\n-- key: {key}\n-- sinks: postgres\nSELECT * FROM {table}\n",
                encoding="utf-8",
            )

    def start(self) -> None:
        """Start both under a loop that starts each again when it ends."""
        project = ["--project", str(self.folder)]
        python = [sys.executable, "-m", "changelog", "capture", *project]
        self.run("capture", [*SUPERVISED, *python])
        follow = [
            str(Path(sys.executable).with_name("rebuild-view")),
            "--all",
            "--follow",
            *project,
        ]
        self.run("follow", [*SUPERVISED, *follow])


class Debezium(Pipeline):
    """Debezium's source and its JDBC sink, both in one Kafka Connect worker."""

    name = "Debezium and its JDBC sink"
    version = "3.6.0.Final"
    limits: ClassVar = {
        "altered": "the sink adds columns; it changes no types and drops none",
    }
    settings = (
        "source: `skipped.operations=none`, `interval.handling.mode=string`, the reselect post "
        "processor for unchanged TOAST; sink: "
        "upsert by the record's key, `delete.enabled`, `truncate.enabled`, "
        "`schema.evolution=basic`, `header.converter` for texts"
    )

    def prepare(self) -> None:
        """Fetch the worker and both connectors."""
        fetch_jars(self.cache / "connect", WORKER)
        for kind in ("postgres", "jdbc"):
            artifact = f"io.debezium:debezium-connector-{kind}:{self.version}:tar.gz:plugin"
            fetch_plugin(self.cache / "plugins", artifact)

    def start(self) -> None:
        """Start the worker with both connectors."""
        at, to = parse_dsn(self.source), parse_dsn(self.target)
        source = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": at["host"],
            "database.port": at["port"],
            "database.user": at["user"],
            "database.password": "unused",
            "database.dbname": at["dbname"],
            "topic.prefix": "dbz",
            "table.include.list": ",".join(f"public.{table}" for table in ALL_TABLES),
            "slot.name": "dbz",
            "publication.name": "dbz",
            "publication.autocreate.mode": "filtered",
            "skipped.operations": "none",
            "interval.handling.mode": "string",
            "post.processors": "reselector",
            "reselector.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
            "reselector.reselect.unavailable.values": "true",
            "reselector.reselect.null.values": "false",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        }
        sink = {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "topics.regex": "dbz\\\\.public\\\\..*",
            "connection.url": f"jdbc:postgresql://{to['host']}:{to['port']}/{to['dbname']}",
            "connection.username": to["user"],
            "connection.password": "unused",
            "insert.mode": "upsert",
            "delete.enabled": "true",
            "truncate.enabled": "true",
            "primary.key.mode": "record_key",
            "schema.evolution": "basic",
            "collection.name.format": "${source.table}",
            "use.time.zone": "UTC",
            # Without it the sink stops at the first row that moves to another key: the default
            # converter cannot read the header in which Debezium names the key.
            "header.converter": "org.apache.kafka.connect.storage.StringConverter",
            "consumer.override.metadata.max.age.ms": "1000",
        }
        worker = start_worker(
            self.folder, self.cache / "connect", self.cache / "plugins", self.at.brokers,
            {"source": source, "sink": sink},
        )  # fmt: skip
        self.processes.append(worker)


class Subscription(Pipeline):
    """PostgreSQL's own logical replication, within one server: the slot is made by hand."""

    name = "PostgreSQL's subscription"
    version = "15"
    left_out: ClassVar = {"altered": "it does not replicate the schema, so people alter both sides"}
    settings = "tables made by hand; killed are its worker processes (`pg_terminate_backend`)"

    def prepare(self) -> None:
        """Make tables, publication, slot and subscription."""
        execute(self.target, *(text for text in SETUP if text.startswith(("CREATE", "ALTER"))))
        tables = ", ".join(table for table in ALL_TABLES if table not in self.left_out)
        execute(self.source, f"CREATE PUBLICATION own FOR TABLE {tables}")
        execute(self.source, "SELECT pg_create_logical_replication_slot('own', 'pgoutput')")
        execute(
            self.target,
            f"CREATE SUBSCRIPTION own CONNECTION '{self.source}' PUBLICATION own "
            "WITH (create_slot = false, slot_name = 'own', enabled = false)",
        )

    def start(self) -> None:
        """Enable the subscription, which starts its workers."""
        execute(self.target, "ALTER SUBSCRIPTION own ENABLE")

    def kill(self) -> None:
        """End its workers."""
        execute(
            self.target,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_subscription WHERE pid IS NOT NULL",
        )

    def stop(self) -> None:
        """Drop it."""
        execute(self.target, "ALTER SUBSCRIPTION own DISABLE")
        execute(self.target, "ALTER SUBSCRIPTION own SET (slot_name = NONE)")
        execute(self.target, "DROP SUBSCRIPTION own")


class Pgsync(Pipeline):
    """pgsync: an index of documents a table."""

    name = "pgsync"
    version = pgsync.VERSION
    kind = "OpenSearch"
    limits: ClassVar = {"altered": "documents have the columns that its schema names"}
    settings = (
        "its documents' defaults; one index a table, all columns that it has at first; a mapping "
        "for floats and JSON, which the server would otherwise guess from the first document"
    )
    _MAPPING: ClassVar = {
        "single": {"type": "double"},
        "double": {"type": "double"},
        "plain": {"type": "object", "enabled": False},
        "document": {"type": "object", "enabled": False},
    }

    def prepare(self) -> None:
        """Install it, write its schema and let it make its triggers."""
        self._commands = pgsync.installed(self.cache)
        database = parse_dsn(self.source)["dbname"]
        schema = [
            {
                "database": database,
                "index": f"pgsync_{table}",
                "nodes": {
                    "table": table,
                    "columns": self._columns(table),
                    **({"transform": {"mapping": self._MAPPING}} if table == "typed" else {}),
                },
            }
            for table in ALL_TABLES
        ]
        self._config = self.folder / "schema.json"
        self._config.write_text(json.dumps(schema), encoding="utf-8")
        self._env = {**pgsync.variables(self.at), "PG_DATABASE": database}
        words = [str(self._commands / "bootstrap"), "--config", str(self._config)]
        self.run_once("bootstrap", words, self._env)

    def _columns(self, table: str) -> list[str]:
        with closing(psycopg2.connect(self.source)) as session, session.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table} LIMIT 0")
            names = [column.name for column in cursor.description or ()]
        # It does not start where a column that it was told of has been dropped.
        return [name for name in names if (table, name) != ("altered", "going")]

    def start(self) -> None:
        """Start its daemon."""
        words = [str(self._commands / "pgsync"), "--config", str(self._config), "--daemon"]
        self.run("pgsync", words, env=self._env)

    def copy_of(self, table: str) -> Sequence[str]:
        """Return the index."""
        search = urlsplit(str(self.at.search))
        return ["--target", f"search:http://{search.hostname}:{search.port}/pgsync_{table}"]


class Pgstream(Pipeline):
    """pgstream: decodes with wal2json, snapshots with pg_dump, keeps the schema up to date."""

    name = "pgstream"
    version = programs.PGSTREAM
    settings = (
        "`snapshot_and_replication` of all tables, batches of 100 rows or 1 s, the schema log for "
        "DDL, `on_conflict_action: update` since rows come again after a kill"
    )

    def prepare(self) -> None:
        """Build it, write its settings, and make its schema, triggers and slot."""
        self._command = str(programs.pgstream(self.cache))
        source, target = (f"{uri_of(dsn)}?sslmode=disable" for dsn in (self.source, self.target))
        replicated = {
            "url": source,
            "mode": "snapshot_and_replication",
            "snapshot": {
                "mode": "full",
                "tables": [f"public.{name}" for name in ALL_TABLES],
                "recorder": {"postgres_url": source},
                "schema": {"mode": "pgdump_pgrestore"},
            },
            "replication": {"replication_slot": "pgstream"},
        }
        written = {
            "url": target,
            "batch": {"timeout": 1000, "size": 100},
            "schema_log_store_url": source,
            "on_conflict_action": "update",
        }
        config = {"source": {"postgres": replicated}, "target": {"postgres": written}}
        # YAML takes JSON.
        (self.folder / "pgstream.yaml").write_text(json.dumps(config), encoding="utf-8")
        # It calls pg_dump and pg_restore.
        self._env = {**os.environ, "PATH": f"{bin_dir()}:{os.environ['PATH']}"}
        words = [self._command, "init", "--postgres-url", source, "--replication-slot", "pgstream"]
        self.run_once("init", words, self._env)

    def start(self) -> None:
        """Start it, again whenever it ends."""
        words = [self._command, "run", "-c", str(self.folder / "pgstream.yaml")]
        words += ["--log-level", "info"]
        self.run("pgstream", [*SUPERVISED, *words], env=self._env)


class Dlt(Pipeline):
    """dlt: loads all tables anew, time and again, by its source for SQL databases."""

    name = "dlt"
    version = programs.DLT
    left_out: ClassVar = {
        "typed": "an interval ends it, and so does a `numeric` of 30 digits before the point",
        "altered": "a column that is added NOT NULL ends it: its table has rows",
    }
    settings = (
        '`sql_database` with `write_disposition="replace"` in a loop, `max_table_nesting=0`, '
        "for the rest its defaults"
    )
    _LOOP = """
import time

import dlt
from dlt.sources.sql_database import sql_database

pipeline = dlt.pipeline("copies", destination=dlt.destinations.postgres({target!r}),
                        dataset_name="copies", pipelines_dir="state")
while True:
    source = sql_database({source!r}, table_names={tables!r})
    source.max_table_nesting = 0
    pipeline.run(source, write_disposition="replace")
    time.sleep(1)
"""

    def prepare(self) -> None:
        """Install it, and write the program that loads."""
        self._python = programs.dlt(self.cache)
        # The driver that it brings is not the one that SQLAlchemy takes by default.
        source = uri_of(self.source).replace("postgresql:", "postgresql+psycopg2:")
        tables = [table for table in ALL_TABLES if table not in self.left_out]
        text = self._LOOP.format(source=source, target=uri_of(self.target), tables=tables)
        (self.folder / "load.py").write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Start the loop, again whenever it ends."""
        env = {**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"}
        self.run("dlt", [*SUPERVISED, str(self._python), "load.py"], env=env)

    def copy_of(self, table: str) -> Sequence[str]:
        """Return the table in its dataset."""
        return ["--target", f"postgres:{uri_of(self.target)}/copies.{table}"]


PIPELINES: Mapping[str, type[Pipeline]] = {
    "ours": ChangelogStore,
    "debezium": Debezium,
    "subscription": Subscription,
    "pgsync": Pgsync,
    "pgstream": Pgstream,
    "dlt": Dlt,
}


def uri_of(dsn: str) -> str:
    """Return the URI of a database."""
    at = parse_dsn(dsn)
    return f"postgresql://{at['user']}:unused@{at['host']}:{at['port']}/{at['dbname']}"


def database_of(dsn: str, name: str) -> str:
    """Make a database; returns how it is connected to."""
    execute(dsn, f"CREATE DATABASE {name}")
    return make_dsn(dsn, dbname=name)
