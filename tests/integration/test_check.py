"""`changelog capture --check`: each problem is planted and named, and nothing is ever made.

The checks run in this process, but for two that are run as a user does.
"""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from psycopg2.extensions import make_dsn
from rich.console import Console

from changelog.capture.inspect.check import check_capture
from changelog.capture.loop import session
from changelog.capture.loop.run import CaptureRun
from changelog.capture.start.outlook import standing
from changelog.capture.start.start_undo import StartUndo
from changelog.capture.state.report import CaptureReport
from changelog.config import load_project
from changelog.contract.base.errors import ChangelogError
from changelog.contract.log.topic import TopicSettings
from changelog.kafka.cluster import describe
from changelog.runtime.tls_trust import authorities
from changelog.source.stream.stream import ReplicationStream
from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.capture_command import CaptureCommand
from tests.support.matrix import first
from tests.support.sql import execute
from tests.support.topics import ensure_topics
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services]

KEY = {"type": "record", "name": "k", "fields": [{"name": "other", "type": "string"}]}


class CheckedCapture(CaptureCommand):
    """A project that tells what there is on its servers."""

    def __init__(self, **parts):
        self.registry = parts["registry"]
        super().__init__(**parts)
        self.sql(
            "CREATE PUBLICATION witness",
            f"SELECT pg_create_logical_replication_slot('{self.witness}', 'pgoutput')",
        )

    @property
    def witness(self):
        return f"w_{self.prefix}"

    def everything(self):
        """List all that a capture could have made or altered."""
        admin = AdminClient({**self.kafka.client_config(), "log_level": 0})
        topics = sorted(t for t in admin.list_topics(timeout=30).topics if self.prefix in t)
        found = describe(self.kafka, topics)
        subjects = httpx.get(
            f"{self.registry.url}/subjects", timeout=30, verify=authorities()
        ).json()
        return {
            "topics": {topic: dict(each.settings) for topic, each in found.items()},
            "subjects": sorted(each for each in subjects if self.prefix in each),
            "slots": self.query("SELECT slot_name FROM pg_replication_slots ORDER BY 1"),
            "publications": self.query("SELECT * FROM pg_publication ORDER BY oid"),
            "published": self.query("SELECT * FROM pg_publication_rel ORDER BY oid"),
            "identities": self.query("SELECT relreplident, count(*) FROM pg_class GROUP BY 1"),
            "triggers": self.query("SELECT evtname FROM pg_event_trigger"),
            "in the WAL": self.query(
                f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{self.witness}', NULL,"
                " NULL, 'proto_version', '1', 'publication_names', 'witness', 'messages', 'true')"
                " WHERE get_byte(data, 0) = 77"
            ),
        }

    def settings(self, **overrides):
        named = {name.replace("__", "."): value for name, value in overrides.items()}
        return load_project(self.folder, overrides=named)

    def check(self, settings=None, **overrides):
        """Check, and see that nothing was made; returns the findings."""
        before = self.everything()
        found = check_capture(settings or self.settings(**overrides))
        assert self.everything() == before
        assert all(each.hint for each in found.all if each.exit_code), found.all
        return found

    def refused(self, settings=None, **overrides):
        run = CaptureRun(
            settings or self.settings(**overrides),
            report=CaptureReport(),
            stop=lambda: False,
            console=Console(quiet=True),
        )
        with pytest.raises(ChangelogError) as caught:
            run.run(None)
        return caught.value


@pytest.fixture
def capture(database, kafka, registry, prefix, tmp_path):
    made = CheckedCapture(
        dsn=database, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path
    )
    made.sql(
        "CREATE TABLE pears (id integer PRIMARY KEY, name text)",
        "INSERT INTO pears SELECT n, 'pear' FROM generate_series(1, 1000) n",
        "ANALYZE pears",
    )
    yield made
    made.kill()


def problems(found):
    return [(each.check, each.text, each.exit_code) for each in found.all if each.exit_code]


