"""The options of `changelog capture`, each on the real servers."""

import hashlib
import hmac
import json

import pytest

from changelog.contract.base.errors import VerdictError
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.kafka.cluster import describe
from changelog.sink.frontier import FrontierLog
from replay.cut.cut import make_cut
from tests.support.capture_command import CaptureCommand, capture_with

pytestmark = [pytest.mark.services, pytest.mark.slow]

KEY = "a key of the tests, long enough"
PEOPLE = TableName("public", "people")


capture = capture_with(
    CaptureCommand,
    "CREATE TABLE people (id integer PRIMARY KEY, ssn text, email text, born integer)",
    "INSERT INTO people SELECT n, 's' || n, 'm' || n, 1900 + n FROM generate_series(1, 50) n",
)


def hashed(text):
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def verified(capture):
    (line,) = capture.command("verify", "--json")
    return line


def frozen(capture):
    with FrontierLog(capture.kafka, frontier_topic(capture.prefix)) as frontiers:
        record = frontiers.last(capture.prefix)
    assert record is not None
    return make_cut(capture.kafka, record, [PEOPLE])


def left_behind(capture):
    """What a start may have made: slots, publications, topics, subjects."""
    topics = [frontier_topic(capture.prefix), f"{capture.prefix}.people"]
    return (
        capture.query(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        ),
        capture.query("SELECT pubname FROM pg_publication"),
        sorted(describe(capture.kafka, topics)),
    )


