"""Kafka out, on a real broker and a real registry."""

import json
import os
import random
from dataclasses import replace

import psutil
import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from changelog.contract.base.errors import (
    LogError,
    SchemaConflictError,
    TopicSettingsError,
    UnavailableLogError,
)
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.partition import partition_of
from changelog.contract.log.topic import TopicSettings
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema, read_schema, value_schema
from changelog.contract.rows.types import column_type
from changelog.kafka import newest
from changelog.kafka.cluster import Cluster, describe
from changelog.kafka.scan import OffsetRange, headers_of, scan
from changelog.sink.dead_keys import dead_keys
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.sink.registry import Registry
from changelog.sink.resume import last_positions
from changelog.sink.topics import FRONTIER_SETTINGS
from tests.support.builders import BIGINT, TEXT, decimal_type, make_relation
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

    def test_the_cluster_says_who_it_is(self, kafka):
        assert Cluster(kafka).meet() == Cluster(kafka).meet() != ""

    def test_an_existing_topic_keeps_its_partitions_and_its_id(self, kafka, make_topic):
        topic = make_topic(partitions=3)
        before = describe(kafka, [topic])[topic]
        again = ensure_topics(kafka, {topic: 8}, replication=-1, settings=SETTINGS)
        assert again[topic].partitions == 3
        assert again[topic].topic_id == before.topic_id

    def test_a_topic_that_would_lose_rows_is_refused_by_name(self, kafka, admin, prefix):
        wrong, missing = f"{prefix}.wrong", f"{prefix}.missing"
        config = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
        admin.create_topics([NewTopic(wrong, 1, 1, config=config)])[wrong].result(FIXED)
        wait_until(lambda: describe(kafka, [wrong]), FIXED, "the topic is there")
        with pytest.raises(TopicSettingsError) as caught:
            ensure_topics(kafka, {wrong: 1, missing: 1}, replication=-1, settings=SETTINGS)
        for part in (wrong, "cleanup.policy is delete", "message.timestamp.type is CreateTime"):
            assert part in str(caught.value)
        assert "--fix-topics" in caught.value.hint
        assert describe(kafka, [missing]) == {}

    def test_fixing_alters_what_differs_and_shortens_nothing(self, kafka, admin, prefix):
        topic = f"{prefix}.wrong"
        longer = str(30 * 24 * 3_600_000)
        config = {"cleanup.policy": "delete", "delete.retention.ms": longer}
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(FIXED)
        wait_until(lambda: describe(kafka, [topic]), FIXED, "the topic is there")
        fixed = ensure_topics(kafka, {topic: 1}, replication=-1, settings=SETTINGS, fix=True)
        assert SETTINGS.differences(fixed[topic].settings) == []
        assert fixed[topic].settings["delete.retention.ms"] == longer

    def test_fixing_takes_back_a_longest_lag_below_the_least(self, kafka, admin, make_topic):
        settings = TopicSettings(min_compaction_lag_ms=0)
        topic = make_topic(settings=settings, max_compaction_lag_ms="1000")
        set_config(admin, topic, "min.compaction.lag.ms", "500")
        with pytest.raises(TopicSettingsError, match=r"min\.compaction\.lag\.ms"):
            ensure_topics(kafka, {topic: 1}, replication=-1, settings=SETTINGS)
        fixed = ensure_topics(kafka, {topic: 1}, replication=-1, settings=SETTINGS, fix=True)
        assert SETTINGS.differences(fixed[topic].settings) == []


def set_config(admin, topic, name, value):
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(FIXED)


