"""What a declared log says, kept in DuckDB and brought forward: no server."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pytest

from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.forms.declared import Order, Unavailable, ValueShape
from tests.support.said import THINGS, Kept, ToldLog, things
from views.verify.kept.statements import KeptStatements
from views.verify.values.names import reading_name


@pytest.fixture
def database():
    with duckdb.connect() as made:
        yield made


@pytest.fixture
def log():
    return ToldLog()


def row(number, name, price="1.50"):
    return {"id": number, "name": name, "price": price}


def envelope(op, before, after):
    return {"before": before, "after": after, "op": op}


def seen(database):
    """Return what a view's query reads."""
    return database.execute(f"FROM {reading_name(THINGS)} ORDER BY id").fetchall()


def test_rows_are_replaced_and_go_and_come(database, log):
    kept = Kept(database, things(ValueShape.FLAT_JSON))
    for number in (1, 2, 3):
        log.put({"id": number}, row(number, "old"))
    log.put({"id": 4}, None)
    kept.begin(log.records)
    later = [
        log.put({"id": 1}, row(1, "once")),
        log.put({"id": 1}, row(1, "twice", None)),
        log.put({"id": 2}, None),
        log.put({"id": 4}, row(4, "back")),
        log.put({"id": 5}, None),
    ]
    kept.advance(later)
    assert [each[:2] for each in seen(database)] == [(1, "twice"), (3, "old"), (4, "back")]
    assert kept.touched == 4
    assert kept.names() == [
        ("[1]", 0, 5, None, False),
        ("[2]", 0, None, None, False),
        ("[3]", 0, 2, None, False),
        ("[4]", 0, 7, None, False),
        ("[5]", 0, None, None, False),
    ]
    kept.advance([])
    assert kept.touched == 0
    assert len(seen(database)) == 3


def test_an_update_that_changes_the_key_tells_of_both(database, log):
    kept = Kept(database, things(ValueShape.CUD_JSON))
    log.put(None, envelope("c", None, row(1, "a")))
    log.put(None, envelope("c", None, row(2, "b")))
    kept.begin(log.records)
    kept.advance([log.put(None, envelope("u", row(1, "a"), row(3, "moved")))])
    assert [each[:2] for each in seen(database)] == [(2, "b"), (3, "moved")]
    assert kept.touched == 2
    kept.advance(
        [
            log.put(None, envelope("u", row(3, "moved"), row(1, "home"))),
            log.put(None, envelope("d", row(1, "home"), None)),
        ]
    )
    assert [each[:2] for each in seen(database)] == [(2, "b")]
    assert kept.touched == 2


@pytest.mark.parametrize("first", [row(1, "a"), None], ids=["a row", "a dead key"])
def test_a_key_that_stands_in_another_partition_is_refused(database, log, first):
    kept = Kept(database, things(ValueShape.FLAT_JSON))
    log.put({"id": 1}, first, partition=0)
    kept.begin(log.records)
    before = kept.rows()
    with pytest.raises(VerdictError, match="stands in two partitions"):
        kept.advance([log.put({"id": 1}, row(1, "b"), partition=1)])
    assert kept.rows() == before


def test_a_new_key_in_two_partitions_is_refused(database, log):
    kept = Kept(database, things(ValueShape.FLAT_JSON))
    kept.begin([])
    with pytest.raises(VerdictError, match="stands in two partitions"):
        kept.advance([log.put({"id": 1}, row(1, "b"), partition=n) for n in (0, 1)])


LEFT_OUT = "__debezium_unavailable_value"


def test_a_value_that_was_left_out_is_taken_from_what_is_held(database, log):
    kept = Kept(database, things(ValueShape.DEBEZIUM_JSON))
    log.put({"id": 1}, envelope("c", None, row(1, "a")))
    log.put({"id": 1}, envelope("u", None, row(1, LEFT_OUT, "2.50")))
    log.put({"id": 2}, envelope("c", None, row(2, "b")))
    kept.begin(log.records)
    assert [each[1] for each in seen(database)] == ["a", "b"]
    kept.advance(
        [
            log.put({"id": 1}, envelope("u", None, row(1, LEFT_OUT, "3.50"))),
            log.put({"id": 2}, envelope("u", None, row(2, LEFT_OUT, "4.50"))),
            log.put({"id": 2}, envelope("u", None, row(2, LEFT_OUT, LEFT_OUT))),
        ]
    )
    assert seen(database) == [(1, "a", Decimal("3.50")), (2, "b", Decimal("4.50"))]
    kept.advance([log.put({"id": 1}, envelope("u", None, row(1, LEFT_OUT, LEFT_OUT)))])
    assert seen(database)[0] == (1, "a", Decimal("3.50"))
    assert kept.names()[0][:3] == ("[1]", 0, 6)


