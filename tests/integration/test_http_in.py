"""Records by HTTP: the REST proxy's calls on the real servers, and requests sent again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from changelog.connect.produce.remembered import LANES, make_topic
from changelog.contract.rows.codec import frame
from changelog.kafka.cluster import Cluster
from changelog.kafka.scan import OffsetRange, scan
from tests.support.captured_project import captured_database
from tests.support.connect_workers import running
from tests.support.fetched import fetched
from tests.support.http_in import DEADLINE_S, FORM, OWN, PHONE, Client, make, worker
from tests.support.page import blocks_of, missing, printed, script_of
from tests.support.produce_faults import (
    DIES,
    DIES_ONCE,
    FORGETS_IDS,
    IDS_APART,
    OWN_NAME,
    POINTS,
    STANDS,
)
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services]

PAGE = Path(__file__).parents[2] / "docs" / "http-in.md"
FIXTURES = Path(__file__).parents[1] / "fixtures"
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
ID = {"type": "record", "name": "Id", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def topic(prefix, kafka):
    name = f"{prefix}.events"
    make(kafka, name)
    return name


def records(kafka, topic) -> list[Any]:
    """Return the committed records of a topic, by partition and offset."""
    (there,) = Cluster(kafka).topics([topic]).values()
    places = [(topic, number) for number in range(len(there.leaders))]

    def settled():  # a commit is answered before its markers are on all partitions
        committed = Cluster(kafka).bounds(places, committed=True)
        return committed if committed == Cluster(kafka).bounds(places) else None

    ends = wait_until(settled, 60, "all transactions have ended")
    ranges = [OffsetRange(topic, n, span.start, span.end) for (_, n), span in ends.items()]
    return list(scan(kafka, ranges))


@pytest.fixture(scope="module")
def group():
    return f"g{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def url(stack, group):
    with worker(stack.endpoints(), group, ["*.events"]) as (address, process, said):
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert PHONE not in "".join(said)
    assert OWN not in "".join(said)


@pytest.fixture
def client(url):
    return Client(url)


def test_documents_keys_and_tombstones_come_as_they_were_sent(client, topic, kafka):
    answer = client.post(
        topic,
        {"key": "a", "value": {"price": 1, "name": "ä"}},
        {"key": {"id": 1}, "value": None},
        {"value": [1, "2"], "partition": 1},
    )
    assert answer.status_code == 200
    document = answer.json()
    assert (document["key_schema_id"], document["value_schema_id"]) == (None, None)
    places = [(each["partition"], each["offset"]) for each in document["offsets"]]
    assert {(each["error_code"], each["error"]) for each in document["offsets"]} == {(None, None)}
    by_place = {(r.partition(), r.offset()): (r.key(), r.value()) for r in records(kafka, topic)}
    assert [by_place[place] for place in places] == [
        (b'"a"', '{"price":1,"name":"ä"}'.encode()),
        (b'{"id":1}', None),
        (None, b'[1,"2"]'),
    ]
    assert len(by_place) == 3


def test_digits_are_not_rounded(client, topic, kafka):
    raw = '{"records":[{"value":{"n":12345678901234567890.10,"m":1.10}}]}'
    headers = {"Content-Type": FORM.format("json"), "Authorization": f"Bearer {OWN}"}
    answer = httpx.post(f"{client.url}/topics/{topic}", content=raw, headers=headers)
    assert answer.status_code == 200
    assert [r.value() for r in records(kafka, topic)] == [b'{"n":12345678901234567890.10,"m":1.10}']


def test_a_key_stands_where_javas_producer_puts_it(client, topic, kafka):
    """murmur2 of `"k0"` … is what the proxy's own producer partitions by."""
    theirs = f"{topic}.theirs"
    make(kafka, theirs, 7)
    ours = f"{topic}.ours"
    make(kafka, ours, 7)
    client.post(ours, *({"key": f"k{n}", "value": n} for n in range(50)))
    producer = Producer({**kafka.client_config(), "partitioner": "murmur2"})
    for number in range(50):
        producer.produce(theirs, key=json.dumps(f"k{number}"), value=b"x")
    producer.flush(30)
    assert {r.key(): r.partition() for r in records(kafka, ours)} == {
        r.key(): r.partition() for r in records(kafka, theirs)
    }


