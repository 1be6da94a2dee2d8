"""Messages to events: keys, TOAST, sequence numbers, and what does not fit."""

import pytest

from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.change import Delete, Insert, Truncate, Update
from changelog.contract.rows.relation import UNCHANGED, Column, Relation, ReplicaIdentity, TableName
from changelog.contract.rows.types import column_type
from changelog.source.stream.assemble import Assembler, Began, Changed, Committed, Emitted
from changelog.source.stream.pgoutput import (
    Begin,
    Commit,
    DeleteMessage,
    InsertMessage,
    LogicalMessage,
    OldTuple,
    OriginMessage,
    RelationMessage,
    StreamColumn,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
)

OID, UNWANTED = 100, 200
BEGIN = Begin(Lsn(50), 7, 3)
COMMIT = Commit(Lsn(50), Lsn(60), 7)


def described(identity=ReplicaIdentity.DEFAULT, oid=OID, names=("a", "b", "c")):
    columns = tuple(StreamColumn(name, 25, -1, False) for name in names)
    return RelationMessage(oid, "public", f"t{oid}", identity, columns)


def resolve(message):
    """A table whose key is (c, a), in this order."""
    if message.oid == UNWANTED:
        return None
    columns = tuple(Column(c.name, column_type("text", "text")) for c in message.columns)
    name = TableName(message.schema, message.table)
    return Relation(message.oid, name, columns, ("c", "a"), message.identity)


def assembler(identity=ReplicaIdentity.DEFAULT):
    made = Assembler(resolve)
    for message in (BEGIN, described(identity), described(oid=UNWANTED)):
        made.add(message)
    return made


def only(events):
    (event,) = events
    assert isinstance(event, Changed)
    return event.change


def test_a_transaction_is_framed_by_its_begin_and_commit():
    made = Assembler(resolve)
    seen = [(made.add(message), made.open_transaction) for message in (BEGIN, COMMIT)]
    assert seen == [((Began(Lsn(50), 7, 3),), BEGIN), ((Committed(Lsn(50), Lsn(60), 7),), None)]


def test_key_fields_follow_the_order_of_the_key_and_not_of_the_table():
    change = only(assembler().add(InsertMessage(OID, (b"1", None, b"3"))))
    assert isinstance(change, Insert)
    assert change.key == (b"3", b"1")
    assert change.row == (b"1", None, b"3")


def test_an_update_without_an_old_row_keeps_its_key():
    change = only(assembler().add(UpdateMessage(OID, None, (b"1", UNCHANGED, b"3"))))
    assert isinstance(change, Update)
    assert change.old_key == change.key == (b"3", b"1")
    assert change.row[1] is UNCHANGED


def test_under_default_identity_nulls_of_the_key_tuple_mean_absent():
    old = OldTuple(False, (b"1", None, b"3"))
    change = only(assembler().add(UpdateMessage(OID, old, (b"9", UNCHANGED, b"3"))))
    assert isinstance(change, Update)
    assert (change.old_key, change.key) == ((b"3", b"1"), (b"3", b"9"))
    assert change.row == (b"9", UNCHANGED, b"3")


def test_an_unchanged_key_value_comes_from_the_key_tuple():
    old = OldTuple(False, (b"1", None, b"3"))
    change = only(assembler().add(UpdateMessage(OID, old, (UNCHANGED, b"x", b"3"))))
    assert isinstance(change, Update)
    assert change.old_key == change.key == (b"3", b"1")
    assert change.row == (b"1", b"x", b"3")


def test_under_full_identity_unchanged_values_come_from_the_old_row():
    old = OldTuple(True, (b"1", b"long", b"3"))
    change = only(
        assembler(ReplicaIdentity.FULL).add(UpdateMessage(OID, old, (b"9", UNCHANGED, b"3")))
    )
    assert isinstance(change, Update)
    assert (change.old_key, change.key) == ((b"3", b"1"), (b"3", b"9"))
    assert change.row == (b"9", b"long", b"3")


def test_an_old_null_under_full_identity_is_a_null():
    old = OldTuple(True, (b"1", None, b"3"))
    change = only(
        assembler(ReplicaIdentity.FULL).add(UpdateMessage(OID, old, (b"1", UNCHANGED, b"3")))
    )
    assert change.row == (b"1", None, b"3")


def test_a_full_old_row_fills_only_the_key_where_the_relation_does_not_promise_full():
    # A partitioned root under FULL over a partition under DEFAULT: the letter says full, the
    # contents are the key's. Taking its nulls would write a null for a value that is there.
    old = OldTuple(True, (b"1", None, b"3"))
    change = only(assembler().add(UpdateMessage(OID, old, (b"1", UNCHANGED, b"3"))))
    assert change.row == (b"1", UNCHANGED, b"3")


