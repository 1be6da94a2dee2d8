"""Tables without a primary key: `--allow-unkeyed`, on the real servers."""

import subprocess
import sys
from collections import Counter

import httpx
import pytest
from confluent_kafka.admin import NewPartitions

from changelog.contract.base.headers import decode_headers
from changelog.contract.base.position import Position
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.kafka.clients import admin_client
from changelog.kafka.cluster import Cluster, describe
from changelog.runtime.tls_trust import authorities
from changelog.sink.frontier import FrontierLog
from replay.cut.cut import make_cut
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

EVENTS = TableName("public", "events")


class Capture(CrashingCapture):
    """A capture of `events`, which has no key."""

    @property
    def topic(self):
        return f"{self.prefix}.events"

    def records(self):
        """Return partition, value and headers of each record that the frontier speaks for."""
        frontier = self.frontier()
        found = []
        for message in self.reader.messages(self.topic, frontier.ends[self.topic]):
            assert message.key() is None
            headers = decode_headers(message.headers())
            found.append((message.partition(), self.reader.decode(message.value()), headers))
        return found

    def bag(self):
        """Add and take away rows in the order of positions, as any reader may."""
        since = self.frontier().since.get(self.topic)
        bag: Counter[tuple[object, ...]] = Counter()
        for _, value, headers in sorted(self.records(), key=lambda each: each[2].position):
            if since is not None and headers.position < since:
                continue
            if headers.op.value == b"t":
                assert value is None
                bag.clear()
                continue
            bag[tuple(value.values())] += -1 if headers.op.value == b"d" else 1
        return {row: count for row, count in bag.items() if count}

    def check(self, table="events"):
        assert self.bag() == Counter(self.query(f"SELECT n, text FROM {table}"))
        # Each record once, and forward within its partition.
        last: dict[int, Position] = {}
        for partition, _, headers in self.records():
            if headers.op.value != b"r":
                assert headers.position > last.get(partition, headers.position._replace(epoch=0))
                last[partition] = headers.position


capture = capture_with(
    Capture,
    "CREATE TABLE events (n integer, text text)",
    "ALTER TABLE events REPLICA IDENTITY FULL",
    "ALTER TABLE events ALTER text SET STORAGE EXTERNAL",
    "INSERT INTO events SELECT n / 2, 'row ' || n / 2 FROM generate_series(1, 500) n",
    settings="allow_unkeyed = true\n",
)


CHANGES = (
    "INSERT INTO events SELECT n % 50, repeat('x', n) FROM generate_series(1, 400) n",
    "UPDATE events SET text = text || '!' WHERE n % 3 = 0",
    "INSERT INTO events VALUES (-1, repeat('long', 3000)), (NULL, NULL), (NULL, NULL)",
    "UPDATE events SET n = -2 WHERE n = -1",
    "DELETE FROM events WHERE n % 5 = 0",
)


def test_a_table_without_a_key_is_a_bag_of_rows_that_any_reader_can_fold(capture):
    capture.sql("CREATE TABLE keyed (id integer PRIMARY KEY)", "INSERT INTO keyed VALUES (1)")
    code, _, said = capture.run("--until", "now")
    assert code == 0, said
    assert 'table "public.events" has no primary key' in said
    capture.check()
    capture.sql(*CHANGES, "INSERT INTO keyed VALUES (2)")
    # As many transactions as cannot all fall into one partition by chance.
    capture.sql(*(f"INSERT INTO events VALUES ({n}, 'one')" for n in range(900, 930)))
    capture.catch_up()
    capture.check()
    # The order within a transaction can be read, since all of it is in one partition.
    places: dict[int, set[int]] = {}
    for partition, _, headers in capture.records():
        if headers.op.value != b"r":
            places.setdefault(headers.position.commit_lsn, set()).add(partition)
    assert {len(each) for each in places.values()} == {1}
    assert len(set().union(*places.values())) > 1
    assert capture.rows("keyed") == {(1,): {"id": 1}, (2,): {"id": 2}}
    capture.sql("TRUNCATE events", "INSERT INTO events VALUES (1, 'after')")
    capture.catch_up()
    capture.check()


@pytest.mark.matrix
def test_its_topic_is_never_compacted_and_exact_for_as_long_as_it_is_kept(capture):
    capture.catch_up("-T", "retention.ms=86400000")
    found = describe(capture.kafka, [capture.topic])[capture.topic].settings
    assert found["cleanup.policy"] == "delete"
    assert found["message.timestamp.type"] == "LogAppendTime"
    assert found["retention.ms"] == "86400000"
    assert capture.frontier().scope_of(capture.topic).keyed is False
    (line,) = capture.command("verify", "--json")
    (table,) = line["tables"]
    assert table["verified"] is None
    assert table["notes"][0].startswith("its table has no primary key")
    with FrontierLog(capture.kafka, frontier_topic(capture.prefix)) as frontiers:
        record = frontiers.last(capture.prefix)
    assert record is not None
    verdict = make_cut(capture.kafka, record, [EVENTS]).verdict
    verdict.require()
    assert "until its first records go (retention.ms 86400000" in str(verdict)


