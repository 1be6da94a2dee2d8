"""What only the sink `postgres` promises: types, a stable table that keeps what users gave it."""

from __future__ import annotations

import subprocess
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import duckdb
import psycopg2
import pytest
from psycopg2.extensions import make_dsn

from changelog.contract.base.errors import ConfigurationError, SinkError, UnavailableError
from changelog.stack.servers.postgres import bin_dir
from tests.support.wait import wait_until
from views.sinks.base import SinkSettings
from views.sinks.make import make_sink
from views.sinks.postgres.copy import CopyWriter
from views.sinks.postgres.exchange import Exchange
from views.sinks.postgres.server import PostgresClient
from views.verify.served.served import read_served
from views.verify.values.types import parse_type

pytestmark = [pytest.mark.spark, pytest.mark.services]

EVERYTHING = """
select * from values
 (1, true, 1Y, 2S, 3L, float('nan'), -0.0D, -12345678901234567890.123456789012345678BD, 'é😀',
  X'00ff', date'2013-01-02', timestamp'2013-01-02 03:04:05.678901',
  timestamp_ntz'0001-01-01 00:00:00'),
 (2, false, -128Y, -32768S, -9223372036854775808, float('-infinity'), 4.9E-324D, 0BD, '', X'',
  date_from_unix_date(2147483647), timestamp_micros(9223372036854775807),
  timestamp_ntz'0001-01-01 00:00:00'),
 (3, null, null, null, null, null, null, null, null, null,
  date_from_unix_date(-2147483648), timestamp_micros(-9223372036854775808), null),
 (4, true, 127Y, 1S, 9223372036854775807, 1.1F, 1E300D, 0.000000000000000001BD, ' x ', X'5c78',
  date'-0044-03-15', timestamp'-0044-03-15 12:00:00', timestamp_ntz'+12345-06-07 08:09:10.000001'),
 (5, true, 0Y, 1S, 0, -0.0F, double('infinity'), 9999.0BD, '\\\\N', X'0a',
  date'1969-12-31', timestamp'1969-12-31 23:59:59.999999', timestamp_ntz'1970-01-01 00:00:00')
 as t(id, yes, tiny, small, big, f, d, n, s, b, day, at, local)
"""
ARRAYS = """
select id, n, yes, if(id = 3, null, array(big, null, 7)) bigs, array(n, null) ns, array(day) days,
  array(at, null) ats, array(b) bs, if(id = 2, array(), array(s, 'a"b,{}')) texts, array(d) ds,
  array(yes) flags,
  if(id = 3, null, named_struct('a', n, 'b', d + 0.0D, 'c', array(day), 'when', at)) doc,
  map('x', f, 'y', null) m, array(array(1, null), null) nested
from everything where id <> 5
"""


KEY = ("id",)


def publish(bench, number, rows, *, key=("id",), options=None):
    sink = bench.sink(key=key, options=options)
    sink.open(number, rows.schema)
    sink.write(rows)
    address = sink.seal()
    sink.publish(number)
    return sink, address


def execute(bench, statement, *parameters):
    with (
        closing(psycopg2.connect(bench.settings.postgres_url)) as link,
        link,
        link.cursor() as cursor,
    ):
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


def served_in(bench, rows, address):
    columns = [(f.name, parse_type(f.dataType.simpleString())) for f in rows.schema.fields]
    database = duckdb.connect()
    assert read_served(database, "served", address, columns, ["id"]) == rows.count()
    return database, columns


def expected_in(database, columns, rows):
    """What Spark says of the same rows, brought to DuckDB by Arrow."""
    from views.verify.values.types import arrow_type

    table = rows.toArrow()
    arrays = {}
    for name, kind in columns:
        column = table.column(name).combine_chunks()
        arrays[name] = column.view(arrow_type(kind)) if kind.name == "timestamp" else column
    import pyarrow as pa

    database.register("wanted", pa.table(arrays))


@pytest.fixture
def everything(postgres):
    rows = postgres.spark.sql(EVERYTHING)
    rows.createOrReplaceTempView("everything")
    return rows


