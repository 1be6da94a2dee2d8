"""The streams of several slots of one database as one: a slot for each group of tables.

PostgreSQL decodes for each slot in a process of its own; see `merge` for how one order comes of
that. The bounded memory of each stream is what holds back one that is ahead: it is not read, and
hears from us meanwhile.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from changelog.contract.base.lsn import Lsn
from changelog.native import Texts
from changelog.native.libpq import READ_BYTES
from changelog.source.stream.merge import Lane, Merge
from changelog.source.stream.stream import ReadPace, ReplicationStream

ASK_S = 0.01
"""Silence of a stream that others wait for, after which its server is asked how far it is."""

ASK_AGAIN_S = 1.0
"""The same where it was asked and has not answered: it decodes, and says nothing meanwhile."""


class _Reader:
    """Reads one stream into its lane."""

    def __init__(self, stream: ReplicationStream, lane: Lane) -> None:
        self.stream = stream
        self.lane = lane
        self._asked_at = self._heard_at = time.monotonic()
        self._is_asked = False

    def read(self, limit: int) -> bool:
        """Read what has arrived, as far as there is room; tell whether anything has."""
        self.lane.compact()
        if not self.has_room(limit):
            return False
        heard = self.stream.read(self.lane.held, limit)
        self.lane.horizon = self.stream.server_wal_end
        if heard:
            self._heard_at, self._is_asked = time.monotonic(), False
        return heard

    def has_room(self, limit: int) -> bool:
        return len(self.lane.held) < limit and self.lane.held.size < READ_BYTES

    def ask(self) -> None:
        """Ask the server for its WAL position, but not all the time."""
        now = time.monotonic()
        since = self._asked_at + ASK_AGAIN_S if self._is_asked else self._heard_at + ASK_S
        if now >= max(since, self._asked_at + ASK_S):
            self._asked_at, self._is_asked = now, True
            self.stream.ask()


class MergedStream:
    """Streams of several slots of one database merged into one; see `ReplicationStream`."""

    def __init__(self, streams: Sequence[ReplicationStream]) -> None:
        """Join streams that begin at one LSN; the order of rows in a transaction is theirs."""
        # how far all of the servers' processes have decoded, and what they sent was returned by
        # `poll`
        self.server_wal_end = Lsn(0)
        self._merge = Merge(len(streams))
        self._readers = [_Reader(*pair) for pair in zip(streams, self._merge.lanes, strict=True)]
        self._streams = streams
        self._payloads = Texts()
        self._pace = ReadPace()

    @property
    def acknowledged(self) -> Lsn:
        """Return the position that all servers' processes are told."""
        return min(stream.acknowledged for stream in self._streams)

    def poll(self, timeout_s: float, limit: int = 4000) -> Texts:
        """Return the payloads that may be handled now, in order; else as `ReplicationStream.poll`.

        Raises:
            UnavailableSourceError: a connection is lost, or a server silent for `SILENCE_S`.
            SlotError: a slot was lost under way.
            ProtocolError: what the slots send does not fit together.
        """
        self.send_status()
        self._pace.wait()
        payloads = self._payloads
        payloads.clear()
        deadline, before = time.monotonic() + timeout_s, self.server_wal_end
        self._read(payloads, limit)
        while not len(payloads) and self.server_wal_end == before:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                break
            self._wait(remaining_s, limit)
            self._read(payloads, limit)
        self._pace.gather(payloads, limit, lambda: self._read(payloads, limit))
        self._pace.ended(payloads)
        return payloads

    def _read(self, payloads: Texts, limit: int) -> bool:
        heard = [reader.read(limit) for reader in self._readers]
        self._merge.pass_on(payloads, limit)
        self.server_wal_end = self._merge.reached
        return any(heard)

    def _wait(self, left_s: float, limit: int) -> None:
        """Wait until a stream with room has data; prompt the streams that hold back the merge."""
        late = [reader for reader in self._readers if reader.lane in self._merge.late]
        for reader in late:
            reader.ask()
        sockets = select.poll()
        for reader in self._readers:
            if reader.has_room(limit):
                sockets.register(reader.stream, select.POLLIN)
        due_s = min(stream.status_due_s() for stream in self._streams)
        sockets.poll(max(0.0, min(left_s, due_s, ASK_S if late else left_s)) * 1000)

    def acknowledge(self, lsn: Lsn) -> None:
        """Tell PostgreSQL that WAL before `lsn` may go, for each slot.

        Raises UnavailableSourceError: a connection is lost.
        """
        for stream in self._streams:
            stream.acknowledge(lsn)

    def send_status(self, *, force: bool = False) -> None:
        """Repeat the acknowledged position when the interval is over, or at once.

        Raises UnavailableSourceError: a connection is lost.
        """
        for stream in self._streams:
            stream.send_status(force=force)

    def close(self) -> None:
        """End the streams; the slots stay."""
        with ExitStack() as stack:
            for stream in self._streams:
                stack.callback(stream.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
