"""Kafka out, on a real broker and a real registry."""

import os
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.topic import TopicSettings
from changelog.contract.rows.relation import TableName
from changelog.kafka.cluster import describe
from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.sink.resume import read_after_frontier
from changelog.sink.topics import FRONTIER_SETTINGS
from tests.support.beginnings import remove_before
from tests.support.topics import ensure_topics
from tests.support.wait import wait_until

SETTINGS = TopicSettings()
FIXED = 30


@pytest.fixture
def admin(kafka):
    return AdminClient({**kafka.client_config(), "log_level": 0})


@pytest.fixture
def make_topic(kafka, prefix):
    """Make a topic as capture does, and give its name."""

    def make(name="orders", partitions=2, settings=SETTINGS, **extra):
        topic = f"{prefix}.{name}"
        more = {key.replace("_", "."): value for key, value in extra.items()}
        ensure_topics(
            kafka, {topic: partitions}, replication=-1, settings=settings, extra={topic: more}
        )
        return topic

    return make


@pytest.fixture
def producer(kafka):
    made = LogProducer.open(kafka)
    yield made
    made.close()


@pytest.fixture
def frontiers(kafka, prefix):
    topic = f"{prefix}._frontier"
    ensure_topics(
        kafka, {topic: 1}, replication=-1, settings=SETTINGS, extra={topic: FRONTIER_SETTINGS}
    )
    with FrontierLog(kafka, topic) as log:
        yield log


def put(producer, topic, key, lsn, value=b"row", *, epoch=1, sequence=0, partition=None):
    headers = encode_headers(Position(epoch, Lsn(lsn), sequence), Op.UPDATE, 0)
    producer.produce(topic, key, value, headers, partition)


def ends_of(kafka, topic):
    with FrontierLog(kafka, "unused") as log:
        return log.ends([topic])[topic]


def everything(kafka, topic):
    ends = ends_of(kafka, topic)
    ranges = [OffsetRange(topic, n, 0, end) for n, end in enumerate(ends)]
    return list(scan(kafka, ranges, committed=False))


def commit_transaction(kafka, topic, records):
    """Write records as a transaction, which leaves a marker, a gap, at the end of a partition."""
    writer = Producer({**kafka.client_config(), "transactional.id": topic, "log_level": 0})
    writer.init_transactions(FIXED)
    writer.begin_transaction()
    for key, position, partition in records:
        writer.produce(
            topic, b"row", key, partition, headers=encode_headers(position, Op.UPDATE, 0)
        )
    writer.commit_transaction(FIXED)


class TestTopics:
    def test_a_new_topic_has_the_settings_of_the_log(self, kafka, make_topic):
        topic = make_topic(partitions=3)
        found = describe(kafka, [topic, "no-such-topic"])
        assert list(found) == [topic]
        assert found[topic].partitions == 3
        assert found[topic].led
        assert SETTINGS.differences(found[topic].settings) == []
        assert found[topic].settings["message.timestamp.type"] == "LogAppendTime"

    def test_an_existing_topic_keeps_its_partitions_and_its_id(self, kafka, make_topic):
        topic = make_topic(partitions=3)
        before = describe(kafka, [topic])[topic]
        again = ensure_topics(kafka, {topic: 8}, replication=-1, settings=SETTINGS)
        assert again[topic].partitions == 3
        assert again[topic].topic_id == before.topic_id

    def test_fixing_alters_what_differs_and_shortens_nothing(self, kafka, admin, prefix):
        topic = f"{prefix}.wrong"
        longer = str(30 * 24 * 3_600_000)
        config = {"cleanup.policy": "delete", "delete.retention.ms": longer}
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(FIXED)
        wait_until(lambda: describe(kafka, [topic]), FIXED, "the topic is there")
        fixed = ensure_topics(kafka, {topic: 1}, replication=-1, settings=SETTINGS, fix=True)
        assert SETTINGS.differences(fixed[topic].settings) == []
        assert fixed[topic].settings["delete.retention.ms"] == longer


def set_config(admin, topic, name, value):
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(FIXED)


