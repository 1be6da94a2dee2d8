"""Servers that want TLS and a password: the whole line through them, and who is not let in.

One set of servers for the file; the certificates are made by `secure_servers`.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg2
import pytest

from changelog.capture.inspect.status import Limits, capture_status
from changelog.config import load_project
from changelog.contract.base.errors import ChangelogError
from changelog.kafka.cluster import Cluster
from changelog.sink.registry import SchemaRegistry
from changelog.source.connect.connect import connect, connect_replication
from tests.support.capture_command import CaptureCommand
from tests.support.captured_project import SHORT_LIVED, CapturedProject, rebuild_view
from tests.support.page_lines import Shell, block_of
from tests.support.secure_servers import ELSEWHERE, USER, WRONG, secure_servers
from tests.support.services import FOLDER
from tests.support.wait import wait_until
from views.sinks.topic.server import TopicServer

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
SETTINGS = """
[postgres]
dsn = "{dsn} password=${{file:secrets/postgres}}"
[kafka]
brokers = "{sasl}"
[kafka.options]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "ann"
"sasl.password" = "${{file:secrets/kafka}}"
"ssl.ca.location" = "{authority}"
[registry]
url = "{registry}"
[registry.options]
"basic.auth.user.info" = "ann:${{file:secrets/registry}}"
"ssl.ca.location" = "{authority}"
[capture]
slot = "{prefix}"
topic_prefix = "{prefix}"
frontier_interval_ms = 100
[spark]
master = "local[2]"
[spark.settings]
"spark.driver.extraJavaOptions" = "{java}"
"""


@pytest.fixture(scope="module")
def servers(stack):
    with secure_servers(
        stack.endpoints().schema_registry, prefix=f"{FOLDER}{os.getpid()}-"
    ) as running:
        yield running


class SecureCapture(CaptureCommand):
    """A project whose secrets are in files of their own."""

    def __init__(self, *, servers, prefix, folder: Path):
        dsn = servers.dsn()
        super().__init__(
            dsn=dsn,
            kafka=servers.kafka(),
            registry=servers.schema_registry(),
            prefix=prefix,
            folder=folder,
        )
        parts = psycopg2.extensions.parse_dsn(dsn)
        del parts["password"]
        text = SETTINGS.format(
            dsn=psycopg2.extensions.make_dsn(**parts),
            sasl=servers.sasl,
            authority=servers.authority,
            registry=servers.registry,
            prefix=prefix,
            java=SHORT_LIVED,
        )
        (folder / "changelog.toml").write_text(text)
        self.passwords = servers.passwords
        self.secret("postgres", servers.passwords.postgres)
        self.secret("kafka", servers.passwords.kafka)
        self.secret("registry", servers.passwords.registry)

    def secret(self, name, text):
        place = self.folder / "secrets" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)

    def leaks(self, text):
        return [each for each in self.passwords if each in text]

    def leaks_in_files(self):
        """Return the files of the project, the secrets apart, that hold one."""
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        return [
            path
            for path in found
            if path.parent.name != "secrets" and self.leaks(path.read_text("utf-8", "replace"))
        ]


@pytest.fixture
def capture(servers, prefix, tmp_path):
    made = SecureCapture(servers=servers, prefix=prefix, folder=tmp_path)
    yield made
    made.kill()
    made.sql(
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        f" WHERE slot_name = '{prefix}'",
        f"DROP PUBLICATION IF EXISTS {prefix}",
        "DROP TABLE IF EXISTS pears",
    )


def test_the_settings_of_the_page_let_capture_in(servers, capture):
    text = block_of(PAGE, "toml", '[postgres]\ndsn = "postgresql://capture:${PGPASSWORD}').text
    at = psycopg2.extensions.parse_dsn(servers.dsn())
    for page, here in {
        "capture:${PGPASSWORD}@db.example.com/app": (
            f"{at['user']}:${{PGPASSWORD}}@{at['host']}:{at['port']}/{at['dbname']}"
        ),
        '"changelog"': f'"{USER}"',
        '"changelog:': f'"{USER}:',
        **{f"/etc/pki/{name}.pem": str(servers.authority) for name in ("db", "kafka", "registry")},
    }.items():
        assert page in text
        text = text.replace(page, here)
    rest = f"""
