"""From commit to a consumer: rows that carry the time of their change."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from benchmarks.line import Line
from benchmarks.machine import cpu_s
from benchmarks.orders import update_steadily
from changelog.stack.postgres import bin_dir

_MARK = b"clk="


@dataclass
class Latency:
    """Milliseconds from a change to a consumer, and the cores that capture used meanwhile."""

    rows: int
    p50_ms: float
    p99_ms: float
    cores: float


def measured(
    line: Line, *, rate: int, warm_s: int, seconds: int, last: int, committed: bool = True
) -> Latency:
    """Measure while `rate` rows a second change, each in its own transaction.

    A row carries the time before its commit, so the time of the commit itself counts as well.
    With `committed`, as is librdkafka's default, a consumer waits for Kafka's transactions to end.
    """
    pid = line.process.pid if line.process else 0
    isolation = "read_committed" if committed else "read_uncommitted"
    settings = {"bootstrap.servers": line.brokers, "group.id": "latency"}
    consumer = Consumer({**settings, "isolation.level": isolation})
    with closing(consumer):
        place = TopicPartition(line.topic, 0)
        place.offset = consumer.get_watermark_offsets(place, timeout=10, cached=False)[1]
        consumer.assign([place])
        duration = warm_s + seconds + 2
        writer = update_steadily(
            line.dsn, bin_dir(16), line.work, rate=rate, seconds=duration, last=last
        )
        with writer:
            began = time.time() + warm_s
            ended = began + seconds
            seen: list[float] = []
            spent: list[float] = []
            while (now := time.time()) < ended + 1:
                if len(spent) < (now >= began) + (now >= ended):
                    spent.append(cpu_s(pid))
                message = consumer.poll(0.05)
                value = message.value() if message is not None and not message.error() else None
                found = value.rfind(_MARK) if isinstance(value, bytes) else -1
                if isinstance(value, bytes) and found >= 0:
                    at = float(value[found + len(_MARK) : value.index(b";", found)])
                    if began <= at < ended:
                        seen.append(time.time() - at)
    seen.sort()
    return Latency(
        rows=len(seen),
        p50_ms=1000 * seen[len(seen) // 2],
        p99_ms=1000 * seen[len(seen) * 99 // 100],
        cores=(spent[1] - spent[0]) / seconds,
    )
