"""Record the topics that a real Debezium writes, as fixtures of the tests.

    .venv/bin/python -m tests.support.record_debezium [FOLDER]

Needs Maven, whose repositories serve Debezium and Kafka Connect. One worker runs a connector for
each form over the same changes of one database; what lies on each topic is kept as it is, bytes
and headers, with the schemas of the registry and the rows that PostgreSQL has at the end. A newer
Debezium is recorded by `DEBEZIUM_VERSION`. One file a topic, `tests/fixtures/debezium` by default:
JSON lines under gzip, the first one says what it is (`tests/support/recorded.py` reads it).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg2
from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.kafka_connect import JSON, WORKER, fetch_jars, start_worker
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack
from tests.support.sql import execute
from tests.support.wait import wait_until

VERSION = os.environ.get("DEBEZIUM_VERSION", "3.7.0.Final")
CONVERTER_VERSION = "2.6.13.Final"
FOLDER = Path(__file__).parents[1] / "fixtures" / "debezium"
END = "the end of the recording"
_DEADLINE_S = 400

_LONG = "repeat(md5({}::text), {})"
TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE typed (
    id integer PRIMARY KEY, i2 smallint, i8 bigint, n numeric, d numeric(12,4), f4 real, f8 float8,
    b boolean, t text, vc varchar(50), c char(5), by bytea, day date, ts timestamp,
    ts3 timestamp(3), tz timestamptz, tm time, ttz timetz, iv interval, u uuid, j json, jb jsonb,
    e mood, ints integer[], texts text[],
    big_text text, big_bytes bytea, big_jsonb jsonb, big_texts text[], big_ints integer[],
    big_longs bigint[], big_uuids uuid[], big_number numeric, big_floats float8[], big_days date[]
);
"""
_BIG = (
    "big_text",
    "big_bytes",
    "big_jsonb",
    "big_texts",
    "big_ints",
    "big_longs",
    "big_uuids",
    "big_number",
    "big_floats",
    "big_days",
)
STORAGE = [
    # Out of line and as they are: text that compresses well would stay in the row.
    *(f"ALTER TABLE typed ALTER COLUMN {column} SET STORAGE EXTERNAL" for column in _BIG),
    "ALTER TABLE typed SET (toast_tuple_target = 128)",
]


def typed(number: int) -> str:
    """Return the statement that inserts a row with something in each column."""
    return f"""INSERT INTO typed VALUES (
    {number}, {number}, 9007199254740993 + {number}, 12345678901234567890.{number}, {number}.25,
    0.1, 1.0 / {number}, {number} % 2 = 0, 'text "{number}" ü', 'vc', 'c', '\\x00ff{number:02}',
    date '2024-02-28' + {number}, '2024-02-29 12:00:00.123456', '2024-02-29 12:00:00.5',
    '2024-02-29 12:00:00.123456+02', '12:34:56.5', '12:34:56+02', '1 mon 2 days 03:04:05',
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a{number:02}', '{{"a" : 1.10}}', '{{"a": [1.10, null]}}',
    'ok', '{{1,NULL,{number}}}', '{{a,NULL,"b\\"c"}}', {big(number)}, {_arrays(number)})"""


def big(number: int, version: int = 0) -> str:
    """Return a text, bytes and a document that PostgreSQL keeps outside of the row."""
    seed = number * 100 + version
    return f"""'{seed}' || {_LONG.format(seed, 20)}, convert_to({_LONG.format(seed, 20)}, 'UTF8'),
    jsonb_build_object('n', 1.10, 'v', {seed}, 't', {_LONG.format(seed, 20)})"""