def test_every_scalar_is_read_back_exactly(postgres, everything):
    _, address = publish(postgres, 1, everything)
    database, columns = served_in(postgres, everything, address)
    names = ", ".join(
        f'"{name}"' for name, kind in columns if kind.name not in {"date", "timestamp"}
    )
    expected_in(database, columns, everything)
    left = database.execute(
        f"SELECT {names} FROM served EXCEPT SELECT {names} FROM wanted"
    ).fetchall()
    assert left == []
    signs = database.execute("SELECT id, signbit(d), signbit(f) FROM served ORDER BY id").fetchall()
    assert signs[0][1] is True
    assert signs[4][2] is True
    found = execute(
        postgres,
        f"SELECT id, day::text, at::text, local::text, n::text FROM {postgres.view} ORDER BY id",
    )
    assert found == [
        (1, "2013-01-02", "2013-01-02 03:04:05.678901+00", "0001-01-01 00:00:00",
         "-12345678901234567890.123456789012345678"),
        (2, "infinity", "infinity", "0001-01-01 00:00:00", "0.000000000000000000"),
        (3, "-infinity", "-infinity", None, None),
        (4, "0045-03-15 BC", "0045-03-15 12:00:00+00 BC", "12345-06-07 08:09:10.000001",
         "0.000000000000000001"),
        (5, "1969-12-31", "1969-12-31 23:59:59.999999+00", "1970-01-01 00:00:00",
         "9999.000000000000000000"),
    ]  # fmt: skip


def test_arrays_and_documents_are_read_back_exactly(postgres, everything):
    rows = postgres.spark.sql(ARRAYS)
    _, address = publish(postgres, 1, rows)
    database, _ = served_in(postgres, rows, address)
    [row] = database.execute(
        "SELECT bigs, ns, texts, ds, flags, bs, nested, doc.a, doc.c, m FROM served WHERE id = 4"
    ).fetchall()
    small = Decimal("0.000000000000000001")
    assert row[:7] == (
        [9223372036854775807, None, 7], [small, None], [" x ", 'a"b,{}'], [1e300], [True],
        [b"\\x"], [[1, None], None],
    )  # fmt: skip
    assert row[7] == small
    assert round(row[9]["x"], 6) == 1.1
    [(bigs, texts)] = database.execute("SELECT bigs, texts FROM served WHERE id = 2").fetchall()
    assert (bigs, texts) == ([-9223372036854775808, None, 7], [])
    assert database.execute("SELECT bigs, doc FROM served WHERE id = 3").fetchall() == [
        (None, None)
    ]
    [(kinds,)] = execute(
        postgres,
        "SELECT array_agg(format_type(atttypid, atttypmod) ORDER BY attnum) FROM pg_attribute "
        f"WHERE attrelid = 'public.{postgres.view}'::regclass AND attnum > 3",
    )
    assert kinds == [
        "bigint[]", "numeric(38,18)[]", "date[]", "timestamp with time zone[]", "bytea[]", "text[]",
        "double precision[]", "boolean[]", "jsonb", "jsonb", "jsonb",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("select 1 id, concat('a', char(0)) s", 'column "s" holds a text with a NUL'),
        ("select 1 id, named_struct('a', concat('a', char(0))) s", r"column s"),
        ("select 1 id, array(array(-0.0D)) s", 'column "s" holds -0.0 inside a document'),
        ("select 1 id, array(concat('a', char(0))) s", 'column "s" holds a text with a NUL'),
        (
            "select 1 id, date'-4800-01-01' s",
            r'column "s" holds a date of the year 4801 BC, .*\(in the row of id = 1\)',
        ),
        (
            "select 1 id, timestamp'-4800-01-01 00:00:00' s",
            r'column "s" holds a timestamp of the year 4801 BC, .*from 4714 BC to 294276',
        ),
        (
            "select 1 id, date'2024-01-01' + 2147000000 s",
            r'column "s" holds a date of the year 58\d+, .*to 5874897',
        ),
        ("select 1 id, array(date'-4800-01-01') s", r'column "s" holds a date of the year 4801 BC'),
    ],
)
def test_a_value_without_an_exact_form_is_refused_with_its_column(postgres, sql, reason):
    rows = postgres.spark.sql(sql)
    sink = postgres.sink()
    sink.open(1, rows.schema)
    with pytest.raises(SinkError, match=reason):
        sink.write(rows)
    sink.discard(1)
    assert postgres.served(postgres.view) is None


