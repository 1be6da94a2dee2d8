"""What a process remembers of tables that appeared while it runs."""

from changelog.capture.state.newcomers import TRIED, WAITS, Newcomers
from changelog.contract.base.errors import SlotError
from changelog.contract.rows.relation import TableName

OLD, NEW, OTHER = (TableName("public", name) for name in ("old", "new", "other"))
ALL = {OLD, NEW, OTHER}
BARE = {NEW: "has no primary key"}


def running():
    """A process that has begun to stream with one table."""
    found = Newcomers()
    found.listed([OLD])
    found.began()
    return found


def test_the_first_life_refuses_what_it_cannot_capture():
    first = Newcomers()
    first.listed([OLD, NEW])
    assert first.refused(BARE, ALL) == {}
    assert not first.blame(ValueError("no"))


def test_a_later_life_begins_without_a_table_that_the_log_never_had():
    assert running().refused(BARE, ALL) == BARE


def test_a_start_of_a_log_that_is_there_is_no_other_than_a_later_life():
    again = Newcomers()
    again.spoken([OLD])
    assert again.refused(BARE, ALL) == BARE
    again.listed([OLD, NEW])
    assert again.blame(ValueError("no"))


def test_a_life_that_could_not_begin_tries_its_new_tables_one_by_one():
    found = running()
    found.listed([OLD, NEW, OTHER])
    assert found.blame(ValueError("topics collide"))
    assert found.refused({}, ALL) == {OTHER: WAITS}
    found.listed([OLD, NEW])
    assert found.blame(ValueError("topics collide"))
    assert found.refused({}, ALL) == {NEW: f"{TRIED}topics collide"}
    assert found.excluded == {}
    found.listed([OLD, OTHER])
    assert found.began() == {NEW: f"{TRIED}topics collide"}
    assert found.excluded == {NEW: f"{TRIED}topics collide"}
    found.listed([OLD, OTHER])
    assert not found.blame(ValueError("the slot is gone"))


def test_a_table_that_is_gone_or_excluded_before_it_is_tried_keeps_no_other_waiting():
    for obstacles, there in (({}, {OLD, OTHER}), (BARE, ALL)):
        found = running()
        found.listed([OLD, NEW, OTHER])
        assert found.blame(ValueError("topics collide"))
        assert OTHER not in found.refused(obstacles, there)


def test_a_life_that_streams_has_proven_its_tables():
    found = running()
    found.listed([OLD, NEW])
    found.began()
    found.listed([OLD, NEW])
    assert not found.blame(ValueError("something of all"))


def test_a_reason_goes_when_it_no_longer_holds_but_not_one_that_a_start_gave():
    found = running()
    found.note([NEW], BARE)
    assert found.excluded == BARE
    found.note([NEW], {})
    assert found.excluded == {}
    found.listed([OLD, OTHER])
    found.blame(ValueError("no"))
    found.listed([OLD])
    found.began()
    found.note([OTHER], {})
    assert found.excluded == {OTHER: f"{TRIED}no"}


def test_new_tables_without_which_no_life_begins_either_are_innocent():
    found = running()
    for tables in ([OLD, NEW, OTHER], [OLD, NEW], [OLD, OTHER]):
        found.listed(tables)
        assert found.blame(ValueError("a topic of before is altered"))
    found.listed([OLD])
    assert not found.blame(ValueError("a topic of before is altered"))
    assert found.excluded == {}


def test_a_slot_that_cannot_be_used_is_no_fault_of_new_tables():
    found = running()
    found.listed([OLD, NEW])
    assert not found.blame(SlotError("changes are lost"))
