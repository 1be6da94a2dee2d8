"""Histories on the real stack: every state that PostgreSQL had is in them, and nothing else is.

The judge are PostgreSQL's own rows, noted at moments while it was written; and the views that
`rebuild-view --as-of` builds.
"""

from __future__ import annotations

import json
import random
import shlex
import subprocess
import sys
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psycopg2
import pytest

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.log.versions import VERSION_COLUMNS
from changelog.contract.rows.relation import TableName
from replay.base.config import ReplaySettings
from replay.cut.cut import make_cut
from replay.decode import versions as by_spark
from replay.decode.schemas import schemas_of
from replay.pipeline.versions import open_versions
from tests.support.builders import make_relation
from tests.support.captured_project import captured_database, rebuild_view, run_here
from tests.support.cleaning import present, wait_cleaned
from tests.support.log_writer import CLEAN_AT_ONCE, KEEP, LogWriter
from tests.support.page import blocks_of
from tests.support.page_lines import reader_of
from views.verify.compare.evidence import Evidence

pytestmark = [pytest.mark.services, pytest.mark.spark]
PAGE = Path(__file__).parents[2] / "docs" / "history.md"
TABLES = """
CREATE TABLE articles (id int PRIMARY KEY, price numeric(8, 2), hidden boolean NOT NULL,
    weight float8, tags text[], at timestamptz);
INSERT INTO articles SELECT n, n, n % 3 = 0, n / 3.0, ARRAY['a', NULL], '2020-01-01'
    FROM generate_series(1, 6) n;
"""
HISTORY = """-- key: id, valid_from_lsn
-- history: scd2
-- sinks: delta, postgres
SELECT a.id, price * 2 AS price, weight, tags, at, valid_from_lsn, valid_from_time,
    valid_from_change, valid_to_lsn, valid_to_time, valid_to_change, is_current, complete_from_lsn
FROM articles a WHERE NOT hidden
"""
PLAIN = """-- key: id
SELECT id, price * 2 AS price, weight, tags, at FROM articles WHERE NOT hidden
"""
NOW = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::text"


@pytest.fixture(scope="module")
def project(stack, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("history"), TABLES) as (made, _):
        text = (made.root / "changelog.toml").read_text(encoding="utf-8")
        setting = f"sinks.postgres.url = {json.dumps(made.dsn)}\n"
        (made.root / "changelog.toml").write_text(setting + text, encoding="utf-8")
        made.view("prices.sql", HISTORY)
        made.view("plain.sql", PLAIN)
        made.view("prices.postgres.json", json.dumps({"table": "served.prices"}))
        made.execute("CREATE SCHEMA served")
        yield made


def change(chance: random.Random) -> str:
    key, other = chance.sample(range(1, 12), 2)
    put = "ON CONFLICT (id) DO UPDATE SET price = excluded.price, weight = '-0'"
    free = f"NOT EXISTS (SELECT FROM articles WHERE id = {other})"
    delete = f"DELETE FROM articles WHERE id = {key}"
    return chance.choice((
        f"INSERT INTO articles VALUES ({key}, {other}, false, {other} / 7.0, '{{}}', now()) {put}",
        f"UPDATE articles SET price = price + 1, tags = array_append(tags, 'b') WHERE id = {key}",
        f"UPDATE articles SET hidden = NOT hidden WHERE id = {key}",
        f"UPDATE articles SET price = price WHERE id = {key}",
        delete,
        f"UPDATE articles SET id = {other} WHERE id = {key} AND {free}",
        f"{delete}; INSERT INTO articles VALUES ({key}, NULL, false, 'NaN', NULL, '2999-12-31')",
    ))  # fmt: skip


def written(dsn: str, seed: int, transactions: int) -> list[tuple[int, list[tuple]]]:
    """Write random transactions; return after each the LSN and the rows that there are."""
    noted: list[tuple[int, list[tuple]]] = []
    chance = random.Random(seed)  # noqa: S311 - a test's
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        for _ in range(transactions):
            for _ in range(chance.randint(1, 4)):
                cursor.execute(change(chance))
            connection.commit()
            cursor.execute(NOW)
            ((lsn,),) = cursor.fetchall()
            cursor.execute(
                "SELECT id, price * 2, weight::text, tags, at::text "
                "FROM articles WHERE NOT hidden ORDER BY id"
            )
            noted.append((int(lsn), cursor.fetchall()))
            connection.rollback()
    return noted