def test_what_users_gave_the_table_outlives_a_rebuild_with_other_columns(postgres):
    view = postgres.view
    sink, _ = publish(postgres, 1, postgres.spark.sql("select id, 'a' name, 1 old from range(5)"))
    execute(
        postgres,
        f"CREATE INDEX by_name_{view} ON {view} (name); COMMENT ON TABLE {view} IS 'ours';"
        f"CREATE ROLE r_{view}; GRANT SELECT ON {view} TO r_{view};"
        f"ALTER TABLE {view} ADD CHECK (id >= 0);"
        f"CREATE VIEW w_{view} AS SELECT id, name FROM {view};",
    )
    try:
        changed = "select id, 'b' name, 2.5BD fresh from range(7)"
        publish(postgres, 2, postgres.spark.sql(changed))
        assert execute(postgres, f"SELECT count(*), max(name) FROM w_{view}") == [(7, "b")]
        assert [row["fresh"] for row in postgres.served(view)] == [Decimal("2.5")] * 7
        sink.publish(1)
        assert execute(postgres, f"SELECT count(*), max(name) FROM w_{view}") == [(5, "a")]
        sink.publish(2)
        assert execute(
            postgres,
            "SELECT obj_description(%s::regclass), has_table_privilege(%s, %s, 'SELECT'), "
            "(SELECT count(*) FROM pg_indexes WHERE tablename = %s)",
            view, f"r_{view}", view, view,
        ) == [("ours", True, 2)]  # fmt: skip
        with pytest.raises(SinkError, match=r"violates|violated"):
            publish(postgres, 3, postgres.spark.sql("select -1L id, 'c' name, 2.5BD fresh"))
        with pytest.raises(SinkError, match="depend") as caught:
            publish(postgres, 4, postgres.spark.sql("select 1L id, 2.5BD fresh"))
        assert "drop what depends" in str(caught.value)
        assert len(postgres.served(view)) == 7
    finally:
        execute(postgres, f"DROP VIEW w_{view}; DROP OWNED BY r_{view}; DROP ROLE r_{view}")


def test_another_key_makes_the_table_anew_with_its_grants_comments_and_indexes(postgres):
    view = postgres.view
    publish(postgres, 1, postgres.spark.sql("select 1 id, 'a' name"))
    execute(
        postgres,
        f"CREATE INDEX by_name_{view} ON {view} (name); COMMENT ON COLUMN {view}.name IS 'n';"
        f"GRANT SELECT ON {view} TO PUBLIC",
    )
    sink, _ = publish(postgres, 2, postgres.spark.sql("select 1L id, 'b' name"), key=("name", "id"))
    assert postgres.served(view) == [{"id": 1, "name": "b"}]
    assert execute(
        postgres,
        "SELECT col_description(%s::regclass, 2), has_table_privilege('public', %s, 'SELECT'), "
        "(SELECT count(*) FROM pg_indexes WHERE tablename = %s)",
        view, view, view,
    ) == [("n", True, 2)]  # fmt: skip
    assert sink.generations() == [1, 2]


def test_a_table_of_somebody_else_is_not_touched(postgres):
    view = postgres.view
    execute(postgres, f"CREATE TABLE {view} (id int); INSERT INTO {view} VALUES (7)")
    sink = postgres.sink()
    schema = postgres.spark.sql("select 1 id").schema
    for act in (lambda: sink.open(1, schema), sink.published, sink.drop):
        with pytest.raises(SinkError, match="was not created for this view"):
            act()
    assert postgres.served(view) == [{"id": 7}]
    execute(postgres, f"DROP TABLE {view}")


def test_two_views_cannot_share_a_table(postgres):
    publish(postgres, 1, postgres.spark.sql("select 1 id"))
    other = postgres.sink(view=f"{postgres.view}_b", options={"table": postgres.view})
    with pytest.raises(SinkError, match=f'serves the view "{postgres.view}" already'):
        other.open(1, postgres.spark.sql("select 1 id").schema)


