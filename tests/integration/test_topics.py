"""`changelog topics`: any topic of a cluster, what it holds, whether it is exact; made, deleted."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.contract.log.topic import TopicSettings
from changelog.kafka.cluster import describe
from tests.support.builders import make_relation
from tests.support.log_writer import LogWriter
from tests.support.narrow import misfits, shown

pytestmark = pytest.mark.services
SAFE = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
}
FOREIGN = {
    "safe": (SAFE, "exact"),
    "short": ({**SAFE, "min.compaction.lag.ms": "40000"}, "exact-until"),
    "compacted": ({"cleanup.policy": "compact"}, "follow"),
    "events": ({"cleanup.policy": "delete"}, "not-exact"),
    "kept": ({"cleanup.policy": "delete", "retention.ms": "-1"}, "exact"),
    "forgetful": ({**SAFE, "delete.retention.ms": "0"}, "not-exact"),
}


@pytest.fixture
def log(kafka, registry, prefix) -> LogWriter:
    made = LogWriter(kafka, registry, make_relation(), prefix=prefix, partitions=3)
    for number in range(30):
        made.put((b"%d" % number, b"x"))
    made.freeze()
    return made


@pytest.fixture
def foreign(kafka, prefix) -> dict[str, str]:
    """Topics of other people, by what is special about them."""
    names = {kind: f"{prefix}.{kind}" for kind in FOREIGN}
    admin = AdminClient(kafka.client_config())
    topics = [NewTopic(names[kind], 1, 1, config=each[0]) for kind, each in FOREIGN.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    return names


@pytest.fixture
def ask(kafka, prefix, tmp_path):
    def asked(*words, slot="slot"):
        command = [sys.executable, "-m", "changelog", "topics", *words]
        command += ["--broker", kafka.brokers, "--slot", slot, "--topic-prefix", prefix]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return asked


def test_each_kind_of_topic_gets_its_verdict(log, foreign, ask):
    ran = ask("--json", log.topic, *foreign.values())
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["frontier"] is not None
    topics = {each["topic"]: each for each in found["topics"]}
    verdicts = {kind: topics[name]["verdict"] for kind, name in foreign.items()}
    assert verdicts == {kind: expected for kind, (_, expected) in FOREIGN.items()}
    own = topics[log.topic]
    assert (own["table"], own["verdict"]) == ("public.things", "exact")
    assert (own["records"], own["offsets"], own["density"]) == (30, 30, 1.0)
    assert sum(each["frontier"] for each in own["partitions"]) == 30
    assert [each["cleanable_end"] for each in own["partitions"]] == [0, 0, 0]
    assert own["settings"]["cleanup.policy"] == "compact"
    assert topics[foreign["safe"]]["table"] is None


def test_people_read_settings_offsets_and_what_to_do(log, foreign, ask):
    ran = ask("--all")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stderr.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{log.topic}: table"))
    assert "3 partitions" in lines[start]
    assert "cleanup.policy=compact" in lines[start + 1]
    assert "about 30 records in 30 offsets, 1.00 an offset" in lines[start + 3]
    assert lines[start + 4].startswith("  exact now (until ")
    assert f"{foreign['compacted']}: not captured" in ran.stderr
    assert "read from the start and on to the head, by " in ran.stderr
    assert "__consumer_offsets" not in ran.stderr
    assert "asking for" not in ran.stderr, "no bar without a terminal"


def test_a_captured_topic_that_is_not_exact_ends_with_4(log, foreign, ask):
    log.alter(cleanup_policy="compact,delete")
    ran = ask("--json")
    assert ran.returncode == 4
    (topic,) = json.loads(ran.stdout)["topics"]
    assert topic["verdict"] == "not-exact"
    assert "cleanup.policy is compact,delete, must be compact" in topic["reasons"][0]
    assert "changelog capture --fix-topics" in topic["remedies"][0]
    assert f"1 captured topics are not exact: {log.topic}" in ran.stderr
    assert ask(foreign["events"]).returncode == 0, "nobody has captured that one"
    log.delete()
    gone = ask("--json")
    assert (gone.returncode, json.loads(gone.stdout)["missing"]) == (4, [log.topic])


def test_a_name_that_is_no_topic_is_an_error(log, foreign, ask):
    ran = ask(f"{foreign['events']}x")
    assert ran.returncode == 2
    assert foreign["events"] in ran.stderr
    assert ask("--all", log.topic).returncode == 2
    assert ask(slot="nobody").returncode == 1


def test_topics_are_made_with_our_settings_and_left_where_they_are(kafka, prefix, ask):
    name, unkeyed = f"{prefix}.made", f"{prefix}.unkeyed"
    ran = ask("--create", name, "--partitions", "3", "-T", "compression.type=zstd", "--json")
    assert ran.returncode == 0, ran.stderr
    made = {"made": [name], "altered": [], "partitions": {name: 3}}
    assert json.loads(ran.stdout) == made
    found = describe(kafka, [name])[name]
    assert TopicSettings().differences(found.settings) == []
    assert found.settings["compression.type"] == "zstd"
    again = ask("--create", name, "--partitions", "5")
    assert again.returncode == 0
    assert f"{name}: is there already, with 3 partitions" in again.stderr
    assert ask("--create", unkeyed, "--unkeyed").returncode == 0
    assert describe(kafka, [unkeyed])[unkeyed].settings["cleanup.policy"] == "delete"


def test_a_new_topic_has_the_replicas_that_are_asked_for(ask, run_command, kafka, prefix, dsn):
    """One broker has room for one replica: more are refused by it, and nothing is made."""
    made, asked = f"{prefix}.replicas", ("--replication-factor", "3")
    words = ["publish", "--query", "SELECT 1 AS id", "--from", f"postgres:{dsn}", "--as", "json"]
    words += ["--broker", kafka.brokers, "--to", made, "--key", "id"]
    for said in (ask("--create", made, *asked).stderr, run_command([*words, *asked])[2]):
        assert "replication" in said.lower(), said
    assert describe(kafka, [made]) == {}
    assert ask("--create", made, "--replication-factor", "1").returncode == 0
    assert run_command([*words, "--replication-factor", "1"])[0] == 0


def test_a_topic_with_other_settings_is_altered_on_request_alone(kafka, foreign, ask):
    name = foreign["short"]
    ran = ask("--create", name)
    assert (ran.returncode, "min.compaction.lag.ms is 40000" in ran.stderr) == (2, True)
    ran = ask("--create", name, "--fix-topics")
    assert ran.returncode == 0, ran.stderr
    assert f"{name}: is there already, with 1 partitions, its settings are altered" in ran.stderr
    assert TopicSettings().differences(describe(kafka, [name])[name].settings) == []


def test_a_topic_is_deleted_only_by_somebody_who_was_asked(kafka, log, foreign, ask):
    names = [log.topic, foreign["events"]]
    ran = ask("--delete", *names)
    assert (ran.returncode, "not deleted | hint: --yes does not ask" in ran.stderr) == (2, True)
    ran = ask("--delete", *names, f"{foreign['events']}x", "--yes")
    assert (ran.returncode, "there is no topic" in ran.stderr) == (2, True)
    assert describe(kafka, names).keys() == {*names}
    ran = ask("--delete", *names, "--yes", "--json")
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"deleted": names})
    assert describe(kafka, names) == {}


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 1), (b"y\n", 0)])
def test_a_person_is_asked_and_told_what_would_go(kafka, log, prefix, tmp_path, answer, left):
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    words = ["--delete", log.topic, "--broker", kafka.brokers, "--topic-prefix", prefix]
    ran = subprocess.run(
        [sys.executable, "-m", "changelog", "topics", *words, "--slot", "slot"],
        stdin=theirs, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    said = ran.stdout + ran.stderr
    assert f"Delete {log.topic} (table public.things is captured there) with all records?" in said
    assert (ran.returncode, len(describe(kafka, [log.topic]))) == (2 * left, left)


def test_a_narrow_terminal_shows_how_far_it_is(kafka, log, foreign, prefix, tmp_path):
    names, made = [log.topic, foreign["safe"]], f"{prefix}.shown"
    where = ["--broker", kafka.brokers, "--topic-prefix", prefix, "--slot", "slot"]
    where += ["--project", str(tmp_path)]
    for words, what in (
        (names, "asking for: "),
        (["--create", made], "making: "),
        (["--delete", "--yes", *names, made], "deleting: "),
    ):
        text, code = shown([sys.executable, "-m", "changelog", "topics", *words, *where])
        assert (code, misfits(text)) == (0, []), text
        assert what in text, text
        assert re.search(r"(?<!\d)(\d+) of \1, [\d.]+/s", text), text


def test_topics_are_named_before_they_are_changed(ask):
    for words in (("--create",), ("--delete", "--yes"), ("--create", "--delete", "t")):
        assert ask(*words).returncode == 2
