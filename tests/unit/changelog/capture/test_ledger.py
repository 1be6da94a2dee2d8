"""What is known of a topic: each event changes what stream and frontiers go by, no more."""

import pytest

from changelog.capture.state.ledger import NEVER, Ledger
from changelog.capture.state.start_state import StartState
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName

NOTES = TableName("public", "notes")


def at(lsn, sequence=0):
    return Position(2, Lsn(lsn), sequence)


@pytest.fixture
def start_state():
    return StartState(
        epoch=2, lsn=Lsn(50), since={"notes": at(10)}, whole={"notes": Lsn(12)}, uncopied={"more"}
    )


@pytest.fixture
def ledger(start_state):
    return Ledger(start_state)


def test_it_begins_with_what_the_last_frontier_says_and_leaves_that_alone(ledger, start_state):
    ledger.truncated("notes", at(60))
    ledger.finish("more", since=at(70), high=Lsn(80), alive_from=(1, 2))
    assert start_state.since == {"notes": at(10)}
    assert start_state.whole == {"notes": Lsn(12)}
    assert start_state.uncopied == {"more"}


def test_nothing_of_a_muted_table_is_wanted_before_a_position(ledger):
    ledger.mute("notes", 7, at(90, 4))
    assert ledger.since["notes"] == at(90, 4)
    assert ledger.deaf_until == {7: Lsn(90)}


def test_nothing_of_a_table_that_is_not_begun_is_wanted_at_all(ledger):
    ledger.mute("notes", 7, None)
    assert ledger.since["notes"] == Position(2, NEVER, 0)
    assert ledger.deaf_until == {7: NEVER}


def test_a_table_that_is_gone_stays_absent_whatever_is_said_later(ledger):
    ledger.leave("notes", 7)
    ledger.speak(absent=["more"], excluded={NOTES: "why"}, waiting=False)
    assert ledger.absent == {"notes", "more"}
    ledger.speak(absent=[], excluded={}, waiting=False)
    assert ledger.absent == {"notes"}
    assert ledger.is_gone("notes")
    assert not ledger.is_gone("more")
    assert ledger.deaf_until == {7: NEVER}


@pytest.mark.parametrize(("truncated", "expected"), [(None, 70), (60, 70), (75, 75)])
def test_a_whole_topic_keeps_what_was_truncated_after_its_copy_began(ledger, truncated, expected):
    if truncated is not None:
        ledger.truncated("more", at(truncated))
    ledger.finish("more", since=at(70), high=Lsn(80), alive_from=(1, 2))
    assert ledger.since["more"] == at(expected)
    assert (ledger.whole["more"], ledger.alive_from["more"]) == (Lsn(80), (1, 2))
    assert ledger.uncopied == set()


@pytest.mark.parametrize(
    "event",
    [
        lambda ledger: ledger.leave("notes", 7),
        lambda ledger: ledger.finish("more", since=at(70), high=Lsn(80), alive_from=()),
        lambda ledger: ledger.inherit({NOTES: ()}),
        lambda ledger: ledger.renew(),
    ],
)
def test_what_the_next_frontier_has_to_say_makes_it_worth_writing(ledger, event):
    before = ledger.revision
    event(ledger)
    assert ledger.revision > before


def test_counts_of_copied_records_add_up(ledger):
    ledger.count_copied("notes", 3)
    ledger.count_copied("notes", 4)
    assert ledger.copied == {"notes": 7}
