"""A topic of another program in memory: for who reads a declared log without a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.lsn import Lsn
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.kafka.scan import OffsetRange
from replay.base.config import ReplaySettings
from replay.broker.topic_state import TopicState
from replay.cut.cut import Cut
from replay.declared import follow
from replay.declared.follow import FollowedLog
from replay.verdict.verdict import Verdict, VerdictKind

KAFKA = KafkaConnection(brokers="127.0.0.1:9")
REGISTRY = RegistryConnection(url="http://127.0.0.1:9")
COMPACT = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "60000",
    "delete.retention.ms": "60000",
}


@dataclass(frozen=True)
class Record:
    raw_key: bytes | None
    raw_value: bytes | None
    at: int

    def key(self) -> bytes | None:
        return self.raw_key

    def value(self) -> bytes | None:
        return self.raw_value

    def offset(self) -> int:
        return self.at


def raw(part: object) -> bytes | None:
    return part if part is None or isinstance(part, bytes) else json.dumps(part).encode()


@dataclass
class MemoryLog:
    """The topic; `gone` are offsets that the cleaner has taken, or that are marks."""

    of: DeclaredLog
    partitions: int = 1
    now_ms: int = 1_000_000
    gone: set[tuple[int, int]] = field(default_factory=set)
    changes: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=lambda: {"cleanup.policy": "delete"})

    def __post_init__(self) -> None:
        self.log: list[list[Record]] = [[] for _ in range(self.partitions)]

    def put(self, key: object, value: object, partition: int = 0) -> None:
        of = self.log[partition]
        of.append(Record(raw(key), raw(value), len(of)))

    def state(self) -> TopicState:
        found = TopicState(
            topic=self.of.topic,
            topic_id="id",
            cluster_id="cluster",
            settings=self.settings,
            log_starts=(0,) * self.partitions,
            ends=tuple(map(len, self.log)),
            leader_epochs=(0,) * self.partitions,
        )
        return replace(found, **self.changes)  # type: ignore[arg-type]

    def cut(self, ends: Sequence[int] | None = None) -> Cut:
        state, topic = self.state(), self.of.topic
        frontier = Frontier(
            slot="",
            epoch=0,
            lsn=Lsn(0),
            ts_us=0,
            cluster_id="cluster",
            tables={topic: self.of.table},
            topic_ids={topic: "id"},
            ends={topic: tuple(ends or state.ends)},
        )
        return Cut(
            record=FrontierRecord(frontier, -1, self.now_ms),
            topics={self.of.table: topic},
            states={topic: state},
            verdict=Verdict(VerdictKind.EXACT, None, ()),
            started_ms=self.now_ms,
            settings=ReplaySettings(),
        )

    def follow(self) -> Following:
        return Following(self)


class Following:
    """Whoever follows the topic: what it holds, by key."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.followed = FollowedLog(log.of, KAFKA, REGISTRY, clock=lambda: log.now_ms)
        self.rows: dict[bytes, bytes] = {}

    def begin(self, cut: Cut) -> dict[bytes, bytes]:
        with self._asked():
            found = list(self.followed.begin(cut))
        assert all(value is not None for _, value, _, _ in found)
        self.rows = {key: value for key, value, _, _ in found if value is not None}
        assert len(self.rows) == len(found)
        return self.rows

    def advance(self, cut: Cut) -> set[bytes]:
        """Go on; returns which keys were named."""
        with self._asked():
            found = self.followed.advance(cut, self.rows.get)
        for key, value, _, _ in found:
            self.rows.pop(key, None)
            if value is not None:
                self.rows[key] = value
        named = {key for key, *_ in found}
        assert len(named) == len(found)
        return named

    def _asked(self):
        def scan(_: object, ranges: Sequence[OffsetRange], **__: object) -> Iterator[Record]:
            for each in ranges:
                for record in self._log.log[each.partition][each.start : each.end]:
                    if (each.partition, record.at) not in self._log.gone:
                        yield record

        return patch.multiple(
            follow,
            scan=scan,
            inspect=lambda *_: {self._log.of.topic: self._log.state()},
            recheck_declared=lambda *_: 0,
        )
