"""`--output-format json` on the real servers, read by the json module alone."""

from contextlib import closing

import psycopg2
import pytest
from psycopg2 import sql

from changelog.contract.rows.text import SESSION_SETTINGS
from tests.integration.test_every_type import (
    EVERYTHING,
    ODD_DDL,
    ROWS,
    STAND_IN,
    odd_rows,
    odd_table,
)
from tests.support.capture_command import CaptureCommand
from tests.support.documents import Documents, as_parameter

pytestmark = [pytest.mark.services, pytest.mark.slow]

COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 ORDER BY a.attnum
"""


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = CaptureCommand(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    settings = tmp_path / "changelog.toml"
    # No registry at all: documents need none.
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("url")]
    settings.write_text("\n".join([*lines, 'output_format = "json"', ""]))
    yield made
    made.kill()


@pytest.fixture
def documents(capture):
    return Documents(capture)


def differences(dsn, table, rows):
    """Have PostgreSQL read each value of the documents and compare it with the column's."""
    found = []
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        for name, value in SESSION_SETTINGS.items():
            cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
        cursor.execute(COLUMNS, (table,))
        columns = cursor.fetchall()
        for (key,), row in rows.items():
            assert list(row) == [name for name, _ in columns]
            same = [
                sql.SQL("(%s::{})::text IS NOT DISTINCT FROM {}::text").format(
                    sql.SQL(kind.replace("%", "%%")), sql.Identifier(name)
                )
                for name, kind in columns
            ]
            query = sql.SQL("SELECT {} FROM {} WHERE id = %s").format(
                sql.SQL(", ").join(same), sql.Identifier(table)
            )
            values = [as_parameter(kind, row[name]) for name, kind in columns]
            cursor.execute(query, (*values, key))
            result = cursor.fetchone()
            assert result is not None
            found += [
                (key, *column, row[column[0]])
                for column, equal in zip(columns, result, strict=True)
                if not equal
            ]
        cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        assert cursor.fetchone() == (len(rows),)
    return found


def test_every_type_reads_back_from_documents_of_snapshot_and_stream(capture, documents, dsn):
    stand_ins = "".join(STAND_IN.format(name) for name in ("geometry", "mystery"))
    capture.sql(EVERYTHING, stand_ins + ODD_DDL, "CREATE TABLE parts (id integer PRIMARY KEY)")
    capture.sql(odd_table(), *ROWS, odd_rows(1))
    capture.catch_up()
    assert differences(dsn, "everything", documents.rows("everything")) == []
    assert differences(dsn, "odd", documents.rows("odd")) == []
    capture.sql(
        "UPDATE everything SET id = id + 10; UPDATE odd SET id = id + 10",
        *ROWS,
        "INSERT INTO everything SELECT 100 * g + id, bo FROM everything, generate_series(1, 20) g",
    )
    capture.catch_up()
    assert differences(dsn, "everything", documents.rows("everything")) == []
    assert differences(dsn, "odd", documents.rows("odd")) == []


@pytest.mark.matrix
def test_key_bytes_are_the_same_in_snapshot_runs_and_single_rows(capture, documents):
    capture.sql(
        "CREATE TABLE pairs (note text, b text, a numeric(9, 2), PRIMARY KEY (b, a))",
        """INSERT INTO pairs SELECT 'x', 'ü"\\' || n, n FROM generate_series(1, 300) n""",
    )
    capture.catch_up()
    capture.sql("UPDATE pairs SET note = 'y'")  # one run
    capture.catch_up()
    for number in range(1, 4):
        capture.sql(f"UPDATE pairs SET note = 'z' WHERE a = {number}")
    capture.sql("DELETE FROM pairs WHERE a > 100", "UPDATE pairs SET a = 1000 WHERE a = 5")
    capture.catch_up()
    keys = {key for key, _, _ in documents.records("pairs")}
    assert len(keys) == 301
    assert '{"b":"ü\\"\\\\7","a":"7.00"}'.encode() in keys
    rows = documents.rows("pairs")
    assert len(rows) == 100
    assert rows[('ü"\\5', "1000.00")]["note"] == "y"
    assert rows[('ü"\\1', "1.00")] == {"note": "z", "b": 'ü"\\1', "a": "1.00"}
    tombstones = [key for key, value, _ in documents.records("pairs") if value is None]
    assert len(tombstones) == 201