@pytest.mark.parametrize("full", [True, False])
def test_a_delete_takes_its_key_from_the_old_row(full):
    change = only(assembler().add(DeleteMessage(OID, OldTuple(full, (b"1", None, b"3")))))
    assert isinstance(change, Delete)
    assert change.key == (b"3", b"1")


def test_a_truncate_names_each_wanted_table_under_one_number():
    made = assembler()
    made.add(described(oid=OID + 1))
    events = made.add(TruncateMessage((OID, UNWANTED, OID + 1), False, False))
    assert [(type(e.change), e.change.relation.oid, e.sequence) for e in events] == [
        (Truncate, OID, 0),
        (Truncate, OID + 1, 0),
    ]
    (after,) = made.add(InsertMessage(OID, (b"1", b"2", b"3")))
    assert after.sequence == 4


def test_the_sequence_counts_every_row_message_and_starts_anew_with_each_transaction():
    made = assembler()
    row = (b"1", b"2", b"3")
    sequences = [
        [event.sequence for event in made.add(message)]
        for message in (
            InsertMessage(OID, row),
            InsertMessage(UNWANTED, (b"1",)),
            UpdateMessage(UNWANTED, None, (b"1",)),
            DeleteMessage(UNWANTED, OldTuple(False, (b"1",))),
            UpdateMessage(OID, OldTuple(False, row), (b"7", b"2", b"3")),
            DeleteMessage(OID, OldTuple(False, row)),
        )
    ]
    assert sequences == [[0], [], [], [], [16], [20]]
    made.add(COMMIT)
    made.add(Begin(Lsn(70), 8, 4))
    (first,) = made.add(InsertMessage(OID, row))
    assert first.sequence == 0


def test_types_and_origins_do_not_count_and_messages_do():
    made = assembler()
    assert made.add(TypeMessage(1, "s", "t")) == ()
    assert made.add(OriginMessage(Lsn(1), "o")) == ()
    emitted = [made.add(LogicalMessage(True, Lsn(5), "p", text)) for text in (b"c", b"d")]
    assert emitted == [
        (Emitted("p", b"c", True, Lsn(5), 0),),
        (Emitted("p", b"d", True, Lsn(5), 4),),
    ]
    (change,) = made.add(InsertMessage(OID, (b"1", b"2", b"3")))
    assert change.sequence == 8


def test_a_message_outside_of_a_transaction_is_passed_on_without_a_number():
    emitted = Assembler(resolve).add(LogicalMessage(False, Lsn(5), "p", b"c"))
    assert emitted == (Emitted("p", b"c", False, Lsn(5), 0),)


def test_a_message_of_a_transaction_needs_one():
    with pytest.raises(ProtocolError, match="outside of a transaction"):
        Assembler(resolve).add(LogicalMessage(True, Lsn(5), "p", b"c"))


def test_a_new_relation_message_replaces_the_relation():
    made = assembler()
    made.add(described(names=("a", "c")))
    change = only(made.add(InsertMessage(OID, (b"1", b"3"))))
    assert [column.name for column in change.relation.columns] == ["a", "c"]
    assert change.key == (b"3", b"1")


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([InsertMessage(OID, (b"1", b"2", b"3"))], "outside"),
        ([TruncateMessage((OID,), False, False)], "outside"),
        ([BEGIN, InsertMessage(OID, (b"1", b"2", b"3"))], "before its relation"),
        ([BEGIN, BEGIN], "inside"),
        ([COMMIT], "does not end"),
        ([BEGIN, Commit(Lsn(51), Lsn(60), 7)], "does not end"),
        ([BEGIN, described(), InsertMessage(OID, (b"1", b"2"))], "2 values, not 3"),
        ([BEGIN, described(), InsertMessage(OID, (None, b"2", b"3"))], "without its primary key"),
        (
            [BEGIN, described(), UpdateMessage(OID, None, (UNCHANGED, b"2", b"3"))],
            "without its primary key",
        ),
    ],
)
def test_what_does_not_fit_is_a_protocol_error(messages, says):
    made = Assembler(resolve)
    *before, last = messages
    for message in before:
        made.add(message)
    with pytest.raises(ProtocolError, match=says):
        made.add(last)


def test_a_relation_that_resolves_to_other_columns_is_a_protocol_error():
    other = resolve(described(names=("a", "c")))
    made = Assembler(lambda _: other)
    made.add(described())
    with pytest.raises(ProtocolError, match="other columns"):
        made.relation(OID)
