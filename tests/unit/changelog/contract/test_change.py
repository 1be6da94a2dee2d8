"""What each change writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.headers import Op
from changelog.contract.rows.change import Delete, Insert, Update, Upsert, records_of
from tests.support.builders import make_relation

RELATION = make_relation()
UNKEYED = replace(RELATION, key=())


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
