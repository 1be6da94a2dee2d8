"""Views over tables without a primary key: rebuilt from all that was written and taken away."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any, cast

import duckdb
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Observation
from pyspark.sql.functions import asc

from changelog.config import load_project
from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.codec import frame
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import nulls_of
from replay.base.failures import translated
from replay.decode import bag
from replay.decode.schemas import TopicSchemas
from replay.result.metrics import StateObservations
from tests.support.beginnings import remove_before
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.matrix import first
from views.base.config import RebuildSettings
from views.generations.lock import following
from views.generations.place import place_for
from views.verify.log import bag as verifier_bag
from views.verify.log.decode import AvroDecoder
from views.verify.log.tables import TableState, load_state
from views.verify.processes.scratch import insert, make_table, table_of_rows
from views.verify.records.survivors import FoldedTable

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLE = """
CREATE TABLE events (kind text, amount float8, tags float8[], price numeric(6,2));
ALTER TABLE events REPLICA IDENTITY FULL;
CREATE TABLE kinds (kind text PRIMARY KEY, name text);
INSERT INTO kinds VALUES ('a', 'first'), ('b', 'second');
INSERT INTO events VALUES
  ('a', 0.0, '{0,NaN}', 1.10), ('a', '-0', '{-0,NaN}', 1.10), ('b', 2, NULL, 'NaN'),
  ('a', 0.0, '{0,NaN}', 1.10), (NULL, NULL, NULL, NULL), (NULL, NULL, NULL, NULL)
"""
VIEW = """-- key: kind
SELECT coalesce(kind, '?') AS kind, count(*) AS times,
    sort_array(collect_list(amount)) AS amounts, sort_array(collect_list(tags[0])) AS tags