class TestProducer:
    def test_the_partition_is_the_one_that_java_clients_choose(self, kafka, make_topic, producer):
        topic = make_topic(partitions=7)
        rng = random.Random(4)  # noqa: S311 - no secret
        keys = {rng.randbytes(rng.randrange(1, 40)) for _ in range(2000)}
        for key in keys:
            put(producer, topic, key, 1)
        producer.flush(FIXED)
        found = {record.key(): record.partition() for record in everything(kafka, topic)}
        assert found == {key: partition_of(key, 7) for key in keys}

    def test_a_stalled_broker_bounds_memory_and_loses_nothing(self, stack, kafka, make_topic):
        topic = make_topic()
        server = stack.server("kafka")
        queue_kbytes, count, size = 4096, 3000, 20_000
        producer = LogProducer.open(kafka, {"queue.buffering.max.kbytes": queue_kbytes})
        queued = []

        def on_wait():
            queued.append(producer.queued)
            if len(queued) == 100:
                server.resume()

        producer.on_wait = on_wait
        put(producer, topic, b"first", 0)
        producer.flush(FIXED)
        server.pause()
        before = psutil.Process().memory_info().rss
        try:
            for number in range(count):
                put(producer, topic, b"%d" % number, number + 1, os.urandom(size))
            grown = psutil.Process().memory_info().rss - before
        finally:
            server.resume()
        producer.flush(60)
        producer.close()
        assert len(queued) >= 100, "the broker did not stall"
        assert max(queued) * size <= queue_kbytes * 1024
        assert grown < 4 * queue_kbytes * 1024 < count * size
        assert len(everything(kafka, topic)) == count + 1

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