class TestProducer:
    def test_one_refused_record_among_many_is_noticed_by_flush(self, kafka, make_topic, producer):
        topic = make_topic(max_message_bytes="10000")
        with pytest.raises(LogError, match=topic) as caught:
            refuse_one(producer, topic)
        assert not isinstance(caught.value, UnavailableLogError)
        assert "max.message.bytes" in caught.value.hint
        assert "too large" in str(caught.value)
        assert "\ufffd" not in str(caught.value)  # nothing of the record is shown
        with pytest.raises(LogError):
            put(producer, topic, b"later", 9)

    def test_twin_a_bare_flush_does_not_notice_it(self, kafka, make_topic):
        """Seeds the defect, a forgotten report: this is what the test before must tell apart."""
        topic = make_topic(max_message_bytes="10000")
        producer = Forgetful.open(kafka)
        refuse_one(producer, topic)
        assert producer.queued == 0
        producer.close()
        keys = {record.key() for record in everything(kafka, topic)}
        assert keys == {b"before", b"after"}

    def test_close_does_not_wait_for_a_broker_that_stands_still(self, stack, kafka, make_topic):
        topic = make_topic()
        producer = LogProducer.open(kafka)
        put(producer, topic, b"first", 0)
        producer.flush(FIXED)
        stack.server("kafka").pause()
        try:
            put(producer, topic, b"second", 1)
            with pytest.raises(UnavailableLogError):
                producer.flush(0.2)
            producer.close()
            assert producer.queued == 0
        finally:
            stack.server("kafka").resume()


class Forgetful(LogProducer):
    def _notice(self):
        pass


def refuse_one(producer, topic):
    """Write three records to one partition; the broker refuses the one in the middle."""
    for key, value in ((b"before", b"v"), (b"refused", os.urandom(50_000)), (b"after", b"v")):
        put(producer, topic, key, 1, value, partition=0)
        # Each in a batch of its own, so that the refusal takes only one.
        wait_until(lambda: not producer._producer.flush(0.1), FIXED, "the batch is answered")
    producer.flush(FIXED)


class TestFrontier:
    def frontier(self, slot="main", lsn=1, epoch=1):
        return Frontier(slot=slot, epoch=epoch, lsn=Lsn(lsn), ts_us=5, ends={"orders": (3, 4)})

    def test_it_calls_back_while_the_broker_stands_still(self, stack, frontiers):
        frontiers.write(self.frontier("main", 1))
        server = stack.server("kafka")
        calls = []

        def on_wait():
            calls.append(1)
            if len(calls) == 3:
                server.resume()

        frontiers.on_wait = on_wait
        server.pause()
        try:
            frontiers.write(self.frontier("main", 2))
        finally:
            server.resume()
        assert len(calls) >= 3
        assert frontiers.last("main").frontier.lsn == 2

    def test_an_end_that_the_broker_did_not_tell_is_no_offset(
        self, stack, frontiers, make_topic, monkeypatch
    ):
        topic, server = make_topic("orders", 1), stack.server("kafka")
        assert frontiers.ends([topic]) == {topic: (0,)}
        cluster = frontiers._cluster
        asked = cluster.topics

        def describe_and_stand_still(names):
            found = asked(names)
            server.pause()
            return found

        monkeypatch.setattr(cluster, "topics", describe_and_stand_still)
        monkeypatch.setattr(cluster, "_answer_s", 1.0)
        monkeypatch.setattr("changelog.kafka.cluster.REQUEST_S", 1.0)
        try:
            with pytest.raises(UnavailableLogError):
                frontiers.ends([topic])
        finally:
            server.resume()


