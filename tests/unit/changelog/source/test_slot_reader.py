"""Whether who reads a slot lives."""

from changelog.source.stream.slot_reader import ReaderPulse, SlotReader


def looks(*found):
    """Look at readers, one after the other; returns what was said each time."""
    pulse = ReaderPulse()
    return [pulse.lives(SlotReader(pid, replied, "here")) for pid, replied in found]


def test_one_that_has_replied_and_is_still_there_lives():
    assert looks((1, "a"), (1, "b"), (1, "b")) == [False, False, True]


def test_one_that_says_nothing_may_be_dead():
    assert looks((1, "a"), (1, "a"), (1, "a"), (1, "a")) == [False] * 4


def test_one_whose_replies_are_hidden_may_be_dead():
    assert looks((1, None), (1, None), (1, None)) == [False] * 3


def test_the_first_status_of_a_connection_is_no_proof():
    assert looks((1, None), (1, "a"), (1, "a")) == [False] * 3


def test_another_process_begins_anew():
    assert looks((1, "a"), (1, "b"), (2, "c"), (2, "c")) == [False] * 4
