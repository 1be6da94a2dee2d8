"""Records of others show in the ends of the topics."""

from changelog.capture.write.topic_watch import SoleWriter


def test_what_was_written_by_us_is_not_foreign():
    alone = SoleWriter({"a": (5, 5), "b": (0,)})
    assert alone.foreign({"a": (7, 6), "b": (0,)}, {"a": 3}) == {}
    assert alone.foreign({"a": (7, 9)}, {"a": 6}) == {}


def test_what_others_wrote_is_told_once():
    alone = SoleWriter({"a": (5, 5)})
    assert alone.foreign({"a": (7, 6)}, {"a": 1}) == {"a": 2}
    assert alone.foreign({"a": (7, 7)}, {"a": 2}) == {}


def test_records_that_are_gone_are_told_too():
    assert SoleWriter({"a": (5,)}).foreign({"a": (6,)}, {"a": 3}) == {"a": -2}


def test_a_topic_that_is_left_out_for_a_while_is_compared_with_when_it_was_seen_last():
    alone = SoleWriter({"a": (0,), "b": (0,)})
    assert alone.foreign({"a": (1,)}, {"a": 1, "b": 4}) == {}
    assert alone.foreign({"b": (5,)}, {"a": 1, "b": 4}) == {"b": 1}


def test_where_the_count_is_lost_nothing_is_said():
    alone = SoleWriter({"a": (0,), "b": (0,)})
    alone.lose_count(["a"])
    assert alone.foreign({"a": (9,), "b": (1,)}, {}) == {"b": 1}