class TestTransactions:
    @pytest.fixture
    def make(self, kafka, prefix):
        made = []

        def make():
            made.append(LogProducer.open(kafka, transactional_id=prefix))
            return made[-1]

        yield make
        for each in made:
            each.close()

    @staticmethod
    def committed(kafka, topic):
        ends = ends_of(kafka, topic)
        ranges = [OffsetRange(topic, n, 0, end) for n, end in enumerate(ends)]
        return [record.key() for record in scan(kafka, ranges)]

    def test_records_stand_together_when_they_are_committed(self, kafka, make, make_topic):
        topic, producer = make_topic(), make()
        producer.take_over()
        assert producer.open_s == 0
        for number in range(10):
            put(producer, topic, b"%d" % number, number)
        producer.flush()
        assert producer.open_s > 0
        assert len(everything(kafka, topic)) == 10
        producer.commit()
        assert (producer.open_s, len(self.committed(kafka, topic))) == (0, 10)
        producer.commit()  # of nothing

    def test_what_was_not_committed_is_taken_back_by_the_next_one(self, kafka, make, make_topic):
        topic, first, second = make_topic(), make(), make()
        first.take_over()
        put(first, topic, b"lost", 1)
        first.flush()
        second.take_over()
        put(second, topic, b"kept", 2)
        second.commit()
        assert self.committed(kafka, topic) == [b"kept"]
        assert sorted(record.key() for record in everything(kafka, topic)) == [b"kept", b"lost"]

    def test_one_that_was_thought_dead_cannot_write_any_more(self, kafka, make, make_topic):
        topic, first, second = make_topic(), make(), make()
        first.take_over()
        put(first, topic, b"before", 1)
        first.commit()
        put(first, topic, b"queued", 2)  # as by a process that stands still, and wakes up later
        second.take_over()
        put(second, topic, b"newer", 3)
        second.commit()
        with pytest.raises(UnavailableLogError, match=r"lost its session|cannot commit"):
            first.commit()
        with pytest.raises(LogError):
            put(first, topic, b"again", 4)
        assert sorted(self.committed(kafka, topic)) == [b"before", b"newer"]

    def test_twin_without_an_id_it_writes_behind_the_new_one(self, kafka, make_topic):
        topic = make_topic(partitions=1)
        patient = {"linger.ms": 600_000}
        first, second = LogProducer.open(kafka, patient), LogProducer.open(kafka)
        put(first, topic, b"key", 2)
        second.take_over()
        put(second, topic, b"key", 3)
        second.commit()
        first.commit()
        found = [headers_of(record).position for record in everything(kafka, topic)]
        assert [position.commit_lsn for position in found] == [3, 2]
        first.close()
        second.close()


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

    def test_the_last_one_of_a_slot_is_read_back(self, frontiers):
        for lsn in (1, 2, 3):
            frontiers.write(self.frontier("main", lsn))
            frontiers.write(self.frontier("other", 10 + lsn))
        record = frontiers.last("main")
        assert record.frontier == self.frontier("main", 3)
        assert record.offset == 4
        assert record.appended_ms > 0
        assert frontiers.last("other").frontier.lsn == 13

    def test_there_is_none_before_the_first(self, kafka, frontiers, prefix):
        assert frontiers.last("main") is None
        with FrontierLog(kafka, f"{prefix}.no_such_topic") as log:
            assert log.last("main") is None

    def test_a_slot_that_fell_silent_is_found_far_back(self, frontiers, monkeypatch):
        monkeypatch.setattr(newest, "_WINDOW", 2)
        frontiers.write(self.frontier("quiet", 7))
        for lsn in range(40):
            frontiers.write(self.frontier("main", lsn))
        assert frontiers.last("quiet").frontier.lsn == 7
        assert frontiers.last("nobody") is None

    def test_a_removed_slot_has_none(self, kafka, frontiers, prefix, producer):
        frontiers.write(self.frontier())
        producer.produce(f"{prefix}._frontier", b"main", None, [])
        producer.flush(FIXED)
        assert frontiers.last("main") is None

    @pytest.mark.parametrize("value", [b"{", b"{}", b"\xff\xfe"])
    def test_one_of_another_program_is_named_and_passed_over(
        self, frontiers, prefix, producer, value, caplog
    ):
        frontiers.write(self.frontier())
        producer.produce(f"{prefix}._frontier", b"main", value, [])
        producer.flush(FIXED)
        with caplog.at_level("WARNING", "changelog.kafka"):
            assert frontiers.last("main").frontier == self.frontier()
        assert "partition 0, offset 1 is passed over" in caplog.text

    def test_a_topic_of_several_partitions_is_refused(self, kafka, make_topic):
        with (
            FrontierLog(kafka, make_topic(partitions=2)) as log,
            pytest.raises(LogError, match="2"),
        ):
            log.last("main")

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

    def test_ends_agree_with_what_was_written(self, kafka, frontiers, make_topic, producer):
        orders, items = make_topic("orders", 3), make_topic("items", 1)
        for number in range(50):
            put(producer, orders, b"%d" % number, 1)
        producer.flush(FIXED)
        ends = frontiers.ends([orders, items])
        assert sum(ends[orders]) == 50
        assert len(ends[orders]) == 3
        assert ends[items] == (0,)
        assert frontiers.ends([]) == {}

    def test_ends_see_partitions_that_were_added(self, admin, frontiers, make_topic):
        topic = make_topic(partitions=1)
        assert frontiers.ends([topic]) == {topic: (0,)}
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(FIXED)
        wait_until(lambda: frontiers.ends([topic]) == {topic: (0, 0, 0)}, FIXED, "three ends")

    def test_a_topic_made_anew_under_capture_is_noticed(self, kafka, admin, frontiers, make_topic):
        topic = make_topic()
        frontiers.ends([topic])
        admin.delete_topics([topic])[topic].result(FIXED)
        wait_until(lambda: not describe(kafka, [topic]), FIXED, "the topic is gone")
        with pytest.raises(LogError, match="does not exist"):
            frontiers.ends([topic])
        assert make_topic() == topic
        with pytest.raises(LogError, match="made anew"):
            frontiers.ends([topic])


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
        nothing = last_positions(kafka, frontiers, cut, [topic, empty])
        assert nothing.positions == {}
        assert nothing.last_epoch == 4
        put(producer, topic, b"a", 31, sequence=0, epoch=4, partition=0)
        put(producer, topic, b"b", 31, None, sequence=2, epoch=4, partition=0)
        producer.flush(FIXED)
        after = last_positions(kafka, frontiers, cut, [topic, empty])
        assert after.positions == {topic: {0: Position(4, Lsn(31), 2)}}

    def test_without_a_frontier_all_is_read(self, kafka, frontiers, make_topic, producer):
        topic = make_topic()
        put(producer, topic, b"a", 9, epoch=3, partition=1)
        put(producer, topic, b"a", 8, epoch=2, partition=1)
        producer.flush(FIXED)
        written = last_positions(kafka, frontiers, None, [topic])
        assert written.positions == {topic: {1: Position(3, Lsn(9), 0)}}
        assert written.last_epoch == 3

    def test_a_range_that_ends_in_a_gap_is_read_to_its_end(self, kafka, frontiers, make_topic):
        topic = make_topic()
        at = Position(1, Lsn(5), 0)
        commit_transaction(kafka, topic, [(b"k", at, 0)])
        marked = lambda: frontiers.ends([topic])[topic] == (2, 0)  # noqa: E731
        wait_until(marked, FIXED, "the marker stands behind the record")
        assert last_positions(kafka, frontiers, None, [topic]).positions == {topic: {0: at}}

    @pytest.mark.slow
    def test_gaps_of_compaction_behind_the_frontier_are_survived(
        self, kafka, frontiers, make_topic, producer
    ):
        topic = make_topic(
            settings=TopicSettings(min_compaction_lag_ms=0, delete_retention_ms=100),
            segment_bytes=str(1024 * 1024),
            segment_ms="500",
            min_cleanable_dirty_ratio="0.0",
            max_compaction_lag_ms="1000",
        )
        for lsn in range(1, 101):
            put(producer, topic, b"%d" % lsn, lsn)
        producer.flush(FIXED)
        ends = frontiers.ends([topic])
        ids = {topic: frontiers.topic_id(topic)}
        cut = Frontier(slot="s", epoch=1, lsn=Lsn(101), ts_us=0, ends=ends, topic_ids=ids)
        written: dict[int, Position] = {}
        lsn = 101

        def compacted():
            nonlocal lsn
            for _ in range(200):
                key = b"%d" % (lsn % 10)
                put(producer, topic, key, lsn, bytes(3000))
                written[partition_of(key, 2)] = Position(1, Lsn(lsn), 0)
                lsn += 1
            producer.flush(FIXED)
            now = frontiers.ends([topic])[topic]
            behind = [OffsetRange(topic, n, ends[topic][n], end) for n, end in enumerate(now)]
            return sum(1 for _ in scan(kafka, behind)) < sum(r.end - r.start for r in behind)

        wait_until(compacted, 90, "the cleaner has left gaps behind the frontier")
        assert last_positions(kafka, frontiers, cut, [topic]).positions == {topic: written}

    def test_a_topic_made_anew_is_read_from_its_start(self, kafka, frontiers, make_topic, producer):
        topic = make_topic()
        cut = Frontier(
            slot="s", epoch=1, lsn=Lsn(9), ts_us=0, ends={topic: (50, 50)}, topic_ids={topic: "x"}
        )
        put(producer, topic, b"k", 7, partition=0)
        producer.flush(FIXED)
        written = last_positions(kafka, frontiers, cut, [topic])
        assert written.positions == {topic: {0: Position(1, Lsn(7), 0)}}

    def test_a_log_shorter_than_the_frontier_is_refused(self, kafka, frontiers, make_topic):
        topic = make_topic()
        frontiers.ends([topic])
        ids = {topic: frontiers.topic_id(topic)}
        cut = Frontier(slot="s", epoch=1, lsn=Lsn(9), ts_us=0, ends={topic: (0, 5)}, topic_ids=ids)
        with pytest.raises(LogError, match="partition 1 ends at 0"):
            last_positions(kafka, frontiers, cut, [topic])
        # That of a table is mended by a copy; who looks for lost records tells of it.
        known = replace(cut, tables={topic: TableName("public", "t")})
        assert last_positions(kafka, frontiers, known, [topic]).ends == {topic: (0, 0)}
        assert known.lost_of(topic, (0, 0)) == [
            "partition 1 ends at 0, before the frontier's 5: records lost"
        ]

    def test_records_that_were_deleted_are_noticed(self, kafka, admin, make_topic, producer):
        topic = make_topic(cleanup_policy="compact")
        set_config(admin, topic, "cleanup.policy", "delete")
        for lsn in range(10):
            put(producer, topic, b"%d" % lsn, lsn, partition=0)
        producer.flush(FIXED)
        place = TopicPartition(topic, 0, 6)
        admin.delete_records([place])[place].result(FIXED)
        assert len(list(scan(kafka, [OffsetRange(topic, 0, 0, 10)]))) == 4
        with pytest.raises(LogError, match="no longer on the log"):
            list(scan(kafka, [OffsetRange(topic, 0, 2, 10)]))

    def test_an_end_that_never_comes_is_not_taken_for_reached(self, kafka, make_topic, producer):
        topic = make_topic()
        put(producer, topic, b"k", 1, partition=0)
        producer.flush(FIXED)
        with pytest.raises(UnavailableLogError, match="end was not reached"):
            list(scan(kafka, [OffsetRange(topic, 0, 0, 2)], stall_s=0.5))

    def test_a_record_of_another_program_is_named_by_its_place(
        self, kafka, frontiers, make_topic, producer, caplog
    ):
        topic = make_topic(partitions=1)
        put(producer, topic, b"k", 1)
        producer.produce(topic, b"foreign", b"v", [])
        producer.flush(FIXED)
        with caplog.at_level("WARNING", "changelog.sink"):
            found = last_positions(kafka, frontiers, None, [topic])
        assert found.foreign == {topic: 1}
        assert "partition 0, offset 1" in caplog.text
        assert found.positions == {topic: {0: Position(1, Lsn(1), 0)}}

    @pytest.mark.parametrize("ahead", [{"epoch": 2}, {"lsn": 900}])
    def test_a_record_of_where_capture_has_not_been_hides_none_of_ours(
        self, kafka, frontiers, make_topic, producer, ahead
    ):
        topic = make_topic(partitions=1)
        frontiers.ends([topic])
        ids = {topic: frontiers.topic_id(topic)}
        cut = Frontier(slot="s", epoch=1, lsn=Lsn(5), ts_us=0, ends={topic: (0,)}, topic_ids=ids)
        put(producer, topic, b"k", ahead.get("lsn", 6), epoch=ahead.get("epoch", 1))
        put(producer, topic, b"ours", 7)
        producer.flush(FIXED)
        found = last_positions(kafka, frontiers, cut, [topic], wal_end=lambda: Lsn(10))
        assert found.positions == {topic: {0: Position(1, Lsn(7), 0)}}
        assert (found.foreign, found.last_epoch) == ({topic: 1}, 1)

    def test_what_is_sent_again_before_a_copy_has_begun_is_no_strangers(
        self, kafka, frontiers, make_topic, producer
    ):
        topic = make_topic(partitions=1)
        frontiers.ends([topic])
        for lsn in (6, 9, 7):
            put(producer, topic, b"k", lsn)
        producer.flush(FIXED)
        cut = Frontier(slot="s", epoch=1, lsn=Lsn(5), ts_us=0)
        assert last_positions(kafka, frontiers, cut, [topic]).foreign == {}
        ids = {topic: frontiers.topic_id(topic)}
        spoken = replace(
            cut, ends={topic: (0,)}, topic_ids=ids, tables={topic: TableName("public", "t")}
        )
        assert last_positions(kafka, frontiers, spoken, [topic]).foreign == {topic: 1}


