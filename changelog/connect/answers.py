"""What each request of Kafka Connect's interface is answered with.

Known clients' needs decide where Kafka itself is free: a configuration comes back with the keys
that were sent and no others; flags are read in any letters; secrets come back as a mask.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from changelog.connect.rules.keys import CLASSES, KEYS, masked
from changelog.connect.rules.settings import (
    parse_settings,
    plugin_class,
    problems,
    unmasked,
    validation,
)
from changelog.connect.rules.state import (
    FAILED,
    PAUSED,
    STARTED,
    STOPPED,
    Cluster,
    Connector,
    connector_key,
    connector_record,
)
from changelog.connect.store import Store
from changelog.connect.target import Target
from changelog.contract.base.errors import ConfigurationError

VERSION = "4.0.0"
"""Of the interface: clients switch features by it."""

_LEVELS = {"TRACE": "DEBUG", "DEBUG": "DEBUG", "INFO": "INFO", "WARN": "WARNING", "ERROR": "ERROR",
           "FATAL": "CRITICAL", "OFF": "CRITICAL"}  # fmt: skip


class RequestError(Exception):
    """A request that cannot be answered as asked, with the code of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class Answer:
    """Code, body (None for an empty one) and place of what was made."""

    code: int
    body: Any = None
    location: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: parts of its path by name, its query, and its body, None for an empty one."""

    path: Mapping[str, str]
    query: Sequence[tuple[str, str]]
    body: Any

    def flag(self, name: str) -> bool:
        """Return a flag of the query, in any letters; false where it is missing."""
        return any(each == name and value.lower() == "true" for each, value in self.query)

    def object(self) -> dict[str, Any]:
        """Return the body.

        Raises:
            RequestError: it is no object.
        """
        if not isinstance(self.body, dict):
            raise RequestError(400, "the body is no JSON object")
        return self.body


class Answers:
    """The answers of one worker."""

    def __init__(self, store: Store, *, worker: str, cluster_id: str) -> None:
        """Take what is known, who answers, and the id of the brokers' cluster."""
        self._store, self._worker, self._cluster_id = store, worker, cluster_id

    def root(self, _: Asked) -> Answer:
        """Tell who is there."""
        said = {"version": VERSION, "commit": "changelog", "kafka_cluster_id": self._cluster_id}
        return Answer(200, said)

    def health(self, _: Asked) -> Answer:
        """Tell that requests are answered: a worker has read its topic before it listens."""
        return Answer(200, {"status": "healthy", "message": "Worker has completed startup."})

    def connectors(self, asked: Asked) -> Answer:
        """List names, or what is asked for beside them."""
        wanted = {
            part for name, value in asked.query if name == "expand" for part in value.split(",")
        }
        known = wanted & {"info", "status"}
        with self._store.read() as cluster:
            if not known:
                return Answer(200, sorted(cluster.connectors))

            def status(name: str) -> dict[str, Any]:
                return cluster.status(name, self._worker)

            made = {"info": cluster.info, "status": status}
            return Answer(
                200,
                {
                    name: {each: made[each](name) for each in sorted(known)}
                    for name in sorted(cluster.connectors)
                },
            )

    def create(self, asked: Asked) -> Answer:
        """Make a connector."""
        said = asked.object()
        config, name = said.get("config"), said.get("name")
        if not isinstance(config, dict) or not isinstance(name, str):
            raise RequestError(400, "the body has name and config")
        state = str(said.get("initial_state") or "RUNNING").upper()
        states = {"RUNNING": STARTED, "PAUSED": PAUSED, "STOPPED": STOPPED}
        if state not in states:
            raise RequestError(400, "initial_state is RUNNING, PAUSED or STOPPED")
        checked = _checked(name, config, {})
        with self._store.read() as cluster:
            if name in cluster.connectors:
                raise RequestError(409, f"Connector {name} already exists")
        return self._put(Connector(config=checked, state=states[state]), 201)

    def connector(self, asked: Asked) -> Answer:
        """Describe a connector."""
        with self._store.read() as cluster:
            return Answer(200, cluster.info(_known(cluster, asked).name))

    def config(self, asked: Asked) -> Answer:
        """Return a configuration."""
        with self._store.read() as cluster:
            return Answer(200, masked(_known(cluster, asked).config))

    def put_config(self, asked: Asked) -> Answer:
        """Make a connector, or give it another configuration."""
        name = asked.path["name"]
        with self._store.read() as cluster:
            old = cluster.connectors.get(name)
        checked = _checked(name, asked.object(), old.config if old else {})
        if old is None:
            return self._put(Connector(config=checked), 201)
        return self._put(replace(old, config=checked), 200)

    def patch_config(self, asked: Asked) -> Answer:
        """Change some keys of a configuration; null removes one."""
        old = self._found(asked)
        merged = {**old.config, **asked.object()}
        config = {name: value for name, value in merged.items() if value is not None}
        # A secret that is kept is not sent elsewhere because other keys changed around it.
        given = {name: value for name, value in config.items() if name in asked.object()}
        unmasked({**masked(old.config), **given}, old.config)
        checked = _checked(old.name, config, old.config)
        return self._put(replace(old, config=checked), 200)

    def status(self, asked: Asked) -> Answer:
        """Tell how a connector and its tasks are."""
        with self._store.read() as cluster:
            return Answer(200, cluster.status(_known(cluster, asked).name, self._worker))

    def pause(self, asked: Asked) -> Answer:
        """Let the tasks rest."""
        return self._turn(asked, PAUSED, 202)

    def resume(self, asked: Asked) -> Answer:
        """Let the tasks go on."""
        return self._turn(asked, STARTED, 202)

    def stop(self, asked: Asked) -> Answer:
        """Take the tasks away."""
        return self._turn(asked, STOPPED, 204)

    def restart(self, asked: Asked) -> Answer:
        """Start tasks anew, those that failed or all; the connector itself has no work."""
        connector = self._found(asked)
        if not asked.flag("includeTasks") and not asked.flag("onlyFailed"):
            return Answer(204)
        with self._store.read() as cluster:
            failed = {
                task for task in connector.tasks if _state(cluster, connector, task) == FAILED
            }
        some = failed if asked.flag("onlyFailed") else set(connector.tasks)
        self._restart(connector, some if asked.flag("includeTasks") else set())
        return Answer(202, self.status(asked).body)

    def restart_task(self, asked: Asked) -> Answer:
        """Start one task anew."""
        connector = self._found(asked)
        self._restart(connector, {_task(connector, asked)})
        return Answer(204)

    def delete(self, asked: Asked) -> Answer:
        """Remove a connector; its places stay in the target, for one of the same name."""
        self._store.write([(connector_key(self._found(asked).name), None)])
        return Answer(204)

    def tasks(self, asked: Asked) -> Answer:
        """List the tasks."""
        connector = self._found(asked)
        config = masked(connector.config)
        return Answer(
            200,
            [
                {"id": {"connector": connector.name, "task": task}, "config": config}
                for task in connector.tasks
            ],
        )

    def task_status(self, asked: Asked) -> Answer:
        """Tell how one task is."""
        with self._store.read() as cluster:
            connector = _known(cluster, asked)
            return Answer(200, cluster.task_status(connector.name, _task(connector, asked)))

    def topics(self, asked: Asked) -> Answer:
        """List the topics of a connector."""
        connector = self._found(asked)
        topics = [each.strip() for each in connector.config["topics"].split(",")]
        return Answer(200, {connector.name: {"topics": topics}})

    def reset_topics(self, asked: Asked) -> Answer:
        """Refuse: the topics are those of the configuration."""
        self._found(asked)
        raise RequestError(403, "Topic tracking reset is disabled.")

    def offsets(self, asked: Asked) -> Answer:
        """Tell where a connector is, from its target."""
        with closing(Target(parse_settings(self._found(asked).config))) as target:
            places = target.places()
        return Answer(
            200,
            {
                "offsets": [
                    {
                        "partition": {"kafka_topic": topic, "kafka_partition": partition},
                        "offset": {"kafka_offset": place},
                    }
                    for (topic, partition), place in sorted(places.items())
                ]
            },
        )

    def alter_offsets(self, asked: Asked) -> Answer:
        """Put places of a stopped connector elsewhere."""
        connector = self._stopped(asked)
        said = asked.object().get("offsets")
        if not isinstance(said, list) or not said:
            raise RequestError(400, "the body has a list of offsets")
        places = dict(_place(each) for each in said)
        with closing(Target(parse_settings(connector.config))) as target:
            target.set_places(places)
        return Answer(
            200, {"message": "The offsets for this connector have been altered successfully"}
        )

    def reset_offsets(self, asked: Asked) -> Answer:
        """Forget the places of a stopped connector."""
        with closing(Target(parse_settings(self._stopped(asked).config))) as target:
            target.set_places(dict.fromkeys(target.places()))
        return Answer(
            200, {"message": "The offsets for this connector have been reset successfully"}
        )

    def plugins(self, _: Asked) -> Answer:
        """List the classes."""
        return Answer(
            200, [{"class": each, "type": "sink", "version": VERSION} for each in CLASSES]
        )

    def plugin_config(self, asked: Asked) -> Answer:
        """Define the keys of a class."""
        _plugin(asked)
        return Answer(200, [each.definition(order) for order, each in enumerate(KEYS, 1)])

    def validate(self, asked: Asked) -> Answer:
        """Tell what is wrong with a configuration."""
        return Answer(200, validation(_plugin(asked), asked.object()))

    def loggers(self, _: Asked) -> Answer:
        """List the one logger there is."""
        return Answer(200, {"root": _level()})

    def logger(self, asked: Asked) -> Answer:
        """Tell a logger's level."""
        if asked.path["logger"] != "root":
            raise RequestError(404, f"Logger {asked.path['logger']} not found.")
        return Answer(200, _level())

    def set_logger(self, asked: Asked) -> Answer:
        """Set a logger's level, of this worker."""
        self.logger(asked)
        level = str(asked.object().get("level", "")).upper()
        if level not in _LEVELS:
            raise RequestError(404, "invalid log level")
        logging.getLogger("changelog").setLevel(_LEVELS[level])
        is_cluster = any(each == ("scope", "cluster") for each in asked.query)
        return Answer(204) if is_cluster else Answer(200, ["root"])

    def _found(self, asked: Asked) -> Connector:
        with self._store.read() as cluster:
            return _known(cluster, asked)

    def _stopped(self, asked: Asked) -> Connector:
        with self._store.read() as cluster:
            connector = _known(cluster, asked)
            at_work = any(name == connector.name for name, _ in cluster.statuses)
        if connector.state != STOPPED or at_work:
            raise RequestError(
                400,
                "Connectors must be in the STOPPED state, and their tasks ended, before their "
                "offsets can be modified. PUT /connectors/{name}/stop does that.",
            )
        return connector

    def _put(self, connector: Connector, code: int) -> Answer:
        self._store.write([connector_record(connector)])
        with self._store.read() as cluster:
            if connector.name not in cluster.connectors:
                raise RequestError(409, f"Connector {connector.name} was deleted meanwhile")
            said = cluster.info(connector.name)
        return Answer(code, said, f"/connectors/{quote(connector.name)}" if code == 201 else "")  # noqa: PLR2004 - created

    def _turn(self, asked: Asked, state: str, code: int) -> Answer:
        self._store.write([connector_record(replace(self._found(asked), state=state))])
        return Answer(code)

    def _restart(self, connector: Connector, tasks: set[int]) -> None:
        if tasks:
            counts = {**connector.restarts}
            counts |= {task: counts.get(task, 0) + 1 for task in tasks}
            self._store.write([connector_record(replace(connector, restarts=counts))])