@pytest.mark.matrix
def test_the_topic_says_its_form_and_is_verified_without_a_registry(capture):
    capture.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
        "INSERT INTO notes VALUES (1, 'x')",
    )
    capture.catch_up()
    topic = f"{capture.prefix}.notes"
    assert str(capture.frontier().scope_of(topic).form) == "JSON rows"
    (line,) = capture.command("verify", "--json")
    (table,) = line["tables"]
    assert (table["verified"], table["rows_expected"]) == (True, 1)


@pytest.mark.matrix
def test_a_topic_keeps_its_form(capture, registry):
    capture.sql("CREATE TABLE notes (id integer PRIMARY KEY, text text)")
    capture.catch_up()
    more = ("--output-format", "avro", "--schema-registry", registry.url)
    code, _, said = capture.run("--until", "now", *more)
    assert code == 2
    assert f'topic "{capture.prefix}.notes" holds JSON rows, keyed' in said
    assert "would give Avro rows, keyed" in said
    assert "choose another --slot and --topic-prefix" in said
    capture.catch_up()


@pytest.mark.matrix
def test_without_a_registry_a_change_of_columns_is_still_noticed(capture, documents):
    capture.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text varchar(9), n integer)",
        "INSERT INTO notes VALUES (1, 'old', 5)",
    )
    capture.catch_up()
    assert [
        field["pg_type"] for field in documents.schemas()[f"{capture.prefix}.notes-value"]["fields"]
    ] == ["integer", "character varying(9)", "integer"]
    capture.sql(
        "ALTER TABLE notes ADD more text",
        "ALTER TABLE notes ALTER text TYPE text",
        "INSERT INTO notes VALUES (2, 'longer than before', 5, 'm')",
    )
    capture.catch_up()
    assert documents.rows("notes")[(2,)]["text"] == "longer than before"
    capture.sql("ALTER TABLE notes ALTER n TYPE text", "INSERT INTO notes VALUES (3, '', 'x', '')")
    code, _, said = capture.run("--until", "now")
    assert code == 1
    assert """-value": columns ['n'] """ in said


@pytest.mark.matrix
def test_another_primary_key_is_refused(capture):
    capture.sql("CREATE TABLE notes (id integer PRIMARY KEY, n integer NOT NULL)")
    capture.catch_up()
    capture.sql(
        "ALTER TABLE notes DROP CONSTRAINT notes_pkey",
        "ALTER TABLE notes ADD PRIMARY KEY (n)",
        "INSERT INTO notes VALUES (1, 2)",
    )
    code, _, said = capture.run("--until", "now")
    assert code == 1
    assert "the primary key is now (n integer)" in said
    assert "(id integer) of public.notes" in said


@pytest.mark.matrix
def test_a_table_without_a_key_has_documents_too(capture, documents):
    capture.sql(
        "CREATE TABLE events (n integer, text text)",
        "ALTER TABLE events REPLICA IDENTITY FULL",
        "INSERT INTO events VALUES (1, E'a\\tb'), (1, 'plain')",
    )
    capture.catch_up("--allow-unkeyed")
    capture.sql("UPDATE events SET n = 2 WHERE text = 'plain'", "TRUNCATE events")
    capture.catch_up("--allow-unkeyed")
    found = sorted(documents.records("events"), key=lambda each: each[2].position)
    assert [(key, value, headers.op.value) for key, value, headers in found] == [
        (None, {"n": 1, "text": "a\tb"}, b"r"),
        (None, {"n": 1, "text": "plain"}, b"r"),
        (None, {"n": 1, "text": "plain"}, b"d"),
        (None, {"n": 2, "text": "plain"}, b"u"),
        (None, None, b"t"),
    ]