def test_avro_by_text_and_by_id_is_what_serializers_write(client, topic, kafka, registry):
    schema, key = json.dumps(EVENT), json.dumps(ID)
    event = {"id": 2**63 - 1, "note": {"string": "x"}, "at": -1}
    first = client.post(
        topic, {"key": {"id": 1}, "value": event}, form="avro", value_schema=schema, key_schema=key
    ).json()
    again = client.post(
        topic,
        {"key": {"id": 1}, "value": {**event, "note": None}},
        {"key": {"id": 2}, "value": None},
        form="avro",
        value_schema_id=first["value_schema_id"],
        key_schema_id=first["key_schema_id"],
    ).json()
    assert again["value_schema_id"] == first["value_schema_id"]
    answered = httpx.get(f"{registry.url}/subjects/{topic}-value/versions/1").json()
    assert (answered["id"], json.loads(answered["schema"])) == (first["value_schema_id"], EVENT)

    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    with SchemaRegistryClient.new_client({"url": registry.url}) as opened:
        read = AvroDeserializer(opened)
        values = [read(r.value(), None) for r in records(kafka, topic)]
        keys = {read(r.key(), None)["id"] for r in records(kafka, topic)}
    assert keys == {1, 2}
    notes = [value and value["note"] for value in values]
    assert sorted(notes, key=str) == [None, None, "x"]


def test_bytes_come_as_they_are(client, topic, kafka):
    client.post(f"{topic}/partitions/1", {"key": "AAE=", "value": "S2Fma2E="}, form="binary")
    (record,) = records(kafka, topic)
    assert (record.partition(), record.key(), record.value()) == (1, b"\0\1", b"Kafka")


def test_errors_have_the_proxys_codes_and_nothing_is_written(client, topic, kafka, prefix):
    good = {"value": {"id": 1, "note": None, "at": 0}}
    avro = {"form": "avro", "value_schema": json.dumps(EVENT)}
    assert client.refused(f"{prefix}.none", {"value": 1}) == 40401
    assert client.refused(f"{topic}/partitions/2", {"value": 1}) == 40402
    assert client.refused(topic, {"value": 1, "partition": 2}) == 40402
    assert client.refused(topic, {"value": 1}, form="avro") == 42202
    assert client.refused(topic, {"key": 1, **good}, **avro) == 42201
    # The first record is a good one.
    assert (
        client.refused(topic, good, {"value": {"id": 1.5, "note": None, "at": 0}}, **avro) == 42203
    )
    assert client.refused(topic, good, form="avro", value_schema='{"type": "recod"}') == 42205
    assert client.refused(topic, good, form="avro", value_schema_id=10**6) == 42205
    other = f"{prefix}.other"
    make(kafka, other)
    number = client.post(other, {"value": 1}, form="avro", value_schema='"int"').json()
    number = number["value_schema_id"]
    # The id is of another subject: readers of this topic would not know it.
    assert client.refused(topic, {"value": 1}, form="avro", value_schema_id=number) == 42205
    # The registry refuses what readers of the older version could not read.
    assert client.post(topic, good, **avro).status_code == 200
    incompatible = client.post(topic, {"value": "x"}, form="avro", value_schema='"string"')
    assert incompatible.status_code in {200, 422}  # by the subject's setting
    assert client.refused(topic, {"value": 5}, form="binary") == 42206
    assert client.refused(topic, form="json") == 422
    assert client.refused(topic, {"value": 1}, form="jsonschema") == 415
    assert client.refused(topic, {"value": "x" * (1 << 20)}) == 413
    assert client.refused(topic, {"value": 1}, request_id="a b") == 400
    assert len(records(kafka, topic)) in {1, 2}


@pytest.mark.parametrize(
    "name", ["ü.events", "a b.events", "%00.events", f"{'x' * 250}.events", "a%09.events"]
)
def test_a_name_that_no_topic_can_have_is_no_topic(client, name):
    assert client.refused(name, {"value": 1}) == 40401
    answer = httpx.get(
        f"{client.url}/topics/{name}", headers={"Authorization": f"Bearer {client.token}"}
    )
    assert answer.json()["error_code"] == 40401


def test_a_compressed_body_is_refused(client, topic):
    zipped = {"Content-Encoding": "gzip"}
    assert client.refused(topic, {"value": 1}, headers=zipped) == 415


