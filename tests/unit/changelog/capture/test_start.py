"""The decision how capture starts."""

from dataclasses import replace

import pytest

from changelog.capture.start.decide import (
    Adopt,
    Continue,
    Fork,
    Fresh,
    Resume,
    SlotFacts,
    Wish,
    decide,
)
from changelog.contract.base.errors import ConfigurationError, SlotError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord, TableBackfill
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName

ORDERS = TableName("public", "orders")
ITEMS = TableName("public", "items")
FRONTIER = Frontier(
    slot="changelog",
    epoch=3,
    lsn=Lsn(1000),
    ts_us=0,
    system_id="71",
    timeline=1,
    tables={"orders": ORDERS},
)


def decided(**changes):
    facts = {
        "slot_name": "changelog",
        "frontier": FRONTIER,
        "backfill": None,
        "slot": SlotFacts(confirmed_flush_lsn=Lsn(1000)),
        "system_id": "71",
        "timeline": 1,
        "last_epoch": 3,
        "tables": [ORDERS],
    }
    return decide(**{**facts, **changes})


FIRST = BackfillRecord(slot="changelog", epoch=4, system_id="71", timeline=1, start_lsn=Lsn(1000))
INTENT = replace(FIRST, start_lsn=Lsn(0))
BEHIND, AHEAD = (SlotFacts(confirmed_flush_lsn=Lsn(lsn)) for lsn in (900, 1001))
LOST = SlotFacts(confirmed_flush_lsn=Lsn(1000), lost="its WAL was removed")
NO_LOG = {"frontier": None}
NOTHING = {"frontier": None, "slot": None}


@pytest.mark.parametrize(
    ("facts", "decision"),
    [
        ({}, Resume(FRONTIER, ())),
        ({"slot": BEHIND}, Resume(FRONTIER, ())),  # what is sent again is skipped
        ({"tables": [ORDERS, ITEMS]}, Resume(FRONTIER, (ITEMS,))),
        # Progress of an epoch with a frontier does not decide; that of a first snapshot does.
        ({"backfill": replace(FIRST, epoch=3)}, Resume(FRONTIER, ())),
        ({"backfill": FIRST}, Continue(FIRST)),
        (NO_LOG | {"backfill": FIRST}, Continue(FIRST)),
        # The slot was made just before the crash: it is ours.
        (NO_LOG | {"backfill": INTENT}, Continue(INTENT)),
        (NOTHING | {"last_epoch": 0}, Fresh(1, "first start", drop_slot=False)),
    ],
)
def test_what_is_there_is_gone_on_with(facts, decision):
    assert decided(**facts) == decision


@pytest.mark.parametrize(
    ("facts", "epoch", "drops"),
    [
        ({"slot": None}, 4, False),
        ({"slot": LOST}, 4, True),
        ({"slot": LOST, "backfill": FIRST}, 5, True),
        ({"timeline": 2}, 4, True),
        # Records of a snapshot that was cut off, and a slot that was only intended.
        (NOTHING | {"last_epoch": 4}, 5, False),
        (NOTHING | {"backfill": FIRST}, 5, False),
    ],
)
def test_what_is_lost_takes_a_fresh_snapshot_under_a_new_epoch(facts, epoch, drops):
    fresh = decided(**facts)
    assert isinstance(fresh, Fresh)
    assert (fresh.epoch, fresh.drop_slot) == (epoch, drops)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (NO_LOG, "no frontier"),  # it may be somebody else's slot
        (NO_LOG | {"backfill": FIRST, "slot": AHEAD}, "where its log began"),
        ({"slot": AHEAD}, r"0/3E9.*0/3E8"),
        ({"system_id": "72"}, "system 71"),
    ],
)
def test_a_slot_or_server_that_does_not_fit_the_log_is_refused(facts, why):
    with pytest.raises(SlotError, match=why):
        decided(**facts)


def test_where_no_slot_may_be_made_one_has_to_be_there():
    theirs = Wish(makes_slot=False)
    stands = SlotFacts(confirmed_flush_lsn=Lsn(70))
    assert decided(frontier=None, last_epoch=0, slot=stands, wish=theirs) == Adopt(1, Lsn(70))
    assert decided(wish=theirs) == decided()
    for changes, drops in (
        ({"frontier": None, "slot": None}, False),
        ({"slot": None}, False),
        ({"slot": SlotFacts(confirmed_flush_lsn=Lsn(1), lost="too much WAL")}, True),
        ({"timeline": 2}, True),
    ):
        with pytest.raises(ConfigurationError, match="would have to be made") as refusal:
            decided(**changes, wish=theirs)
        assert ("pg_drop_replication_slot" in refusal.value.hint) is drops


def test_a_log_that_ends_before_the_fork_is_one_of_the_new_timeline_too():
    behind = Fork(at=Lsn(1000), reached=Lsn(1000))
    assert decided(timeline=2, fork=behind) == Resume(FRONTIER, ())
    # A slot that somebody made there, past the log's end, has not what lies between.
    with pytest.raises(SlotError, match="changes between the two are lost"):
        decided(timeline=2, fork=behind, slot=SlotFacts(confirmed_flush_lsn=Lsn(1001)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fork": Fork(at=Lsn(1000), reached=Lsn(1001))}, "parted at 0/3E8"),
        ({"fork": Fork(at=None, reached=Lsn(1000))}, "does not have the log's"),
        ({"backfill": FIRST}, "in the middle of a copy"),
    ],
)
def test_a_log_that_may_hold_what_a_failover_lost_begins_anew(changes, reason):
    facts = {"timeline": 2, "fork": Fork(at=Lsn(1000), reached=Lsn(1000)), **changes}
    decision = decided(**facts)
    assert isinstance(decision, Fresh)
    assert reason in decision.reason
    assert decision.drop_slot


