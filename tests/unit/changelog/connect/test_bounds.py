"""What a worker takes from others in bounded memory, and what it does when a thread of it fails."""

import gzip
import json
import subprocess
import threading
import tracemalloc
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import orjson
import pytest

from changelog.connect.answers import WorkerAnswers
from changelog.connect.requests import ApiRequest
from changelog.connect.rules.keys import MOST_TASKS
from changelog.connect.rules.kinds import problems
from changelog.connect.rules.records.reading import BadRecordError, RecordReading
from changelog.connect.rules.state import ConnectCluster, Connector, connector_record
from changelog.connect.store import ConnectorStore
from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import LogError
from changelog.contract.rows.codec import frame
from changelog.runtime.bounded_answers import MOST_BYTES
from changelog.runtime.process import pulse
from changelog.runtime.process.pulse import Pulse
from changelog.sink.registry import Schemas
from replay.declared.exact import FaultyRecordError
from replay.declared.exact import _digits as replay_digits
from views.page import answers as origin_module
from views.verify.log.declared_values import _written_out as verify_digits

SINK = {"name": "s", "topics": "a", "connection.url": "postgresql://db/app"}
FOREIGN = [
    (b"connector/x", b"[]"),
    (b"connector/x", b"7"),
    (b"connector/x", b'{"config": 1, "state": "STARTED", "restarts": {}}'),
    (b"connector/x", b'{"config": {}, "state": "STARTED", "restarts": {}}'),
    (b"connector/x", b'{"config": {"name": "y"}, "state": "STARTED", "restarts": {}}'),
    (b"connector/x", b'{"config": {"name": "x", "a": 1}, "state": "STARTED", "restarts": {}}'),
    (b"connector/x", b'{"config": {"name": "x"}, "state": "GONE", "restarts": {}}'),
    (b"connector/x", b'{"config": {"name": "x"}, "state": "STARTED", "restarts": {"0": "a"}}'),
    (b"connector/x", b'{"config": {"name": "x"}, "state": "STARTED", "restarts": {"b": 1}}'),
    (
        b"connector/x",
        b'{"config": {"name": "x", "tasks.max": "many"}, "state": "STARTED", "restarts": {}}',
    ),
    (b"connector/x", b"\xff"),
    (b"connector/", b'{"config": {"name": ""}, "state": "STARTED", "restarts": {}}'),
    (b"connector/a/b", b'{"config": {"name": "a/b"}, "state": "STARTED", "restarts": {}}'),
    (b"status/x/0", b"[]"),
    (b"status/x/0", b'{"state": 1, "worker": "w"}'),
    (b"status/x/0", b'{"state": "RUNNING", "worker": "w", "result": 5}'),
    (b"status/x/0", b'{"state": "RUNNING", "worker": "w", "trace": {}}'),
    (b"status/x/y", b'{"state": "RUNNING", "worker": "w"}'),
    (b"status/x/y", None),
    (b"\xff\xfe", b"{}"),
]


@pytest.mark.parametrize(("key", "value"), FOREIGN, ids=repr)
def test_a_foreign_record_among_what_workers_know_is_set_aside(key, value):
    store = object.__new__(ConnectorStore)
    messages = [(key, value), connector_record(Connector(config=SINK))]
    store._cluster, store._changed, store._reached = ConnectCluster(), threading.Condition(), 0
    store._topic = "g-state"
    store._consumer = SimpleNamespace(  # type: ignore[assignment]
        consume=lambda *_: [
            SimpleNamespace(error=lambda: None, key=lambda k=k: k, value=lambda v=v: v, offset=int)
            for k, v in messages
        ],
        position=lambda _: [SimpleNamespace(offset=2)],
    )
    store._read_on()
    with store.read() as cluster:
        assert list(cluster.connectors) == ["s"]
        assert cluster.status("s", "w")["tasks"][0]["state"] == "UNASSIGNED"
        assert orjson.dumps([cluster.info(each) for each in cluster.connectors])
    assert store._reached == 2


def test_tasks_are_few_whatever_is_asked_or_was_kept():
    for said in ("2147483647", str(MOST_TASKS + 1)):
        assert "tasks.max" in problems({**SINK, "tasks.max": said})
    assert not problems({**SINK, "tasks.max": str(MOST_TASKS)})
    assert len(Connector(config={**SINK, "tasks.max": "2147483647"}).tasks) == MOST_TASKS


