"""Rows of `pg_replication_slots` of each version."""

import pytest

from changelog.source.connect.retention import MISSING, _worst, slot_status, why_lost

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
    assert state(**row).invalidation == reason
    assert why in why_lost(reason)


def state(**changes):
    row = {
        "slot_name": "changelog",
        "active": True,
        "active_pid": 7,
        "wal_status": "reserved",
        "restart_lsn": "0/1",
        "confirmed_flush_lsn": "0/2",
    }
    return slot_status({**row, **changes}, 0, changes.get("retained", 5))


def test_a_slot_has_its_kind_and_the_rows_that_it_keeps():
    made = state(plugin="pgoutput", slot_type="logical", xmin=None, catalog_xmin="735")
    assert (made.plugin, made.slot_type, made.xmin, made.catalog_xmin) == (
        "pgoutput",
        "logical",
        None,
        735,
    )


def test_of_slots_that_are_read_together_the_worst_is_told():
    well = state()
    assert _worst([well]) == well
    assert _worst([None]) is None
    assert _worst([None, None]) is None
    gone = _worst([well, None])
    assert gone is not None
    assert (gone.wal_status, gone.invalidation, gone.active) == ("lost", MISSING, False)
    lost = state(wal_status="lost")
    assert _worst([well, state(wal_status="extended"), lost]) == lost
    idle = state(active=False)
    assert _worst([well, idle]) == idle
    behind = state(retained=9)
    assert _worst([well, behind]) == behind
