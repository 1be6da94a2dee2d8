"""Where sequences stand, to a compacted topic of their own: keyed by schema and name.

Sequences are not transactional: the stream has no word of them, and a value that was given stays
given when its transaction is rolled back. So they are looked at before each frontier, and those
that moved are written before it. A frontier at L comes behind all that was committed before L, and
the look behind that: no row before L has a value of a sequence that its record does not cover.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from changelog.capture.write.writer import RecordSink
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.source.snapshot.sequences import Sequence


class SequenceLog:
    """Writes the sequences that moved, in one epoch."""

    def __init__(
        self,
        *,
        log: RecordSink,
        topic: str,
        epoch: int,
        logged: Mapping[bytes, bytes],
        look: Callable[[], Iterable[Sequence]],
    ) -> None:
        """Begin with the values on the log.

        The topic has one partition; `logged` is the last value of each key there. `look` returns
        where the sequences stand now.
        """
        self._log, self._topic, self._epoch = log, topic, epoch
        self._logged, self._look = dict(logged), look

    def write(self, lsn: Lsn, ts_us: int) -> int:
        """Write the changed sequences before a frontier at `lsn`; returns the number of records.

        Raises SourceError: the sequences cannot be read; LogError: the broker refused an earlier
        record.
        """
        now = {_key(sequence): _value(sequence) for sequence in self._look()}
        changed = {key: value for key, value in now.items() if self._logged.get(key) != value}
        gone = self._logged.keys() - now.keys()
        at = Position(self._epoch, lsn, 0)
        for key, value in sorted(changed.items()):
            self._log.produce(self._topic, key, value, encode_headers(at, Op.READ, ts_us), 0)
        for key in sorted(gone):
            self._log.produce(self._topic, key, None, encode_headers(at, Op.DELETE, ts_us), 0)
        self._logged = now
        return len(changed) + len(gone)


def _key(sequence: Sequence) -> bytes:
    return _json({"schema": sequence.name.schema, "name": sequence.name.table})


def _value(sequence: Sequence) -> bytes:
    return _json({"last_value": sequence.last_value, "is_called": sequence.is_called})


def _json(members: Mapping[str, object]) -> bytes:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