def test_options_name_the_table_its_columns_and_their_types(postgres):
    execute(postgres, f'CREATE SCHEMA "s {postgres.view}"')
    options = {
        "table": f'"s {postgres.view}".The Table',
        "columns": {"id": "The Id", "name": "n%"},
        "types": {"n%": "varchar(5)", "code": "uuid"},
        "batch_rows": 7,
    }
    code = "00000000-0000-0000-0000-000000000001"
    rows = postgres.spark.sql(f"select id, 'abcde' name, '{code}' code from range(100)")
    sink, address = publish(postgres, 1, rows, options=options)
    table = f'"s {postgres.view}"."The Table"'
    found = execute(postgres, f'SELECT count(*), max("n%"), max(code::text) FROM {table}')
    assert found == [(100, "abcde", code)]
    served_in(postgres, rows, address)
    long = postgres.spark.sql(f"select 1L id, 'abcdef' name, '{code}' code")
    with pytest.raises(SinkError, match=r"'abcdef', which varchar\(5\) does not hold exactly"):
        publish(postgres, 2, long, options=options)
    with pytest.raises(SinkError, match="but in"):
        postgres.sink().drop()
    sink.drop()
    assert sink.generations() == []
    execute(postgres, f'DROP SCHEMA "s {postgres.view}"')


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tabel": "x"}, "tabel: there is no such option"),
        ({"table": "a.b.c"}, "not the name of a table"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"columns": {"nothing": "x"}}, 'columns names "nothing"'),
        ({"columns": {"id": "x" * 64}}, "64 bytes, and at most 63"),
        ({"types": {"id": "no_such_type"}}, 'type "no_such_type" does not exist'),
        ({"types": {"id": "int); drop table x; --"}}, "not the name of a type"),
        ({"types": {"id": "bytea"}}, "cannot cast"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(postgres, options, reason):
    with pytest.raises((ConfigurationError, SinkError), match=reason):
        postgres.sink(options=options).open(1, postgres.spark.sql("select 1.5D id").schema)
    assert postgres.sink().generations() == []


def test_a_table_that_the_user_made_must_fit(postgres):
    view, rows = postgres.view, postgres.spark.sql("select 1 id, 'a' name")
    options, hint = {"auto_create": False}, ""
    for statement, reason in (
        ("SELECT 1", "it does not exist"),
        (f"CREATE TABLE {view} (id int PRIMARY KEY, name text)", "not PARTITION BY RANGE"),
        (f"CREATE TABLE {view} (id int, name text) PARTITION BY RANGE (id)", "its primary key is"),
        (f"CREATE TABLE {view} (id int PRIMARY KEY) PARTITION BY RANGE (id)", '"name" is missing'),
        (
            f"CREATE TABLE {view} (id int PRIMARY KEY, name int) PARTITION BY RANGE (id)",
            '"name" is integer, not text',
        ),
    ):
        execute(postgres, statement)
        with pytest.raises(SinkError, match=reason) as caught:
            postgres.sink(options=options).open(1, rows.schema)
        hint = caught.value.hint
        execute(postgres, f"DROP TABLE IF EXISTS {view}")
    execute(postgres, hint)
    sink, _ = publish(postgres, 1, rows, options=options)
    assert postgres.served(view) == [{"id": 1, "name": "a"}]
    sink.drop()
    assert postgres.served(view) == []


def test_a_transaction_that_began_before_the_load_never_finds_the_view_empty(postgres):
    """Its snapshot knows no row of the new generation: readers are moved once it has ended."""
    publish(postgres, 1, postgres.spark.sql("select id from range(3)"))
    with closing(psycopg2.connect(postgres.settings.postgres_url)) as reader:
        reader.set_session(isolation_level="REPEATABLE READ")
        old = reader.cursor()
        old.execute("SELECT 1")
        rows = postgres.spark.sql("select id from range(5)")
        settings = SinkSettings(
            warehouse="", postgres_url=postgres.settings.postgres_url, retry_seconds=0.5
        )
        sink = make_sink("postgres", view=postgres.view, key=("id",), settings=settings,
                         spark=postgres.spark)  # fmt: skip
        sink.open(2, rows.schema)
        sink.write(rows)
        sink.seal()
        with pytest.raises(UnavailableError, match="would find it empty"):
            sink.publish(2)
        old.execute(f"SELECT count(*) FROM {postgres.view}")
        assert old.fetchall() == [(3,)]
        reader.rollback()
        sink.publish(2)
    assert len(postgres.served(postgres.view)) == 5


def test_without_that_wait_such_a_transaction_finds_it_empty(postgres, monkeypatch):
    publish(postgres, 1, postgres.spark.sql("select id from range(3)"))
    with closing(psycopg2.connect(postgres.settings.postgres_url)) as reader:
        reader.set_session(isolation_level="REPEATABLE READ")
        old = reader.cursor()
        old.execute("SELECT 1")
        monkeypatch.setattr(Exchange, "wait", lambda *_: None)
        publish(postgres, 2, postgres.spark.sql("select id from range(5)"))
        old.execute(f"SELECT count(*) FROM {postgres.view}")
        assert old.fetchall() == [(0,)]


def test_a_long_reader_delays_the_switch_and_no_other_reader(postgres):
    view = postgres.view
    sink, _ = publish(postgres, 1, postgres.spark.sql("select id from range(3)"))
    rows = postgres.spark.sql("select id from range(5)")
    sink.open(2, rows.schema)
    sink.write(rows)
    sink.seal()
    with closing(psycopg2.connect(postgres.settings.postgres_url)) as reader:
        reader.cursor().execute(f"SELECT count(*) FROM {view}")  # holds its lock to the end
        switch = threading.Thread(target=sink.publish, args=(2,))
        switch.start()
        try:
            waiting = f"SELECT 1 FROM pg_locks WHERE relation = '{view}'::regclass AND NOT granted"
            wait_until(lambda: execute(postgres, waiting), 20, "the switch waits for no lock")
            for _ in range(20):
                execute(postgres, f"SET statement_timeout = 1000; SELECT count(*) FROM {view}")
            assert switch.is_alive()
        finally:
            reader.rollback()
            switch.join(30)
    assert len(postgres.served(view)) == 5


def test_an_attempt_that_spark_did_not_take_leaves_no_row(postgres):
    """Two attempts of one task have committed; the result of one was lost."""
    rows = postgres.spark.sql("select 1 id, 'a' name")
    sink = postgres.sink()
    sink.open(1, rows.schema)
    relation, forms = sink._registry.relation(1), writer_forms(sink, rows)
    writer = CopyWriter(
        PostgresClient(postgres.settings.postgres_url, 5), relation, forms, 100, KEY
    )
    lost, _ = writer.write(rows.toArrow().to_batches())
    sink.write(rows)
    assert postgres.stored(postgres.view, 1) == 2
    sink.seal()
    sink.publish(1)
    assert postgres.served(postgres.view) == [{"id": 1, "name": "a"}]
    assert lost not in sink._attempts
    late = postgres.spark.sql("select 2 id, 'late' name").toArrow()
    with pytest.raises(SinkError, match="not open for writing"):
        writer.write(late.to_batches())
    assert postgres.stored(postgres.view, 1) == 1


def test_without_removing_it_the_row_would_be_there_twice(postgres, monkeypatch):
    """The twin of the test above: the primary key is the second net."""
    monkeypatch.setattr("views.sinks.postgres.sink.remove_others", lambda *_: None)
    rows = postgres.spark.sql("select 1 id, 'a' name")
    sink = postgres.sink()
    sink.open(1, rows.schema)
    writer = CopyWriter(
        PostgresClient(postgres.settings.postgres_url, 5),
        sink._registry.relation(1), writer_forms(sink, rows), 100, KEY,
    )  # fmt: skip
    writer.write(rows.toArrow().to_batches())
    sink.write(rows)
    with pytest.raises(SinkError, match=r"could not create unique index"):
        sink.seal()


def writer_forms(sink, rows):
    from views.sinks.postgres.column_types import forms_of

    return forms_of(rows.schema, sink._options, sink._view)


ODD = {
    "extra_float_digits": "0",
    "array_nulls": "off",
    "bytea_output": "escape",
    "datestyle": "'German, DMY'",
    "intervalstyle": "iso_8601",
    "timezone": "'Asia/Kathmandu'",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "default_transaction_isolation": "serializable",
}
EXACT = """
select id, array(id + 0.30000000000000004D, null) ds, array(0.1F) fs, array('NULL', null) texts,
  named_struct('d', 0.30000000000000004D, 'at', timestamp'2020-02-29 01:02:03.5') doc,
  array(timestamp'2020-02-29 01:02:03.5', null) ats, array(X'5c00') bs from range(3)
"""


def read_with(bench, settings):
    """Read rows back from a database with its own settings, and count those that are others."""
    with settings_of(bench, settings):
        rows = bench.spark.sql(EXACT)
        _, address = publish(bench, 1, rows)
        database, _ = served_in(bench, rows, address)
        query = "SELECT id, ds[1], fs[1], texts, doc.d, bs FROM served ORDER BY id"
        wanted = [(n, n + 0.30000000000000004, 0.10000000149011612) for n in range(3)]
        more = (["NULL", None], 0.30000000000000004, [b"\\\x00"])
        found = database.execute(query).fetchall()
        return sum(one != (*two, *more) for one, two in zip(found, wanted, strict=True))


@contextmanager
def settings_of(bench, settings):
    """Give the database settings for a while."""
    ((name,),) = execute(bench, "SELECT current_database()")
    for setting, value in settings.items():
        execute(bench, f'ALTER DATABASE "{name}" SET {setting} = {value}')
    try:
        yield
    finally:
        for setting in settings:
            execute(bench, f'ALTER DATABASE "{name}" RESET {setting}')


def test_settings_of_the_database_change_no_value(postgres):
    assert read_with(postgres, ODD) == 0


TYPED = {"day": "date", "ago": "interval", "raw": "bytea", "moment": "timestamptz"}
TEXTS = ("2020-02-29", "1 day", r"\x5c00", "2020-02-29 01:02:03+00")


@pytest.mark.parametrize("settings", [{}, ODD], ids=["usual", "odd"])
def test_texts_in_columns_of_another_type_are_those_of_any_database(postgres, settings):
    with settings_of(postgres, settings):
        rows = postgres.spark.createDataFrame([(1, *TEXTS)], ["id", *TYPED])
        _, address = publish(postgres, 1, rows, options={"types": TYPED})
        database, _ = served_in(postgres, rows, address)
    assert database.execute("SELECT day, ago, raw, moment FROM served").fetchall() == [TEXTS]


def test_twin_that_takes_what_the_database_says_reads_others(postgres, monkeypatch):
    monkeypatch.setattr("views.verify.served.postgres._SESSION", {"options": "-c timezone=UTC"})
    assert read_with(postgres, {"extra_float_digits": "0"})


def test_a_changed_row_a_missing_row_and_a_wrong_type_are_seen_by_the_reader(postgres):
    rows = postgres.spark.sql("select id, 'a' name from range(3)")
    _, address = publish(postgres, 1, rows)
    table = address.location["table"]
    execute(
        postgres, f"UPDATE {table} SET name = 'b' WHERE id = 1; DELETE FROM {table} WHERE id = 2"
    )
    database = duckdb.connect()
    columns = [("id", parse_type("bigint")), ("name", parse_type("string"))]
    assert read_served(database, "served", address, columns, ["id"]) == 2
    assert database.execute("SELECT id, name FROM served ORDER BY id").fetchall() == [
        (0, "a"),
        (1, "b"),
    ]
    with pytest.raises(SinkError, match="has the columns"):
        read_served(database, "served", address, columns[:1], ["id"])
    execute(postgres, f'ALTER TABLE public."{postgres.view}" ALTER name TYPE varchar(9)')
    with pytest.raises(SinkError, match=r"has the type character varying\(9\), and was written as"):
        read_served(database, "served", address, columns, ["id"])


def test_dates_are_what_python_reads(postgres):
    """A plain driver, without our conversions."""
    publish(postgres, 1, postgres.spark.sql(
        "select 1 id, date'2020-02-29' d, timestamp_ntz'2020-02-29 01:02:03.5' t"))  # fmt: skip
    [row] = postgres.served(postgres.view)
    assert (row["d"], row["t"]) == (
        date(2020, 2, 29),
        datetime.fromisoformat("2020-02-29T01:02:03.5"),
    )


def test_a_connection_that_is_ended_in_the_middle_leaves_no_row(postgres):
    rows = postgres.spark.sql("select id, repeat('x', 1000) s from range(20000)")
    sink = postgres.sink()
    sink.open(1, rows.schema)
    relation = sink._registry.relation(1)
    server = PostgresClient(postgres.settings.postgres_url, 5)
    batches = rows.toArrow().to_batches()

    def killed():
        yield batches[0]
        [(ended,)] = execute(
            postgres,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = %s",
            relation,
        )
        assert ended == 1
        yield from batches * 20

    with pytest.raises(UnavailableError, match="ended the connection"):
        CopyWriter(server, relation, writer_forms(sink, rows), 10_000, KEY).write(killed())
    assert postgres.stored(postgres.view, 1) == 0
    with pytest.raises(SinkError, match="not sealed"):
        sink.publish(1)
    sink.discard(1)
    assert sink.generations() == []


def test_rows_that_cannot_be_read_end_the_task_with_their_own_error(postgres):
    rows = postgres.spark.sql("select 1 id")
    sink = postgres.sink()
    sink.open(1, rows.schema)
    writer = CopyWriter(
        PostgresClient(postgres.settings.postgres_url, 5),
        sink._registry.relation(1), writer_forms(sink, rows), 100, KEY,
    )  # fmt: skip

    def broken():
        yield rows.toArrow().to_batches()[0]
        raise ValueError("the reader's own")

    with pytest.raises(ValueError, match="the reader's own"):
        writer.write(broken())
    assert postgres.stored(postgres.view, 1) == 0


def test_a_full_disk_and_a_refused_login_say_what_to_do(postgres):
    server = PostgresClient(postgres.settings.postgres_url, 1)
    full = "DO $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    with (
        pytest.raises(SinkError, match=r"could not extend file \| hint: free space at the server"),
        server.connection() as connection,
    ):
        connection.cursor().execute(full)
    canary = "c4n4ry-secret"
    url = make_dsn(postgres.settings.postgres_url, user="nobody_here", password=canary)
    with (
        pytest.raises(SinkError, match="refuses the connection") as caught,
        PostgresClient(url, 1).connection(),
    ):
        pass
    assert canary not in f"{caught.value} {PostgresClient(url, 1)!r}"


