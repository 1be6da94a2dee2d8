"""Reads a topic up to a frontier with each of our readers: rows by key, number of records."""

from contextlib import closing

import duckdb

from changelog.contract.base.position import Position
from replay.base.record_place import TopicRange
from replay.scan.last_records import FoldRules, LastRecords
from replay.scan.range import PartitionRange, read_into
from views.verify.records.survivors import FoldedBuckets, SurvivorRules
from views.verify.records.topic import read_topic


def by_tasks(capture, frontier, topic, key_id):
    """Read as the tasks of a rebuild do: in C."""
    starts, ends = frontier.begins(topic, (0,) * len(frontier.ends[topic])), frontier.ends[topic]
    since = frontier.since.get(topic)
    wanted = TopicRange(topic=topic, starts=starts, ends=ends, key_schema_id=key_id)
    before = Position(frontier.epoch, frontier.lsn, 0)
    rules = FoldRules.of(wanted, since=since, before=before, most_bytes=1 << 24)
    rows: dict[bytes, bytes | None] = {}
    count = 0
    for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
        with closing(LastRecords(rules, partition=partition, homes=len(ends))) as last:
            read_into(last, capture.kafka, topic, PartitionRange(partition, start, end))
            for found in last.drain(5_000, 1 << 23):
                rows.update(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True))
            count += last.records
    return {key: value for key, value in rows.items() if value is not None}, count


def by_verifier(capture, frontier, topic, key_id):
    with closing(duckdb.connect()) as database:
        found = read_topic(capture.kafka, frontier, topic, key_id=key_id)
        since = frontier.since.get(topic)
        rules = SurvivorRules(epoch=frontier.epoch, since=since, before=frontier.lsn)
        rows: dict[bytes, bytes | None] = {}
        for batch in FoldedBuckets(database, found.buckets, rules).batches():
            rows.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
        return rows, found.count


def by_model(capture, frontier, topic):
    """Read as a consumer of committed records does, and keep the last of each key."""
    last: dict[bytes, tuple[Position, bytes | None]] = {}
    since, count = frontier.since.get(topic), 0
    starts = frontier.begins(topic, (0,) * len(frontier.ends[topic]))
    for message in capture.reader.messages(topic, frontier.ends[topic]):
        if message.offset() < starts[message.partition()]:
            continue  # behind a fresh copy nobody reads what stands before it
        count += 1
        position = Position.from_bytes(dict(message.headers())["position"])
        key = message.key()
        if (since is None or position >= since) and position >= last.get(key, (position,))[0]:
            last[key] = position, message.value()
    return {key: value for key, (_, value) in last.items() if value is not None}, count
