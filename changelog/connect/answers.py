"""Answers to the requests of Kafka Connect's REST interface.

Where Kafka Connect leaves the answer open, the known clients decide: a configuration comes back
with exactly the keys that were sent, flags are case-insensitive, and secrets come back as a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from changelog.connect.jobs.capture import capture_offsets
from changelog.connect.plugins import VERSION
from changelog.connect.postgres.target import SinkDatabase
from changelog.connect.requests import ApiRequest, HttpAnswer, RequestError, place_of, text_of
from changelog.connect.rules.captures import parse_capture
from changelog.connect.rules.kinds import (
    CAPTURE,
    REBUILD,
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
from changelog.connect.store import ConnectorStore
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.process.pulse import Pulse


class WorkerAnswers:
    """The answers of one worker."""

    def __init__(
        self,
        store: ConnectorStore,
        *,
        worker: str,
        cluster_id: str,
        pulses: Callable[[], Sequence[Pulse]] = tuple,
    ) -> None:
        """Take the shared state, this worker's `host:port`, and the pulses of its threads."""
        self._pulses = pulses
        self._store, self._worker, self._cluster_id = store, worker, cluster_id
        self.places = Offsets(store)

    def root(self, _: ApiRequest) -> HttpAnswer:
        """Return the version and the cluster's id."""
        version = {"version": VERSION, "commit": "changelog", "kafka_cluster_id": self._cluster_id}
        return HttpAnswer(200, version)

    def health(self, _: ApiRequest) -> HttpAnswer:
        """Return whether the threads of this worker work.

        It has read the topic of the state by then: it listens only afterwards.
        """
        failures = [problem for pulse in self._pulses() if (problem := pulse.problem())]
        if failures:
            return HttpAnswer(503, {"status": "unhealthy", "message": "; ".join(failures)})
        return HttpAnswer(200, {"status": "healthy", "message": "Worker has completed startup."})

    def connectors(self, request: ApiRequest) -> HttpAnswer:
        """List the connectors' names, with `info` and `status` if the query expands them."""
        expanded = {
            part for name, value in request.query if name == "expand" for part in value.split(",")
        } & {"info", "status"}
        with self._store.read() as cluster:
            if not expanded:
                return HttpAnswer(200, sorted(cluster.connectors))

            def status(name: str) -> dict[str, Any]:
                return cluster.status(name, self._worker)

            parts = {"info": cluster.info, "status": status}
            return HttpAnswer(
                200,
                {
                    name: {part: parts[part](name) for part in sorted(expanded)}
                    for name in sorted(cluster.connectors)
                },
            )

    def create(self, request: ApiRequest) -> HttpAnswer:
        """Create a connector."""
        fields = request.object()
        config, name = fields.get("config"), fields.get("name")
        if not isinstance(config, dict) or not isinstance(name, str):
            raise RequestError(400, "the body has name and config")
        state = str(fields.get("initial_state") or "RUNNING").upper()
        states = {"RUNNING": STARTED, "PAUSED": PAUSED, "STOPPED": STOPPED}
        if state not in states:
            raise RequestError(400, "initial_state is RUNNING, PAUSED or STOPPED")
        checked = self._checked(name, config, {})
        with self._store.read() as cluster:
            if name in cluster.connectors:
                raise RequestError(409, f"Connector {name} already exists")
        connector = Connector(config=checked, state=states[state], creation_id=uuid4().hex)
        self._store.write([connector_record(connector, new=True)])
        with self._store.read() as cluster:
            first = cluster.connectors.get(name)
        if first is not None and first.creation_id != connector.creation_id:
            # Compaction keeps the last record of a key: write the connector that was first again.
            self._store.write([connector_record(first)])
            raise RequestError(409, f"Connector {name} already exists")
        return self._described(connector, 201)

    def connector(self, request: ApiRequest) -> HttpAnswer:
        """Describe a connector."""
        with self._store.read() as cluster:
            return HttpAnswer(200, cluster.info(connector_of(cluster, request).name))

    def config(self, request: ApiRequest) -> HttpAnswer:
        """Return a connector's configuration, with secrets masked."""
        with self._store.read() as cluster:
            return HttpAnswer(200, masked(connector_of(cluster, request).config))

    def put_config(self, request: ApiRequest) -> HttpAnswer:
        """Create a connector, or replace its configuration."""
        name = request.path["name"]
        with self._store.read() as cluster:
            old = cluster.connectors.get(name)
        checked = self._checked(name, request.object(), old.config if old else {})
        if old is None:
            return self._put(Connector(config=checked), 201)
        return self._put(replace(old, config=checked), 200)

    def patch_config(self, request: ApiRequest) -> HttpAnswer:
        """Change some keys of a configuration; null removes one."""
        old = self._connector(request)
        merged = {**old.config, **request.object()}
        config = {name: value for name, value in merged.items() if value is not None}
        # A kept secret must not go to another server because the request changes the address.
        changed = {name: value for name, value in config.items() if name in request.object()}
        unmasked({**masked(old.config), **changed}, old.config)
        checked = self._checked(old.name, config, old.config)
        return self._put(replace(old, config=checked), 200)

    def status(self, request: ApiRequest) -> HttpAnswer:
        """Return the status of a connector and its tasks."""
        with self._store.read() as cluster:
            return HttpAnswer(
                200, cluster.status(connector_of(cluster, request).name, self._worker)
            )

    def pause(self, request: ApiRequest) -> HttpAnswer:
        """Pause the tasks."""
        return self._turn(request, PAUSED, 202)

    def resume(self, request: ApiRequest) -> HttpAnswer:
        """Resume the tasks."""
        return self._turn(request, STARTED, 202)

    def stop(self, request: ApiRequest) -> HttpAnswer:
        """Stop the connector: end its tasks and keep its configuration."""
        return self._turn(request, STOPPED, 204)

    def restart(self, request: ApiRequest) -> HttpAnswer:
        """Restart the failed tasks or all of them; the connector itself does nothing."""
        connector = self._connector(request)
        if not request.flag("includeTasks") and not request.flag("onlyFailed"):
            return HttpAnswer(204)
        with self._store.read() as cluster:
            failed = {
                task
                for task in connector.tasks
                if cluster.task_status(connector.name, task)["state"] == FAILED
            }
        chosen = failed if request.flag("onlyFailed") else set(connector.tasks)
        self._restart(connector, chosen if request.flag("includeTasks") else set())
        return HttpAnswer(202, self.status(request).body)

    def restart_task(self, request: ApiRequest) -> HttpAnswer:
        """Restart one task."""
        connector = self._connector(request)
        self._restart(connector, {_task(connector, request)})
        return HttpAnswer(204)

    def delete(self, request: ApiRequest) -> HttpAnswer:
        """Remove a connector; its offsets stay in the target, for a new one of the same name."""
        self._store.write([(connector_key(self._connector(request).name), None)])
        return HttpAnswer(204)

    def tasks(self, request: ApiRequest) -> HttpAnswer:
        """List the tasks."""
        connector = self._connector(request)
        config = masked(connector.config)
        return HttpAnswer(
            200,
            [
                {"id": {"connector": connector.name, "task": task}, "config": config}
                for task in connector.tasks
            ],
        )

    def task_status(self, request: ApiRequest) -> HttpAnswer:
        """Return the status of one task."""
        with self._store.read() as cluster:
            connector = connector_of(cluster, request)
            return HttpAnswer(200, cluster.task_status(connector.name, _task(connector, request)))

    def topics(self, request: ApiRequest) -> HttpAnswer:
        """List the topics of a connector."""
        connector = self._connector(request)
        listed = connector.config.get("topics", "")
        topics = [topic.strip() for topic in listed.split(",") if topic.strip()]
        return HttpAnswer(200, {connector.name: {"topics": topics}})

    def reset_topics(self, request: ApiRequest) -> HttpAnswer:
        """Refuse, because the configuration names the topics."""
        self._connector(request)
        raise RequestError(403, "Topic tracking reset is disabled.")

    def _connector(self, request: ApiRequest) -> Connector:
        with self._store.read() as cluster:
            return connector_of(cluster, request)

    def _checked(
        self, name: str, config: Mapping[str, Any], kept: Mapping[str, str]
    ) -> dict[str, str]:
        checked = _checked(name, config, kept)
        if kind_of(checked) is SINK:
            check_topics(parse_settings(checked), self._store.group)
        return checked

    def _put(self, connector: Connector, code: int) -> HttpAnswer:
        self._store.write([connector_record(connector)])
        return self._described(connector, code)

    def _described(self, connector: Connector, code: int) -> HttpAnswer:
        with self._store.read() as cluster:
            if connector.name not in cluster.connectors:
                raise RequestError(409, f"Connector {connector.name} was deleted meanwhile")
            fields = cluster.info(connector.name)
        place = f"/connectors/{quote(connector.name)}" if code == HTTPStatus.CREATED else ""
        return HttpAnswer(code, fields, place)

    def _turn(self, request: ApiRequest, state: str, code: int) -> HttpAnswer:
        self._store.write([connector_record(replace(self._connector(request), state=state))])
        return HttpAnswer(code)

    def _restart(self, connector: Connector, tasks: set[int]) -> None:
        if tasks:
            counts = {**connector.restarts}
            counts |= {task: counts.get(task, 0) + 1 for task in tasks}
            self._store.write([connector_record(replace(connector, restarts=counts))])


