"""A frontier and a topic that agree, to be spoilt one fact at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.broker.topic_state import TopicState

APPENDED_MS = 1_700_000_000_000
LAG_MS = 6 * 3_600_000
RETENTION_MS = 7 * 24 * 3_600_000
SETTINGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": str(LAG_MS),
    "delete.retention.ms": str(RETENTION_MS),
}

RECORD = FrontierRecord(
    Frontier(
        slot="s",
        epoch=1,
        lsn=Lsn(1000),
        ts_us=0,
        cluster_id="cluster",
        tables={"things": TableName("public", "things")},
        topic_ids={"things": "id-1"},
        ends={"things": (10, 20)},
    ),
    offset=3,
    appended_ms=APPENDED_MS,
)
IDLE = TopicState(
    topic="things",
    topic_id="id-1",
    cluster_id="cluster",
    settings=SETTINGS,
    log_starts=(0, 0),
    ends=(10, 20),
    leader_epochs=(0, 0),
)
BUSY = replace(IDLE, ends=(10, 21))


def with_settings(state: TopicState, **settings: Any) -> TopicState:
    """Return the topic with other settings; `_` stands for `.`."""
    changed = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return replace(state, settings={**state.settings, **changed})