def as_of(project, lsn: int) -> list[tuple]:
    rows: list[tuple] = project.query(
        "SELECT id, price, weight::text, tags, at::text FROM served.prices "
        f"WHERE valid_from_lsn < {lsn} AND (valid_to_lsn >= {lsn} OR valid_to_lsn IS NULL) "
        "ORDER BY id"
    )
    return rows


def test_a_history_has_each_state_that_postgresql_had(spark, project, capsys, monkeypatch):
    start = int(project.query(NOW)[0][0])
    noted = written(project.dsn, 1, 25)
    project.capture()
    middle = rebuild_view(capsys, monkeypatch, project, "plain", "--json")
    assert middle.code == 0, middle.err
    noted += written(project.dsn, 2, 25)
    project.capture()
    ran = rebuild_view(capsys, monkeypatch, project, "prices", "--json")
    assert ran.code == 0, ran.err
    (result,) = ran.results
    assert (result["verified"], result["published"]) == (True, True)

    assert {lsn: as_of(project, lsn) for lsn, _ in noted} == dict(noted)
    ((complete_from, others),) = project.query(
        "SELECT min(complete_from_lsn), max(complete_from_lsn) FROM served.prices"
    )
    assert complete_from == others
    assert complete_from <= start
    # as `--as-of` builds it, at the frontier of the middle
    lsn = middle.results[0]["frontier"]["lsn"]
    older = rebuild_view(capsys, monkeypatch, project, "plain", "--as-of", lsn, "--json")
    assert older.code == 0, older.err
    at = int(Lsn.parse(lsn))
    by_history = [
        {name: row[name] for name in ("id", "price", "weight", "tags", "at")}
        for row in project.delta("prices")
        if row["valid_from_lsn"] < at and (row["valid_to_lsn"] is None or row["valid_to_lsn"] >= at)
    ]
    assert repr(sorted(by_history, key=lambda row: row["id"])) == repr(project.delta("plain"))
    # intervals of a key follow each other, and the current ones are the table
    rows = project.query(
        "SELECT id, valid_from_lsn, valid_to_lsn, is_current, valid_to_change, "
        "valid_from_time <= valid_to_time FROM served.prices ORDER BY 1, 2"
    )
    for row, after in pairwise(rows):
        assert row[0] != after[0] or row[2] <= after[1]
    assert {(row[2] is None, row[4] is None, row[5]) for row in rows if row[3]} == {
        (True, True, None)
    }
    assert {row[5] for row in rows if not row[3]} == {True}
    assert {row[4] for row in rows} >= {"update", "delete", "insert", None}