def _arrays(seed: int) -> str:
    numbers = f"(SELECT array_agg((g * {seed})::{{}}) FROM generate_series(1, 120) g)"
    return f"""ARRAY[{_LONG.format(seed, 10)}, NULL, {_LONG.format(seed, 10)}],
    {numbers.format("integer")}, {numbers.format("bigint")},
    (SELECT array_agg(md5((g * {seed})::text)::uuid) FROM generate_series(1, 40) g),
    repeat({seed}::text, 400)::numeric / 1000, {numbers.format("float8")},
    (SELECT array_agg(date '2024-01-01' + g * {seed}) FROM generate_series(1, 60) g)"""


BEFORE = [
    *map(typed, range(1, 9)),
    "INSERT INTO typed (id) VALUES (20)",
    """INSERT INTO typed (id, d, f4, f8, day, ts, tz, t) VALUES
    (21, 0, 'NaN', '-Infinity', '1969-12-31', '0001-01-01', '9999-12-31 23:59:59.999999+00', '')""",
]


CHANGES = [
    "UPDATE typed SET i2 = 100 WHERE id = 1",  # leaves all that is big alone
    "UPDATE typed SET i2 = 101 WHERE id = 1",
    "UPDATE typed SET big_text = 'x' || big_text WHERE id = 2",  # each from another record
    "UPDATE typed SET big_jsonb = big_jsonb || '{\"more\": 1}' WHERE id = 2",
    "UPDATE typed SET i2 = 102 WHERE id = 2",
    "UPDATE typed SET big_bytes = NULL WHERE id = 3",
    "UPDATE typed SET t = 'changed' WHERE id = 3",
    "UPDATE typed SET id = 104 WHERE id = 4",  # the create has none of what is big
    "UPDATE typed SET i2 = 104 WHERE id = 104",
    "DELETE FROM typed WHERE id = 5",
    "DELETE FROM typed WHERE id = 6",
    typed(6),
    "UPDATE typed SET i2 = 106 WHERE id = 6",
    "UPDATE typed SET i2 = 7 WHERE id = 7",
    "UPDATE typed SET id = 107 WHERE id = 7",  # from key to key, and the first one again
    "UPDATE typed SET id = 207 WHERE id = 107",
    typed(7),
    f"UPDATE typed SET (big_text, big_bytes, big_jsonb) = (SELECT {big(7, 2)}) WHERE id = 7",
    "UPDATE typed SET i2 = 207 WHERE id = 207",
    "; ".join(
        ["UPDATE typed SET id = 108 WHERE id = 8", typed(8), "UPDATE typed SET i2 = 8 WHERE id = 8"]
    ),
    f"{typed(9)}; UPDATE typed SET i2 = 9 WHERE id = 9; DELETE FROM typed WHERE id = 9",
    typed(10) + "; UPDATE typed SET t = 'same transaction' WHERE id = 10",
    "INSERT INTO typed (id) VALUES (22)",
    """UPDATE typed SET f4 = 'Infinity', f8 = 'NaN', d = 99999999.9999, day = '9999-12-31'
    WHERE id = 21""",
    f"INSERT INTO typed (id, t) VALUES (1000, '{END}')",
]

_AVRO = "io.apicurio.registry.utils.converter.AvroConverter"


