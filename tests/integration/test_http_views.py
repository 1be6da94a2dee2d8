"""Events that came by HTTP, joined by views with captured tables, are what PostgreSQL joins."""

import base64
import json
import uuid
from decimal import Decimal
from functools import partial

import pytest

from tests.support.captured_project import captured_database, rebuild_view
from tests.support.http_in import Client, make, worker
from tests.support.rounds import rounds
from tests.support.shop import aim, target_database
from tests.support.sql import execute

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, item text, amount numeric(10,2));
INSERT INTO orders VALUES (1, 'ink', 1.10), (2, 'pen', 2.20), (3, 'ink', 3.30), (5, NULL, 5.50);
CREATE SCHEMA judge;
CREATE TABLE judge.clicks (id bigint PRIMARY KEY, path text, paid numeric(10,2));
CREATE TABLE judge.visits (
    id bigint PRIMARY KEY, big numeric(20,0), note text, at timestamptz, colour text, raw bytea);
"""
VISIT = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Visit {
  int64 id = 1;
  uint64 big = 2;
  optional string note = 3;
  google.protobuf.Timestamp at = 4;
  enum Colour { RED = 0; BLUE = 1; }
  Colour colour = 5;
  bytes raw = 6;
}
"""
KEY = 'syntax = "proto3"; message Key { int64 id = 1; }'
CLICKS = [  # id, path, paid; a row without a path is deleted
    (1, "/", "1.10"),
    (2, "/b", "12345678.90"),
    (1, "/again", "0.01"),
    (3, "/c", None),
    (4, "/nobody", "4.00"),
    (3, None, None),
    (5, "ä", "5.00"),
]
VISITS = [
    (1, 2**64 - 1, "", "2024-02-29T10:00:00.123456Z", "BLUE", b"\0\xff"),
    (2, 0, None, None, "RED", b""),
    (5, 2**63, "x", "1900-01-01T00:00:00Z", "RED", b"x"),
    (3, 1, "gone", None, "RED", b""),
]
QUERY = """
SELECT o.id, o.item, o.amount, c.path, c.paid, v.big, v.note, v.at, v.colour, v.raw
FROM orders o LEFT JOIN {}clicks c ON c.id = o.id LEFT JOIN {}visits v ON v.id = o.id
"""

FOLLOWED = """
SELECT o.id, o.item, v.big, v.note, v.at, v.colour, v.raw
FROM orders o LEFT JOIN {}visits v ON v.id = o.id
"""
LATER = VISIT.replace("bytes raw = 6;", "bytes raw = 6;\n  optional string more = 7;")


def plain(row):
    return tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path / "project", TABLES) as (made, prefix):
        yield made, prefix


def declare(project, clicks, visits):
    path = project.root / "changelog.toml"
    text = f"""
[logs.clicks]
topic = "{clicks}"
form = "flat-json"
key = ["id"]
columns = {{ id = "bigint", path = "string", paid = "decimal(10,2)" }}
[logs.visits]
topic = "{visits}"
form = "flat-protobuf"
key = ["id"]
"""
    path.write_text(path.read_text() + text)


def send_clicks(client, topic, project):
    for number, (id_, path, paid) in enumerate(CLICKS):
        value = None if path is None else {"id": id_, "path": path, "paid": "PAID"}
        body = json.dumps({"records": [{"key": {"id": id_}, "value": value}]})
        # Each digit as it is: a number of JSON, not a double.
        answer = client.send(topic, body.replace('"PAID"', paid or "null"), request_id=f"c{number}")
        assert answer.status_code == 200, answer.text
        again = client.send(topic, body.replace('"PAID"', paid or "null"), request_id=f"c{number}")
        assert again.content == answer.content
        if path is None:
            project.execute(f"DELETE FROM judge.clicks WHERE id = {id_}")
        else:
            project.execute(
                f"INSERT INTO judge.clicks VALUES ({id_}, '{path}', {paid or 'NULL'}) ON CONFLICT"
                " (id) DO UPDATE SET path = excluded.path, paid = excluded.paid"
            )


def send_visits(client, topic, project):
    send_rows(client, topic, project, VISITS)
    project.execute("DELETE FROM judge.visits WHERE id = 3")
    remove(client, topic, 3)


