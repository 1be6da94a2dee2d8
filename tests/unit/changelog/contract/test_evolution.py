import json

import pytest

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.evolution import SchemaVersion, alive, marked, version_at


def at(lsn, sequence=0, epoch=1):
    return Position(epoch, Lsn(lsn), sequence)


def schema(*fields):
    made = [{"name": name, "type": "int"} for name in fields]
    return json.dumps({"type": "record", "name": "t", "fields": made})


NARROW, WIDE = schema("a"), schema("a", "b")
FIRST = SchemaVersion.of(NARROW, 1)
SECOND = SchemaVersion.of(marked(WIDE, at(100), fresh=False), 2)
BACK = SchemaVersion.of(marked(NARROW, at(200), fresh=False), 3)
FRESH = SchemaVersion.of(marked(WIDE, at(300), fresh=True), 4)


def test_marks_are_no_part_of_the_form():
    assert (SECOND.since, SECOND.fresh, SECOND.id) == (at(100), False, 2)
    assert SECOND.is_like(WIDE)
    assert not SECOND.is_like(NARROW)
    assert BACK.is_like(NARROW)
    assert FRESH.fresh


def test_a_registry_may_leave_out_namespaces_that_stand_around():
    row = {"type": "record", "name": "Value", "fields": [{"name": "a", "type": "int"}]}
    places = {"type": "array", "items": {"type": "fixed", "name": "Place", "size": 2}}

    def made(row, name):
        fields = [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", name], "default": None},
            {"name": "places", "type": places},
        ]
        head = {"type": "record", "name": "Envelope", "namespace": "changelog.t"}
        return json.dumps({**head, "fields": fields})

    ours = made({**row, "namespace": "changelog.t"}, "changelog.t.Value")
    assert SchemaVersion.of(made(row, "Value"), 1).is_like(ours)
    assert SchemaVersion.of(made({**row, "name": "changelog.t.Value"}, "Value"), 1).is_like(ours)
    assert not SchemaVersion.of(made({**row, "namespace": "other"}, "other.Value"), 1).is_like(ours)
    assert not SchemaVersion.of(made({**row, "fields": []}, "Value"), 1).is_like(ours)


@pytest.mark.parametrize(
    ("position", "version"),
    [
        (at(0), FIRST),
        (at(99, 8), FIRST),  # sent again after the second was registered
        (at(100), SECOND),
        (at(199), SECOND),
        (at(200), BACK),
        (at(0, epoch=2), BACK),
    ],
)
def test_the_version_of_a_row_is_the_last_that_began_before_it(position, version):
    assert version_at([FIRST, SECOND, BACK], position) == version


def test_versions_before_a_fresh_copy_count_no_more():
    assert alive([FIRST, SECOND]) == [FIRST, SECOND]
    assert alive([FIRST, SECOND, FRESH]) == [FRESH]
    assert version_at(alive([FIRST, FRESH]), at(5)) == FRESH
    assert alive([]) == []


@pytest.mark.parametrize("text", ["[", "3", '{"from": "x"}', '{"from": 7}'])
def test_what_is_no_schema_of_ours_is_refused(text):
    with pytest.raises(CorruptRecordError):
        SchemaVersion.of(text, 1)