def test_a_request_is_written_whole_or_not_at_all(client, kafka, prefix):
    topic = f"{prefix}.compacted"
    make(kafka, topic, cleanup_policy="compact", max_message_bytes="2000")
    answer = client.post(topic, {"key": 1, "value": 1}, {"value": 2}, {"key": 3, "value": 3})
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50002)
    large = os.urandom(4000).hex()
    for _ in range(10):  # a refused record delays no later request until it times out
        assert client.refused(topic, {"key": 1, "value": 1}, {"key": 2, "value": large}) == 50002
    assert records(kafka, topic) == []
    with ThreadPoolExecutor(8) as pool:  # requests of one transaction do not share their fate
        sent = [{"key": 1, "value": n} if n % 2 else {"value": n} for n in range(40)]
        codes = list(pool.map(lambda each: client.post(topic, each).status_code, sent))
    assert codes == [500, 200] * 20
    assert sorted(int(r.value()) for r in records(kafka, topic)) == list(range(1, 40, 2))


def test_a_token_writes_to_its_topics_and_does_nothing_else(url, topic, kafka, prefix):
    phone = Client(url, PHONE)
    other = f"{prefix}.other"
    make(kafka, other)
    assert phone.post(topic, {"value": 1}).status_code == 200
    assert phone.refused(other, {"value": 1}) == 40301
    assert phone.refused(f"{prefix}.none", {"value": 1}) == 40301  # not even whether it is there
    bearer = {"Authorization": f"Bearer {PHONE}"}
    assert httpx.get(f"{url}/topics", headers=bearer).json() == [
        name
        for name in httpx.get(f"{url}/topics", auth=("any", OWN)).json()
        if name.endswith(".events")
    ]
    there = httpx.get(f"{url}/topics/{topic}", headers=bearer).json()
    assert (there["name"], len(there["partitions"])) == (topic, 2)
    assert there["partitions"][0]["replicas"][0]["in_sync"] is True
    assert there["configs"]["cleanup.policy"] == "delete"
    assert httpx.get(f"{url}/topics/{other}", headers=bearer).status_code == 403
    assert httpx.get(f"{url}/connectors", headers=bearer).status_code == 401
    for token in ("", "wrong-0123456789abcd"):
        assert Client(url, token).refused(topic, {"value": 1}) == 401


def test_a_page_of_another_site_writes_nothing(client, topic, kafka):
    """A browser sends simple content types without asking; the proxy's are none."""
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    answer = httpx.post(
        f"{client.url}/topics/{topic}",
        content='{"records":[{"value":1}]}',
        headers={**foreign, "Content-Type": "text/plain", "Authorization": f"Bearer {OWN}"},
    )
    assert answer.status_code == 403
    assert client.refused(topic, {"value": 1}, headers={"Content-Type": "text/plain"}) == 415
    assert records(kafka, topic) == []


def test_topics_that_others_keep_are_refused(client, stack, group, tmp_path):
    with captured_database(
        stack, tmp_path / "p", "CREATE TABLE kept (id int PRIMARY KEY); INSERT INTO kept VALUES (1)"
    ) as (_, prefix):
        own = [f"{prefix}.kept", f"{prefix}._frontier"]
        own += [f"{group}-{name}" for name in ("state", "tasks", "requests")]
        for name in [*own, "__consumer_offsets"]:
            answer = client.post(name, {"key": "1", "value": 1})
            assert (answer.status_code, answer.json()["error_code"]) == (403, 40301), name


def test_a_repeated_request_is_answered_as_the_first_was(client, topic, kafka):
    sent = [{"key": n, "value": n} for n in range(20)]
    first = client.post(topic, *sent, request_id="one")
    again = client.post(topic, *sent, request_id="one")
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content
    assert ("idempotent-replayed" in first.headers) is False
    assert again.headers["idempotent-replayed"] == "true"
    assert client.refused(topic, {"value": 0}, request_id="one") == 42290
    assert client.refused(f"{topic}/partitions/0", *sent, request_id="one") == 42290
    # Another token has ids of its own.
    assert Client(client.url, PHONE).post(topic, {"value": 0}, request_id="one").status_code == 200
    assert len(records(kafka, topic)) == 21


def test_of_requests_at_once_with_one_id_one_is_written(client, topic, kafka):
    with ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(lambda _: client.post(topic, {"value": 1}, request_id="same"), range(32))
        )
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(records(kafka, topic)) == 1


def answer_of(client, topic, request_id="r"):
    """Send a request; return its answer, or None where the worker ended before it gave one."""
    try:
        answer = client.post(
            topic, *({"key": n, "value": n} for n in range(5)), request_id=request_id
        )
    except httpx.TransportError:
        return None
    assert answer.status_code == 200, answer.text
    return answer.json()["offsets"]


