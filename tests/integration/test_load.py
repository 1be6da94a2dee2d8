"""`changelog load`: real topics into a real table, whole or not at all, and what goes wrong."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from changelog.cli import app
from changelog.contract.rows.relation import Column
from changelog.contract.rows.types import TypType, array_type, column_type
from changelog.kafka.cluster import describe
from tests.support.beside import HERE
from tests.support.builders import BIGINT, INTEGER, INTEGERS, TEXT, TEXTS, make_relation
from tests.support.log_writer import LogWriter
from tests.support.matrix import first
from tests.support.wait import wait_until

DEADLINE_S = 120


@pytest.fixture
def words(kafka, registry, dsn):
    """The words of a command line, behind the name of the command."""

    def words(topic, table, *more):
        servers = ["--broker", kafka.brokers, "--schema-registry", registry.url]
        return [topic, *servers, "--into", dsn, "--table", table, *more]

    return words


@pytest.fixture
def load(words, run_command):
    def load(topic, table, *more, env=None):
        return run_command(["load", *words(topic, table, "--json", *more)], env)

    return load


@pytest.fixture
def killed(words):
    """Run the command until it kills itself, or to its end."""

    def killed(own, topic, table, *more):
        program = [sys.executable, "-m", "tests.support.crashing_load", *own, "--"]
        ran = subprocess.run(
            [*program, *words(topic, table, *more)],
            env=HERE, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return ran.returncode

    return killed


ODD = {
    "id": (INTEGER, [b"1", b"2", b"3"]),
    "small": (column_type("int2", "smallint"), [b"-32768", None, b"32767"]),
    "big": (BIGINT, [b"-9223372036854775808", None, b"9223372036854775807"]),
    "yes": (column_type("bool", "boolean"), [b"t", None, b"f"]),
    "amount": (column_type("numeric", "numeric(12,2)"), [b"-1234567890.05", None, b"NaN"]),
    "wide": (
        column_type("numeric", "numeric(38,5)"),
        [b"-123456789012345678901234567890123.00001", b"0.00000", b"10000.00010"],
    ),
    "free": (column_type("numeric", "numeric"), [b"1.10", None, b"Infinity"]),
    "short": (column_type("float4", "real"), [b"0.1", None, b"NaN"]),
    "long": (column_type("float8", "double precision"), [b"-0", None, b"-Infinity"]),
    "name": (TEXT, ["a\tb\\ü\n".encode(), None, b""]),
    "raw": (column_type("bytea", "bytea"), [b"\\x00ff", None, b"\\x"]),
    "day": (column_type("date", "date"), [b"0044-03-15 BC", None, b"infinity"]),
    "moment": (
        column_type("timestamptz", "timestamp with time zone"),
        [b"2024-02-29 12:34:56.123456+00", None, b"-infinity"],
    ),
    "local": (
        column_type("timestamp", "timestamp without time zone"),
        [b"1970-01-01 00:00:00.000001", None, b"12024-01-01 00:00:00"],
    ),
    "clock": (column_type("time", "time without time zone"), [b"24:00:00", None, b"00:00:01.5"]),
    "code": (column_type("uuid", "uuid"), [b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None, None]),
    "doc": (column_type("jsonb", "jsonb"), [b'{"a": 1.10}', None, b"null"]),
    "list": (INTEGERS, [b"{1,NULL,3}", None, b"{}"]),
    "texts": (TEXTS, [b'{"a b","NULL",NULL,""}', None, b"{x}"]),
    "bits": (column_type("bit", "bit(3)"), [b"101", None, b"000"]),
    "sums": (array_type(column_type("numeric", "numeric"), "numeric[]"), [b"{1.10}", None, b"{}"]),
}


def odd_relation():
    return make_relation({name: kind for name, (kind, _) in ODD.items()})


@pytest.fixture
def odd_log(kafka, registry, prefix):
    log = LogWriter(kafka, registry, odd_relation(), prefix=prefix)
    for row in zip(*(texts for _, texts in ODD.values()), strict=True):
        log.put(row)
    log.flush()
    return log


def as_texts(execute, table, names):
    shown = ", ".join(
        f"left({name}::text, 1)" if name == "yes" else f'"{name}"::text' for name in names
    )
    found = execute(f"SET timezone TO 'UTC'; SELECT {shown} FROM {table} ORDER BY id::int")
    return [tuple(None if each is None else each.encode() for each in row) for row in found]


@pytest.mark.parametrize("way", ["c", "python"])
def test_each_value_of_our_log_is_in_the_table_as_it_was(odd_log, execute, words, way):
    program = [sys.executable, "-m", "changelog", "load"]
    ran = subprocess.run(
        [*program, *words(odd_log.topic, "things", "--create", "--json")],
        env={**HERE, "CHANGELOG_NATIVE": way}, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["rows"] == 3
    rows = list(zip(*(texts for _, texts in ODD.values()), strict=True))
    assert as_texts(execute, "things", ODD) == rows


def test_types_that_the_table_has_otherwise_are_cast_or_refused(odd_log, execute, load):
    execute("CREATE TABLE t (id bigint, amount numeric(20,4), free text, doc json, list text)")
    columns = "id,amount,free,doc,list"
    assert load(odd_log.topic, "t", "--columns", columns)[0] == 0
    assert execute("SELECT id, amount::text, free FROM t ORDER BY id") == [
        (1, "-1234567890.0500", "1.10"),
        (2, None, None),
        (3, "NaN", "Infinity"),
    ]
    execute("CREATE TABLE rounded (id int, amount numeric(12,1))")
    code, _, said = load(odd_log.topic, "rounded", "--columns", "id,amount")
    assert code == 1
    assert "2 digits after the point and would be rounded" in said
    assert f'topic "{odd_log.topic}"' in said
    assert execute("SELECT count(*) FROM rounded WHERE id = 1") == [(0,)]
    by_key = ["--columns", "id,bits", "--create", "--mode", "upsert", "--key", "id"]
    assert load(odd_log.topic, "kept", *by_key)[0] == 0
    assert execute("SELECT bits::text FROM kept ORDER BY id") == [("101",), (None,), ("000",)]
    execute("CREATE DOMAIN pair AS bit(2); CREATE DOMAIN couple AS pair")
    execute("CREATE TABLE shorter (id int, bits couple)")
    code, _, said = load(odd_log.topic, "shorter", "--columns", "id,bits")
    assert (code, "does not match type bit(2)" in said) == (1, True), said
    # A row before, or of another partition, may stand there; none whose bits were cut.
    assert execute("SELECT count(*) FROM shorter WHERE bits IS NOT NULL") == [(0,)]


def test_rows_are_replaced_and_deleted_by_key(kafka, registry, prefix, execute, load):
    log = LogWriter(kafka, registry, make_relation(), prefix=prefix)
    for number in range(50):
        log.put((str(number).encode(), b"first"))
        log.put((str(number).encode(), b"second"))
    for number in range(0, 50, 5):
        log.delete_key(str(number).encode())
    log.put((b"5", b"again"))
    log.flush()
    code, found, said = load(log.topic, "things", "--create", "--mode", "upsert")
    assert (code, found.get("records")) == (0, 111), said
    assert execute("SELECT name, count(*) FROM things GROUP BY 1 ORDER BY 1") == [
        ("again", 1),
        ("second", 40),
    ]
    log.delete_key(b"5")
    log.put((b"7", None))
    log.flush()
    assert load(log.topic, "things", "--mode", "upsert")[:2][1]["records"] == 2
    assert execute("SELECT id FROM things WHERE id IN (5, 7) OR name IS NULL") == [(7,)]


def test_a_list_of_what_the_server_does_not_know_becomes_a_list_of_texts(
    kafka, registry, prefix, execute, load
):
    mood = column_type("mood", "mood", form=TypType.ENUM, builtin=False)
    kinds = {"id": INTEGER, "mood": mood, "moods": array_type(mood, "mood[]")}
    log = LogWriter(kafka, registry, make_relation(kinds), prefix=prefix)
    log.put((b"1", b"sad", b"{sad,NULL,ok}"))
    log.put((b"2", None, b"{}"))
    log.flush()
    code, _, said = load(log.topic, "things", "--create")
    assert code == 0, said
    assert execute("SELECT id, mood, moods FROM things ORDER BY id") == [
        (1, "sad", ["sad", None, "ok"]),
        (2, None, []),
    ]


def test_an_older_version_of_the_schema_is_read_by_the_newest(
    kafka, registry, prefix, execute, load
):
    before = make_relation()
    log = LogWriter(kafka, registry, before, prefix=prefix, partitions=1)
    log.put((b"1", b"old"))
    added = replace(
        before,
        columns=(*before.columns, Column("more", INTEGER), Column("five", INTEGER, default="5")),
    )
    log.evolve(added)
    log.put((b"2", b"new", b"2", b"6"))
    log.flush()
    assert load(log.topic, "things", "--create")[0] == 0
    assert execute("SELECT * FROM things ORDER BY id") == [(1, "old", None, 5), (2, "new", 2, 6)]


def test_parts_of_json_fill_the_columns_that_are_named(make_topic, send, execute, load):
    topic = make_topic()
    execute(
        "CREATE TABLE t (a numeric, b int, c timestamptz, d bigint, e text, f jsonb, g text[],"
        " h bytea, i text)"
    )
    value = b'{"x": 12345678901234567890.10, "in": {"y": [1, "two\\n"]}, "raw": "AP8=", "no": 1}'
    send(topic, (b'{"id": 7}', value), headers=[("by", b"hand")], timestamp=1_700_000_000_123)
    columns = "a=value.x,b=key.id,c=timestamp,d=offset,e=header.by,f=value.in,g=value.in.y"
    code, _, said = load(topic, "t", "--columns", f"{columns},h=value.raw,i=topic")
    assert code == 0, said
    assert execute(
        "SELECT a::text, b, c = 'epoch'::timestamptz + '1700000000.123 s', d, e FROM t"
    ) == [("12345678901234567890.10", 7, True, 0, "hand")]
    assert execute("SELECT f::text, g, encode(h, 'hex'), i FROM t") == [
        ('{"y": [1, "two\\n"]}', ["1", "two\n"], "00ff", topic)
    ]


def test_lines_of_csv_and_texts_are_rows(make_topic, send, execute, load):
    topic = make_topic()
    execute("CREATE TABLE t (id int, name text, note text)")
    send(topic, b'1,"a, ""b""\nc",', b'2,,""')
    assert load(topic, "t", "--value-as", "csv")[0] == 0
    assert execute("SELECT * FROM t ORDER BY id") == [(1, 'a, "b"\nc', None), (2, None, "")]
    execute("CREATE TABLE lines (at bigint, line text)")
    more = ["--value-as", "text", "--columns", "at=offset,line=value"]
    assert load(topic, "lines", *more)[0] == 0
    assert execute("SELECT line FROM lines ORDER BY at") == [('1,"a, ""b""\nc",',), ('2,,""',)]
    send(topic, b'3,"open', b"4,x,y")
    code, _, said = load(topic, "t", "--value-as", "csv")
    assert code == 1
    assert 'the record at offset 2 of partition 0 of topic "' in said
    assert "a quote is not closed" in said
    assert execute("SELECT count(*) FROM t") == [(2,)]


def test_the_next_start_goes_on_and_another_from_the_beginning_is_refused(
    make_topic, send, execute, load
):
    topic = make_topic(partitions=3)
    execute("CREATE TABLE t (id int)")
    send(topic, *[(str(n).encode(), {"id": n}) for n in range(100)])
    assert load(topic, "t")[1]["records"] == 100
    assert load(topic, "t")[1]["records"] == 0
    send(topic, *[(str(n).encode(), {"id": n}) for n in range(100, 150)])
    assert load(topic, "t", "--jobs", "1")[1]["records"] == 50
    assert execute("SELECT count(*), count(DISTINCT id) FROM t") == [(150, 150)]
    code, _, said = load(topic, "t", "--from", "beginning")
    assert (code, "would append their rows a second time" in said) == (2, True)
    assert execute("SELECT count(*) FROM t") == [(150,)]


def test_topics_are_loaded_from_one_place_to_another(make_topic, send, execute, words):
    one, other = make_topic("one"), make_topic("other")
    execute("CREATE TABLE t (topic text, id int)")
    for topic in (one, other):
        for number in range(10):
            send(topic, {"id": number}, timestamp=1_700_000_000_000 + 1000 * number)
    columns = ["--columns", "topic=topic,id=value.id"]
    for places, wanted in (
        (["--from", "3", "--until", "7"], {3, 4, 5, 6}),
        (["--from", "-2"], {8, 9}),
        (["--from", "@2023-11-14T22:13:25Z", "--until", "@1700000007000"], {5, 6}),
    ):
        name = ["--name", f"load {places}"]
        ran = CliRunner().invoke(app, ["load", other, *words(one, "t", *columns, *places, *name)])
        assert ran.exit_code == 0, ran.exception
        pairs = {(topic, number) for topic in (one, other) for number in wanted}
        assert set(execute("SELECT * FROM t")) == pairs
        assert execute("SELECT count(*) FROM t") == [(len(pairs),)]
        execute("TRUNCATE t")


KILLED = ["moved", "copied", "committed"]


@pytest.mark.parametrize("moment", first(1, KILLED))
def test_a_kill_at_any_moment_loses_and_doubles_nothing(
    make_topic, send, execute, load, killed, moment
):
    topic = make_topic(partitions=2)
    execute("CREATE TABLE t (id int)")
    send(topic, *[(str(n).encode(), {"id": n}) for n in range(300)])
    own = ["--kill", moment, "--after", "2"]
    assert killed(own, topic, "t", "--batch", "40", "--jobs", "1") == -signal.SIGKILL
    before = execute("SELECT count(*) FROM t")[0][0]
    assert 0 < before < 300
    assert load(topic, "t", "--batch", "40")[0] == 0
    assert execute("SELECT count(*), count(DISTINCT id) FROM t") == [(300, 300)]


def test_twin_with_places_in_a_transaction_of_their_own_doubles_rows(
    make_topic, send, execute, load, killed
):
    """The same with the seeded defect: what the kill left between the two comes twice."""
    topic = make_topic()
    execute("CREATE TABLE t (id int)")
    send(topic, *[{"id": n} for n in range(100)])
    own = ["--defect", "apart", "--kill", "apart", "--after", "2"]
    assert killed(own, topic, "t", "--batch", "40") == -signal.SIGKILL
    assert load(topic, "t")[0] == 0
    assert execute("SELECT count(*), count(DISTINCT id) FROM t") == [(140, 100)]


def test_what_violates_a_constraint_is_named_and_what_was_before_it_stays(
    make_topic, send, execute, load
):
    topic = make_topic()
    execute("CREATE TABLE t (id int CHECK (id <> 77), name varchar(3))")
    send(topic, *[{"id": n, "name": "abc"} for n in range(100)])
    code, _, said = load(topic, "t", "--batch", "30")
    assert code == 1
    assert f'the record at offset 77 of partition 0 of topic "{topic}" cannot be written' in said
    assert "violates check constraint" in said
    assert execute("SELECT count(*) FROM t") == [(60,)]
    execute("ALTER TABLE t DROP CONSTRAINT t_id_check")
    assert load(topic, "t")[0] == 0
    assert execute("SELECT count(*), count(DISTINCT id) FROM t") == [(100, 100)]
    send(topic, {"id": 1, "name": "long"})
    assert "at offset 100" in load(topic, "t")[2]


def test_records_that_cannot_be_written_are_put_aside_with_the_reason(
    kafka, make_topic, send, execute, load
):
    topic, aside = make_topic(), make_topic("aside")
    execute("CREATE TABLE t (id int CHECK (id <> 7), name text)")
    send(topic, *[{"id": n, "name": "x"} for n in range(20)], b"no json", {"other": 1})
    send(topic, b'{"id": 1, "name": "\\ud800"}')
    code, found, said = load(topic, "t", "--on-error", f"dead-letter:{aside}")
    assert (code, found.get("dead_letters"), found.get("rows")) == (0, 4, 19), said
    execute("CREATE TABLE bad (at int, reason text)")
    columns = "at=header.__changelog.errors.offset,reason=header.__changelog.errors.reason"
    code, _, said = load(aside, "bad", "--value-as", "text", "--columns", columns)
    assert code == 0, said
    reasons = dict(execute("SELECT * FROM bad"))
    assert set(reasons) == {7, 20, 21, 22}
    assert "check constraint" in reasons[7]
    assert "not JSON" in reasons[20]
    assert 'the field "other"' in reasons[21]
    assert "surrogates not allowed" in reasons[22]


def test_a_followed_topic_is_loaded_as_it_comes_until_stopped(make_topic, send, execute, words):
    topic = make_topic()
    execute("CREATE TABLE t (id int)")
    program = [sys.executable, "-m", "changelog", "load", *words(topic, "t", "--follow")]
    with subprocess.Popen(program, env=HERE, stderr=subprocess.PIPE) as running:
        for number in range(3):
            send(topic, {"id": number})
            there = partial(execute, f"SELECT 1 FROM t WHERE id = {number}")
            wait_until(there, DEADLINE_S, "the record is in the table")
        running.send_signal(signal.SIGTERM)
        assert running.wait(DEADLINE_S) == 0


def test_a_topic_that_was_made_anew_is_not_gone_on_with(kafka, make_topic, send, execute, load):
    topic = make_topic()
    execute("CREATE TABLE t (id int)")
    send(topic, {"id": 1})
    assert load(topic, "t")[0] == 0
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in describe(kafka, [topic]), 30, "the topic is gone")
    make_topic()
    send(topic, {"id": 2}, {"id": 3})
    code, _, said = load(topic, "t")
    assert (code, "was deleted and created again" in said) == (1, True)
    assert execute("SELECT * FROM t") == [(1,)]


def test_what_is_not_there_is_said_with_its_code(make_topic, send, execute, load, dsn):
    topic = make_topic()
    execute("CREATE TABLE t (id int, name text)")
    send(topic, {"id": 1}, (b"1", None))
    for more, wanted, expected in (
        (["--columns", "no=value.id"], 2, "has no column no"),
        (["--columns", "id=valu.id"], 2, "is not a part of a record"),
        (["--mode", "upsert"], 2, "has no primary key"),
        (["--mode", "upsert", "--key", "id"], 2, "has no unique index of id"),
        (["--tombstones", "delete"], 2, "--tombstones delete needs --mode upsert"),
        ([], 1, "the record at offset 1 of partition 0"),
        (["--from", "9"], 2, "offset 9 is not there"),
        (["--on-error", "dead-letter:nowhere"], 2, 'there is no topic "nowhere"'),
    ):
        code, _, said = load(topic, "t", *more)
        assert (code, expected in said) == (wanted, True), said
    assert load(topic, "nothing")[2].count("there is no table") == 1
    for more in ([], ["--create"], ["--create", "--types", "id=int"]):
        assert 'there is no topic "nowhere"' in load("nowhere", "u", *more)[2]
    assert execute("SELECT to_regclass('u')") == [(None,)]
    assert load(topic, "t", "--tombstones", "ignore")[0] == 0
    assert execute("SELECT * FROM t") == [(1, None)]


def test_a_server_that_is_away_ends_it_with_1_and_no_secret_is_shown(make_topic, load, execute):
    topic = make_topic()
    execute("CREATE TABLE t (id int)")
    away = "postgresql://me:s3cret-canary@127.0.0.1:1/db"
    code, _, said = load(topic, "t", "--into", "${AWAY}", env={"AWAY": away})
    assert (code, "does not answer" in said, "s3cret" in said) == (1, True, False)
    code, _, said = load(topic, "t", "--broker", "127.0.0.1:1")
    assert (code, "no Kafka broker answers" in said) == (1, True)
