"""A server of OpenLineage, which takes nothing but what the official schemas allow."""

import json
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.support.http_listener import Quiet, listening

SPEC = Path(__file__).parents[1] / "fixtures" / "openlineage"
SCHEMAS = {
    schema["$id"]: schema
    for path in sorted(SPEC.rglob("*.json"))
    for schema in [json.loads(path.read_text("utf-8"))]
}
REGISTRY = Registry().with_resources(
    (name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)
OVER = {"COMPLETE", "FAIL", "ABORT"}


def check_event(event):
    """Check an event and each of its facets.

    Raises jsonschema.ValidationError, KeyError, ValueError or AssertionError: it is not valid.
    """
    _validate(event, event["schemaURL"])
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert uuid.UUID(event["run"]["runId"]).version == 7
    datasets = [*event["inputs"], *event["outputs"]]
    for holder in (event["run"], event["job"], *datasets):
        for place in ("facets", "inputFacets", "outputFacets"):
            for name, facet in (holder.get(place) or {}).items():
                url = facet["_schemaURL"]
                _validate(facet, url)
                assert name in SCHEMAS[url.partition("#")[0]]["properties"], name


def _validate(value, url):
    Draft202012Validator({"$ref": url}, registry=REGISTRY).validate(value)


@dataclass
class Told:
    """The events that a server has got."""

    events: list[dict] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def of(self, job):
        """Return the events of a job, oldest first, and that they are of a valid run each."""
        assert not self.refused
        events = [event for event in self.events if event["job"]["name"] == job]
        for run in {event["run"]["runId"] for event in events}:
            kinds = [event["eventType"] for event in events if event["run"]["runId"] == run]
            assert kinds[0] == "START"
            assert not OVER & set(kinds[:-1]), kinds
        return events

    def last(self, job):
        """Return the last event of a job."""
        return self.of(job)[-1]


def kinds(events):
    """Return the kinds of events."""
    return [event["eventType"] for event in events]


def facet(holder, name, place="facets"):
    """Return a facet without what all of them have."""
    return {key: value for key, value in holder[place][name].items() if not key.startswith("_")}


@contextmanager
def lineage_server(monkeypatch, *, status=201):
    """Run a server that the environment names; gives what it gets."""
    told = Told()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self):
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                check_event(event)
                told.events.append(event)
            except Exception as error:  # noqa: BLE001 - the test that asks is told
                told.refused.append(f"{error!r} in {event}")
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with listening(Handler) as url:
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        yield told
