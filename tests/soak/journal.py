"""What happened in a storm: faults by name with their times, counts, and whatever must not be."""

import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

LONGEST = 600
SETTLING_S = 20.0
"""So long after a server's fault its clients may still tell of it."""


class Journal:
    """Shared by all threads of a storm."""

    def __init__(self):
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._outages: list[list] = []
        self.faults: Counter[str] = Counter()
        self.captures: Counter[str] = Counter()
        self.rebuilds: Counter[int | str] = Counter()
        self.followers: Counter[str] = Counter()
        self.violations: list[str] = []

    def say(self, text):
        with self._lock:
            sys.stdout.write(f"{time.monotonic() - self._began:7.1f} s  {text}\n")
            sys.stdout.flush()

    def count(self, name):
        with self._lock:
            self.faults[name] += 1

    def violation(self, text):
        with self._lock:
            self.violations.append(text)
        self.say(f"VIOLATION: {text[:LONGEST]}")

    @contextmanager
    def outage(self, name):
        """Note that a server is away, or goes."""
        self.count(name)
        span = [time.monotonic(), None]
        with self._lock:
            self._outages.append(span)
        try:
            yield
        finally:
            span[1] = time.monotonic()

    @property
    def away_s(self):
        with self._lock:
            return sum(end - start for start, end in self._outages if end is not None)

    def disturbed(self, since):
        """Tell whether a server was away at some time since, or just before."""
        with self._lock:
            return any(end is None or end + SETTLING_S > since for _, end in self._outages)