class TestResume:
    def test_positions_behind_the_frontier_are_read_back(
        self, kafka, frontiers, make_topic, producer
    ):
        topic, empty = make_topic("orders", 3), make_topic("empty", 1)
        for lsn in range(1, 30):
            put(producer, topic, b"%d" % lsn, lsn, partition=lsn % 2)
        producer.flush(FIXED)
        ends = frontiers.ends([topic, empty])
        ids = {name: frontiers.topic_id(name) for name in ends}
        cut = Frontier(slot="s", epoch=4, lsn=Lsn(30), ts_us=0, ends=ends, topic_ids=ids)
        nothing = read_after_frontier(kafka, frontiers, cut, [topic, empty])
        assert nothing.positions == {}
        assert nothing.last_epoch == 4
        put(producer, topic, b"a", 31, sequence=0, epoch=4, partition=0)
        put(producer, topic, b"b", 31, None, sequence=2, epoch=4, partition=0)
        producer.flush(FIXED)
        after = read_after_frontier(kafka, frontiers, cut, [topic, empty])
        assert after.positions == {topic: {0: Position(4, Lsn(31), 2)}}

    def test_a_range_that_ends_in_a_gap_is_read_to_its_end(self, kafka, frontiers, make_topic):
        topic = make_topic()
        at = Position(1, Lsn(5), 0)
        commit_transaction(kafka, topic, [(b"k", at, 0)])
        marked = lambda: frontiers.ends([topic])[topic] == (2, 0)  # noqa: E731
        wait_until(marked, FIXED, "the marker stands behind the record")
        assert read_after_frontier(kafka, frontiers, None, [topic]).positions == {topic: {0: at}}

    def test_a_log_shorter_than_the_frontier_is_refused(self, kafka, frontiers, make_topic):
        topic = make_topic()
        frontiers.ends([topic])
        ids = {topic: frontiers.topic_id(topic)}
        cut = Frontier(slot="s", epoch=1, lsn=Lsn(9), ts_us=0, ends={topic: (0, 5)}, topic_ids=ids)
        with pytest.raises(LogError, match="partition 1 ends at 0"):
            read_after_frontier(kafka, frontiers, cut, [topic])
        # That of a table is mended by a copy; who looks for lost records tells of it.
        known = replace(cut, tables={topic: TableName("public", "t")})
        assert read_after_frontier(kafka, frontiers, known, [topic]).ends == {topic: (0, 0)}
        assert known.lost_of(topic, (0, 0)) == [
            "partition 1 ends at 0, before the frontier's 5: records lost"
        ]

    def test_records_that_were_deleted_are_noticed(self, kafka, admin, make_topic, producer):
        topic = make_topic(cleanup_policy="compact")
        set_config(admin, topic, "cleanup.policy", "delete")
        for lsn in range(10):
            put(producer, topic, b"%d" % lsn, lsn, partition=0)
        producer.flush(FIXED)
        remove_before(admin, TopicPartition(topic, 0, 6))
        assert len(list(scan(kafka, [OffsetRange(topic, 0, 0, 10)]))) == 4
        with pytest.raises(LogError, match="no longer on the log"):
            list(scan(kafka, [OffsetRange(topic, 0, 2, 10)]))

    def test_an_end_that_never_comes_is_not_taken_for_reached(self, kafka, make_topic, producer):
        topic = make_topic()
        put(producer, topic, b"k", 1, partition=0)
        producer.flush(FIXED)
        with pytest.raises(UnavailableLogError, match="end was not reached"):
            list(scan(kafka, [OffsetRange(topic, 0, 0, 2)], stall_s=0.5))

    def test_what_is_sent_again_before_a_copy_has_begun_is_no_strangers(
        self, kafka, frontiers, make_topic, producer
    ):
        topic = make_topic(partitions=1)
        frontiers.ends([topic])
        for lsn in (6, 9, 7):
            put(producer, topic, b"k", lsn)
        producer.flush(FIXED)
        cut = Frontier(slot="s", epoch=1, lsn=Lsn(5), ts_us=0)
        assert read_after_frontier(kafka, frontiers, cut, [topic]).foreign == {}
        ids = {topic: frontiers.topic_id(topic)}
        spoken = replace(
            cut, ends={topic: (0,)}, topic_ids=ids, tables={topic: TableName("public", "t")}
        )
        assert read_after_frontier(kafka, frontiers, spoken, [topic]).foreign == {topic: 1}