def send_rows(client, topic, project, rows, schema=VISIT):
    """Send events in Protobuf, and give the judge the same rows."""
    records = []
    for id_, big, note, at, colour, raw in rows:
        value = {"id": id_, "big": big, "colour": colour, "raw": base64.b64encode(raw).decode()}
        value |= {} if note is None else {"note": note}
        value |= {} if at is None else {"at": at}
        records.append({"key": {"id": id_}, "value": value})
        texts = ["NULL" if text is None else f"'{text}'" for text in (note, at, colour)]
        project.execute(
            f"INSERT INTO judge.visits VALUES ({id_}, {big}, {', '.join(texts)}, '\\x{raw.hex()}')"
            " ON CONFLICT (id) DO UPDATE SET (big, note, at, colour, raw) ="
            " (excluded.big, excluded.note, excluded.at, excluded.colour, excluded.raw)"
        )
    answer = client.post(topic, *records, form="protobuf", value_schema=schema, key_schema=KEY)
    assert answer.status_code == 200, answer.text


def remove(client, topic, number):
    record = {"key": {"id": number}, "value": None}
    answer = client.post(topic, record, form="protobuf", key_schema=KEY)
    assert answer.status_code == 200, answer.text


def test_events_by_http_joined_with_a_captured_table_are_what_postgresql_joins(
    project, stack, kafka, capsys, monkeypatch
):
    made, prefix = project
    clicks, visits = f"{prefix}-clicks", f"{prefix}-visits"
    for topic in (clicks, visits):
        make(kafka, topic, 2)
    declare(made, clicks, visits)
    made.view("joined.sql", f"-- key: id\n-- sinks: delta\n{QUERY.format('', '')}")

    def compared(*options):
        ran = rebuild_view(capsys, monkeypatch, made, "joined", "--json", *options)
        assert ran.code == 0, ran.err
        assert ran.results[0]["verified"] is True
        there = [tuple(row.values()) for row in made.delta("joined")]
        theirs = made.query(f"{QUERY.format('judge.', 'judge.')} ORDER BY id")
        assert there == [*map(plain, theirs)]
        return there

    with worker(stack.endpoints(), f"v{uuid.uuid4().hex[:8]}", ["*"]) as (url, _, _):
        client = Client(url)
        send_clicks(client, clicks, made)
        send_visits(client, visits, made)
        rows = compared()
        assert rows[0][5] == Decimal(2**64 - 1)
        made.execute("UPDATE orders SET item = 'new' WHERE id = 2; DELETE FROM orders WHERE id = 5")
        made.capture()
        assert client.post(clicks, {"key": {"id": 2}, "value": None}).status_code == 200
        made.execute("DELETE FROM judge.clicks WHERE id = 2")
        assert compared("--refresh") != rows


def test_a_follower_brings_a_view_forward_by_protobuf_that_came_by_http(
    project, stack, kafka, endpoints
):
    made, prefix = project
    clicks, visits = f"{prefix}-clicks", f"{prefix}-visits"
    for topic in (clicks, visits):
        make(kafka, topic, 2)
    declare(made, clicks, visits)
    served = f"joined_{uuid.uuid4().hex[:8]}"
    made.view(f"{served}.sql", f"-- key: id\n-- sinks: postgres\n{FOLLOWED.format('')}")
    with (
        target_database(endpoints) as target,
        worker(stack.endpoints(), f"v{uuid.uuid4().hex[:8]}", ["*"]) as (url, _, _),
    ):
        aim(made, target)
        client = Client(url)
        send_visits(client, visits, made)

        def is_right():
            there = execute(target, f"SELECT * FROM {served} ORDER BY id")
            assert [*map(plain, there)] == [
                *map(plain, made.query(f"{FOLLOWED.format('judge.')} ORDER BY id"))
            ]

        with rounds(made.root, served, forward=True) as (advance, _, _):
            assert advance()
            is_right()
            generation = advance.generation
            assert advance() is None
            for changes in (
                [partial(send_rows, client, visits, made, [(3, 2, "back", None, "BLUE", b"")])],
                [
                    partial(made.execute, "DELETE FROM judge.visits WHERE id = 1"),
                    partial(remove, client, visits, 1),
                ],
                [
                    partial(made.execute, "UPDATE orders SET item = 'x' WHERE id = 2"),
                    made.capture,
                    partial(
                        send_rows, client, visits, made, [(2, 2**64 - 1, None, None, "RED", b"y")]
                    ),
                    partial(send_rows, client, visits, made, [(1, 7, "new", None, "RED", b"z")]),
                ],
            ):
                for change in changes:
                    change()
                assert advance()
                assert (advance.origin.split(":")[0], advance.generation) == ("forward", generation)
                is_right()
            # A version of the schema that came meanwhile.
            send_rows(client, visits, made, [(5, 5, "later", None, "BLUE", b"")], LATER)
            assert advance()
            is_right()
