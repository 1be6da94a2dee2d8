"""A worker: runs the tasks that its consumer group on Kafka assigns to it.

Each task belongs to one partition of a topic without records, and the member of the group that has
that partition runs it. So Kafka notices a worker that is gone, and assigns its tasks to the rest.
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
from changelog.connect.jobs.rebuild import RunCallbacks, run_rebuild
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
    """The configuration that a task runs with; a change of it starts another run."""

    config: Mapping[str, str]
    restarts: int
    task_count: int

    @property
    def name(self) -> str:
        """Return a name that identifies the run among all runs of the task."""
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

    Consecutive tasks of a connector go to different members, whether a member has every other
    partition or one half of them.
    """
    return (crc32(name.encode()) + task * _STRIDE) % TASKS


class Worker:
    """The tasks of this process, started and ended by a thread of its own."""

    def __init__(
        self, servers: ConnectServers, store: ConnectorStore, *, group: str, name: str
    ) -> None:
        """Join the group; `name` is this worker's `host:port`."""
        self._servers, self._store, self._name = servers, store, name
        self._owned: set[int] = set()
        self._runs: dict[Task, _Run] = {}
        self._stop = threading.Event()
        self.pulse = Pulse("the thread that looks after the tasks")
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
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        self._thread = threading.Thread(target=self._look_after, name="connect-worker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the tasks and leave the group, so that other workers get the tasks at once."""
        self._stop.set()
        self._thread.join()

    def _assigned(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._owned |= {partition.partition for partition in partitions}

    def _revoked(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
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
        """Start missing runs, end unwanted ones, and write the statuses that have changed."""
        with self._store.read() as cluster:
            jobs = self._own_jobs(cluster, STARTED)
            records = self._removals(cluster)
            statuses_before = dict(cluster.statuses)
            paused = list(self._own_jobs(cluster, PAUSED))
        self._end([task for task, run in self._runs.items() if jobs.get(task) != run.job])
        for task in jobs.keys() - self._runs.keys():
            last_status = statuses_before.get(task)
            self._start(task, jobs[task], last_status.result if last_status else None)
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
        records += [
            status_record(*task, status)
            for task, status in statuses.items()
            if statuses_before.get(task) != status
        ]
        if records:
            self._store.write(records)

    def _own_jobs(self, cluster: ConnectCluster, state: str) -> dict[Task, _Job]:
        """Return the jobs of this worker's tasks, of the connectors in a state."""
        return {
            (name, task): _Job(
                connector.config, connector.restarts.get(task, 0), len(connector.tasks)
            )
            for name, connector in cluster.connectors.items()
            if connector.state == state
            for task in connector.tasks
            if share_of(name, task) in self._owned
        }

    def _removals(self, cluster: ConnectCluster) -> list[Record]:
        """Return records that remove the statuses of tasks that no longer exist."""
        return [
            status_record(name, task, None)
            for name, task in cluster.statuses
            if share_of(name, task) in self._owned
            and (name, task) not in self._runs
            and not (name in cluster.connectors and task in cluster.connectors[name].tasks)
        ]

    def _start(self, task: Task, job: _Job, last_result: Mapping[str, Any] | None) -> None:
        run = self._runs[task] = _Run(job, result=last_result)
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
            share = TaskShare(task[1], run.job.task_count)
            callbacks = RunCallbacks(
                run=run.job.name, last=run.result, started=started, waits=waits, ended=ended
            )
            run_connector(self._servers, run.job.config, share, run.stop, callbacks)
        except ChangelogError as error:
            run.trace, run.state = one_line(error), FAILED
        except Exception as error:  # noqa: BLE001 - it becomes the status of the task
            run.trace = redacted("".join(traceback.format_exception(error)))
            run.state = FAILED
        if run.state == FAILED:
            log.error("task %d of %s failed: %s", task[1], task[0], run.trace)

    def _end(self, tasks: Sequence[Task]) -> None:
        """End tasks and wait for them, for a bounded time.

        A task that outlasts it does no harm: it cannot move an offset that another task has moved.
        """
        runs = [self._runs.pop(task) for task in tasks]
        for run in runs:
            run.stop.set()
        deadline = time.monotonic() + _END_S
        for run in runs:
            if run.thread is not None:
                run.thread.join(max(0.0, deadline - time.monotonic()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectServers:
    """The servers of a worker, and the projects that it may rebuild."""

    kafka: KafkaConnection
    group: str  # name of the workers that share the tasks
    registry: RegistryConnection | None = None  # for connectors that name none
    projects: Path | None = None  # the folder of the projects; None if it may rebuild none


def run_connector(
    servers: ConnectServers,
    config: Mapping[str, str],
    share: TaskShare,
    stop: threading.Event,
    callbacks: RunCallbacks,
) -> None:
    """Run a task of a connector until stopped.

    Raises ChangelogError: the task cannot continue, and waiting would not help.
    """
    kafka, registry = servers.kafka, servers.registry
    if kind_of(config) is CAPTURE:
        run_capture(kafka, registry, parse_capture(config), stop, started=callbacks.started)
    elif kind_of(config) is REBUILD:
        run_rebuild(servers.projects, parse_rebuild(config), stop, callbacks)
    else:
        settings = parse_settings(config)
        check_topics(settings, servers.group)
        run_task(
            kafka,
            settings,
            share,
            stop,
            registry=registry,
            started=callbacks.started,
            waits=callbacks.waits,
        )
