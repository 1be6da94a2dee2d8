"""Answers to the requests of Kafka Connect's REST interface.

Known clients' needs decide where Kafka itself is free: a configuration comes back with the keys
that were sent and no others; flags are read in any letters; secrets come back as a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from changelog.connect.offsets import Offsets, known
from changelog.connect.plugins import VERSION
from changelog.connect.requests import Answer, Asked, RequestError, text_of
from changelog.connect.rules.kinds import (
    SINK,
    kind_of,
    masked,
    problems,
    unmasked,
)
from changelog.connect.rules.settings import parse_settings
from changelog.connect.rules.state import (
    FAILED,
    PAUSED,
    STARTED,
    STOPPED,
    ConnectCluster,
    Connector,
    connector_key,
    connector_record,
)
from changelog.connect.rules.topics import check_topics
from changelog.connect.store import Store
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.process.pulse import Pulse


class Answers:
    """The answers of one worker."""

    def __init__(
        self,
        store: Store,
        *,
        worker: str,
        cluster_id: str,
        pulses: Callable[[], Sequence[Pulse]] = tuple,
    ) -> None:
        """Take what is known, and who answers.

        Args:
            store: what all workers know.
            worker: `host:port` of this one.
            cluster_id: of the brokers.
            pulses: returns those of the threads without which this worker does nothing.
        """
        self._pulses = pulses
        self._store, self._worker, self._cluster_id = store, worker, cluster_id
        self.places = Offsets(store)

    def root(self, _: Asked) -> Answer:
        """Return the version and the cluster's id."""
        said = {"version": VERSION, "commit": "changelog", "kafka_cluster_id": self._cluster_id}
        return Answer(200, said)

    def health(self, _: Asked) -> Answer:
        """Tell whether this worker works: one has read its topic before it listens."""
        wrong = [said for each in self._pulses() if (said := each.problem())]
        if wrong:
            return Answer(503, {"status": "unhealthy", "message": "; ".join(wrong)})
        return Answer(200, {"status": "healthy", "message": "Worker has completed startup."})

    def connectors(self, asked: Asked) -> Answer:
        """List names, or what is asked for beside them."""
        wanted = {
            part for name, value in asked.query if name == "expand" for part in value.split(",")
        }
        shown = wanted & {"info", "status"}
        with self._store.read() as cluster:
            if not shown:
                return Answer(200, sorted(cluster.connectors))

            def status(name: str) -> dict[str, Any]:
                return cluster.status(name, self._worker)

            made = {"info": cluster.info, "status": status}
            return Answer(
                200,
                {
                    name: {each: made[each](name) for each in sorted(shown)}
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
        checked = self._checked(name, config, {})
        with self._store.read() as cluster:
            if name in cluster.connectors:
                raise RequestError(409, f"Connector {name} already exists")
        made = Connector(config=checked, state=states[state], made=uuid4().hex)
        self._store.write([connector_record(made, new=True)])
        with self._store.read() as cluster:
            first = cluster.connectors.get(name)
        if first is not None and first.made != made.made:
            # Compaction keeps the last record of a key: that has to be the first one's.
            self._store.write([connector_record(first)])
            raise RequestError(409, f"Connector {name} already exists")
        return self._told(made, 201)

    def connector(self, asked: Asked) -> Answer:
        """Describe a connector."""
        with self._store.read() as cluster:
            return Answer(200, cluster.info(known(cluster, asked).name))

    def config(self, asked: Asked) -> Answer:
        """Return a configuration."""
        with self._store.read() as cluster:
            return Answer(200, masked(known(cluster, asked).config))

    def put_config(self, asked: Asked) -> Answer:
        """Make a connector, or give it another configuration."""
        name = asked.path["name"]
        with self._store.read() as cluster:
            old = cluster.connectors.get(name)
        checked = self._checked(name, asked.object(), old.config if old else {})
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
        checked = self._checked(old.name, config, old.config)
        return self._put(replace(old, config=checked), 200)

    def status(self, asked: Asked) -> Answer:
        """Return the status of a connector and its tasks."""
        with self._store.read() as cluster:
            return Answer(200, cluster.status(known(cluster, asked).name, self._worker))

    def pause(self, asked: Asked) -> Answer:
        """Pause the tasks."""
        return self._turn(asked, PAUSED, 202)

    def resume(self, asked: Asked) -> Answer:
        """Resume the tasks."""
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
        """Return the status of one task."""
        with self._store.read() as cluster:
            connector = known(cluster, asked)
            return Answer(200, cluster.task_status(connector.name, _task(connector, asked)))

    def topics(self, asked: Asked) -> Answer:
        """List the topics of a connector."""
        connector = self._found(asked)
        said = connector.config.get("topics", "")
        topics = [each.strip() for each in said.split(",") if each.strip()]
        return Answer(200, {connector.name: {"topics": topics}})

    def reset_topics(self, asked: Asked) -> Answer:
        """Refuse: the topics are those of the configuration."""
        self._found(asked)
        raise RequestError(403, "Topic tracking reset is disabled.")

    def _found(self, asked: Asked) -> Connector:
        with self._store.read() as cluster:
            return known(cluster, asked)

    def _checked(
        self, name: str, config: Mapping[str, Any], kept: Mapping[str, str]
    ) -> dict[str, str]:
        checked = _checked(name, config, kept)
        if kind_of(checked) is SINK:
            check_topics(parse_settings(checked), self._store.group)
        return checked

    def _put(self, connector: Connector, code: int) -> Answer:
        self._store.write([connector_record(connector)])
        return self._told(connector, code)

    def _told(self, connector: Connector, code: int) -> Answer:
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


def _task(connector: Connector, asked: Asked) -> int:
    said = asked.path["task"]
    if not said.isdecimal() or int(said) not in connector.tasks:
        raise RequestError(404, f"No status found for task {connector.name}-{said}")
    return int(said)


def _state(cluster: ConnectCluster, connector: Connector, task: int) -> str:
    return str(cluster.task_status(connector.name, task)["state"])


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
    texts = {key: text_of(value) for key, value in given.items()}
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
