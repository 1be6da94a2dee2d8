"""What a source says, made by hand."""

from dataclasses import replace

from changelog.capture.inspect.status import CaptureStatus, Limits
from changelog.capture.state.lag import WalRate
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.source.connect.retention import SlotStatus, SourceState

NOW_MS = 1_700_000_000_000
ORDERS = TableName("public", "orders")

SLOT = SlotStatus(
    name="changelog",
    active=True,
    active_pid=4711,
    wal_status="reserved",
    invalidation=None,
    inactive_since=None,
    restart_lsn=Lsn(1000),
    confirmed_flush_lsn=Lsn(2000),
    lag_bytes=3000,
    retained_bytes=4000,
    safe_bytes=None,
)
SOURCE = SourceState(
    now_us=NOW_MS * 1000,
    wal_lsn=Lsn(5000),
    slot=SLOT,
    keep_limit_bytes=None,
    disk_free_bytes=None,
    wal_bytes=0,
    wal_seconds=None,
)


def slot(**changes):
    return replace(SLOT, **changes)


def source(**changes):
    return replace(SOURCE, **changes)


def frontier(*, age_s=1.0, lsn=4500, excluded=None):
    made = Frontier(
        slot="changelog",
        epoch=1,
        lsn=Lsn(lsn),
        ts_us=NOW_MS * 1000 - 2_000_000,
        system_id="7",
        timeline=1,
        cluster_id="c",
        tables={"orders": ORDERS},
        topic_ids={"orders": "i"},
        ends={"orders": (10, 5)},
        excluded=excluded or {},
    )
    return FrontierRecord(frontier=made, offset=0, appended_ms=NOW_MS - round(age_s * 1000))


def status(*, limits=None, **changes):
    """A status in which all is well, but for what is given."""
    given = {
        "slot_name": "changelog",
        "source": SOURCE,
        "rate": WalRate(now=100.0, average=None),
        "frontier": frontier(),
        "lag_s": 0.5,
        "now_ms": NOW_MS,
        "limits": limits or Limits(),
        **changes,
    }
    return CaptureStatus(**given)