[kafka]
brokers = "{servers.sasl}"
[registry]
url = "{servers.registry}"
[capture]
slot = "{capture.prefix}"
topic_prefix = "{capture.prefix}"
"""
    (capture.folder / "changelog.toml").write_text(text + rest)
    capture.sql("CREATE TABLE pears (id int PRIMARY KEY)", "INSERT INTO pears VALUES (1)")
    given = {"PGPASSWORD": servers.passwords.postgres}
    shell = Shell(capture.folder, {**os.environ, **given})
    for words in ("--check", "--until now"):
        said = shell.run(f"{sys.executable} -m changelog capture {words} 2>&1")
        assert capture.leaks(said) == []
    read = f"{sys.executable} -m changelog read {capture.prefix}.pears --exit"
    assert len(shell.run(read).splitlines()) == 1


def command_lines(process):
    """Return the command lines of a process and of those below it, by their ids."""
    found = {}
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        for each in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                found[each.pid] = " ".join(each.cmdline())
    return found


def plan_of(frame):
    """Return all that Spark says of a frame: its plans, which the event log holds too."""
    return frame._jdf.queryExecution().toString()


def plans_of_both_clients(spark, kafka, topic, ends):
    """Read a topic of 2,002 records and 2,000 keys with each client; returns what Spark says."""
    from pyspark.sql import Observation

    from changelog.contract.base.lsn import Lsn
    from changelog.contract.base.position import Position
    from replay.base.config import ReplaySettings
    from replay.base.record_place import TopicRange
    from replay.scan.java_source import JavaSource
    from replay.scan.scan import Scan

    wanted = TopicRange(topic=topic, starts=(0,) * len(ends), ends=ends, key_schema_id=1)
    raw = JavaSource(spark, kafka).raw(wanted)
    assert raw.count() == 2002
    key_id = int.from_bytes(raw.collect()[0].key[1:5], "big")
    last = Scan(spark=spark, kafka=kafka, settings=ReplaySettings()).last_records(
        replace(wanted, key_schema_id=key_id),
        since=None,
        before=Position(9, Lsn(0), 0),
        has_grown=False,
        seen=Observation(),
    )
    assert last.count() == 2000
    return plan_of(raw), plan_of(last)


@pytest.mark.spark
def test_the_whole_line_goes_through_tls_and_passwords_and_tells_no_secret(
    capture, servers, spark, capsys, monkeypatch
):
    capture.sql(
        "CREATE TABLE pears (id integer PRIMARY KEY, name text)",
        "INSERT INTO pears SELECT n, 'pear ' || n FROM generate_series(1, 2000) n",
    )
    process = capture.start("--debug", "--tables", "public.pears")
    seen = {}

    def has_worker():
        seen.update(command_lines(process))
        assert process.poll() is None, capture.said()
        return any("snapshot_worker" in line for line in seen.values())

    wait_until(has_worker, 90, "a worker of the snapshot")
    capture.wait_for_frontier()
    capture.sql("UPDATE pears SET name = 'one' WHERE id = 1", "DELETE FROM pears WHERE id = 2")
    capture.settle()
    seen.update(command_lines(process))
    (status,) = capture.command("status", "--json")
    assert status["ok"]
    (verdict,) = capture.command("verify", "--json")
    assert (verdict["verified"], [each["rows"] for each in verdict["tables"]]) == (True, [1999])
    report = capture.stop()
    assert report["snapshot_rows"] == {"public.pears": 2000}

    by_certificate = replace(load_project(capture.folder), kafka=servers.kafka_by_certificate())
    limits = Limits(allow_inactive=True)
    assert capture_status(by_certificate, limits).problems == ()

    project = CapturedProject(capture.folder, capture.dsn)
    project.view("named.sql", "-- key: id\n-- sinks: delta\nSELECT id, name FROM pears\n")
    ran = rebuild_view(capsys, monkeypatch, project, "named", "--verify", "full", "--json")
    assert ran.code == 0, ran.err
    assert len(project.delta("named")) == 1999

    topic = f"{capture.prefix}.pears"
    ends = capture.frontier().ends[topic]
    plans = [
        plan
        for kafka in (servers.kafka(), servers.kafka_by_certificate())
        for plan in plans_of_both_clients(spark, kafka, topic, ends)
    ]

    conf = str(spark.sparkContext.getConf().getAll())
    for text in (capture.said(), ran.out, ran.err, conf, *plans, *seen.values()):
        assert capture.leaks(text) == []
        assert "PRIVATE KEY" not in text
    assert capture.leaks_in_files() == []
    assert "streaming from" in capture.said()
    # What is looked for can be found: else none of the above would say anything.
    assert capture.leaks(repr(dict(servers.kafka().options)))
    planted = capture.folder / "warehouse" / "leak.json"
    planted.write_text(json.dumps(dict(servers.schema_registry().options)))
    assert capture.leaks_in_files() == [planted]


def registry_answers(connection):
    with closing(SchemaRegistry(connection)) as registry:
        registry.values("nothing")


POSTGRES = {
    "authority": (
        lambda s: s.dsn(sslrootcert=str(s.other_authority)),
        "certificate verify failed",
        "sslrootcert has to hold the authority",
    ),
    "password": (lambda s: s.dsn(password=WRONG), "password authentication failed", "password"),
    "plain": (lambda s: s.dsn(sslmode="disable"), "no encryption", "sslmode=verify-full"),
    "host": (
        lambda s: s.dsn(host=ELSEWHERE, hostaddr="127.0.0.1"),
        f'does not match host name "{ELSEWHERE}"',
        "look at host",
    ),
}


@pytest.mark.parametrize("case", POSTGRES)
def test_postgres_lets_nobody_in_who_is_not_right_nor_do_we_trust_another(servers, case):
    dsn, says, hint = POSTGRES[case]
    for way in (connect, connect_replication):
        refused(servers, lambda way=way: way(dsn(servers)), 2, says, hint)


KAFKA = {
    "authority": (
        lambda s: s.kafka(ssl_ca_location=str(s.other_authority)),
        "certificate verify failed",
        "ssl.ca.location has to hold the authority",
    ),
    "password": (
        lambda s: s.kafka(sasl_password=WRONG),
        "Authentication failed",
        "look at sasl.mechanism, sasl.username and sasl.password",
    ),
    "plain": (
        lambda s: s.kafka(security_protocol="PLAINTEXT"),
        "ended without a word",
        "look at security.protocol",
    ),
    "no client certificate": (
        lambda s: s.kafka(s.certificate, security_protocol="SSL"),
        "alert",
        "ssl.certificate.location, ssl.key.location",
    ),
    "host": (
        lambda s: s.kafka(s.elsewhere, security_protocol="SSL"),
        "certificate verify failed",
        "to name the host that is connected to",
    ),
}


@pytest.mark.parametrize("case", KAFKA)
def test_kafka_lets_nobody_in_who_is_not_right_nor_do_we_trust_another(servers, case):
    kafka, says, hint = KAFKA[case]
    refused(servers, lambda: Cluster(kafka(servers)).meet(), 2, says, hint)


REGISTRY = {
    "authority": (
        lambda s: s.schema_registry(ssl_ca_location=str(s.other_authority)),
        2,
        "certificate verify failed",
        "ssl.ca.location",
    ),
    "password": (
        lambda s: s.schema_registry(basic_auth_user_info=f"{USER}:{WRONG}"),
        2,
        "does not let us in",
        "basic.auth.user.info",
    ),
    # A connection that ends may also be an outage: so it is told as one.
    "plain": (
        lambda s: s.schema_registry(s.registry.replace("https:", "http:")),
        1,
        "no schema registry answers",
        "https://",
    ),
    "host": (
        lambda s: s.schema_registry(s.registry_elsewhere),
        2,
        "certificate is not valid for '127.0.0.1'",
        "to name the host",
    ),
}


@pytest.mark.parametrize("case", REGISTRY)
def test_the_registry_lets_nobody_in_who_is_not_right_nor_do_we_trust_another(servers, case):
    registry, code, says, hint = REGISTRY[case]
    refused(servers, lambda: registry_answers(registry(servers)), code, says, hint)


def test_those_who_are_right_are_let_in(servers):
    """The twin of the three above: without what is wrong there, nothing is refused."""
    for way in (connect, connect_replication):
        with closing(way(servers.postgres)) as connection:
            assert connection.info.ssl_in_use
    assert Cluster(servers.kafka()).meet() == Cluster(servers.kafka_by_certificate()).meet()
    registry_answers(servers.schema_registry())


def refused(servers, attempt, code, says, hint):
    with pytest.raises(ChangelogError) as caught:
        attempt()
    error = caught.value
    assert error.exit_code == code
    assert says in str(error)
    assert hint in error.hint
    assert [each for each in servers.passwords if each in repr(error) + str(error)] == []


def test_a_refused_capture_ends_with_2_one_line_and_no_secret(capture):
    capture.sql("CREATE TABLE pears (id integer PRIMARY KEY)")
    capture.secret("kafka", WRONG)
    code, out, said = capture.run("--until", "now", "--json")
    assert code == 2
    assert "does not let us in" in said
    assert "look at sasl.mechanism" in said
    assert json.loads(out)["exit_code"] == 2
    assert capture.leaks(out + said) == []


@pytest.mark.parametrize("words", [(), ("--follow",)])
def test_a_refused_rebuild_ends_with_2_and_the_hint_of_capture(capture, capsys, monkeypatch, words):
    capture.secret("kafka", WRONG)
    project = CapturedProject(capture.folder, capture.dsn)
    project.view("named.sql", "-- key: id\n-- sinks: delta\nSELECT id FROM pears\n")
    ran = rebuild_view(capsys, monkeypatch, project, "named", *words, "--json")
    assert ran.code == 2, ran.err
    assert "does not let us in" in ran.err
    assert "look at sasl.mechanism" in ran.err
    assert capture.leaks(ran.out + ran.err) == []


TOPIC_SINK = {
    "look": lambda server: server.exists("pears"),
    "write": lambda server: server.write("pears", b"1", b"2"),
    "begin": lambda server: server.transaction("pears").__enter__(),
}


@pytest.mark.parametrize("case", TOPIC_SINK)
def test_a_refused_topic_sink_ends_with_2_and_the_hint_of_capture(servers, case):
    kafka = servers.kafka(sasl_password=WRONG)
    server = TopicServer(kafka, None, retry_seconds=3, answer_seconds=3)
    says, hint = "does not let us in", "look at sasl.mechanism"
    refused(servers, lambda: TOPIC_SINK[case](server), 2, says, hint)


def test_a_check_names_all_three_that_let_nobody_in(capture):
    for name in ("postgres", "kafka", "registry"):
        capture.secret(name, WRONG)
    code, out, said = capture.run("--check", "--json")
    found = json.loads(out)
    assert (code, found["exit_code"], len(found["problems"])) == (2, 2, 3)
    refusing = [each["check"] for each in found["checks"] if each["state"] == "problem"]
    assert refusing == ["PostgreSQL", "Kafka", "schema registry"]
    assert capture.leaks(out + said) == []
