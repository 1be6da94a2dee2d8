"""Rows of `pg_replication_slots` of each version."""

import pytest

from changelog.source.connect.retention import invalidation, why_lost

LIMIT, CONFLICT = "max_slot_wal_keep_size", "conflicting with recovery"


@pytest.mark.parametrize(
    ("row", "reason", "why"),
    [
        ({"restart_lsn": None}, None, LIMIT),  # 14 and 15
        ({"restart_lsn": "0/1", "conflicting": False}, None, LIMIT),  # 16, and well
        ({"restart_lsn": None, "conflicting": True}, "wal_removed", LIMIT),  # 16
        ({"restart_lsn": "0/1", "conflicting": True}, CONFLICT, CONFLICT),  # 16, once a standby
        (
            {"restart_lsn": None, "conflicting": False, "invalidation_reason": "wal_removed"},
            "wal_removed",
            LIMIT,
        ),
        (
            {"restart_lsn": "0/1", "conflicting": False, "invalidation_reason": "idle_timeout"},
            "idle_timeout",
            "idle_replication_slot_timeout",
        ),
    ],
)
def test_the_reason_of_a_lost_slot_is_the_server_s(row, reason, why):
    assert invalidation(row) == reason
    assert why in why_lost(reason)