def test_a_failover_in_the_middle_of_a_copy_begins_anew_unless_the_table_only_waits():
    copying = TableBackfill(table=ITEMS, reason="new", since=Position(3, Lsn(900), 0))
    behind = Fork(at=Lsn(1000), reached=Lsn(1000))
    going = replace(FIRST, epoch=3, tables={"items": copying})
    assert isinstance(decided(timeline=2, fork=behind, backfill=going), Fresh)
    waiting = replace(FIRST, epoch=3, tables={"items": replace(copying, fault="no key")})
    assert decided(timeline=2, fork=behind, backfill=waiting) == Resume(FRONTIER, ())


def asked(**wish):
    return Wish(**{"wal_end": Lsn(5000), **wish})


def adopted(start_lsn):
    return decided(frontier=None, last_epoch=2, wish=asked(start_lsn=Lsn(start_lsn)))


@pytest.mark.parametrize("start_lsn", [1000, 1001, 5000])
def test_a_slot_of_others_is_read_from_where_it_is_asked_for(start_lsn):
    assert adopted(start_lsn) == Adopt(3, Lsn(start_lsn))


@pytest.mark.parametrize(("start_lsn", "says"), [(999, "is before"), (5001, "after the end")])
def test_a_place_that_the_slot_cannot_give_is_refused(start_lsn, says):
    with pytest.raises(ConfigurationError, match=says):
        adopted(start_lsn)


def test_a_slot_of_others_says_from_where_it_could_be_read():
    with pytest.raises(SlotError, match="--start-lsn 0/3E8"):
        decided(frontier=None)


AT_1000 = asked(start_lsn=Lsn(1000))
THIRD = replace(FIRST, epoch=3)


@pytest.mark.parametrize(
    "facts",
    [
        {"frontier": None, "slot": None},
        {"slot": None},
        {"slot": LOST},
        {"timeline": 2},
        {},
        {"backfill": replace(THIRD, start_lsn=Lsn(999))},
        {"frontier": None, "backfill": replace(FIRST, start_lsn=Lsn(1001))},
    ],
    ids=str,
)
def test_a_start_lsn_that_contradicts_slot_or_log_is_refused(facts):
    with pytest.raises(ConfigurationError, match="--start-lsn 0/3E8"):
        decided(**facts, wish=AT_1000)


def test_the_same_start_lsn_may_be_given_again():
    assert isinstance(decided(backfill=THIRD, wish=AT_1000), Resume)
    assert isinstance(decided(frontier=None, backfill=FIRST, wish=AT_1000), Continue)


def test_a_snapshot_that_has_begun_is_not_skipped():
    copy = TableBackfill(table=ORDERS, reason="", since=Position(4, Lsn(1000), 0))
    begun = replace(FIRST, tables={"orders": copy})
    with pytest.raises(ConfigurationError, match="has begun"):
        decided(backfill=begun, wish=asked(skip_snapshot=True))
    assert decided(backfill=FIRST, wish=asked(skip_snapshot=True)) == Continue(FIRST)


def test_a_temporary_slot_begins_a_fresh_log_each_time_and_leaves_others_alone():
    fresh = decided(slot=None, wish=asked(temporary=True))
    assert isinstance(fresh, Fresh)
    assert fresh.epoch == 4
    with pytest.raises(ConfigurationError, match="not temporary"):
        decided(wish=asked(temporary=True))


def test_a_log_goes_on_with_the_groups_that_it_was_begun_with():
    begun = BackfillRecord(slot="changelog", epoch=3, system_id="71", timeline=1, groups=("a",))
    same, others = Wish(groups=("a",)), Wish(groups=("a", "b"))
    assert BackfillRecord.from_json(begun.to_json()) == begun
    assert decided(backfill=begun, wish=same) == Resume(FRONTIER, ())
    for backfill, wish in ((begun, others), (begun, Wish()), (None, same)):
        with pytest.raises(SlotError, match="was begun with other groups of tables"):
            decided(backfill=backfill, wish=wish)
    fresh = decided(backfill=begun, wish=others, slot=None)
    assert fresh == Fresh(4, 'slot "changelog" is gone', drop_slot=False)


@pytest.mark.parametrize("there", [("changelog_a",), ("changelog", "changelog_a")])
def test_slots_of_groups_without_a_log_are_named_as_they_are(there):
    slot = SlotFacts(confirmed_flush_lsn=Lsn(1), there=there)
    with pytest.raises(SlotError) as refused:
        decided(frontier=None, slot=slot, wish=Wish(groups=("a",)))
    said = str(refused.value)
    assert said.endswith("drop it with `changelog slot drop`") == (len(there) == 1)
    _, _, named = said.partition("there is already")
    assert named.count('"changelog') == len(there)
    assert all(f'"{each}"' in named for each in there)
    assert "--start-lsn" not in said, "which groups do not go with"


def test_the_slot_of_a_group_that_was_moved_is_named():
    begun = BackfillRecord(slot="changelog", epoch=3, system_id="71", timeline=1, groups=("a",))
    ahead = SlotFacts(confirmed_flush_lsn=Lsn(1001), furthest="changelog_a")
    with pytest.raises(SlotError, match='slot "changelog_a" is at'):
        decided(backfill=begun, slot=ahead, wish=Wish(groups=("a",)))
