"""`changelog publish`: results of real queries on a real topic, whole or not at all."""

from contextlib import closing

import duckdb
import psycopg2
import pytest

from changelog.contract.log.form import Output
from changelog.publish.postgres import PostgresRows
from changelog.publish.publish import Publish, PublishSettings, PublishStoppedError
from changelog.runtime.edge import bar_console
from changelog.sections import CaptureSettings
from changelog.sink.producer import LogProducer
from changelog.sink.registry import SchemaRegistry
from tests.support.crashing_publish import stand_at_once
from tests.support.published import committed_records, state_of


@pytest.fixture
def publish(kafka, registry, dsn, prefix, run_command):
    def publish(query, *more, source=f"postgres:{dsn}", topic=f"{prefix}.t", env=None):
        words = ["publish", "--query", query, "--from", source, "--to", topic, "--json", *more]
        return run_command(
            [*words, "--broker", kafka.brokers, "--schema-registry", registry.url], env
        )

    return publish


@pytest.fixture
def shown(kafka, registry, prefix):
    """All committed records of a topic: keys and values as plain values, None for a tombstone."""

    def shown(topic=f"{prefix}.t", *, form="avro", settled=True):
        schemas = registry if form == "avro" else None
        return committed_records(kafka, topic, schemas, settled=settled)

    return shown


def test_rows_of_postgres_are_records_with_their_exact_values(publish, shown):
    query = (
        "SELECT 1 AS id, 12345678901234567890.10::numeric(22,2) AS amount, 'NaN'::numeric AS free,"
        " '0044-03-15 BC'::date AS day, 'infinity'::timestamptz AS at, ARRAY[1,NULL] AS list,"
        " E'a\\tb\\\\c'::text AS name, NULL::int AS nothing, '24:00'::time AS clock;"
    )
    assert publish(query, "--key", "id")[:2][0] == 0
    assert shown() == [
        (
            {"id": 1},
            {
                "id": 1,
                "amount": "12345678901234567890.10",
                "free": "NaN",
                "day": "0044-03-15 BC",
                "at": "infinity",
                "list": [1, None],
                "name": "a\tb\\c",
                "nothing": None,
                "clock": "24:00:00",
            },
        )
    ]


def test_rows_of_duckdb_are_the_same_and_json_too(publish, shown, tmp_path, prefix):
    file = tmp_path / "f.duckdb"
    with duckdb.connect(str(file)) as made:
        made.execute(
            "CREATE TABLE t AS SELECT 7::HUGEINT AS id, 1.10::DECIMAL(38,2) AS amount, true AS yes,"
            " 'inf'::DOUBLE AS far, 0.1::FLOAT AS short, '\\xFF\\x00'::BLOB AS raw,"
            " TIMESTAMPTZ '2024-01-01 00:00:00.5+01' AS at, DATE '0044-03-15 (BC)' AS day,"
            " 'a' || chr(10) || 'b\\c' AS name, NULL::VARCHAR AS nothing"
        )
    wanted = {
        "id": "7",
        "amount": "1.10",
        "yes": True,
        "far": "Infinity",
        "short": 0.1,
        "raw": "/wA=",
        "at": "2023-12-31T23:00:00.5+00:00",
        "day": "0044-03-15 BC",
        "name": "a\nb\\c",
        "nothing": None,
    }
    source = f"duckdb:{file}"
    assert publish("FROM t", "--key", "id", source=source)[0] == 0
    assert shown() == [({"id": "7"}, wanted)]
    other = f"{prefix}.json"
    code, _, said = publish("FROM t", "--as", "json", source=source, topic=other)
    assert code == 0, said
    assert shown(other, form="json") == [(None, wanted)]
    code, _, said = publish("SELECT {'a': 1} AS s", "--as", "json", source=source)
    assert (code, 'the column "s" has the type STRUCT' in said) == (2, True)
    assert publish("SELECT 1 AS a", source=f"{source}.no")[0] == 2


