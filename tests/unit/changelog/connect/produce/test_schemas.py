"""Schemas of records by HTTP: none waits for another one, and none outlives the registry's own."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from changelog.connect.produce.encode import Encoders, encoded
from changelog.connect.produce.errors import KAFKA_LATER, ProduceError
from changelog.connect.produce.requests import ValueForm, parsed
from changelog.contract.base.connection import RegistryConnection
from tests.support.wait import wait_until

WAIT_S = 20
BODY = json.dumps({"value_schema": '"long"', "records": [{"value": 1}]}).encode()
REQUEST = parsed(ValueForm.AVRO, BODY)


class Registry:
    """Gives every schema an id; subjects of a name with `slow` wait for `go`."""

    def __init__(self):
        self.id, self.status, self.questions = 7, 200, 0
        self.go, self.asked = threading.Event(), threading.Event()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                registry.questions += 1
                if "slow" in self.path:
                    registry.asked.set()
                    registry.go.wait(WAIT_S)
                body = json.dumps({"id": registry.id, "error_code": 50001, "message": "no"})
                self.send_response(registry.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def registry():
    made = Registry()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.go.set()
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def encoders(registry, clock):
    return Encoders(RegistryConnection(url=registry.url), clock)


def value_of(encoders, topic):
    (record,) = encoded(REQUEST, *(part.result(WAIT_S / 2) for part in encoders.of(topic, REQUEST)))
    return record.value


def frame_of(number):
    return b"\0" + number.to_bytes(4, "big") + b"\x02"


def test_no_record_waits_for_the_schema_of_another_topic(registry, encoders):
    assert value_of(encoders, "known") == frame_of(7)
    _, slow = encoders.of("slow", REQUEST)
    assert registry.asked.wait(WAIT_S)
    assert value_of(encoders, "known") == frame_of(7)
    assert value_of(encoders, "new") == frame_of(7)
    assert not slow.done()
    registry.go.set()
    assert slow.result(WAIT_S).number == 7


def test_a_schema_is_asked_for_once_and_again_after_a_minute(registry, encoders, clock):
    for _ in range(3):
        assert value_of(encoders, "t") == frame_of(7)
    assert registry.questions == 1
    registry.id = 9  # another registry stands there, or an emptied one
    assert value_of(encoders, "t") == frame_of(7)
    clock.now = 61.0
    value_of(encoders, "t")  # has it asked for, and does not wait
    until(lambda: value_of(encoders, "t") == frame_of(9))
    assert registry.questions == 2


def test_while_the_registry_is_away_what_it_has_said_counts(registry, encoders, clock):
    assert value_of(encoders, "t") == frame_of(7)
    registry.status = 503
    clock.now = 61.0
    value_of(encoders, "t")
    until(lambda: registry.questions > 3)  # it was asked for three times
    assert value_of(encoders, "t") == frame_of(7)
    with pytest.raises(ProduceError) as caught:
        value_of(encoders, "new")
    assert caught.value.error_code == KAFKA_LATER
    registry.status = 200
    assert value_of(encoders, "new") == frame_of(7)


def test_a_schema_that_the_registry_refuses_now_is_not_written(registry, encoders, clock):
    assert value_of(encoders, "t") == frame_of(7)
    registry.status = 409
    clock.now = 61.0

    def refused():
        try:
            value_of(encoders, "t")
        except ProduceError as error:
            return error.error_code
        return None

    until(lambda: refused() == 42205)


def until(condition):
    wait_until(condition, WAIT_S, "the registry was asked")
