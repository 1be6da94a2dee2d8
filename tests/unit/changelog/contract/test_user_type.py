from dataclasses import replace

import pytest

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.user_type import (
    CompositeType,
    EnumType,
    Label,
    type_from_json,
    types_changed,
)

MOOD = EnumType("mood", late=False, labels={70: Label("sad", 700), 72: Label("ok", 700)})
PAIR = CompositeType("pair", late=False, attributes={1: (23, -1), 2: (25, -1)}, last_number=2)


def mood(**labels):
    found = {int(oid[1:]): Label(*each) for oid, each in labels.items()}
    return replace(MOOD, labels={**MOOD.labels, **found})


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (MOOD, MOOD, ""),
        (MOOD, mood(l74=("mad", 900)), ""),
        (MOOD, replace(MOOD, name="feeling", late=True), ""),
        (MOOD, mood(l70=("blue", 900)), 'label "sad" of type mood is called "blue" now'),
        (MOOD, mood(l70=("sad", 900)), "was written anew"),
        (MOOD, mood(l70=("ok", 900), l72=("sad", 900)), 'is called "ok" now'),
        (mood(l74=("mad", 900)), MOOD, 'label "mad" of type mood is gone'),
        (PAIR, PAIR, ""),
        (PAIR, replace(PAIR, attributes={1: (23, -1)}), "were dropped"),
        (PAIR, replace(PAIR, attributes={**PAIR.attributes, 3: (23, -1)}, last_number=3), "added"),
        (PAIR, replace(PAIR, last_number=3), "added"),  # and dropped since
        (PAIR, replace(PAIR, attributes={1: (20, -1), 2: (25, -1)}), "have another type"),
        (MOOD, PAIR, "is another one"),
        (None, MOOD, ""),
        (None, replace(MOOD, late=True), "was altered after columns of it came"),
        (MOOD, None, ""),
    ],
)
def test_marks_of_a_type(before, now, says):
    found = types_changed({} if before is None else {50: before}, {} if now is None else {50: now})
    assert (says in found) if says else (found == "")


@pytest.mark.parametrize("each", [MOOD, PAIR])
def test_types_survive_text(each):
    assert type_from_json(each.to_json()) == each


def test_what_is_no_type_is_refused():
    with pytest.raises(CorruptRecordError):
        type_from_json(["x"])