def test_a_run_writes_what_changed_and_tombstones_for_what_vanished(publish, shown, execute):
    execute("CREATE TABLE t AS SELECT n AS id, 'v' || n AS name FROM generate_series(1, 2000) n")
    more = ["--key", "id", "--tombstones", "--changed-only"]
    query = "SELECT * FROM public.t"
    assert publish(query, *more)[1]["written"] == 2000
    execute("DELETE FROM t WHERE id <= 10; UPDATE t SET name = 'new' WHERE id IN (11, 12)")
    execute("INSERT INTO t VALUES (3000, 'more')")
    found = publish(query, *more)[1]
    assert (found["rows"], found["written"], found["tombstones"]) == (1991, 3, 10)
    records = shown()
    assert len(records) == 2013
    found = state_of(records)
    assert len(found) == 1991
    assert [each["name"] for each in found if each["id"] in {11, 12, 3000}] == [
        "new",
        "new",
        "more",
    ]
    found = publish(query, *more)[1]
    assert (found["written"], found["unchanged"], found["tombstones"]) == (0, 1991, 0)
    assert publish(f"{query} WHERE id = 3000", "--key", "id")[1]["written"] == 1
    assert publish(f"{query} WHERE false", *more)[1]["tombstones"] == 1991
    assert state_of(shown()) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT n % 9999 AS id FROM generate_series(0, 10000) n", "two rows have the key id="),
        ("SELECT NULLIF(n, 9000) AS id FROM generate_series(1, 9000) n", "a null in its key: id="),
        ("SELECT 1 / (9000 - n) AS x, n AS id FROM generate_series(1, 9001) n", "division by zero"),
        ("SELECT id FROM nowhere", 'relation "nowhere" does not exist'),
        ("DELETE FROM pg_class RETURNING 1 AS id", "the query cannot be run"),
    ],
)
def test_nothing_is_seen_of_a_run_that_fails(publish, shown, query, expected):
    assert publish("SELECT 1 AS id", "--key", "id")[0] == 0
    code, _, said = publish(query, "--key", "id")
    assert (code, expected in said) == (1, True), said
    assert shown(settled=False) == [({"id": 1}, {"id": 1})]


def test_twin_without_a_transaction_shows_the_rows_before_the_fault(publish, shown, monkeypatch):
    """The same with the seeded defect: records that stand as they are written."""
    monkeypatch.setattr(LogProducer, "open", stand_at_once)
    query = "SELECT n % 9999 AS id FROM generate_series(0, 10000) n"
    assert publish(query, "--key", "id")[0] == 1
    assert len(shown()) == 9999


def test_what_does_not_go_together_is_said_with_its_code(publish, tmp_path, prefix):
    for query, more, named, expected in (
        ("SELECT 1 AS a", ["--key", "b"], {}, 'no column "b"'),
        ("SELECT 1 AS a, 2 AS a", [], {}, 'two columns "a"'),
        ("SELECT 1 AS a", ["--tombstones"], {}, "need a key to recognise rows"),
        ("SELECT 1 AS a", ["--every", "now and then"], {}, "no schedule of cron"),
        ("SELECT 1 AS a", [], {"source": "sqlite:x"}, "neither PostgreSQL nor DuckDB"),
        ("@nowhere.sql", [], {}, "cannot read the query"),
    ):
        code, _, said = publish(query, *more, **named)
        assert (code, expected in said) == (2, True), said
    away = "postgres:postgresql://me:s3cret-canary@127.0.0.1:1/db"
    code, _, said = publish("SELECT 1 AS a", source="${AWAY}", env={"AWAY": away})
    assert (code, "s3cret" in said) == (1, False), said


def test_a_run_that_is_stopped_leaves_nothing(kafka, registry, dsn, prefix, publish, shown):
    assert publish("SELECT 1 AS id", "--key", "id")[0] == 0
    settings = PublishSettings(topic=f"{prefix}.t", key=("id",), output=Output.AVRO)
    made = Publish(
        kafka, settings, CaptureSettings(), lambda: SchemaRegistry(registry), bar_console()
    )
    asked = iter([False] * 3)
    rows = PostgresRows(dsn, "SELECT n AS id FROM generate_series(1, 100000) n")
    with closing(rows), pytest.raises(PublishStoppedError):
        made.run(rows, lambda: next(asked, True))
    assert shown(settled=False) == [({"id": 1}, {"id": 1})]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 AS id; COMMIT; BEGIN TRANSACTION READ WRITE; CREATE TABLE wrote (a int)",
        "SELECT 1 AS id) AS q; COMMIT; CREATE TABLE wrote (a int); SELECT * FROM (SELECT 1 AS id",
        "SELECT 1 AS id) TO STDOUT; COMMIT; CREATE TABLE wrote (a int); COPY (SELECT 1 AS id",
        "SELECT 1 AS id) AS q LIMIT 1; COMMIT; CREATE TABLE wrote (a int); --",
        "CREATE TABLE wrote (a int)",
        "SELECT 1 AS id FROM set_config('transaction_read_only', 'off', false)",
        "WITH w AS (INSERT INTO there VALUES (1) RETURNING 1) SELECT 1 AS id FROM w",
    ],
)
def test_a_query_of_postgres_that_writes_is_refused(publish, dsn, query, shown):
    with closing(psycopg2.connect(dsn)) as link:
        link.autocommit = True
        with link.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS there (a int)")
            code, _, err = publish(query, "--key", "id")
            assert code != 0
            assert "Traceback" not in err
            cursor.execute("SELECT to_regclass('wrote'), (SELECT count(*) FROM there)")
            assert cursor.fetchone() == (None, 0)
