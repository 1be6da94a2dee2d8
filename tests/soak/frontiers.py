"""Watches the frontiers that a storm's captures write: that they come, and never go back."""

import json
import time

from confluent_kafka import Consumer, TopicPartition

from tests.soak.part import Part
from tests.support.wait import wait_until

KEPT = 400


class Frontiers(Part):
    """Reads the topic of the frontiers from its start until `stop`."""

    def __init__(self, brokers, prefix, stop, journal):
        super().__init__("frontiers", 0, stop)
        self._topic, self._journal = f"{prefix}._frontier", journal
        self._consumer_settings = {
            "bootstrap.servers": brokers,
            "group.id": "soak-frontiers",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 0,  # that brokers are away is no news here
        }
        self._found: list[str] = []
        self._last = time.monotonic()
        self.number = 0
        self.longest_gap_s = 0.0
        self.epochs: set[int] = set()

    @property
    def newest(self):
        return self._found[-1] if self._found else None

    def has_passed(self, lsn):
        return self.newest is not None and lsn_number(self.newest) > lsn

    def some(self, generator):
        """Return the LSN of one of the last frontiers, None while there is none."""
        known = self._found[-KEPT:]
        return generator.choice(known) if known else None

    def wait_for_first(self, deadline_s):
        """Wait until the log has a frontier; the time without a new one counts from then."""
        wait_until(lambda: self.newest, deadline_s, "the log has a frontier")
        self.longest_gap_s = 0.0

    def work(self):
        consumer = Consumer(self._consumer_settings)
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        try:
            while not self._stopped.is_set():
                for message in consumer.consume(100, 0.2):
                    if not message.error():
                        self._take(message)
        finally:
            self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - self._last)
            consumer.close()

    def _take(self, message):
        value = json.loads(message.value()) if message.value() else {}
        if "ends" not in value or "lsn" not in value:
            return
        lsn = value["lsn"]
        self.epochs.add(value["epoch"])
        if self.newest is not None and lsn_number(lsn) < lsn_number(self.newest):
            self._journal.violation(f"a frontier at {lsn} follows one at {self.newest}")
        if lsn != self.newest:
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - self._last)
            self._last = now
            self._found.append(lsn)
            self.number += 1


def lsn_number(lsn):
    high, low = (int(half, 16) for half in lsn.split("/"))
    return (high << 32) + low