FROM events GROUP BY 1
"""
SOURCE = """
SELECT coalesce(kind, '?'), count(*), array_agg(amount::text), array_agg(tags[1]::text)
FROM events GROUP BY 1
"""


def project_of(stack, folder, capture="", table=TABLE):
    return captured_database(stack, folder, table, capture=f"allow_unkeyed = true\n{capture}")


def served(project):
    """Return what each kind has, floats as Python writes them: -0.0 is another one than 0.0."""
    return {
        each["kind"]: (each["times"], floats(each["amounts"]), floats(each["tags"]))
        for each in project.delta("counted")
    }


def source(project):
    return {
        kind: (times, floats(amounts), floats(tags))
        for kind, times, amounts, tags in project.query(SOURCE)
    }


def floats(found):
    return sorted(repr(float(each)) for each in found if each is not None)


@pytest.mark.parametrize(
    "form",
    [
        "",
        pytest.param(
            'output_format = "json"\non_incompatible = "resnapshot"', marks=pytest.mark.matrix
        ),
    ],
)
def test_a_view_counts_what_is_there(stack, tmp_path, capsys, monkeypatch, form):
    with project_of(stack, tmp_path / "project", form) as (project, _):
        project.view("counted.sql", VIEW)
        project.view(
            "named.sql",
            "-- key: kind\nSELECT k.kind, k.name, count(e.kind) AS times "
            "FROM kinds k LEFT JOIN events e ON e.kind = k.kind GROUP BY k.kind, k.name",
        )

        def rebuilt(*words):
            ran = rebuild_view(capsys, monkeypatch, project, *words, "--json")
            assert ran.code == 0, ran.err
            assert {each["verified"] for each in ran.results} == {True}
            assert served(project) == source(project)

        rebuilt("--all")
        assert served(project)["a"] == (3, ["-0.0", "0.0", "0.0"], ["-0.0", "0.0", "0.0"])
        assert served(project)["?"] == (2, [], [])
        seeded = random.Random(7)  # noqa: S311 - no secret
        for _ in range(12):
            n, kind = seeded.randrange(4), seeded.choice("abc")
            statements = (
                "INSERT INTO events SELECT '{kind}', {n}, ARRAY[{n}] FROM generate_series(1, 3)",
                "DELETE FROM events WHERE ctid IN (SELECT min(ctid) FROM events GROUP BY kind)",
                "UPDATE events SET amount = {n}, kind = '{kind}' WHERE amount = 0",
            )
            project.execute(seeded.choice(statements).format(n=n, kind=kind))
        # Rows of before have the default, and are taken away as what they are then.
        project.execute("ALTER TABLE events ADD COLUMN more int DEFAULT 5")
        project.execute("DELETE FROM events WHERE ctid IN (SELECT min(ctid) FROM events)")
        project.execute("INSERT INTO events (kind) VALUES ('b'), ('b')")
        project.capture()
        rebuilt("counted", "--refresh")
        project.execute("TRUNCATE events")
        project.execute("INSERT INTO events VALUES ('b', 1, NULL, NULL)")
        project.capture()
        rebuilt("counted")
        assert served(project) == {"b": (1, ["1.0"], [])}


@pytest.mark.matrix
def test_it_is_exact_for_as_long_as_its_history_is_kept(
    stack, tmp_path, capsys, monkeypatch, kafka
):
    with project_of(stack, tmp_path / "project", "partitions = 1") as (project, prefix):
        project.view("counted.sql", VIEW)
        admin = AdminClient(kafka.client_config())
        remove_before(admin, TopicPartition(f"{prefix}.events", 0, 2))
        ran = rebuild_view(capsys, monkeypatch, project, "counted")
        assert ran.code == 4, ran.err
        assert "changelog resnapshot" in ran.err
        project.command("resnapshot", "public.events")
        project.capture()
        ran = rebuild_view(capsys, monkeypatch, project, "counted", "--json")
        assert ran.code == 0, ran.err
        assert served(project) == source(project)
        project.view(
            "python.py",
            "from views import view\n\n\n@view(key=['kind'], tables=['events'])\n"
            "def python(events):\n    return events.groupBy('kind').count().dropna()\n",
        )
        for words, code, said in (
            (("python",), 1, "is in Python"),
            (("counted", "--on-bad-record", "quarantine"), 2, "has no primary key"),
            (("counted", "--explain", "a"), 2, "cannot be told apart"),
        ):
            ran = rebuild_view(capsys, monkeypatch, project, *words)
            assert (ran.code, said in " ".join(ran.err.split())) == (code, True), ran.err
        assert rebuild_view(capsys, monkeypatch, project, "python", "--verify", "none").code == 0


@pytest.mark.matrix
@pytest.mark.parametrize("side", first(1, ["spark", "duckdb"]))
def test_twin_rows_that_one_engine_does_not_take_away_are_found(
    stack, tmp_path, capsys, monkeypatch, side
):
    with project_of(stack, tmp_path / "project") as (project, _):
        project.view("counted.sql", VIEW)
        project.execute("DELETE FROM events WHERE kind = 'b'")
        project.capture()
        if side == "spark":
            monkeypatch.setattr(bag, "_TAKEN", b"-")
            monkeypatch.setattr(bag, "_ADDED", [*bag._ADDED, b"d"])
        else:
            monkeypatch.setattr(verifier_bag, "_WRITTEN", frozenset({b"r", b"c", b"u", b"d"}))
        ran = rebuild_view(capsys, monkeypatch, project, "counted")
        assert ran.code == 3, ran.err


ORDERED = """-- key: kind
SELECT kind, sort_array(collect_list(struct(_lsn, _sequence, amount))) AS written,
    max(nth) AS rows
