"""Fixtures over the real servers: one stack for the whole run, started when first asked for."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg2
import pytest
from psycopg2 import sql
from psycopg2.extensions import make_dsn

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import StackError
from changelog.stack.base.places import make_directory
from changelog.stack.base.ports import pick
from changelog.stack.base.state import Endpoints, StackState, write_state
from changelog.stack.download.artifacts import all_artifacts
from changelog.stack.download.fetch import resolve
from changelog.stack.servers.kafka import KafkaServer
from changelog.stack.stack import Stack
from tests.support.search_on_demand import StackWithSearchOnDemand
from tests.support.wait import wait_until

KAFKA_PROPERTIES = {
    # Tests that force a cleaning set their topics so; the broker must only look often enough.
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    # On a busy machine the broker may not run for seconds. Then its controller would take it for
    # dead and give each partition a new leader: a reason to refuse what is read at that moment.
    "broker.session.timeout.ms": "12000",
}
POSTGRES_SETTINGS = {
    "fsync": "off",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_prepared_transactions": "10",
}


FOLDER = "changelog-tests-"
_PORTS = 4


@pytest.fixture(scope="session")
def downloads(request: pytest.FixtureRequest) -> None:
    """Fetch what the servers and Spark need, visibly, before the first test's clock starts."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        resolve(all_artifacts())


@pytest.fixture(scope="session")
def stack(downloads: None) -> Iterator[Stack]:
    """All servers, in a directory of this run that goes with it; search when it is asked for."""
    _end_stacks_of_dead_runs()
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-") as folder:
        # Under root the servers run as another user, who cannot enter pytest's own folders.
        Path(folder).chmod(0o755)
        home = Path(folder) / "stack"
        with StackWithSearchOnDemand(
            home,
            with_=("cache",),
            postgres_settings=POSTGRES_SETTINGS,
            kafka_properties={**KAFKA_PROPERTIES, **_with_proxy(home)},
            # They compile more than they run.
            java_options=["-XX:TieredStopAtLevel=1"],
        ) as running:
            yield running


@contextmanager
def own_broker() -> Iterator[KafkaServer]:
    """A broker that a test may stop, kill and start as it likes."""
    with tempfile.TemporaryDirectory(prefix="changelog-broker-") as folder:
        Path(folder).chmod(0o755)  # under root the server runs as another user
        port = pick([])
        made = KafkaServer(Path(folder) / "kafka", port, pick([port]), properties=KAFKA_PROPERTIES)
        made.start()
        try:
            yield made
        finally:
            made.stop()


@dataclass(frozen=True)
class Detour:
    """A listener of the broker that it tells clients to reach elsewhere: through a proxy."""

    listener: int
    proxy: int


_DETOURS: dict[Path, Detour] = {}


def _with_proxy(home: Path) -> dict[str, str]:
    """Choose the ports before the stack does: the broker's settings name them."""
    make_directory(home)
    ports: list[int] = []
    while len(ports) < _PORTS:
        ports.append(pick(ports))
    broker, controller, listener, proxy = ports
    write_state(home, StackState((), {"kafka": broker, "kafka_controller": controller}))
    _DETOURS[home] = Detour(listener, proxy)
    own, there = f"PLAINTEXT://127.0.0.1:{broker}", "PROXIED://127.0.0.1"
    return {
        "listeners": f"{own},{there}:{listener},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"{own},{there}:{proxy}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
    }


@pytest.fixture
def detour(stack: Stack) -> Detour:
    """Where a proxy for the broker has to stand."""
    return _DETOURS[stack.directory]


@pytest.fixture
def endpoints(stack: Stack) -> Endpoints:
    """Where the servers are; fails when an earlier test left one of them down."""
    return stack.endpoints()


@pytest.fixture
def kafka(endpoints: Endpoints) -> KafkaConnection:
    return KafkaConnection(brokers=endpoints.brokers)


@pytest.fixture
def registry(endpoints: Endpoints) -> RegistryConnection:
    return RegistryConnection(url=endpoints.schema_registry)


@pytest.fixture
def prefix() -> str:
    """A topic prefix, and a name for a slot, that no other test has."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def database(endpoints: Endpoints, prefix: str) -> Iterator[str]:
    """The DSN of a fresh database; it and its replication slots are gone after the test."""
    name = f"db_{prefix}"
    with closing(_connect(endpoints.postgres)) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield make_dsn(endpoints.postgres, dbname=name)
    with closing(_connect(endpoints.postgres)) as connection, connection.cursor() as cursor:
        _end_sessions(cursor, name)
        cursor.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            (name,),
        )
        cursor.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def dsn(database: str) -> str:
    """The same: how a source is named everywhere else."""
    return database


def _end_stacks_of_dead_runs() -> None:
    """End what a run has left behind that was killed: its servers outlive it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        owner = folder.name.removeprefix(FOLDER).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            # Of another user perhaps: then it is not ours to end.
            with suppress(StackError, OSError):
                Stack(folder / "stack").down()
                shutil.rmtree(folder)


def _connect(dsn: str) -> psycopg2.extensions.connection:
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    return connection


def _end_sessions(cursor: psycopg2.extensions.cursor, name: str) -> None:
    def none_left() -> bool:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        return not cursor.fetchall()

    wait_until(none_left, 10, f"the sessions of database {name} have ended")