@pytest.mark.parametrize("policy", list(Unavailable))
@pytest.mark.parametrize(
    "before",
    [
        [],
        [envelope("d", {"id": 1}, None)],
        [envelope("d", {"id": 1}, None), envelope("u", None, row(1, LEFT_OUT))],
        [envelope("c", None, row(1, LEFT_OUT))],
    ],
    ids=["another key", "a key that is gone", "and comes back", "a row that begins"],
)
def test_a_value_that_no_row_has_is_refused(database, log, before, policy):
    kept = Kept(database, things(ValueShape.DEBEZIUM_JSON, on_unavailable=policy))
    number = 1 if before else 2
    log.put({"id": 1}, envelope("c", None, row(1, "a")))
    kept.begin(log.records)
    rows, names = kept.rows(), kept.names()
    later = [log.put({"id": 1}, each) for each in before]
    later.append(log.put({"id": number}, envelope("u", None, row(number, LEFT_OUT, "3.50"))))
    place = f'"things", partition 0, offset {later[-1].off}'
    with pytest.raises(VerdictError, match=f"{place}: .* has to be read whole"):
        kept.advance(later)
    assert (kept.rows(), kept.names()) == (rows, names)
    kept.advance([*later, log.put({"id": number}, envelope("u", None, row(number, "b")))])
    assert seen(database)[-1][1] == "b"


def test_a_stand_in_that_is_held_as_a_value_is_no_value(database, log):
    kept = Kept(database, things(ValueShape.DEBEZIUM_JSON, on_unavailable=Unavailable.KEEP))
    log.put({"id": 1}, envelope("c", None, row(1, "a")))
    log.put({"id": 2}, envelope("u", None, row(2, LEFT_OUT)))
    kept.begin(log.records)
    assert seen(database)[1][1] == LEFT_OUT
    with pytest.raises(VerdictError, match="left out a value"):
        kept.advance([log.put({"id": 2}, envelope("u", None, row(2, [LEFT_OUT])))])
    price = log.put({"id": 1}, envelope("u", None, row(1, "b", LEFT_OUT)))
    kept.advance([price])
    assert seen(database)[0] == (1, "b", Decimal("1.50"))


def by_lsn(lsn, op, number, name=None):
    before = {"id": number} if op == "d" else None
    after = None if op == "d" else row(number, name)
    return {**envelope(op, before, after), "source": {"lsn": lsn}}


@pytest.fixture
def ordered(database):
    return Kept(database, things(ValueShape.DEBEZIUM_JSON, order=Order.LSN))


def test_what_ascends_is_taken_and_what_was_sent_again_is_not(database, log, ordered):
    log.put({"id": 1}, by_lsn(10, "c", 1, "a"))
    log.put({"id": 2}, by_lsn(10, "c", 2, "a"))
    log.put({"id": 3}, None)
    ordered.begin(log.records)
    ordered.advance(
        [
            log.put({"id": 1}, by_lsn(20, "u", 1, "b")),
            log.put({"id": 1}, by_lsn(20, "u", 1, LEFT_OUT)),
            log.put({"id": 2}, by_lsn(15, "d", 2)),
            log.put({"id": 2}, None),
            log.put({"id": 3}, by_lsn(9, "c", 3, "a")),
        ]
    )
    held = [
        ("[1]", 0, 4, 20, False),
        ("[2]", 0, None, 15, False),
        ("[3]", 0, 7, 9, False),
    ]
    assert ordered.names() == held
    assert [each[:2] for each in seen(database)] == [(1, "b"), (3, "a")]
    for again in (
        [by_lsn(19, "u", 1, "c")],
        [by_lsn(14, "c", 2, "c")],
        [by_lsn(30, "u", 1, "c"), by_lsn(29, "u", 1, "d")],
    ):
        number = (again[0]["after"] or {})["id"]
        later = [log.put({"id": number}, each) for each in again]
        place = f'"things", partition 0, offset {later[-1].off}: .* sent again'
        with pytest.raises(VerdictError, match=place):
            ordered.advance(later)
    assert ordered.names() == held
    ordered.advance([log.put({"id": 1}, None)])
    assert ordered.names()[0] == ("[1]", 0, None, 20, False)