def _converters(*, avro: str = "", schemas: bool = False) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in ("key", "value"):
        if not avro:
            found[f"{part}.converter"] = JSON
            found[f"{part}.converter.schemas.enable"] = str(schemas).lower()
            continue
        found[f"{part}.converter"] = _AVRO
        more = {
            "registry.url": avro,
            "registry.auto-register": "true",
            "registry.find-latest": "true",
            "registry.headers.enabled": "false",  # the frame of Confluent instead
            "registry.as-confluent": "true",
            "registry.use-id": "contentId",
        }
        found.update({f"{part}.converter.apicurio.{name}": each for name, each in more.items()})
    if avro:
        found |= {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
    return found


def _flat(handling: str) -> dict[str, str]:
    return {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": handling,
    }


def connectors(registry: str) -> dict[str, dict[str, str]]:
    """Return the settings of each connector beyond those that all share."""
    text = {"decimal.handling.mode": "string"}
    return {
        "avro": {"decimal.handling.mode": "precise", **_converters(avro=registry)},
        "avro-flat": {**text, **_converters(avro=registry), **_flat("tombstone")},
        "json": {**text, "unavailable.value.placeholder": "<nicht verfügbar>", **_converters()},
        "json-schema": {"decimal.handling.mode": "precise", **_converters(schemas=True)},
        "json-flat": {**text, **_converters(), **_flat("tombstone")},
        "json-flat-schema": {
            "decimal.handling.mode": "double",
            **_converters(schemas=True),
            **_flat("tombstone"),
        },
        "json-flat-rewrite": {**text, **_converters(), **_flat("rewrite")},
        "json-flat-rewrite-tombstone": {**text, **_converters(), **_flat("rewrite-with-tombstone")},
        "json-flat-delete-to-tombstone": {**text, **_converters(), **_flat("delete-to-tombstone")},
    }


def resolve(folder: Path) -> None:
    """Fetch the worker, the connector and the converter by Maven into `lib` and `plugins`."""
    fetch_jars(folder / "lib", WORKER)
    converter = f"io.apicurio:apicurio-registry-utils-converter:{CONVERTER_VERSION}"
    fetch_jars(folder / "plugins" / "converter", [converter])
    connector = f"io.debezium:debezium-connector-postgres:{VERSION}"
    fetch_jars(folder / "plugins" / "debezium", [connector])
    for place in ("converter", "debezium"):
        # The worker has these; a second copy beside a plugin only confuses it.
        for pattern in ("kafka-clients", "connect-api", "connect-json", "slf4j-api"):
            for jar in (folder / "plugins" / place).glob(f"{pattern}-*.jar"):
                jar.unlink()


@contextlib.contextmanager
def worker(folder: Path, endpoints: Endpoints, dsn: Mapping[str, str]) -> Iterator[None]:
    """Run Kafka Connect with all connectors."""
    registry = endpoints.schema_registry.replace("/apis/ccompat/v7", "/apis/registry/v2")
    settings: dict[str, dict[str, str]] = {}
    for name, own in connectors(registry).items():
        plain_name = name.replace("-", "_")
        shared = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": dsn["host"],
            "database.port": dsn["port"],
            "database.user": dsn["user"],
            "database.password": "unused",
            "database.dbname": dsn["dbname"],
            "topic.prefix": name,
            "table.include.list": "public.typed",
            "slot.name": plain_name,
            "publication.name": plain_name,
            "publication.autocreate.mode": "filtered",
            "topic.creation.default.partitions": "2",
            "topic.creation.default.replication.factor": "1",
        }
        settings[name] = shared | own
    plugins = folder / "plugins"
    process = start_worker(
        folder, folder / "lib", plugins, endpoints.brokers, settings, discovery="hybrid_warn"
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


class Topic:
    def __init__(self, brokers: str, name: str) -> None:
        self._client = {"bootstrap.servers": brokers, "group.id": "r", "enable.auto.commit": False}
        self.name = name

    def records(self) -> list[Message]:
        """Return all that it holds now, partition by partition."""
        found: list[Message] = []
        with closing(Consumer(self._client)) as consumer:
            listed = consumer.list_topics(self.name, timeout=30).topics[self.name]
            for partition in sorted(listed.partitions):
                place = TopicPartition(self.name, partition, 0)
                _, end = consumer.get_watermark_offsets(place, timeout=30)
                consumer.assign([place])
                while end:
                    message = consumer.poll(30)
                    assert message is not None, f"{self.name} is silent"
                    assert message.error() is None, message.error()
                    found.append(message)
                    if (message.offset() or 0) + 1 >= end:
                        break
        return found

    def has(self, text: str) -> bool:
        return any(text.encode() in (each.value() or b"") for each in self.records())


def rows(dsn: str) -> list[dict[str, str | None]]:
    """Return the rows of the table, each value as PostgreSQL's text."""
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'; SET extra_float_digits = 1")
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'typed'::regclass AND attnum > 0"
            " ORDER BY attnum"
        )
        names = [name for (name,) in cursor.fetchall()]
        # A cast would take the blanks off a char(n).
        texts = (f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END" for name in names)
        cursor.execute(f"SELECT {', '.join(texts)} FROM typed t ORDER BY t.id")
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def schemas(registry: str, topic: str) -> dict[str, list[dict[str, Any]]]:
    """Return the versions of a topic's subjects, with the ids that its records bear."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part in ("key", "value"):
        subject = f"{registry}/subjects/{topic}-{part}/versions"
        found[part] = [_get(f"{subject}/{version}") for version in _get(subject)]
    return {
        part: [{"id": each["id"], "schema": json.loads(each["schema"])} for each in versions]
        for part, versions in found.items()
    }


def _get(url: str) -> Any:
    return httpx.get(url, timeout=30, trust_env=False).raise_for_status().json()


def write(path: Path, head: dict[str, Any], records: list[Message]) -> None:
    is_text = not head["schemas"]

    def form(raw: bytes | None) -> str | None:
        if raw is None:
            return None
        return raw.decode() if is_text else base64.b64encode(raw).decode()

    lines = [head]
    for each in records:
        headers = [[name, _text(value)] for name, value in _headers(each)]
        lines.append(
            {
                "partition": each.partition(),
                "offset": each.offset(),
                "timestamp": each.timestamp()[1],
                "headers": headers,
                "key": form(each.key()),
                "value": form(each.value()),
            }
        )
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _headers(record: Message) -> list[tuple[str, Any]]:
    found: Any = record.headers()  # a list of pairs, or None; also typed as a mapping
    return list(found or [])


def _text(raw: str | bytes | None) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw or ""


def record(into: Path, home: Path) -> None:
    resolve(home)
    slots = {"max_replication_slots": "40", "max_wal_senders": "40"}
    with Stack(home / "stack", postgres_settings={"wal_level": "logical", **slots}) as stack:
        endpoints = stack.endpoints()
        dsn = endpoints.postgres
        execute(dsn, TABLES, *STORAGE, *BEFORE)
        with closing(psycopg2.connect(dsn)) as connection:
            where = {k: str(v) for k, v in connection.get_dsn_parameters().items()}
            server = connection.info.parameter_status("server_version")
        forms = connectors("")
        topics = {form: Topic(endpoints.brokers, f"{form}.public.typed") for form in forms}
        with worker(home, endpoints, where):
            count = len(rows(dsn))
            for topic in topics.values():
                wait_until(
                    lambda topic=topic: _count(topic) >= count,  # type: ignore[misc]
                    _DEADLINE_S,
                    f"snapshot on {topic.name}",
                )
            execute(dsn, *CHANGES)
            for topic in topics.values():
                wait_until(lambda topic=topic: topic.has(END), _DEADLINE_S, topic.name)  # type: ignore[misc]
        into.mkdir(parents=True, exist_ok=True)
        for form, topic in topics.items():
            found = schemas(endpoints.schema_registry, topic.name) if "avro" in form else {}
            head = {
                "debezium": VERSION,
                "postgres": server,
                "settings": {k: v for k, v in forms[form].items() if "registry" not in k},
                "partitions": 2,
                "schemas": found,
                "rows": rows(dsn),
            }
            write(into / f"{form}.jsonl.gz", head, topic.records())


def _count(topic: Topic) -> int:
    try:
        return len(topic.records())
    except KeyError:
        return 0


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp(prefix="record-debezium-"))
    place.chmod(0o755)
    try:
        record(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER, place)
    except BaseException:
        print(f"the worker's log stays in {place}", file=sys.stderr)
        raise
    shutil.rmtree(place)