def would(found, what):
    return " | ".join(
        each.text for each in found.all if each.check == what and each.state.value == "would do"
    )


@pytest.mark.matrix
def test_a_fresh_start_and_a_resume_are_foretold_and_come_true(capture):
    found = capture.check(capture__ddl=True, capture__messages=["*"], capture__exactly_once=True)
    assert problems(found) == []
    assert would(found, "slot").startswith(f'make slot "{capture.prefix}" (first start)')
    assert f"{capture.prefix}.pears" in would(found, "topics")
    assert f"{capture.prefix}._messages" in would(found, "topics")
    assert would(found, "publication") == f'make "{capture.prefix}" with public.pears'
    assert "about 1,000 rows" in would(found, "snapshot")
    capture.catch_up()
    frontier = capture.frontier()
    found = capture.check()
    assert problems(found) == []
    assert would(found, "beginning") == f"resume at the frontier {frontier.lsn}"
    assert would(found, "topics") == would(found, "snapshot") == would(found, "slot") == ""
    capture.sql("CREATE TABLE plums (id integer PRIMARY KEY)", "INSERT INTO plums VALUES (1)")
    before = capture.everything()
    code, out, _ = capture.run("--check", "--json")
    assert capture.everything() == before
    answer = json.loads(out)
    assert (code, answer["ok"], answer["exit_code"], answer["problems"]) == (0, True, 0, [])
    (copied,) = [each["found"] for each in answer["checks"] if each["check"] == "snapshot"]
    assert copied.startswith("copy 1 tables")
    assert copied.endswith(": public.plums")
    capture.catch_up()
    assert set(capture.rows("plums")) == {(1,)}


def test_people_get_a_table_with_the_way_out(capture):
    capture.sql("CREATE TABLE bare (id integer)")
    before = capture.everything()
    code, out, said = capture.run("--check")
    assert (code, out) == (2, "")
    words = " ".join(said.replace("│", " ").split())
    assert 'table "public.bare" has no primary key' in words
    assert "add a primary key" in words
    assert capture.everything() == before
    assert capture.refused().exit_code == 2


def away(capture):
    """Nothing listens there."""
    settings = capture.settings(capture__wait_s=0)
    nobody = f"127.0.0.1:{pick()}"
    return replace(
        settings,
        postgres=make_dsn(capture.dsn, host="127.0.0.1", port=pick()),
        registry=replace(settings.registry, url=f"http://{nobody}"),
    )


def masks(capture):
    return capture.settings(capture__mask={"public.pears.nope": "redact"})


def factor(capture):
    return capture.settings(capture__replication_factor=3)


def bad_property(capture):
    return capture.settings(capture__topic={"segment.bytes": "many"})


def policy(capture):
    settings = TopicSettings(compacted=False)
    topic = f"{capture.prefix}.pears"
    ensure_topics(capture.kafka, {topic: 1}, replication=-1, settings=settings)
    return capture.settings()


def key_of_others(capture):
    schema = {"schema": json.dumps(KEY)}
    subject = f"{capture.registry.url}/subjects/{capture.prefix}.pears-key/versions"
    httpx.post(subject, json=schema, timeout=30, verify=authorities()).raise_for_status()
    return capture.settings()


def slot_of_others(capture):
    capture.sql(f"SELECT pg_create_logical_replication_slot('{capture.prefix}', 'pgoutput')")
    return capture.settings()


def no_publication(capture):
    return capture.settings(capture__create_publication=False)


def filter_without_identity(capture):
    return capture.settings(capture__where={"public.pears": "name = 'pear'"})


def bad_filter(capture):
    return capture.settings(capture__where={"public.pears": "nope > 1"})


def producer_setting(capture):
    return capture.settings(capture__producer={"linger.ms": "long"})