def test_a_state_may_begin_while_records_are_sent_again(database, log, ordered):
    for lsn, name in ((10, "a"), (20, "b"), (10, "a")):
        log.put({"id": 1}, by_lsn(lsn, "u", 1, name))
    log.put({"id": 2}, by_lsn(20, "c", 2, "b"))
    log.put({"id": 2}, by_lsn(15, "d", 2))
    ordered.begin(log.records)
    assert ordered.names() == [("[1]", 0, 1, 20, False), ("[2]", 0, 3, 20, True)]
    assert [each[1] for each in seen(database)] == ["b", "b"]
    with pytest.raises(VerdictError, match="sent again"):
        ordered.advance([log.put({"id": 1}, by_lsn(19, "u", 1, "c"))])
    with pytest.raises(VerdictError, match="sent again"):
        ordered.advance([log.put({"id": 2}, None)])  # it belongs to the older delete
    ordered.advance([log.put({"id": n}, by_lsn(20, "u", n, LEFT_OUT)) for n in (1, 2)])
    assert [each[1] for each in seen(database)] == ["b", "b"]
    assert [each[1:] for each in ordered.names()] == [(0, 7, 20, False), (0, 8, 20, False)]


def test_a_key_in_two_partitions_is_refused_in_the_order_of_the_source(log, ordered):
    log.put({"id": 1}, by_lsn(10, "c", 1, "a"), partition=0)
    log.put({"id": 1}, by_lsn(20, "u", 1, "b"), partition=1)
    with pytest.raises(VerdictError, match=r"key \[1\] stands in two partitions"):
        ordered.begin(log.records)
    ordered.begin(log.records[:1])
    with pytest.raises(VerdictError, match="stands in two partitions"):
        ordered.advance(log.records[1:])


def test_the_delete_that_gave_a_row_its_key_may_come_later(log, database):
    kept = Kept(database, things(ValueShape.DEBEZIUM_JSON, on_unavailable=Unavailable.NULL))
    log.put({"id": 1}, by_lsn(10, "c", 1, "a"), partition=0)
    log.put({"id": 2}, by_lsn(20, "c", 2, LEFT_OUT), partition=1)
    kept.begin(log.records)
    assert [each[1] for each in seen(database)] == ["a", None]
    log.put({"id": 1}, by_lsn(20, "d", 1), partition=0)
    with pytest.raises(VerdictError, match="changed its key"):
        kept.advance(log.records[2:])
    kept.begin(log.records)
    assert [each[1] for each in seen(database)] == ["a"]


def test_a_record_that_cannot_be_read_changes_nothing(database, log):
    kept = Kept(database, things(ValueShape.FLAT_JSON))
    log.put({"id": 1}, row(1, "a"))
    kept.begin(log.records)
    before = kept.rows(), kept.names()
    with pytest.raises(CorruptRecordError, match="offset 2"):
        kept.advance([log.put({"id": 1}, row(1, "b")), log.put({"id": 2}, row(2, "b", "no price"))])
    assert (kept.rows(), kept.names()) == before


def test_rows_that_are_not_those_of_the_keys_are_found(database, log):
    kept = Kept(database, things(ValueShape.FLAT_JSON))
    log.put({"id": 1}, row(1, "a"))
    kept.begin(log.records)
    database.execute("DELETE FROM kept")
    names = kept.names()
    with pytest.raises(VerdictError, match="not those of the keys"):
        kept.advance([log.put({"id": 1}, row(1, "b"))])
    assert (kept.rows(), kept.names()) == ([], names)


def test_a_state_that_forgets_dead_keys_is_told_apart(database, log, monkeypatch):
    """The twin of the key in another partition: without the names of dead keys it is not seen."""
    monkeypatch.setattr(KeptStatements, "_require_one_place", lambda *_: None)
    kept = Kept(database, things(ValueShape.FLAT_JSON))
    log.put({"id": 1}, None, partition=0)
    kept.begin(log.records)
    kept.advance([log.put({"id": 1}, row(1, "b"), partition=1)])
    assert len(kept.rows()) == 1