class TestDeadKeys:
    def test_they_are_the_rows_that_only_an_older_snapshot_has(self, kafka, make_topic, producer):
        topic = make_topic(partitions=3)
        keys = [b"%d" % number for number in range(300)]
        for key in keys:
            put(producer, topic, key, 1, epoch=1)
        for key in keys[:50]:
            put(producer, topic, key, 2, None, epoch=1)
        for key in keys[100:]:
            put(producer, topic, key, 1, epoch=2)
        producer.flush(FIXED)
        since = Position(2, Lsn(0), 0)
        expected = {(partition_of(key, 3), key) for key in keys[50:100]}
        ends = ends_of(kafka, topic)
        for max_keys in (1_000_000, 7):
            found = list(dead_keys(kafka, topic, since, ends, max_keys=max_keys))
            assert len(found) == len(expected)
            assert set(found) == expected

    def test_tombstones_for_them_leave_none(self, kafka, make_topic, producer):
        topic = make_topic()
        for number in range(100):
            put(producer, topic, b"%d" % number, 1)
        producer.flush(FIXED)
        since = Position(2, Lsn(0), 0)
        count = 0
        for partition, key in dead_keys(kafka, topic, since, ends_of(kafka, topic)):
            put(producer, topic, key, 0, None, epoch=2, partition=partition)
            count += 1
        producer.flush(FIXED)
        assert count == 100
        assert list(dead_keys(kafka, topic, since, ends_of(kafka, topic))) == []