def killed_and_repeated(stack, topic, tmp_path, *words):
    """Send a request to a worker that it kills, and again, with its id, to the next one."""
    env = {DIES_ONCE: str(tmp_path / "died")}
    group = f"k{uuid.uuid4().hex[:8]}"
    with worker(stack.endpoints(), group, ["*"], *words, **env) as (url, process, _):
        assert answer_of(Client(url), topic) is None
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
    with worker(stack.endpoints(), group, ["*"], *words, **env) as (url, _, _):
        return answer_of(Client(url), topic)


@pytest.mark.parametrize("point", POINTS)
def test_a_request_is_written_once_wherever_its_worker_is_killed(
    stack, kafka, topic, tmp_path, point
):
    places = killed_and_repeated(stack, topic, tmp_path, f"{DIES}{point}")
    there = [(r.partition(), r.offset()) for r in records(kafka, topic)]
    assert sorted((each["partition"], each["offset"]) for each in places) == sorted(there)
    assert len(there) == 5


@pytest.mark.parametrize("defect", [FORGETS_IDS, IDS_APART])
def test_with_a_defect_the_same_test_fails(stack, kafka, topic, tmp_path, defect):
    killed_and_repeated(stack, topic, tmp_path, f"{DIES}committed", defect)
    assert len(records(kafka, topic)) == 10


