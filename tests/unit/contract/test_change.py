"""What each change writes."""

from __future__ import annotations

from changelog.contract.change import Delete, Insert, Tombstone, Update, Upsert, records_of
from changelog.contract.headers import Op
from tests.support.builders import make_relation

RELATION = make_relation()


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