def test_options_and_sinks_that_are_not_for_histories_are_refused_before_anything(
    spark, project, capsys, monkeypatch
):
    for options in (
        ["--refresh"], ["--from", "checkpoint"], ["--as-of", "0/1"], ["--stage"],
        ["--verify", "none"], ["--certificate"],
    ):  # fmt: skip
        ran = rebuild_view(capsys, monkeypatch, project, "prices", *options, "--json")
        assert ran.code == 2, (options, ran.err)
        assert "is a history" in " ".join(ran.err.split()), options
    ran = rebuild_view(capsys, monkeypatch, project, "prices", "--explain", "[1, 2]")
    assert "is a history" in " ".join(ran.err.split())
    # beside others it fails by itself
    ran = rebuild_view(capsys, monkeypatch, project, "--all", "--refresh", "--json")
    assert ran.code == 2
    assert {each["view"]: each.get("published") for each in ran.results} == {
        "plain": True, "prices": False,
    }  # fmt: skip
    followed = subprocess.run(
        [sys.executable, "-m", "views", "prices", "--follow", "--project", str(project.root)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert followed.returncode == 2, followed.stderr
    assert "is a history" in " ".join(followed.stderr.split())


def test_twin_a_history_whose_versions_never_end_by_deletes_is_refuted(
    spark, project, capsys, monkeypatch
):
    project.execute("INSERT INTO articles VALUES (100, 1, false)")
    project.execute("DELETE FROM articles WHERE id = 100")
    project.capture()
    right = by_spark.versions

    def without_deletes(records, schemas, since):
        return right(records.where("value IS NOT NULL"), schemas, since)

    monkeypatch.setattr("replay.pipeline.versions.versions", without_deletes)
    before = project.history("prices")
    ran = rebuild_view(capsys, monkeypatch, project, "prices", "--json")
    assert ran.code == 3, ran.err
    assert project.history("prices")[len(before) :][-1][1] == "refuted"


def test_twin_a_history_that_claims_to_begin_earlier_is_not_published(
    spark, project, capsys, monkeypatch
):
    monkeypatch.setattr("replay.pipeline.versions.complete_from", lambda *_: Lsn(1))
    ran = rebuild_view(capsys, monkeypatch, project, "prices", "--json")
    assert ran.code == 4, ran.err
    assert "has been compacted since" in " ".join(ran.err.split())


def test_a_truncated_table_begins_its_history_anew(spark, project, capsys, monkeypatch):
    project.execute("TRUNCATE articles")
    noted = written(project.dsn, 3, 5)
    project.capture()
    ran = rebuild_view(capsys, monkeypatch, project, "prices", "--json")
    assert ran.code == 0, ran.err
    assert {lsn: as_of(project, lsn) for lsn, _ in noted} == dict(noted)
    project.command("resnapshot", "articles")
    noted = written(project.dsn, 4, 5)
    project.capture()
    last = noted[-1][0]
    noted += written(project.dsn, 5, 5)
    project.capture()
    ran = rebuild_view(capsys, monkeypatch, project, "prices", "--json")
    assert ran.code == 0, ran.err
    ((complete_from,),) = project.query("SELECT DISTINCT complete_from_lsn FROM served.prices")
    assert complete_from <= noted[-1][0]
    whole = {lsn: rows for lsn, rows in noted if lsn >= complete_from}
    assert {lsn: as_of(project, lsn) for lsn in whole} == whole
    assert {lsn for lsn, _ in noted if lsn > last} <= whole.keys() | {last}


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_large_value_that_an_update_left_is_that_of_the_version_or_a_warning_says_so(
    spark, stack, tmp_path, capsys, monkeypatch, identity
):
    table = f"""CREATE TABLE notes (id int PRIMARY KEY, n int, body text);
        ALTER TABLE notes ALTER body SET STORAGE EXTERNAL, REPLICA IDENTITY {identity};
        INSERT INTO notes VALUES (1, 0, repeat('a', 3000))"""
    with captured_database(stack, tmp_path, table) as (project, _):
        project.view(
            "notes_then.sql",
            "-- key: id, valid_from_lsn\n-- history: scd2\nSELECT id, n, left(body, 1) AS body, "
            "valid_from_lsn, valid_to_lsn, complete_from_lsn FROM notes",
        )
        project.execute("UPDATE notes SET n = 1")
        project.execute("UPDATE notes SET body = repeat('b', 3000)")
        project.capture()
        ran = rebuild_view(capsys, monkeypatch, project, "notes_then", "--json")
    assert ran.code == 0, ran.err
    rows = sorted(project.delta("notes_then"), key=lambda row: row["valid_from_lsn"])
    second = "a" if identity == "FULL" else "b"
    assert [(row["n"], row["body"]) for row in rows] == [(0, "a"), (1, second), (1, "b")]
    assert "REPLICA IDENTITY FULL" in ran.results[0]["warnings"][0]


THINGS = TableName("public", "things")


@dataclass
class Things:
    """A table that is written at random, and its states."""

    log: LogWriter
    chance: random.Random
    rows: dict[bytes, bytes] = field(default_factory=dict)
    states: list[tuple[int, dict[bytes, bytes]]] = field(default_factory=list)

    def write(self, count: int) -> None:
        for _ in range(count):
            key = str(self.chance.randint(1, 9)).encode()
            if key in self.rows and self.chance.random() < 0.3:
                position = self.log.delete_key(key)
                del self.rows[key]
            else:
                text = str(self.chance.random()).encode()
                op = Op.UPDATE if key in self.rows else Op.CREATE
                position = self.log.put((key, text), op)
                self.rows[key] = text
            self.states.append((int(position.commit_lsn) + 1, dict(self.rows)))
        self.log.flush()


def both_readers(spark, record: FrontierRecord, log: LogWriter, registry) -> tuple[list, list, int]:
    """Return the versions that Spark and the verifier read, and since when they are complete."""
    cut = make_cut(log.kafka, record, [THINGS], settings=ReplaySettings(clock_allowance_ms=0))
    schemas = schemas_of(registry, log.kafka, record.frontier, cut.topics)[THINGS]
    with open_versions(spark, log.kafka, cut, schemas) as versions:
        ours = [tuple(row) for row in versions.frame.collect()]
    with Evidence(log.kafka, registry, record.frontier, histories=True) as evidence:
        state = evidence.state(THINGS)
        columns = ", ".join(["id", "name", *VERSION_COLUMNS])
        theirs = evidence.database.execute(f'SELECT {columns} FROM "{state.base}"').fetchall()
        taken = evidence.taken(THINGS)
        assert taken is not None
        return ours, theirs, int(taken.complete_from or 0)


@pytest.mark.slow
def test_a_cleaned_log_is_complete_from_where_both_readers_say(spark, stack):
    """The broker's own cleaner removes versions; what is said to be complete is."""
    endpoints = stack.endpoints()
    kafka = KafkaConnection(brokers=endpoints.brokers)
    registry = RegistryConnection(url=endpoints.schema_registry)
    log = LogWriter(
        kafka, registry, make_relation(), prefix=f"h{uuid.uuid4().hex[:10]}",
        settings=CLEAN_AT_ONCE,
    )  # fmt: skip
    things = Things(log, random.Random(7))  # noqa: S311 - a test's
    things.write(60)
    first = present(kafka, log.topic)[0]
    place = (first.partition() or 0, first.offset() or 0)
    wait_cleaned(kafka, lambda: things.write(1), {log.topic: [place]})
    log.alter(**{
        name.replace(".", "_"): KEEP[name] if name in KEEP else str(2**63 - 1)
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms", "delete.retention.ms")
    })  # fmt: skip
    things.write(40)
    record = log.freeze()
    assert len(present(kafka, log.topic)) < len(things.states)
    ours, theirs, complete_from = both_readers(spark, record, log, registry)

    def plain(rows):
        return sorted(tuple(str(value)[:19] for value in row) for row in rows)

    assert plain(ours) == plain(theirs)
    assert 101 < complete_from < int(record.frontier.lsn)
    start, end = (2 + VERSION_COLUMNS.index(name) for name in ("valid_from_lsn", "valid_to_lsn"))
    whole = [(lsn, expected) for lsn, expected in things.states if lsn >= complete_from]
    assert len(whole) >= 30
    for lsn, expected in whole:
        valid = {
            str(row[0]).encode(): row[1].encode()
            for row in theirs
            if row[start] < lsn and (row[end] is None or row[end] >= lsn)
        }
        assert valid == expected


def test_the_page_is_what_it_says(stack, spark, tmp_path, capsys, monkeypatch):
    tables = "CREATE TABLE articles (id int PRIMARY KEY, price numeric(8, 2), hidden boolean)"
    with captured_database(stack, tmp_path, tables) as (project, name):
        blocks = [block for block in blocks_of(PAGE) if block.kind in {"sql", "sh"}]
        view, command, query = (block.text for block in blocks)
        project.view("prices.sql", view)
        project.execute("INSERT INTO articles VALUES (1, 1, false), (2, 2, true)")
        at = project.query(NOW)[0][0]
        project.execute("UPDATE articles SET price = 3; DELETE FROM articles WHERE id = 2")
        project.capture()
        shell = reader_of(
            tmp_path, stack.endpoints(), project.dsn, name, CHANGELOG_SINKS_POSTGRES_URL=project.dsn
        )
        for variable, value in shell.environment.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.chdir(tmp_path)
        ran = run_here(capsys, monkeypatch, shlex.split(command))
        assert ran.code == 0, ran.err
        assert shell.sql(f"\\set lsn {at}\n{query};").split() == ["1|1.00"]
        assert shell.sql(f"\\set lsn {project.query(NOW)[0][0]}\n{query};").split() == ["1|3.00"]
