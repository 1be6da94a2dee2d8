"""A worker: runs the tasks that are its share, as its group on Kafka deals them out.

Each task belongs to one partition of a topic without records, and the member of the group that has
that partition runs it. So Kafka notices who is gone, and gives its tasks to the others.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from confluent_kafka import Consumer, TopicPartition

from changelog.connect.jobs.capture import run_capture
from changelog.connect.jobs.rebuild import Telling, run_rebuild
from changelog.connect.rules.captures import parse_capture
from changelog.connect.rules.kinds import CAPTURE, REBUILD, kind_of
from changelog.connect.rules.rebuilds import parse_rebuild
from changelog.connect.rules.settings import parse_settings
from changelog.connect.rules.state import (
    FAILED,
    PAUSED,
    RUNNING,
    STARTED,
    UNASSIGNED,
    ConnectCluster,
    Status,
    status_record,
)
from changelog.connect.rules.topics import check_topics, tasks_topic
from changelog.connect.store import TASKS, ConnectorStore, Record
from changelog.connect.task import TaskShare, run_task
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.secret import redacted
from changelog.kafka.clients import make_client
from changelog.runtime.edge import one_line
from changelog.runtime.process.pulse import Pulse

log = logging.getLogger("changelog.connect")

_POLL_S = 0.1
_END_S = 20.0
_SESSION_MS = 6_000
_STRIDE = TASKS // 2 + 1
Task = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Job:
    """Configuration that a task runs with; a change of it starts another run."""

    config: Mapping[str, str]
    restarts: int
    of: int

    @property
    def name(self) -> str:
        """Return a name that another run has not."""
        return f"{crc32(repr(sorted(self.config.items())).encode()):08x}-{self.restarts}"


@dataclass(slots=True)
class _Run:
    job: _Job
    stop: threading.Event = field(default_factory=threading.Event)
    state: str = UNASSIGNED
    trace: str = ""
    result: Mapping[str, Any] | None = None
    waits_for: str = ""
    thread: threading.Thread | None = None


def share_of(name: str, task: int) -> int:
    """Return the partition whose owner runs a task.

    Two tasks in turn lie apart, whether members have every other partition or halves.
    """
    return (crc32(name.encode()) + task * _STRIDE) % TASKS


class Worker:
    """The tasks of this process; one thread of its own looks after them."""

    def __init__(
        self, servers: ConnectServers, store: ConnectorStore, *, group: str, name: str
    ) -> None:
        """Join the group; `name` is this worker's `host:port`."""
        self._servers, self._store, self._name = servers, store, name
        self._owned: set[int] = set()
        self._runs: dict[Task, _Run] = {}
        self._stop = threading.Event()
        self.pulse = Pulse("what looks after the tasks")  # of the thread that looks after them
        config = servers.kafka.client_config(
            group_id=group,
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=1_000,
            partition_assignment_strategy="cooperative-sticky",
        )
        self._consumer = make_client(Consumer, config)
        self._consumer.subscribe(
            [tasks_topic(group)],
            on_assign=self._assigned,
            on_revoke=self._taken,
            on_lost=self._taken,
        )
        self._thread = threading.Thread(target=self._look_after, name="connect-worker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the tasks and leave the group, so that others have them at once."""
        self._stop.set()
        self._thread.join()

    def _assigned(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._owned |= {partition.partition for partition in partitions}

    def _taken(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        gone = {partition.partition for partition in partitions}
        self._owned -= gone
        self._end([task for task in self._runs if share_of(*task) in gone])

    def _look_after(self) -> None:
        try:
            with self.pulse.beating():
                while not self._stop.is_set():
                    with self.pulse.beat():
                        self._look_once()
                    self._stop.wait(self.pulse.pause_s)
        finally:
            self._end(list(self._runs))
            self._consumer.close()

    def _look_once(self) -> None:
        self._consumer.poll(_POLL_S)
        try:
            self._reconcile()
        except ChangelogError as error:
            log.warning("%s", one_line(error))

    def _reconcile(self) -> None:
        """Start missing runs, end unwanted ones, and write the states that have changed."""
        with self._store.read() as cluster:
            jobs = self._mine(cluster, STARTED)
            untold = self._gone(cluster)
            statuses_before = dict(cluster.statuses)
            paused = list(self._mine(cluster, PAUSED))
        self._end([task for task, run in self._runs.items() if jobs.get(task) != run.job])
        for task in jobs.keys() - self._runs.keys():
            before = statuses_before.get(task)
            self._start(task, jobs[task], before.result if before else None)
        statuses = {
            task: Status(
                state=run.state,
                worker=self._name,
                trace=run.trace,
                result=run.result,
                waits_for="" if run.state == FAILED else run.waits_for,
            )
            for task, run in self._runs.items()
        }
        statuses |= {
            task: Status(
                state=PAUSED,
                worker=self._name,
                result=statuses_before[task].result if task in statuses_before else None,
            )
            for task in paused
        }
        untold += [
            status_record(*task, status)
            for task, status in statuses.items()
            if statuses_before.get(task) != status
        ]
        if untold:
            self._store.write(untold)

    def _mine(self, cluster: ConnectCluster, state: str) -> dict[Task, _Job]:
        return {
            (name, task): _Job(
                connector.config, connector.restarts.get(task, 0), len(connector.tasks)
            )
            for name, connector in cluster.connectors.items()
            if connector.state == state
            for task in connector.tasks
            if share_of(name, task) in self._owned
        }

    def _gone(self, cluster: ConnectCluster) -> list[Record]:
        """Return records that remove the states of tasks that nobody wants any more."""
        return [
            status_record(name, task, None)
            for name, task in cluster.statuses
            if share_of(name, task) in self._owned
            and (name, task) not in self._runs
            and not (name in cluster.connectors and task in cluster.connectors[name].tasks)
        ]

    def _start(self, task: Task, job: _Job, before: Mapping[str, Any] | None) -> None:
        run = self._runs[task] = _Run(job, result=before)
        run.thread = threading.Thread(
            target=self._run, args=(task, run), name=f"{task[0]}-{task[1]}", daemon=True
        )
        run.thread.start()

    def _run(self, task: Task, run: _Run) -> None:
        def started() -> None:
            run.state = RUNNING

        def waits(reason: str) -> None:
            run.waits_for = reason

        def ended(result: Mapping[str, Any], why: str) -> None:
            run.result, run.trace, run.state = result, why, FAILED if why else RUNNING

        try:
            share = TaskShare(task[1], run.job.of)
            telling = Telling(
                run=run.job.name, last=run.result, started=started, waits=waits, ended=ended
            )
            run_connector(self._servers, run.job.config, share, run.stop, telling)
        except ChangelogError as error:
            run.trace, run.state = one_line(error), FAILED
        except Exception as error:  # noqa: BLE001 - told as the state of the task, not hidden
            run.trace = redacted("".join(traceback.format_exception(error)))
            run.state = FAILED
        if run.state == FAILED:
            log.error("task %d of %s failed: %s", task[1], task[0], run.trace)

    def _end(self, tasks: Sequence[Task]) -> None:
        """End tasks and wait for it; a longer wait is for nothing, since places are compared."""
        runs = [self._runs.pop(task) for task in tasks]
        for run in runs:
            run.stop.set()
        deadline = time.monotonic() + _END_S
        for run in runs:
            if run.thread is not None:
                run.thread.join(max(0.0, deadline - time.monotonic()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectServers:
    """The servers of a worker, and the projects."""

    kafka: KafkaConnection
    group: str  # of the workers that share the tasks
    registry: RegistryConnection | None = None  # of connectors that name none; None for none
    # folder below which the projects are that it may rebuild; None for none
    projects: Path | None = None


def run_connector(
    servers: ConnectServers,
    config: Mapping[str, str],
    share: TaskShare,
    stop: threading.Event,
    telling: Telling,
) -> None:
    """Run a task of a connector until stopped.

    Raises ChangelogError: it cannot go on, and waiting would not help; says why.
    """
    kafka, registry = servers.kafka, servers.registry
    if kind_of(config) is CAPTURE:
        run_capture(kafka, registry, parse_capture(config), stop, started=telling.started)
    elif kind_of(config) is REBUILD:
        run_rebuild(servers.projects, parse_rebuild(config), stop, telling)
    else:
        settings = parse_settings(config)
        check_topics(settings, servers.group)
        run_task(
            kafka,
            settings,
            share,
            stop,
            registry=registry,
            started=telling.started,
            waits=telling.waits,
        )