PLANTED = {
    "rules": (masks, "rules", 'no captured table has a column "public.pears.nope"', 2),
    "factor": (factor, "topics", "cannot create topic", 1),
    "property": (bad_property, "topics", "cannot create topic", 2),
    "policy": (policy, "topics", "cleanup.policy is delete", 2),
    "key": (key_of_others, "schema of public.pears", "the primary key is now", 1),
    "slot": (slot_of_others, "slot", "exists, but the log has no frontier of it", 1),
    "publication": (no_publication, "publication", "does not exist", 1),
    "identity": (filter_without_identity, "publication", "its row filter reads name", 2),
    "filter": (bad_filter, "publication", 'column "nope" does not exist', 1),
    "producer": (producer_setting, "producer settings", "the options of kafka", 2),
}


@pytest.mark.parametrize("case", first(2, PLANTED))
def test_what_is_planted_is_named_and_capture_refuses_it_before_it_makes_anything(capture, case):
    plant, what, says, code = PLANTED[case]
    settings = plant(capture)
    found = capture.check(settings)
    assert [(each[0], each[2]) for each in problems(found)] == [(what, code)]
    assert says in problems(found)[0][1]
    assert found.exit_code == code
    before = capture.everything()
    error = capture.refused(settings)
    assert (error.exit_code, says in str(error)) == (code, True)
    assert capture.everything() == before


@pytest.mark.parametrize("case", ["key", "slot", "identity"])
def test_a_capture_that_does_not_look_first_would_leave_something_behind(
    capture, case, monkeypatch
):
    """The twin: the listing sees what a refusal in the midst leaves, when nobody takes it back."""
    monkeypatch.setattr(session, "refuse_first", standing)
    monkeypatch.setattr(StartUndo, "take_back", lambda *_: None)
    settings = PLANTED[case][0](capture)
    before = capture.everything()
    capture.refused(settings)
    assert capture.everything() != before


def test_servers_that_are_away_are_all_named(capture):
    found = capture.check(away(capture))
    assert [each[0] for each in problems(found)] == ["PostgreSQL", "schema registry"]
    assert found.exit_code == 1


def test_topics_that_would_be_altered_are_named_and_left(capture):
    policy(capture)
    found = capture.check(capture__fix_topics=True)
    assert problems(found) == []
    assert f'alter "{capture.prefix}.pears": cleanup.policy to compact' in would(found, "topics")


@pytest.mark.matrix
def test_what_became_of_a_log_is_told_before_it_is_gone_on_with(capture):
    capture.catch_up()
    settings, frontier = capture.settings(), capture.frontier()
    with ReplicationStream.open(
        settings.postgres,
        slot=settings.slot,
        publication=settings.capture.publication,
        start_lsn=frontier.lsn,
        status_interval=1,
    ):
        (busy,) = problems(capture.check())
        assert (busy[0], busy[2]) == ("slot", 1)
        assert "is read by the server process" in busy[1]
    wait_until(lambda: not active(capture), 30, "the slot is free")

    capture.sql("ALTER TABLE pears ALTER name TYPE integer USING 1")
    found = capture.check()
    assert [(each[0], each[2]) for each in problems(found)] == [("schema of public.pears", 1)]

    topic = f"{capture.prefix}.pears"
    admin = AdminClient({**capture.kafka.client_config(), "log_level": 0})
    admin.delete_topics([topic])[topic].result(timeout=30)
    wait_until(lambda: topic not in capture.everything()["topics"], 30, "the topic is gone")
    (gone,) = problems(capture.check())
    assert gone == ("slot", f'topic "{topic}" was deleted: what it held is lost', 1)
    before = capture.everything()
    assert "was deleted" in str(capture.refused())
    assert capture.everything() == before

    capture.sql(
        f"SELECT pg_drop_replication_slot('{capture.prefix}')",
        "ALTER TABLE pears ALTER name TYPE text",
    )
    found = capture.check()
    assert problems(found) == []
    assert would(found, "slot").startswith(
        f'make slot "{capture.prefix}" (slot "{capture.prefix}" is gone)'
    )
    assert would(found, "beginning").startswith("begin a fresh log")