def _task(connector: Connector, request: ApiRequest) -> int:
    number = request.path["task"]
    if not number.isdecimal() or int(number) not in connector.tasks:
        raise RequestError(404, f"No status found for task {connector.name}-{number}")
    return int(number)


def _checked(name: str, config: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration as it is stored: all values as text, with its name and its secrets.

    Raises RequestError: the configuration cannot be used.
    """
    if config.get("name", name) != name:
        raise RequestError(400, "the name of the connector and the name in its config differ")
    try:
        revealed = unmasked({**config, "name": name}, kept)
    except ConfigurationError as error:
        raise RequestError(400, str(error)) from None
    texts = {key: text_of(value) for key, value in revealed.items()}
    errors = problems(texts)
    if errors:
        reasons_text = "\n".join(reason for reasons in errors.values() for reason in reasons)
        count = sum(len(reasons) for reasons in errors.values())
        raise RequestError(
            400,
            f"Connector configuration is invalid and contains the following {count} error(s):\n"
            f"{reasons_text}\nYou can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`",
        )
    return texts


class Offsets:
    """The answers to requests about a connector's offsets."""

    def __init__(self, store: ConnectorStore) -> None:
        self._store = store

    def offsets(self, request: ApiRequest) -> HttpAnswer:
        """Return a connector's offsets, from a sink's target or from a capture's slots."""
        config = self._connector(request).config
        if kind_of(config) is CAPTURE:
            return HttpAnswer(200, {"offsets": capture_offsets(parse_capture(config))})
        if kind_of(config) is REBUILD:
            return HttpAnswer(200, {"offsets": []})
        with closing(SinkDatabase(parse_settings(config))) as target:
            places = target.places()
        return HttpAnswer(
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

    def alter_offsets(self, request: ApiRequest) -> HttpAnswer:
        """Set offsets of a stopped connector."""
        connector = self._stopped(request)
        offsets = request.object().get("offsets")
        if not isinstance(offsets, list) or not offsets:
            raise RequestError(400, "the body has a list of offsets")
        places = dict(place_of(offset) for offset in offsets)
        settings = parse_settings(connector.config)
        for (topic, _), place in places.items():
            if place is not None and topic not in settings.topics:
                raise RequestError(400, f'topic "{topic}" does not belong to this connector')
        with closing(SinkDatabase(settings)) as target:
            target.set_places(places)
        return HttpAnswer(
            200, {"message": "The offsets for this connector have been altered successfully"}
        )

    def reset_offsets(self, request: ApiRequest) -> HttpAnswer:
        """Delete the offsets of a stopped connector."""
        with closing(SinkDatabase(parse_settings(self._stopped(request).config))) as target:
            target.set_places(dict.fromkeys(target.places()))
        return HttpAnswer(
            200, {"message": "The offsets for this connector have been reset successfully"}
        )

    def _connector(self, request: ApiRequest) -> Connector:
        with self._store.read() as cluster:
            return connector_of(cluster, request)

    def _stopped(self, request: ApiRequest) -> Connector:
        with self._store.read() as cluster:
            connector = connector_of(cluster, request)
            if kind_of(connector.config) is not SINK:
                raise RequestError(
                    400,
                    "only a sink's offsets can be changed: a capture continues where its log ends "
                    "(`changelog resnapshot` copies tables again), and a rebuild has none",
                )
            has_tasks = any(name == connector.name for name, _ in cluster.statuses)
        if connector.state != STOPPED or has_tasks:
            raise RequestError(
                400,
                "Connectors must be in the STOPPED state, and their tasks ended, before their "
                "offsets can be modified. PUT /connectors/{name}/stop does that.",
            )
        return connector


def connector_of(cluster: ConnectCluster, request: ApiRequest) -> Connector:
    """Return the connector that a request names; raises RequestError if there is none."""
    name = request.path["name"]
    if name not in cluster.connectors:
        raise RequestError(404, f"Connector {name} not found")
    return cluster.connectors[name]