def stood_still(stack, topic, tmp_path, *words):
    """Send a request to a worker that stands still before its commit, and to another one."""
    env = {DIES_ONCE: str(tmp_path / "stood")}
    group = f"s{uuid.uuid4().hex[:8]}"
    endpoints = stack.endpoints()
    with (
        worker(endpoints, group, ["*"], *words, f"{STANDS}id", **env) as (url, process, _),
        worker(endpoints, group, ["*"], *words) as (other, _, _),
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(answer_of, Client(url), topic)
        wait_until((tmp_path / "stood").exists, DEADLINE_S, "the first one is at its commit")
        try:
            second = answer_of(Client(other), topic)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        return waiting.result(DEADLINE_S), second


def test_a_worker_that_was_thought_dead_writes_nothing_more(stack, kafka, topic, tmp_path):
    first, second = stood_still(stack, topic, tmp_path)
    assert first == second
    assert len(records(kafka, topic)) == 5


def test_a_worker_that_fences_nobody_writes_twice(stack, kafka, topic, tmp_path):
    stood_still(stack, topic, tmp_path, OWN_NAME)
    wait_until(lambda: len(records(kafka, topic)) == 10, DEADLINE_S, "both are written")


def test_two_workers_share_the_ids_of_a_group(stack, kafka, topic):
    group = f"w{uuid.uuid4().hex[:8]}"
    endpoints = stack.endpoints()
    with (
        worker(endpoints, group, ["*"]) as (one, _, _),
        worker(endpoints, group, ["*"]) as (two, _, _),
        ThreadPoolExecutor(8) as pool,
    ):
        clients = [Client(one), Client(two)]
        sent = [(clients[(n + n // 20) % 2], topic, str(n % 20)) for n in range(80)]
        answers = list(pool.map(lambda each: answer_of(*each), sent))
    by_id = {
        name: {json.dumps(answers[n]) for n in range(80) if sent[n][2] == name}
        for _, _, name in sent
    }
    assert {len(each) for each in by_id.values()} == {1}
    assert len(records(kafka, topic)) == 100


def test_a_topic_of_ids_that_forgets_early_is_refused(stack, kafka):
    group = f"f{uuid.uuid4().hex[:8]}"
    make(
        kafka,
        f"{group}-requests",
        LANES,
        retention_ms="1000",
        message_timestamp_type="LogAppendTime",
    )
    words = ["serve", "--port", "0", "--group", group, "--broker", stack.endpoints().brokers]
    ran = subprocess.run(
        [sys.executable, "-m", "changelog", *words],
        env={**os.environ, "CHANGELOG_HTTP_TOPICS": "*"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 2
    assert "forgets ids before http.remember_hours" in ran.stderr


def test_a_topic_of_ids_that_no_broker_tells_of_yet_is_waited_for(kafka, monkeypatch):
    describe, asked = Cluster.describe, []

    def late(self, names):
        asked.append(names)
        return {} if len(asked) < 3 else describe(self, names)

    monkeypatch.setattr(Cluster, "describe", late)
    make_topic(kafka, f"l{uuid.uuid4().hex[:8]}-requests", 24)
    assert len(asked) >= 3


def test_without_settings_no_topic_is_open(stack, kafka):
    group = f"n{uuid.uuid4().hex[:8]}"
    with running(stack.endpoints(), group) as (url, _, _):
        assert httpx.get(f"{url}/topics").status_code == 404
    assert f"{group}-requests" not in Cluster(kafka).topics([f"{group}-requests"])


def test_what_the_page_shows_is_what_happens(stack, kafka):
    group = f"p{uuid.uuid4().hex[:8]}"
    make(kafka, "clicks", 1)
    blocks = [block for block in blocks_of(PAGE) if block.kind == "sh"]
    with worker(stack.endpoints(), group, ["clicks"]) as (url, _, _):
        ran = subprocess.run(
            ["bash"],
            input=script_of(blocks),
            env={**os.environ, "WORKER": url, "PHONE_TOKEN": PHONE},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    outputs = printed(ran.stdout)
    assert len(blocks) == len(outputs) == 3
    for number, block in enumerate(blocks):
        assert block.prints
        assert [*missing(block.prints, outputs[number])] == [], outputs[number]
    list(Cluster(kafka).delete(["clicks"]))


def test_protobuf_by_text_and_by_id_is_what_serializers_write(client, topic, kafka, registry):
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from changelog.protobuf.compile import compiled
    from changelog.protobuf.messages import MessageTypes, split

    text = 'syntax = "proto3"; message Event { int64 id = 1; optional string note = 2; }'
    form = {"form": "protobuf"}
    first = client.post(topic, {"value": {"id": str(2**63 - 1)}}, value_schema=text, **form).json()
    number = first["value_schema_id"]
    again = client.post(
        topic, {"value": {"id": 1, "note": "x"}}, {"value": None}, value_schema_id=number, **form
    )
    assert again.json()["value_schema_id"] == number
    with SchemaRegistryClient.new_client({"url": registry.url}) as opened:
        there = opened.get_schema(number)
    assert there.schema_type == "PROTOBUF"
    types = MessageTypes(compiled(there.schema_str, "it"))
    values = [r.value() for r in records(kafka, topic)]
    parts = [split(value) for value in values if value is not None]
    assert {part[:2] for part in parts} == {(number, (0,))}
    ids = [types.document(types.parsed(part[2])) for part in parts]
    assert sorted(ids, key=len) == [{"id": str(2**63 - 1)}, {"id": "1", "note": "x"}]
    assert values.count(None) == 1
    assert client.refused(topic, {"value": {"no": 1}}, value_schema_id=number, **form) == 42203
    assert client.refused(topic, {"value": {"id": 1}}, value_schema="message {", **form) == 42205
    assert client.refused(topic, {"value": {"id": 1}}, **form) == 42202


def test_confluents_own_client_lists_topics_and_writes_bytes_and_avro(
    client, topic, kafka, registry
):
    """It is of the proxy's first version, whose content types have no form for bytes."""
    folder = fetched("npm", "kafka-rest@0.0.5")
    ran = subprocess.run(
        ["node", str(FIXTURES / "kafka_rest.js"), client.url, topic, OWN],
        env={**os.environ, "NODE_PATH": str(folder / "node_modules")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    names, one, partitions, second, plain, in_0, keyed, by_id, *refused = answers
    assert topic in names
    assert one["name"] == topic
    assert one["partitions"] == partitions
    assert [part["partition"] for part in partitions] == [0, 1]
    assert second == partitions[1]
    assert in_0["offsets"][0]["partition"] == 0
    assert keyed["value_schema_id"] == by_id["value_schema_id"] is not None
    assert [(no["status"], no["error"]["error_code"]) for no in refused] == [
        (422, 42203),
        (404, 40402),
        (404, 40401),
    ]
    there = {(r.partition(), r.offset()): (r.key(), r.value()) for r in records(kafka, topic)}
    sent = [
        there[place["partition"], place["offset"]]
        for answer in (plain, in_0, keyed, by_id)
        for place in answer["offsets"]
    ]
    assert len(there) == len(sent) == 7
    assert sent[:4] == [(None, b"plain"), (b"k", "ä".encode()), (b"k", None), (b"p", b"in 0")]
    head = frame(keyed["value_schema_id"])
    assert [value for _, value in sent[4:]] == [head + b"\x02", head + b"\x04", head + b"\x06"]
    assert [key and key[5:] for key, _ in sent[4:]] == [b"\x02a", b"\x02b", None]