@pytest.mark.parametrize("bench", ["postgres", "upserted"])
def test_a_table_of_a_restored_dump_is_still_ours(bench, request):
    bench = request.getfixturevalue(bench)
    rows = bench.spark.range(5)
    publish(bench, 1, rows)
    dump = [str(bin_dir() / "pg_dump"), bench.settings.postgres_url]
    dumped = subprocess.run(dump, check=True, stdout=subprocess.PIPE)
    name = f"restored_{bench.view}"
    with closing(psycopg2.connect(bench.settings.postgres_url)) as link:
        link.autocommit = True
        link.cursor().execute(f"CREATE DATABASE {name}")
        url = make_dsn(bench.settings.postgres_url, dbname=name)
        restore = [str(bin_dir() / "psql"), url, "-qv", "ON_ERROR_STOP=1"]
        subprocess.run(restore, check=True, input=dumped.stdout, stdout=subprocess.DEVNULL)
        restored = replace(bench, settings=replace(bench.settings, postgres_url=url))
        assert restored.sink().published() == 1
        publish(restored, 2, bench.spark.range(7))
        assert execute(restored, f"SELECT count(*) FROM {bench.view}") == [(7,)]
        link.cursor().execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_registry_of_an_older_version_is_kept(postgres):
    publish(postgres, 1, postgres.spark.range(5))
    execute(postgres, "ALTER TABLE changelog_views.targets ALTER relation TYPE oid")
    assert postgres.sink().published() == 1
    publish(postgres, 2, postgres.spark.range(7))
    kinds = execute(postgres, "SELECT pg_typeof(relation)::text FROM changelog_views.targets")
    assert {*kinds} == {("regclass",)}
