"""From commit to a consumer: rows that carry the time of their change, and what no capture beats.

The floor is in two parts: from a commit to a reader of the WAL sender that does nothing, and from
a producer that does nothing else to a consumer. Processors that a hypervisor takes away show in
all three, so each says how much of them was taken.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import psutil
import psycopg2
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg2.extras import LogicalReplicationConnection

from benchmarks.line import Line
from benchmarks.machine import cpu_s
from benchmarks.orders import execute, update_steadily
from changelog.contract.base.connection import KafkaConnection
from changelog.sink.producer import LogProducer
from changelog.stack.servers.postgres import bin_dir

LOOK_S = 0.05
_MARK = b"clk="
_SLOT = _TOPIC = "latency_limit"
_FILLER = b"x" * 200


@dataclass
class Latency:
    """Milliseconds from a change to a reader.

    Attributes:
        rows: how many were seen.
        p50_ms: the median.
        p99_ms: the 99th percentile.
        cores: what capture used meanwhile; 0 where there is none.
        stolen: share of all cores that was not there.
    """

    rows: int
    p50_ms: float
    p99_ms: float
    cores: float
    stolen: float


def measured(
    line: Line, *, rate: int, warm_s: int, seconds: int, last: int, committed: bool = True
) -> Latency:
    """Measure while `rate` rows a second change, each in its own transaction.

    A row carries the time before its commit, so the time of the commit itself counts as well.
    With `committed`, as is librdkafka's default, a consumer waits for Kafka's transactions to end.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    settings = {"bootstrap.servers": line.brokers, "group.id": "latency"}
    with closing(Consumer({**settings, "isolation.level": isolation})) as consumer:
        place = TopicPartition(line.topic, 0)
        place.offset = consumer.get_watermark_offsets(place, timeout=10, cached=False)[1]
        consumer.assign([place])
        poll = lambda: _value(consumer)  # noqa: E731
        return _measured(line, poll, rate=rate, warm_s=warm_s, seconds=seconds, last=last)


def limit(line: Line, *, rate: int, warm_s: int, seconds: int, last: int) -> Latency:
    """Measure the same to a reader of the WAL sender that does nothing: no capture is quicker."""
    with closing(
        psycopg2.connect(line.dsn, connection_factory=LogicalReplicationConnection)
    ) as connection:
        cursor = connection.cursor()
        cursor.create_replication_slot(_SLOT, output_plugin="pgoutput")
        try:
            options = {"proto_version": "1", "publication_names": line.slot}
            cursor.start_replication(slot_name=_SLOT, options=options)

            def poll() -> bytes | None:
                message = cursor.read_message()
                if message is None:
                    select.select([cursor], [], [], LOOK_S)
                    message = cursor.read_message()
                return None if message is None else message.payload

            return _measured(line, poll, rate=rate, warm_s=warm_s, seconds=seconds, last=last)
        finally:
            connection.close()
            execute(line.dsn, f"SELECT pg_drop_replication_slot('{_SLOT}')")


def kafka(line: Line, *, rate: int, warm_s: int, seconds: int) -> Latency:
    """Measure from the producer of capture to a consumer, without a source."""
    admin = AdminClient({"bootstrap.servers": line.brokers})
    admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result()
    producer = LogProducer.open(KafkaConnection(brokers=line.brokers))
    done = threading.Event()

    def produce() -> None:
        due = time.time()
        while not done.is_set():
            producer.produce(_TOPIC, None, _MARK + b"%f;" % time.time() + _FILLER, [])
            producer.poll()
            due += 1 / rate
            time.sleep(max(0.0, due - time.time()))

    settings = {"bootstrap.servers": line.brokers, "group.id": "latency"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(_TOPIC, 0, 0)])
        thread = threading.Thread(target=produce, name="producer")
        thread.start()
        try:
            return _watched(lambda: _value(consumer), 0, warm_s=warm_s, seconds=seconds)
        finally:
            done.set()
            thread.join()
            producer.flush()
            producer.close()
            admin.delete_topics([_TOPIC])[_TOPIC].result()


def _value(consumer: Consumer) -> bytes | None:
    message = consumer.poll(LOOK_S)
    value = message.value() if message is not None and not message.error() else None
    return value if isinstance(value, bytes) else None


def _measured(
    line: Line,
    poll: Callable[[], bytes | None],
    *,
    rate: int,
    warm_s: int,
    seconds: int,
    last: int,
) -> Latency:
    pid = line.process.pid if line.process else 0
    duration = warm_s + seconds + 2
    writer = update_steadily(
        line.dsn, bin_dir(16), line.work, rate=rate, seconds=duration, last=last
    )
    with writer:
        return _watched(poll, pid, warm_s=warm_s, seconds=seconds)


def _watched(poll: Callable[[], bytes | None], pid: int, *, warm_s: int, seconds: int) -> Latency:
    began = time.time() + warm_s
    ended = began + seconds
    seen: list[float] = []
    spent: list[tuple[float, float]] = []
    while (now := time.time()) < ended + 1:
        if len(spent) < (now >= began) + (now >= ended):
            spent.append((cpu_s(pid), psutil.cpu_times().steal))
        value = poll()
        found = value.rfind(_MARK) if value is not None else -1
        if value is not None and found >= 0:
            at = float(value[found + len(_MARK) : value.index(b";", found)])
            if began <= at < ended:
                seen.append(time.time() - at)
    seen.sort()
    cores, stolen = ((after - before) / seconds for before, after in zip(*spent, strict=True))
    return Latency(
        rows=len(seen),
        p50_ms=1000 * seen[len(seen) // 2],
        p99_ms=1000 * seen[len(seen) * 99 // 100],
        cores=cores,
        stolen=stolen / (os.cpu_count() or 1),
    )
