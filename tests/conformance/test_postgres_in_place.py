"""Modes `upsert` and `insert` of the PostgreSQL sink: rows brought into a table that stays."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest
from psycopg2 import sql

from changelog.contract.base.errors import SinkError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from tests.conformance.conftest import Bench
from tests.conformance.test_forward import delta
from views.sinks.postgres.in_place import InPlace

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCHEMA = "id int, name string, score double"


def publish(bench: Bench, generation, rows, schema=SCHEMA, key=("id",), **options):
    bench = replace(bench, options={**bench.options, **options})
    sink = bench.sink(key)
    frame = bench.spark.createDataFrame(rows, schema)
    sink.open(generation, frame.schema)
    sink.write(frame)
    sink.seal()
    sink.publish(generation)
    return sink


def execute(bench: Bench, text, isolation=None):
    with closing(psycopg2.connect(bench.settings.postgres_url)) as link, link.cursor() as cursor:
        cursor.execute(sql.SQL(text).format(view=sql.Identifier(bench.view)))
        found = cursor.fetchall() if cursor.description else []
        link.commit()
        return found


def rows(bench: Bench, columns="id, name, score::text"):
    return execute(bench, f"SELECT {columns} FROM {{view}} ORDER BY 1")


def test_a_table_of_the_users_keeps_its_rows_and_columns_and_gets_the_views(upserted):
    execute(
        upserted,
        "CREATE TABLE {view} (id int UNIQUE, name text, score float8, seen timestamptz "
        "DEFAULT now(), note text DEFAULT 'mine')",
    )
    execute(upserted, "INSERT INTO {view} (id, name, note) VALUES (100, 'of the user', 'kept')")
    publish(upserted, 1, [(1, "a", 0.0), (2, "b", 1.0), (3, "c", None)], auto_create=False)
    execute(upserted, "UPDATE {view} SET note = 'changed' WHERE id = 1")
    untouched = execute(upserted, "SELECT xmin::text FROM {view} WHERE id = 2")
    # -0.0 is another value than 0.0, though PostgreSQL calls them equal.
    sink = publish(upserted, 2, [(1, "a", -0.0), (2, "b", 1.0), (4, "d", 2.0)], auto_create=False)
    assert rows(upserted, "id, name, score::text, note") == [
        (1, "a", "-0", "changed"),
        (2, "b", "1", "mine"),
        (4, "d", "2", "mine"),
        (100, "of the user", None, "kept"),
    ]
    assert execute(upserted, "SELECT xmin::text FROM {view} WHERE id = 2") == untouched
    sink.publish(1)
    assert [row[0] for row in rows(upserted)] == [1, 2, 3, 100]
    sink.drop()
    assert rows(upserted) == [(100, "of the user", None)]


def test_columns_come_go_and_change_their_type(upserted):
    publish(upserted, 1, [(1, "7", 0.5)])
    execute(upserted, "CREATE INDEX ON {view} (score)")
    execute(upserted, "COMMENT ON TABLE {view} IS 'stays'")
    publish(upserted, 2, [(1, 7, "x"), (2, 8, None)], "id int, name int, more string")
    assert rows(upserted, "*") == [(1, 7, "x"), (2, 8, None)]
    assert execute(upserted, "SELECT obj_description(to_regclass('{view}'))") == [("stays",)]
    with pytest.raises(SinkError, match="primary key"):
        publish(upserted, 3, [(1, 7, "x")], "id int, name int, more string", key=("name",))


def test_a_table_that_does_not_fit_or_was_made_in_another_mode_is_refused(upserted, postgres):
    with pytest.raises(SinkError, match="does not exist"):
        publish(upserted, 1, [(1, "a", 0.0)], auto_create=False)
    execute(upserted, "CREATE TABLE {view} (id int, name text, score float8)")
    with pytest.raises(SinkError, match="no primary key or unique index"):
        publish(upserted, 1, [(1, "a", 0.0)], auto_create=False)
    with pytest.raises(SinkError, match="was not created for this view"):
        publish(upserted, 1, [(1, "a", 0.0)])
    execute(upserted, "DROP TABLE {view}")
    sink = publish(upserted, 1, [(1, "a", 0.0)])
    with pytest.raises(SinkError, match="created in another mode"):
        publish(postgres, 2, [(1, "a", 0.0)])
    sink.drop()
    publish(postgres, 1, [(1, "a", 0.0)])
    with pytest.raises(SinkError, match="created in another mode"):
        publish(upserted, 2, [(1, "a", 0.0)])


def test_rows_that_a_trigger_changes_are_not_taken_for_those_that_were_written(upserted):
    sink = publish(upserted, 1, [(1, "a", 0.0)])
    execute(
        upserted,
        "CREATE FUNCTION pg_temp_{view}() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$".replace(
            "pg_temp_{view}", "shout"
        ),
    )
    execute(
        upserted,
        "CREATE TRIGGER shout BEFORE INSERT OR UPDATE ON {view} "
        "FOR EACH ROW EXECUTE FUNCTION shout()",
    )
    with pytest.raises(SinkError, match=r"row with key \([12]\) as it was written: a trigger"):
        publish(upserted, 2, [(1, "a", 0.0), (2, "b", 0.0)])
    assert rows(upserted) == [(1, "a", "0")]
    assert sink.published() == 1
    execute(upserted, "DROP FUNCTION shout CASCADE")


def test_a_constraint_that_a_row_breaks_leaves_readers_as_they_were(upserted):
    sink = publish(upserted, 1, [(1, "a", 0.0)])
    execute(upserted, "ALTER TABLE {view} ADD CONSTRAINT short CHECK (length(name) < 3)")
    with pytest.raises(SinkError, match='violates check constraint "short"'):
        publish(upserted, 2, [(1, "a", 1.0), (2, "long", 0.0)])
    assert rows(upserted) == [(1, "a", "0")]
    assert sink.published() == 1


def test_new_rows_are_added_and_others_refused(upserted):
    added = {"mode": "insert"}
    publish(upserted, 1, [(1, "a", 0.0)], **added)
    sink = publish(upserted, 2, [(1, "a", 0.0), (2, "b", 0.0)], **added)
    assert [row[0] for row in rows(upserted)] == [1, 2]
    for changed, what in (
        ([(1, "a", -0.0), (2, "b", 0.0)], r"key \(1\) has changed"),
        ([(2, "b", 0.0)], r"key \(1\) is gone"),
    ):
        with pytest.raises(SinkError, match=what):
            publish(upserted, 3, changed, **added)
        sink.discard(3)
    assert sink.published() == 2
    assert "only new rows" in sink.holds_back(2)
    with pytest.raises(SinkError, match=r"key \(2\) is gone"):
        sink.publish(1)


@pytest.mark.parametrize("defect", [False, True])
def test_a_delta_goes_to_readers_and_to_the_generation(upserted, monkeypatch, defect):
    """So that the next switch knows which rows the table has; the twin tells readers alone."""
    sink = publish(upserted, 1, [(n, "old", 0.0) for n in range(4)])
    schema, sent = delta(
        upserted, sink, [(1, "new", 1.0), (9, "new", 1.0)], [(2, "", 0.0)], SCHEMA, ("id",)
    )
    if defect:
        monkeypatch.setattr(
            InPlace, "also", lambda self, cursor, _: (cursor.execute("SELECT 1"), None)[1]
        )
    sink.apply(1, schema, sent, Position(1, Lsn(5), 0))
    expected = [(0, "old", "0"), (1, "new", "1"), (3, "old", "0"), (9, "new", "1")]
    if defect:
        assert rows(upserted) != expected
        return
    assert rows(upserted) == expected
    assert (sink.rows(1), sink.position(1)) == (4, Position(1, Lsn(5), 0))
    publish(upserted, 2, [(0, "old", 0.0)])
    assert rows(upserted) == [(0, "old", "0")]


@pytest.mark.parametrize("defect", [False, True])
def test_a_switch_that_is_cut_off_is_all_or_nothing(upserted, monkeypatch, defect):
    """The connection is ended between the rows and the note of them; the twin commits between."""
    sink = publish(upserted, 1, [(n, "old", 0.0) for n in range(50)])
    write_rows = InPlace._write_rows

    def cut_off(self, cursor, *words):
        write_rows(self, cursor, *words)
        if defect:
            cursor.connection.commit()
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(InPlace, "_write_rows", cut_off)
    frame = [(n, "new", 0.0) for n in range(25, 75)]
    with pytest.raises(SinkError, match="ended the connection"):
        publish(upserted, 2, frame)
    state = sink.published(), {row[1] for row in rows(upserted)}
    assert state == ((1, {"new"}) if defect else (1, {"old"}))
    monkeypatch.setattr(InPlace, "_write_rows", write_rows)
    sink.publish(2)
    assert [row[:2] for row in rows(upserted)] == [(n, "new") for n in range(25, 75)]


def test_other_writers_come_before_or_after_and_readers_are_not_kept_waiting(upserted):
    sink = publish(upserted, 1, [(n, "old", 0.0) for n in range(20)])
    with closing(psycopg2.connect(upserted.settings.postgres_url)) as reader:
        reader.set_session(isolation_level="REPEATABLE READ")
        old = reader.cursor()
        old.execute("SELECT 1")
        # A reader of the state before neither waits nor finds less.
        done = threading.Thread(
            target=publish, args=(upserted, 2, [(n, "new", 0.0) for n in range(30)])
        )
        done.start()
        done.join(60)
        assert not done.is_alive()
        old.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(upserted.view)))
        assert old.fetchall() == [(20,)]
    assert sink.published() == 2
    assert len(rows(upserted)) == 30
