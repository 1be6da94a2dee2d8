"""What moves under a scan is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replay.broker.topic_state import changes
from tests.unit.replay.states import BUSY, IDLE, with_settings


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (replace(IDLE, topic_id="id-2"), "made anew"),
        (replace(IDLE, cluster_id="other"), "made anew"),
        (replace(IDLE, log_starts=(0, 5)), "start moved"),
        (replace(IDLE, leader_epochs=(0, 1)), "leader changed"),
        (replace(IDLE, ends=(10, 20, 0), leader_epochs=(0, 0, 0)), "grew"),
        (with_settings(IDLE, delete_retention_ms=5), "delete.retention.ms changed"),
        (with_settings(IDLE, min_compaction_lag_ms=5), "min.compaction.lag.ms changed"),
        (with_settings(IDLE, cleanup_policy="delete"), "cleanup.policy changed"),
    ],
)
def test_a_move_is_named(after, reason):
    (found,) = changes({"things": IDLE}, {"things": after})
    assert reason in found
    assert "things" in found


def test_a_deleted_topic_is_named():
    (found,) = changes({"things": IDLE}, {})
    assert "deleted" in found


def test_growing_ends_and_other_settings_are_no_move():
    after = with_settings(BUSY, retention_bytes=7)
    assert changes({"things": IDLE}, {"things": after}) == ()