@contextmanager
def registry(answer, **headers):
    """A registry that answers with the same bytes, for as long as they are taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            try:
                for part in answer():
                    self.wfile.write(part)
            except OSError:
                pass

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield RegistryConnection(url=f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_of_a_registry_is_read_as_far_as_it_may_be():
    part = b" " * (1 << 20)
    with registry(lambda: (part for _ in range(300))) as where, closing(Schemas(where)) as schemas:
        tracemalloc.start()
        try:
            with pytest.raises(LogError, match="more than 16 MiB"):
                schemas.schema(7)
            assert tracemalloc.get_traced_memory()[1] < 4 * MOST_BYTES
        finally:
            tracemalloc.stop()


def test_an_answer_that_was_compressed_unasked_is_not_unpacked():
    small = gzip.compress(b" " * (64 << 20))
    with (
        registry(lambda: [small], Content_Encoding="gzip") as where,
        closing(Schemas(where)) as schemas,
        pytest.raises(LogError, match="compresses"),
    ):
        schemas.schema(7)


VARIABLE = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
BITS = {"type": "bytes", "connect.name": "io.debezium.data.Bits"}


def of_schema(kind):
    schema = {"type": "record", "name": "t", "fields": [{"name": "a", "type": kind}]}
    return RecordReading(key_form="", value_form="", schema=lambda _: ("AVRO", json.dumps(schema)))


def zigzag(number):
    number, made = (number << 1) ^ (number >> 63), bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ({**DECIMAL, "scale": 999_999_999}, b""),
        ({**DECIMAL, "scale": -999_999_999}, b""),
        (VARIABLE, zigzag(999_999_999)),
        (VARIABLE, zigzag(-999_999_999)),
        ({**BITS, "connect.parameters": {"length": "999999999"}}, b""),
    ],
)
def test_a_few_bytes_are_not_gigabytes(kind, body):
    tracemalloc.start()
    try:
        with pytest.raises(BadRecordError):
            of_schema(kind).read(frame(1) + body + b"\2\1", "value")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_scale_that_postgresql_has_is_read():
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 20_000, "scale": 16_383}
    found = of_schema(kind).read(frame(1) + b"\2\1", "value")
    assert found == {"a": "0." + "0" * 16_382 + "1"}


@pytest.mark.parametrize("scale", [999_999_999, -999_999_999])
def test_both_engines_refuse_a_scale_that_no_numeric_has(scale):
    with pytest.raises(FaultyRecordError):
        replay_digits({"value": b"\1", "scale": scale})
    with pytest.raises(Exception, match="no scale of a numeric"):
        verify_digits({"value": b"\1", "scale": scale})


def fail():
    raise MemoryError


def test_health_tells_of_a_thread_that_fails_ends_or_stands_still(monkeypatch):
    beats = Pulse("the thread that looks after the tasks")
    answers = WorkerAnswers(None, worker="w", cluster_id="c", pulses=lambda: [beats])  # type: ignore[arg-type]
    asked = ApiRequest({}, [], None)
    assert answers.health(asked).code == 200
    with beats.beat():
        fail()
    assert answers.health(asked).code == 503
    assert "MemoryError" in answers.health(asked).body["message"]
    assert beats.pause_s
    with beats.beat():
        pass
    assert answers.health(asked).code == 200
    monkeypatch.setattr(pulse, "SILENT_S", -1.0)
    assert "stood still" in answers.health(asked).body["message"]
    with beats.beating():
        pass
    assert "has ended" in answers.health(asked).body["message"]


def test_one_row_at_a_time_is_looked_up(monkeypatch, tmp_path):
    begun, go_on, ran = threading.Event(), threading.Event(), []

    def run(*_, **__):
        ran.append(1)
        begun.set()
        go_on.wait(10)
        return SimpleNamespace(stdout="said", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    first = threading.Thread(target=origin_module.origin, args=(tmp_path, "v", "1"))
    first.start()
    assert begun.wait(10)
    assert "try again" in origin_module.origin(tmp_path, "v", "2")
    go_on.set()
    first.join()
    assert origin_module.origin(tmp_path, "v", "2") == "said"
    assert len(ran) == 2