def _known(cluster: Cluster, asked: Asked) -> Connector:
    name = asked.path["name"]
    if name not in cluster.connectors:
        raise RequestError(404, f"Connector {name} not found")
    return cluster.connectors[name]


def _task(connector: Connector, asked: Asked) -> int:
    said = asked.path["task"]
    if not said.isdecimal() or int(said) not in connector.tasks:
        raise RequestError(404, f"No status found for task {connector.name}-{said}")
    return int(said)


def _state(cluster: Cluster, connector: Connector, task: int) -> str:
    return str(cluster.task_status(connector.name, task)["state"])


def _plugin(asked: Asked) -> str:
    found = plugin_class(asked.path["plugin"])
    if found is None:
        raise RequestError(404, f"Unknown plugin {asked.path['plugin']}")
    return found


def _checked(name: str, config: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration as it is kept: texts, with its name and with its secrets.

    Raises:
        RequestError: it cannot be used.
    """
    if config.get("name", name) != name:
        raise RequestError(400, "the name of the connector and the name in its config differ")
    try:
        given = unmasked({**config, "name": name}, kept)
    except ConfigurationError as error:
        raise RequestError(400, str(error)) from None
    texts = {key: _text(value) for key, value in given.items()}
    wrong = problems(texts)
    if wrong:
        said = "\n".join(reason for reasons in wrong.values() for reason in reasons)
        count = sum(len(reasons) for reasons in wrong.values())
        raise RequestError(
            400,
            f"Connector configuration is invalid and contains the following {count} error(s):\n"
            f"{said}\nYou can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`",
        )
    return texts


def _text(value: object) -> Any:  # noqa: ANN401 - what is no value is refused by its key
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _place(said: Any) -> tuple[tuple[str, int], int | None]:  # noqa: ANN401 - any JSON
    """Return a partition and its place; numbers may be texts, and null forgets a place."""
    try:
        partition, offset = said["partition"], said["offset"]
        topic, number = partition["kafka_topic"], int(partition["kafka_partition"])
        place = None if offset is None else int(offset["kafka_offset"])
    except (TypeError, KeyError, ValueError):
        topic, number, place = None, -1, None
    if not isinstance(topic, str) or number < 0 or (place is not None and place < 0):
        raise RequestError(
            400, "an offset is {partition: {kafka_topic, kafka_partition}, offset: {kafka_offset}}"
        )
    return (topic, number), place


def _level() -> dict[str, Any]:
    names = {"WARNING": "WARN", "CRITICAL": "FATAL"}
    level = logging.getLevelName(logging.getLogger("changelog").getEffectiveLevel())
    return {"level": names.get(level, level), "last_modified": None}