class TestRegistry:
    @pytest.fixture
    def connect(self, registry):
        made = []

        def connect():
            made.append(Registry(registry))
            return made[-1]

        yield connect
        for each in made:
            each.close()

    @pytest.fixture
    def relation(self, prefix):
        return make_relation(
            {
                "id": BIGINT,
                'Grösse "in cm"': decimal_type(10, 2),
                "état": TEXT,
                "point": column_type("point", "point"),
            },
            name=TableName("sales", f"orders_{prefix}"),
        )

    def test_a_key_keeps_its_id(self, connect, relation, prefix):
        first = connect().register_key(prefix, key_schema(relation))
        assert connect().register_key(prefix, key_schema(relation)) == first

    def test_another_key_is_refused(self, connect, relation, prefix):
        connect().register_key(prefix, key_schema(relation))
        changed = make_relation({"id": TEXT}, name=relation.name)
        with pytest.raises(SchemaConflictError, match=f'"{prefix}-key"'):
            connect().register_key(prefix, key_schema(changed))

    def test_it_keeps_our_attributes_word_for_word(self, connect, relation, prefix):
        """Names in PostgreSQL, types and keys are read from them, so they must come back."""
        client = connect()
        for text, number in (
            (key_schema(relation), client.register_key(prefix, key_schema(relation))),
            (value_schema(relation), client.register_value(prefix, value_schema(relation))),
        ):
            stored = str(client._client.get_schema(number).schema_str)
            assert json.loads(stored) == json.loads(text)
            assert read_schema(stored) == read_schema(text)

    def test_a_new_nullable_column_is_a_new_version(self, connect, relation, prefix):
        client = connect()
        before = client.register_value(prefix, value_schema(relation))
        wider = make_relation({"id": BIGINT, "état": TEXT, "note": TEXT}, name=relation.name)
        assert client.register_value(prefix, value_schema(wider)) != before
        assert client.register_value(prefix, value_schema(relation)) == before

    def test_an_incompatible_value_is_refused_with_its_subject(self, connect, relation, prefix):
        client = connect()
        client.register_value(prefix, value_schema(relation))
        other = make_relation({"id": TEXT}, name=relation.name)
        with pytest.raises(SchemaConflictError, match=f'"{prefix}-value"'):
            client.register_value(prefix, value_schema(other))


def test_both_isolation_levels_end_alike(kafka, admin, make_topic, producer):
    """Replay resolves ends under its own level; the log has no transactions, so they agree."""
    topic = make_topic(partitions=1)
    put(producer, topic, b"k", 1)
    producer.flush(FIXED)
    place = TopicPartition(topic, 0)
    ends = {
        admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place]
        .result(FIXED)
        .offset
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    }
    assert ends == {1}