def active(capture):
    ((found,),) = capture.query(
        f"SELECT active FROM pg_replication_slots WHERE slot_name = '{capture.prefix}'"
    )
    return found


def test_identities_are_told_and_left(capture):
    capture.sql("CREATE TABLE bare (id integer)", "ALTER TABLE pears REPLICA IDENTITY NOTHING")
    asked = {"capture__allow_unkeyed": True}
    assert [each[0] for each in problems(capture.check(**asked))] == ["tables"]
    found = capture.check(**asked, capture__replica_identity="full")
    assert problems(found) == []
    assert (
        would(found, "replica identity") == "after asking, give FULL to public.bare, public.pears"
    )


def test_rights_are_looked_at_without_being_used(capture):
    role = f"r_{capture.prefix}"
    capture.sql(
        f"CREATE ROLE {role} LOGIN",
        "CREATE TABLE hidden (id integer PRIMARY KEY)",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
        f"GRANT SELECT ON hidden TO {role}",
    )
    try:
        settings = replace(capture.settings(), postgres=make_dsn(capture.dsn, user=role))
        found = capture.check(settings)
        assert [each[0] for each in problems(found)] == ["replication", "rights"]
        capture.sql(f"ALTER ROLE {role} REPLICATION")
        said = {each[0]: each[1] for each in problems(capture.check(settings))}
        assert list(said) == ["publication", "rights"]
        assert 'table "public.pears" belongs to another role' in said["publication"]
        assert 'may not read table "public.pears"' in said["rights"]
        assert 'policies hide rows of table "public.hidden"' in said["rights"]
        before = capture.everything()
        assert capture.refused(settings).exit_code == 1
        assert capture.everything() == before
    finally:
        capture.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_no_copy_is_announced_of_a_table_that_stays_excluded(capture):
    capture.sql(
        "CREATE TABLE large (id integer PRIMARY KEY, text text)",
        "INSERT INTO large SELECT 1, string_agg(md5(i::text), '') FROM generate_series(1, 99999) i",
    )
    capture.catch_up("--on-error", "log")
    found = capture.check(capture__on_error="log")
    assert any('"public.large" stays excluded' in each.text for each in found.all)
    assert would(found, "snapshot") == ""


@pytest.mark.matrix
def test_a_limit_of_excluded_tables_holds_for_the_check_too(capture):
    capture.sql("CREATE TABLE bare (id integer)")
    settings = capture.settings(capture__on_error="log", capture__error_limit=0)
    found = capture.check(settings)
    said = "1 tables are excluded, and --error-limit allows 0: public.bare"
    assert problems(found) == [("limit", said, 1)]
    before = capture.everything()
    assert said in str(capture.refused(settings))
    assert capture.everything() == before
    assert problems(capture.check(capture__on_error="log", capture__error_limit=1)) == []
    capture.catch_up("--on-error", "log", "--error-limit", "1")
    # A log that is there goes on without the table, whatever becomes of the error of a first start.
    assert problems(capture.check()) == []
    capture.catch_up()
    assert problems(capture.check(settings)) == [("limit", said, 1)]
    assert said in str(capture.refused(settings))


@pytest.fixture
def narrow(tmp_path):
    """A server without logical decoding and without room for a slot."""
    settings = {"fsync": "off", "wal_level": "replica", "max_replication_slots": "0"}
    with PostgresServer(tmp_path / "narrow", pick(), settings=settings) as server:
        yield server


def test_a_server_that_is_not_set_up_for_it_is_told_what_to_set(capture, narrow):
    execute(narrow.dsn, "CREATE TABLE pears (id integer PRIMARY KEY)")
    found = capture.check(replace(capture.settings(), postgres=narrow.dsn))
    assert [(each[0], each[1]) for each in problems(found)] == [
        ("server settings", "wal_level is replica, and capture needs logical"),
        ("slot", "all 0 replication slots are in use"),
    ]
    assert found.exit_code == 1