FROM (SELECT *, row_number() OVER (PARTITION BY kind ORDER BY _lsn, _sequence) AS nth FROM events)
WHERE kind IS NOT NULL GROUP BY kind
"""
EVENTS = "-- key: _lsn, _sequence\nSELECT _lsn, _sequence, kind FROM events\n"


@pytest.mark.matrix
@pytest.mark.parametrize("side", first(1, ["spark", "", "duckdb"]))
def test_rows_are_listed_in_the_order_of_their_writing(stack, tmp_path, capsys, monkeypatch, side):
    """Of equal rows the oldest goes; the twin lets the newest go in one engine alone."""
    with project_of(stack, tmp_path / "project", "partitions = 3") as (project, _):
        project.view("ordered.sql", ORDERED)
        project.view("events_all.sql", EVENTS)
        for amount in (3, 1, 3, 2, 3):
            project.execute(f"INSERT INTO events VALUES ('o', {amount}), ('o', -{amount})")
        project.execute(
            "DELETE FROM events WHERE ctid = (SELECT max(ctid) FROM events WHERE amount = 3)"
        )
        project.execute("UPDATE events SET amount = 9 WHERE kind = 'o' AND amount = 1")
        project.capture()
        if side == "spark":
            monkeypatch.setattr(bag, "_newest_first", asc)
        if side == "duckdb":
            sound = verifier_bag.keep_rows
            monkeypatch.setattr(
                "views.verify.log.states.keep_rows",
                lambda database, *rest: sound(cast(Any, Ascending(database)), *rest),
            )
        ran = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
        assert ran.code == (3 if side else 0), ran.err
        if side:
            return
        assert {each["verified"] for each in ran.results} == {True}
        rows = {each["kind"]: each for each in project.delta("ordered")}
        assert [each["amount"] for each in rows["o"]["written"]] == [-3, -1, 3, -3, 2, -2, 3, -3, 9]
        assert rows["o"]["rows"] == 9
        places = [(each["_lsn"], each["_sequence"]) for each in project.delta("events_all")]
        assert len(set(places)) == len(places) == project.query("SELECT count(*) FROM events")[0][0]


class Ascending:
    """The seeded defect: the order of a window the other way round."""

    def __init__(self, database):
        self._database = database

    def execute(self, query, *rest):
        return self._database.execute(query.replace("DESC", "ASC"), *rest)

    def __getattr__(self, name):
        return getattr(self._database, name)


def test_a_table_without_a_key_that_has_such_a_column_is_refused(
    stack, tmp_path, capsys, monkeypatch
):
    table = "CREATE TABLE events (_lsn int, kind text); ALTER TABLE events REPLICA IDENTITY FULL;"
    with project_of(
        stack, tmp_path / "project", table=f"{table} INSERT INTO events VALUES (1, 'a')"
    ) as (project, _):
        project.view("counted.sql", "-- key: kind\nSELECT kind, 1 AS n FROM events GROUP BY kind")
        ran = rebuild_view(capsys, monkeypatch, project, "counted")
        assert ran.code == 2, ran.err
        assert 'no primary key and a column "_lsn"' in " ".join(ran.err.split())


SCHEMA = {
    "type": "record",
    "name": "events",
    "namespace": "changelog.public",
    "relation": ["public", "events"],
    "key": [],
    "fields": [
        {"name": "n", "type": ["null", "int"], "default": None, "column": "n", "pg_type": "int4"},
        {"name": "m", "type": ["int", "null"], "default": 5, "column": "m", "pg_type": "int4"},
    ],
}


SCHEMAS = TopicSchemas("events", None, {7: json.dumps(SCHEMA)}, 7)


def placed(spark, records):
    """Return the rows of records with their places: operation, body of the value, LSN."""
    raw = [
        (
            None,
            bytearray(frame(7) + body),
            0,
            offset,
            [("position", Position(1, Lsn(lsn), offset).to_bytes()), ("op", op.value)],
        )
        for offset, (op, body, lsn) in enumerate(records)
    ]
    frame_ = spark.createDataFrame(
        raw,
        "key binary, value binary, partition int, offset bigint, "
        "headers array<struct<key: string, value: binary>>",
    )
    found = bag.changes(frame_, "events", since=None, before=Position(2, Lsn(0), 0))
    seen = StateObservations(Observation(), Observation())
    with translated():
        return [tuple(row) for row in bag.Bag(found, SCHEMAS, seen).rows().frame.collect()]


def rows_of(spark, *records):
    """Return the rows of records: operation, and body of the value."""
    found = placed(spark, [(*each, number) for number, each in enumerate(records)])
    return sorted((row[:2] for row in found), key=str)


def proved(records):
    class Known:
        def text(self, _):
            return json.dumps(SCHEMA)

    decoder = AvroDecoder(cast(Any, Known()), "events", 7)
    rows = [
        (0, offset, op is not Op.DELETE, lsn, offset, frame(7) + body)
        for offset, (op, body, lsn) in enumerate(records)
    ]
    with duckdb.connect() as database:
        make_table(database, "changes", verifier_bag._CHANGES)
        if rows:
            insert(database, "changes", table_of_rows(rows, verifier_bag._CHANGES))
        verifier_bag.keep_rows(database, "changes", "events", decoder)
        database.execute("CREATE TABLE places AS FROM changes")
        name = TableName("public", "events")
        state = TableState(name, "events", "base", decoder.columns, ())
        survivors = FoldedTable(database, "changes")
        state = load_state(database, state, decoder, survivors)
        state = verifier_bag.add_places(database, state, "places")
        return database.execute(f"SELECT {state.selected()} FROM base").fetchall()


def stand(records):
    """Return the same by a list that loses the first of equal rows."""
    found: list[tuple[bytes, Decimal, Decimal]] = []
    for offset, (op, body, lsn) in enumerate(records):
        if op is Op.DELETE:
            found.remove(next(each for each in found if each[0] == body))
        else:
            found.append((body, Decimal(lsn), Decimal(offset)))
    return found


@st.composite
def histories(draw):
    """Return records of few values, none taken away that is not there; LSNs of 64 bits."""
    records: list[tuple[Op, bytes, int]] = []
    there: list[bytes] = []
    lsn = 0
    for _ in range(draw(st.integers(0, 25))):
        lsn += draw(st.sampled_from([0, 1, 2**62]))
        if there and draw(st.booleans()):
            body = draw(st.sampled_from(there))
            there.remove(body)
            records.append((Op.DELETE, body, lsn % 2**64))
        else:
            body = draw(st.sampled_from([b"\x02\x04\x00\x06", b"\x02\x06\x00\x06", b"\x00\x02"]))
            there.append(body)
            records.append((draw(st.sampled_from([Op.CREATE, Op.UPDATE])), body, lsn % 2**64))
        if lsn >= 2**63:
            break
    return records


VALUES = {b"\x02\x04\x00\x06": (2, 3), b"\x02\x06\x00\x06": (3, 3), b"\x00\x02": (None, None)}


@pytest.mark.matrix
@settings(max_examples=12, deadline=None)
@given(histories())
def test_both_engines_place_rows_as_a_list_does_that_loses_the_oldest(spark, history):
    expected = sorted(((*VALUES[body], *at) for body, *at in stand(history)), key=str)
    assert sorted(placed(spark, history), key=str) == expected
    assert sorted(proved(history), key=str) == expected


def test_nulls_are_a_row_and_what_cannot_be_read_is_not(spark):
    nulls = nulls_of(json.dumps(SCHEMA))
    assert nulls == b"\x00\x02"
    assert rows_of(spark, (Op.CREATE, nulls), (Op.CREATE, nulls)) == [(None, None)] * 2
    assert rows_of(
        spark, (Op.CREATE, b"\x02\x04\x00\x06"), (Op.READ, nulls), (Op.DELETE, nulls)
    ) == [(2, 3)]
    with pytest.raises(CorruptRecordError, match=r"partition 0, offset 1: the value's body"):
        rows_of(spark, (Op.CREATE, nulls), (Op.CREATE, b"\x02"))


def test_a_row_that_was_taken_away_more_often_than_written_is_told(spark):
    nulls = nulls_of(json.dumps(SCHEMA))
    with pytest.raises(LogError, match="taken away more often than it was written"):
        rows_of(spark, (Op.CREATE, nulls), (Op.DELETE, nulls), (Op.DELETE, nulls))


def test_a_record_of_another_hand_is_told(spark):
    with pytest.raises(CorruptRecordError, match="bears no operation of a row"):
        rows_of(spark, (Op.MESSAGE, b"\x00\x02"))


@pytest.mark.matrix
def test_a_rebuild_of_all_needs_no_end_of_whoever_follows_the_others(
    stack, tmp_path, capsys, monkeypatch
):
    """One of a table with a key is brought to where its follower is, the other keeps it waiting."""
    with project_of(stack, tmp_path / "project") as (project, _):
        project.view("counted.sql", VIEW)
        project.view("named.sql", "-- key: kind\nSELECT kind, name FROM kinds")
        place = place_for(RebuildSettings(project=load_project(project.root)))
        with following(place, ["named"]), following(place, ["counted"]):
            ran = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
            assert ran.code == 0, ran.err
            assert {each["view"] for each in ran.results} == {"counted", "named"}
