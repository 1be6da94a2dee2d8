"""What each change writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.headers import Op
from changelog.contract.rows.change import Delete, Insert, Tombstone, Update, Upsert, records_of
from tests.support.builders import make_relation

RELATION = make_relation()
UNKEYED = replace(RELATION, key=())


def test_an_insert_writes_one_record() -> None:
    assert records_of(Insert(RELATION, (b"1",), (b"1", b"a"))) == (
        Upsert((b"1",), (b"1", b"a"), Op.CREATE),
    )


def test_an_update_writes_one_record() -> None:
    assert records_of(Update(RELATION, (b"1",), (b"1",), (b"1", b"b"))) == (
        Upsert((b"1",), (b"1", b"b"), Op.UPDATE),
    )


def test_a_delete_writes_a_tombstone() -> None:
    assert records_of(Delete(RELATION, (b"1",))) == (Tombstone((b"1",), Op.DELETE),)


def test_a_key_change_writes_a_tombstone_first() -> None:
    assert records_of(Update(RELATION, (b"1",), (b"2",), (b"2", b"a"))) == (
        Tombstone((b"1",), Op.DELETE),
        Upsert((b"2",), (b"2", b"a"), Op.UPDATE),
    )


def test_without_a_key_what_goes_is_written_whole_and_before_what_comes() -> None:
    old, new = (b"1", b"a"), (b"2", b"a")
    assert records_of(Insert(UNKEYED, (), new)) == (Upsert((), new, Op.CREATE),)
    assert records_of(Delete(UNKEYED, (), old)) == (Upsert((), old, Op.DELETE),)
    assert records_of(Update(UNKEYED, (), (), new, old)) == (
        Upsert((), old, Op.DELETE),
        Upsert((), new, Op.UPDATE),
    )


@pytest.mark.parametrize(
    "change", [Delete(UNKEYED, ()), Update(UNKEYED, (), (), (b"1", b"b"))], ids=["delete", "update"]
)
def test_without_a_key_and_the_old_row_a_change_is_refused(change: Delete | Update) -> None:
    with pytest.raises(ProtocolError, match="does not have the old one"):
        records_of(change)
