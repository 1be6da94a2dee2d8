"""Answers to requests about a connector's offsets: read, set, reset."""

from __future__ import annotations

from contextlib import closing

from changelog.connect.jobs.capture import capture_offsets
from changelog.connect.postgres.target import Target
from changelog.connect.requests import Answer, ApiRequest, RequestError, place_of
from changelog.connect.rules.captures import parse_capture
from changelog.connect.rules.kinds import CAPTURE, REBUILD, SINK, kind_of
from changelog.connect.rules.settings import parse_settings
from changelog.connect.rules.state import STOPPED, ConnectCluster, Connector
from changelog.connect.store import Store


class Offsets:
    """The answers to requests about a connector's offsets."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def offsets(self, request: ApiRequest) -> Answer:
        """Return a connector's offsets, from its target or from the slot of its source."""
        config = self._connector(request).config
        if kind_of(config) is CAPTURE:
            return Answer(200, {"offsets": capture_offsets(parse_capture(config))})
        if kind_of(config) is REBUILD:
            return Answer(200, {"offsets": []})
        with closing(Target(parse_settings(config))) as target:
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

    def alter_offsets(self, request: ApiRequest) -> Answer:
        """Put places of a stopped connector elsewhere."""
        connector = self._stopped(request)
        offsets = request.object().get("offsets")
        if not isinstance(offsets, list) or not offsets:
            raise RequestError(400, "the body has a list of offsets")
        places = dict(place_of(offset) for offset in offsets)
        settings = parse_settings(connector.config)
        for (topic, _), place in places.items():
            if place is not None and topic not in settings.topics:
                raise RequestError(400, f'topic "{topic}" is none of this connector\'s')
        with closing(Target(settings)) as target:
            target.set_places(places)
        return Answer(
            200, {"message": "The offsets for this connector have been altered successfully"}
        )

    def reset_offsets(self, request: ApiRequest) -> Answer:
        """Forget the places of a stopped connector."""
        with closing(Target(parse_settings(self._stopped(request).config))) as target:
            target.set_places(dict.fromkeys(target.places()))
        return Answer(
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
                    "a capture goes on where its log ends (`changelog resnapshot` copies tables "
                    "anew), and a rebuild has no offsets",
                )
            at_work = any(name == connector.name for name, _ in cluster.statuses)
        if connector.state != STOPPED or at_work:
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