@pytest.mark.matrix
@pytest.mark.parametrize("point", first(1, ["record produced:300", "transaction produced:3"]))
def test_after_a_crash_nothing_is_missing_and_nothing_is_there_twice(capture, point):
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash(point, defect="deliver_each")
    capture.sql("UPDATE events SET text = 'later' WHERE n = 7", "DELETE FROM events WHERE n = 8")
    capture.finish()
    capture.check()


@pytest.mark.matrix
def test_twin_a_place_that_is_not_stable_brings_rows_twice_or_loses_them(capture):
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash("record produced:600", defect="deliver_each")
    capture.finish(defect="unstable_places")
    with pytest.raises(AssertionError):
        capture.check()


@pytest.mark.matrix
def test_a_crash_in_the_snapshot_leaves_only_records_that_are_dead(capture):
    capture.crash("segment written:1")
    capture.sql("DELETE FROM events WHERE n < 20")
    capture.finish()
    capture.check()


def test_a_snapshot_under_writes_has_each_row_once(capture):
    started = capture.start()
    numbers = iter(range(1000, 100_000))

    def write_until_frontier():
        assert started.poll() is None, capture.said()
        number = next(numbers)
        capture.sql(
            f"INSERT INTO events VALUES ({number}, 'under way')",
            f"UPDATE events SET text = 'changed' WHERE n IN (3, {number - 5})",
            f"DELETE FROM events WHERE n = {number - 20}",
        )
        return capture.frontier()

    wait_until(write_until_frontier, 60, "a first frontier")
    capture.settle()
    capture.stop()
    capture.check()


@pytest.mark.matrix
def test_without_the_old_row_it_is_refused_before_anything_is_made(capture):
    capture.sql("ALTER TABLE events REPLICA IDENTITY DEFAULT")
    code, _, said = capture.run("--until", "now")
    assert code == 2
    assert 'table "public.events" has no primary key and not REPLICA IDENTITY FULL' in said
    assert "ALTER TABLE … REPLICA IDENTITY FULL" in said
    assert capture.query("SELECT pubname FROM pg_publication") == []
    assert describe(capture.kafka, [capture.topic]) == {}
    # Without updates and deletes no old row is needed, and the users' statements go on.
    capture.catch_up("--operations", "insert")
    capture.sql("UPDATE events SET text = 'unseen'", "INSERT INTO events VALUES (7, 'seen')")
    capture.catch_up("--operations", "insert")
    last = max(capture.records(), key=lambda each: each[2].position)
    assert last[1] == {"n": 7, "text": "seen"}


@pytest.mark.matrix
def test_a_table_that_comes_to_a_key_is_refused_until_its_topic_is_made_anew(capture, registry):
    capture.catch_up()
    capture.sql("DELETE FROM events", "ALTER TABLE events ADD PRIMARY KEY (n)")
    for options in ((), ("--fix-topics",)):
        code, _, said = capture.run("--until", "now", *options)
        assert code == 2
        assert f'topic "{capture.topic}" holds Avro rows, without a key' in said
        assert "delete these topics" in said
    settings = describe(capture.kafka, [capture.topic])[capture.topic].settings
    assert settings["cleanup.policy"] == "delete"
    assert [*Cluster(capture.kafka).delete([capture.topic])] == [(capture.topic, None)]
    wait_until(lambda: not describe(capture.kafka, [capture.topic]), 30, "the topic is gone")
    for subject in httpx.get(f"{registry.url}/subjects", verify=authorities()).json():
        if subject.startswith(f"{capture.topic}-"):
            httpx.delete(
                f"{registry.url}/subjects/{subject}", verify=authorities()
            ).raise_for_status()
    dropped = [sys.executable, "-m", "changelog", "slot", "drop", "--yes", "--project"]
    subprocess.run([*dropped, str(capture.folder)], check=True, capture_output=True, timeout=60)
    capture.sql("INSERT INTO events VALUES (1, 'keyed')")
    capture.catch_up()
    assert capture.rows("events") == {(1,): {"n": 1, "text": "keyed"}}


@pytest.mark.matrix
def test_a_topic_that_has_grown_is_refused(capture):
    capture.catch_up()
    with admin_client(capture.kafka) as admin:
        admin.create_partitions([NewPartitions(capture.topic, 5)])[capture.topic].result()
    wait_until(
        lambda: describe(capture.kafka, [capture.topic])[capture.topic].partitions == 5, 30, "grown"
    )
    code, _, said = capture.run("--until", "now")
    assert code == 2
    assert f'topic "{capture.topic}" of a table without a key has 5 partitions and had 3' in said
