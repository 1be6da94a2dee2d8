"""State that all workers share: connectors, statuses of tasks, ended sessions of the page.

It is on a compacted topic, whose records have the keys `connector/NAME`, `status/NAME/TASK` and
`ended/SESSION`; the value of the last is the time at which the session would have ended. A null
value removes an entry. Each worker reads the topic from its start, so all of them answer alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from changelog.connect.rules.keys import MOST_TASKS
from changelog.connect.rules.kinds import kind_of, masked

STARTED, PAUSED, STOPPED = "STARTED", "PAUSED", "STOPPED"
UNASSIGNED, RUNNING, FAILED = "UNASSIGNED", "RUNNING", "FAILED"
_CONNECTOR, _STATUS, _ENDED = "connector", "status", "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A connector: its configuration and the state that was asked for."""

    config: Mapping[str, str] = field(repr=False)  # as it was given
    state: str = STARTED  # STARTED, PAUSED or STOPPED
    # how often a restart of each task was asked for
    restarts: Mapping[int, int] = field(default_factory=dict)
    creation_id: str = ""  # identifies the request that created it

    @property
    def name(self) -> str:
        """Return the connector's name."""
        return self.config["name"]

    @property
    def tasks(self) -> range:
        """Return the numbers of the tasks, none while the connector is stopped."""
        if self.state == STOPPED:
            return range(0)
        if not kind_of(self.config).spreads:
            return range(1)
        return range(min(int(self.config.get("tasks.max", "1")), MOST_TASKS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a task, as its worker reports it."""

    state: str
    worker: str  # `host:port` of the worker that has the task
    trace: str = ""  # the error by which it failed; empty otherwise
    result: Mapping[str, Any] | None = None  # result of a rebuild's last run; None otherwise
    waits_for: str = ""  # the reason why a sink waits; empty if it does not


class ConnectCluster:
    """The state that workers share, as read from the topic so far."""

    def __init__(self) -> None:
        self.connectors: dict[str, Connector] = {}
        self.statuses: dict[tuple[str, int], Status] = {}
        self.ended: dict[str, int] = {}

    def take(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of the topic.

        Raises ValueError: it is not a record that a worker writes; the state is unchanged.
        """
        kind, _, entry = key.decode().partition("/")
        content = None if value is None else orjson.loads(value)
        if kind == _CONNECTOR:
            if content is None:
                self.connectors.pop(entry, None)
                return
            connector = _connector(content, entry)
            # Of two requests that create a connector of one name, the first counts.
            if not (content.get("new") and entry in self.connectors):
                self.connectors[entry] = connector
        elif kind == _ENDED:
            if content is None:
                self.ended.pop(entry, None)
            elif isinstance(content, int):
                self.ended[entry] = content
            else:
                raise ValueError("no end of a session")
        elif kind == _STATUS:
            name, _, task = entry.rpartition("/")
            if content is None:
                self.statuses.pop((name, int(task)), None)
            else:
                self.statuses[name, int(task)] = _status(content)

    def status(self, name: str, worker: str) -> dict[str, Any]:
        """Return the answer of `GET /connectors/{name}/status` by a worker."""
        connector = self.connectors[name]
        state = {STARTED: RUNNING}.get(connector.state, connector.state)
        tasks = [self.task_status(name, task) for task in connector.tasks]
        return {
            "name": name,
            "connector": {"state": state, "worker_id": worker},
            "tasks": tasks,
            "type": kind_of(connector.config).type,
        }

    def task_status(self, name: str, task: int) -> dict[str, Any]:
        """Return the state of one task."""
        status = self.statuses.get((name, task)) or Status(state=UNASSIGNED, worker="")
        fields = {"id": task, "state": status.state, "worker_id": status.worker}
        fields |= {"trace": status.trace} if status.trace else {}
        fields |= {"waits_for": status.waits_for} if status.waits_for else {}
        return fields | ({} if status.result is None else {"result": status.result})

    def info(self, name: str) -> dict[str, Any]:
        """Return the answer of `GET /connectors/{name}`, without secrets."""
        connector = self.connectors[name]
        return {
            "name": name,
            "config": masked(connector.config),
            "tasks": [{"connector": name, "task": task} for task in connector.tasks],
            "type": kind_of(connector.config).type,
        }


def _connector(content: Any, name: str) -> Connector:  # noqa: ANN401 - any JSON
    """Return the connector of a record; raises ValueError if it is invalid."""
    match content:
        case {"config": dict() as config, "state": str() as state, "restarts": dict() as restarts}:
            creation_id = content.get("made", "")
        case _:
            raise ValueError("no connector")
    is_text = all(isinstance(text, str) for text in (creation_id, *config.values()))
    counts = [count for count in restarts.values() if isinstance(count, int)]
    is_whole = len(counts) == len(restarts) and state in {STARTED, PAUSED, STOPPED}
    if not is_text or not is_whole or config.get("name") != name or not name or "/" in name:
        raise ValueError("no connector")
    numbers = {int(task): count for task, count in restarts.items()}
    connector = Connector(config=config, state=state, restarts=numbers, creation_id=creation_id)
    _ = connector.tasks  # raises ValueError if tasks.max is not a number
    return connector


def _status(content: Any) -> Status:  # noqa: ANN401 - any JSON
    """Return the status of a record; raises ValueError if it is invalid."""
    match content:
        case {"state": str() as state, "worker": str() as worker}:
            trace, result = content.get("trace", ""), content.get("result")
            waits_for = content.get("waits_for", "")
        case _:
            raise ValueError("no status")
    is_text = isinstance(trace, str) and isinstance(waits_for, str)
    if not is_text or not (result is None or isinstance(result, dict)):
        raise ValueError("no status")
    return Status(state=state, worker=worker, trace=trace, result=result, waits_for=waits_for)


def connector_record(connector: Connector, *, new: bool = False) -> tuple[bytes, bytes]:
    """Return the key and value of a connector's record.

    A `new` one only counts if no connector has its name yet.
    """
    value = {
        "config": dict(connector.config),
        "state": connector.state,
        "restarts": {str(task): count for task, count in connector.restarts.items()},
        "made": connector.creation_id,
        "new": new,
    }
    return connector_key(connector.name), orjson.dumps(value)


def connector_key(name: str) -> bytes:
    """Return the key of a connector's record."""
    return f"{_CONNECTOR}/{name}".encode()


def status_record(name: str, task: int, status: Status | None) -> tuple[bytes, bytes | None]:
    """Return the key and value of a task's record; None as status removes it."""
    return f"{_STATUS}/{name}/{task}".encode(), None if status is None else orjson.dumps(status)


def ended_record(session: str, until: int | None) -> tuple[bytes, bytes | None]:
    """Return the key and value of an ended session's record; None as time removes it."""
    return f"{_ENDED}/{session}".encode(), None if until is None else orjson.dumps(until)