def test_settings_of_producers_topics_and_publication_are_obeyed(capture):
    capture.catch_up(
        *("-C", "linger.ms=1", "--kafka-config", "client.id=canary-secret"),
        *("-T", "max.message.bytes=2097152", "-T", "segment.ms=7777777"),
        *("--publication", "some_other", "--status-interval", "2.5", "--snapshot-workers", "1"),
        "--debug",
    )
    topic, frontier = f"{capture.prefix}.people", frontier_topic(capture.prefix)
    found = describe(capture.kafka, [topic, frontier])
    assert {each.settings["max.message.bytes"] for each in found.values()} == {"2097152"}
    assert found[topic].settings["segment.ms"] == "7777777"
    assert found[frontier].settings["segment.ms"] == "3600000"  # the frontier's own
    assert capture.query("SELECT pubname FROM pg_publication") == [("some_other",)]
    assert len(capture.rows("people")) == 50


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-C", "no.such.setting=canary"], "no.such.setting"),
        (["-C", "acks=0"], "acks"),
        (["-T", "cleanup.policy=delete"], "cleanup.policy"),
        (["-T", "no.such.setting=1"], "no.such.setting"),
        (["--mask", "people.email=hash"], "CHANGELOG_MASK_KEY"),
        (["--columns", "people.id"], '"public.people.id" is in the primary key'),
        (["--where", "people=born >"], "syntax error"),
        (["--where", "people=born > 1940"], "its row filter reads born"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_before_anything_is_made(capture, options, says):
    code, out, said = capture.run("--until", "now", *options)
    assert code in {1, 2}
    assert says in said
    assert "canary" not in out + said
    slots, publications, topics = left_behind(capture)
    assert (slots, publications) == ([], [])
    if "--where" not in options:  # PostgreSQL itself reads a condition, after the topics are made
        assert topics == []


@pytest.mark.matrix
def test_a_publication_of_others_is_used_as_it_is_or_refused_by_what_it_lacks(capture):
    options = ("--publication", "theirs", "--no-create-publication", "--until", "now")
    code, _, said = capture.run(*options)
    assert (code, 'the publication "theirs" does not exist' in said) == (1, True)
    capture.sql("CREATE TABLE more (id integer PRIMARY KEY)")
    capture.sql("CREATE PUBLICATION theirs FOR TABLE more WITH (publish = 'insert')")
    code, _, said = capture.run("--exclude", "more", *options)
    assert code == 1
    for problem in ("does not send public.people", "via the root", "does not publish each of"):
        assert problem in said
    capture.sql(
        "DROP PUBLICATION theirs",
        "CREATE PUBLICATION theirs FOR ALL TABLES WITH (publish_via_partition_root)",
    )
    before = capture.query("SELECT xmin::text FROM pg_publication")
    capture.catch_up("--exclude", "more", *options[:3])
    capture.sql("DELETE FROM people WHERE id > 10")
    capture.catch_up("--exclude", "more", *options[:3])
    assert len(capture.rows("people")) == 10
    assert capture.query("SELECT xmin::text FROM pg_publication") == before


@pytest.mark.matrix
def test_without_deletes_the_topic_says_that_it_is_not_the_table(capture):
    inserts = ("--operations", "insert,update")
    capture.catch_up(*inserts)
    capture.sql("DELETE FROM people WHERE id <= 10", "UPDATE people SET ssn = 'x' WHERE id = 11")
    capture.catch_up(*inserts)
    rows = capture.rows("people")
    assert (len(rows), rows[(11,)]["ssn"]) == (50, "x")
    topic = f"{capture.prefix}.people"
    assert capture.frontier().scope_of(topic).operations == ("insert", "update")
    with pytest.raises(VerdictError, match="captured without delete, truncate"):
        frozen(capture).verdict.require()
    (table,) = verified(capture)["tables"]
    assert table["verified"] is None
    assert "captured without delete, truncate" in table["notes"][0]
    # With every operation again the table is written anew, and what was deleted goes.
    capture.catch_up()
    assert capture.frontier().scopes == {}
    assert len(capture.rows("people")) == 40
    assert verified(capture)["verified"] is True
    frozen(capture).verdict.require()


def test_columns_are_left_out_and_masked_in_snapshot_runs_and_single_rows(capture, monkeypatch):
    monkeypatch.setenv("CHANGELOG_MASK_KEY", KEY)
    options = (
        "--columns",
        "people.ssn",
        "--mask",
        "people.email=hash",
        "--mask",
        "people.born=redact",
    )
    capture.catch_up(*options)
    capture.sql("INSERT INTO people SELECT n, 's', 'm' || n, NULL FROM generate_series(101, 400) n")
    capture.catch_up(*options)
    capture.sql("UPDATE people SET email = 'new', id = 900 WHERE id = 1")
    capture.catch_up(*options)
    rows = capture.rows("people")
    assert len(rows) == 350
    assert rows[(2,)] == {"id": 2, "email": hashed("m2"), "born": "***"}
    assert rows[(150,)] == {"id": 150, "email": hashed("m150"), "born": None}
    assert rows[(900,)] == {"id": 900, "email": hashed("new"), "born": "***"}
    (table,) = verified(capture)["tables"]
    assert table["verified"] is True
    assert table["notes"] == [
        "columns left out: ssn",
        "columns masked: email (hash), born (redact)",
    ]
    assert KEY not in (capture.frontier().to_json() + json.dumps(table))


@pytest.mark.matrix
def test_another_mask_writes_the_table_anew(capture, monkeypatch):
    monkeypatch.setenv("CHANGELOG_MASK_KEY", KEY)
    capture.catch_up("--mask", "people.email=redact")
    capture.sql("UPDATE people SET email = 'new' WHERE id = 1")
    code, _, said = capture.run("--until", "now", "--mask", "people.email=hash")
    assert code == 0, said
    assert 'table "public.people" is captured in another way than before' in said
    rows = capture.rows("people")
    assert (rows[(1,)]["email"], rows[(2,)]["email"]) == (hashed("new"), hashed("m2"))


@pytest.mark.matrix
def test_a_hashed_key_keeps_rows_apart_and_moves_with_them(capture, monkeypatch):
    monkeypatch.setenv("CHANGELOG_MASK_KEY", KEY)
    options = ("--mask", "people.id=hash", "--columns", "people.*n")
    capture.catch_up(*options)
    capture.sql("DELETE FROM people WHERE id > 2", "UPDATE people SET id = 7 WHERE id = 2")
    capture.catch_up(*options)
    rows = capture.rows("people")
    assert sorted(rows) == sorted([(hashed("1"),), (hashed("7"),)])
    (table,) = verified(capture)["tables"]
    assert (table["verified"], "its key is masked" in table["notes"][0]) == (None, True)
    frozen(capture).verdict.require()


@pytest.mark.matrix
def test_rows_are_filtered_alike_in_snapshot_and_stream(capture):
    capture.sql("ALTER TABLE people REPLICA IDENTITY FULL")
    only = ("--where", "people=born > 1940 OR email = 'in'")
    capture.catch_up(*only)
    capture.sql(
        "UPDATE people SET email = 'in' WHERE id = 1",  # comes in
        "UPDATE people SET born = 0 WHERE id = 50",  # goes out
        "UPDATE people SET ssn = 'kept' WHERE id = 45",
        "DELETE FROM people WHERE id IN (2, 49)",
        "INSERT INTO people VALUES (60, '', 'in', 0), (61, '', '', 0)",
    )
    capture.catch_up(*only)
    assert sorted(key for (key,) in capture.rows("people")) == [1, *range(41, 49), 60]
    (table,) = verified(capture)["tables"]
    assert table["verified"] is True
    assert table["notes"] == ["only rows where born > 1940 OR email = 'in'"]
    frozen(capture).verdict.require()
    # Another condition is another part of the table; none is all of it.
    capture.catch_up("--where", "people=born > 1945")
    assert sorted(key for (key,) in capture.rows("people")) == [46, 47, 48]
    capture.catch_up()
    assert len(capture.rows("people")) == 50
    assert verified(capture)["verified"] is True


@pytest.mark.matrix
def test_a_filter_that_was_altered_by_hand_is_noticed_at_the_next_start(capture):
    only = ("--where", "people=id > 40")
    capture.catch_up(*only)
    capture.sql(f"ALTER PUBLICATION {capture.prefix} SET TABLE ONLY people WHERE (id > 45)")
    capture.sql("UPDATE people SET ssn = 'unseen' WHERE id = 42")
    capture.catch_up(*only)
    rows = capture.rows("people")
    assert (len(rows), rows[(42,)]["ssn"]) == (10, "unseen")


def test_more_excluded_tables_than_the_limit_end_it(capture):
    capture.sql("CREATE TABLE one (id integer)", "CREATE TABLE two (id integer)")
    going_on = ("--on-error", "log")
    code, _, said = capture.run("--until", "now", *going_on, "--error-limit", "1")
    assert code == 1
    assert "2 tables are excluded, and --error-limit allows 1: public.one, public.two" in said
    capture.catch_up(*going_on, "--error-limit", "2")
    assert len(capture.rows("people")) == 50
    (status,) = capture.command("status", "--json", "--allow-inactive", codes={0, 1})
    assert (status["plugin"], status["slot_type"]) == ("pgoutput", "logical")
    assert (status["xmin"], status["catalog_xmin"] > 0) == (None, True)
