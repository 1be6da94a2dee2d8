"""What a record of another program's log says, in both readers: replay's and the verifier's.

The two share no code; each case is asked of both.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.headers import Op
from changelog.contract.forms.declared import (
    PLACEHOLDER,
    DeclaredLog,
    Order,
    ValueShape,
    declared_columns,
)
from changelog.contract.forms.event import Event, LabelledDocuments, Stamp
from changelog.contract.rows.relation import Column, Relation, Row, TableName
from changelog.contract.rows.types import ColumnType, Kind
from replay.declared.interpret import Interpreter
from views.verify.log.declared import DeclaredReader
from views.verify.log.registry import WriterSchemas

COLUMNS = {"id": "int", "name": "string"}
NOWHERE = WriterSchemas(RegistryConnection(url="http://127.0.0.1:9"))


def log(shape: ValueShape, columns=None, **more) -> DeclaredLog:
    return DeclaredLog(
        table=TableName("public", "things"),
        topic="things",
        shape=shape,
        key=more.pop("key", ("id",)),
        columns=declared_columns(columns or COLUMNS, "logs.things"),
        **more,
    )


def said(of: DeclaredLog, key, value) -> list[tuple[str, object]]:
    """Ask both readers; returns per statement its kind and its row, when they agree."""
    raw = [
        None if part is None else part if isinstance(part, bytes) else json.dumps(part).encode()
        for part in (key, value)
    ]
    own = Interpreter(of, of.columns, {}, {}).statements(*raw)
    reader = DeclaredReader(of, NOWHERE, 0)
    other = reader.statements(*raw)
    kinds = [
        "fault"
        if s.fault
        else "tombstone"
        if s.is_tombstone
        else "gone"
        if s.row is None
        else "row"
        for s in own
    ]
    assert kinds == [each.kind for each in other], (own, other)
    assert [s.key is None for s in own] == [each.name is None for each in other]
    assert [s.lsn for s in own] == [each.lsn for each in other]
    return [(kind, s.row if kind == "row" else s.key) for kind, s in zip(kinds, own, strict=True)]


def labelled(op: Op, row: Row | None) -> bytes:
    """Return a value that capture writes in the labelled envelope."""
    columns = (
        Column("id", ColumnType("integer", Kind.INT)),
        Column("name", ColumnType("text", Kind.STRING)),
    )
    things = Relation(1, TableName("public", "things"), columns, ("id",))
    stamp = Stamp(lsn=7, ts_us=8, xid=None, seen_us=9)
    return LabelledDocuments(things).encode(Event((b"1",), None, row, op), stamp)


CUD, DEBEZIUM, FLAT = (
    log(ValueShape.CUD_JSON),
    log(ValueShape.DEBEZIUM_JSON),
    log(ValueShape.FLAT_JSON),
)
MARKED = log(ValueShape.FLAT_JSON, delete="__deleted")
ONE, TWO = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}


@pytest.mark.parametrize(
    ("of", "key", "value", "wanted"),
    [
        (CUD, None, {"op": "c", "before": None, "after": ONE}, [("row", [1, "a"])]),
        (CUD, None, {"op": "u", "before": ONE, "after": ONE}, [("row", [1, "a"])]),
        (CUD, None, {"op": "u", "before": None, "after": ONE}, [("row", [1, "a"])]),
        (CUD, None, {"op": "d", "before": ONE, "after": None}, [("gone", "[1]")]),
        (CUD, None, {"op": "u", "before": ONE, "after": TWO}, [("gone", "[1]"), ("row", [2, "b"])]),
        (CUD, {"id": 1}, {"op": "d", "before": None, "after": None}, [("gone", "[1]")]),
        (CUD, None, {"op": "d", "before": None, "after": None}, [("fault", None)]),
        (CUD, None, {"op": "t", "before": None, "after": None}, [("fault", None)]),
        (CUD, {"id": 1}, {"op": "c", "before": None, "after": None}, [("fault", "[1]")]),
        (CUD, None, {"op": "c", "before": None, "after": {"name": "a"}}, [("fault", None)]),
        (CUD, None, b'{"op":"c","after":{"id":1,"id":2}}', [("fault", None)]),
        (CUD, {"id": 3}, b"{", [("fault", "[3]")]),
        (CUD, None, b"[]", [("fault", None)]),
        (CUD, None, b'{"op":"c","after":{"id":NaN}}', [("fault", None)]),
        (CUD, None, b"[" * 100_000, [("fault", None)]),
        (CUD, None, b'{"op":"c","after":{"id":1,"name":"\xff"}}', [("fault", None)]),
        (
            log(ValueShape.CUD_JSON, key_changes=False),
            None,
            {"op": "u", "before": ONE, "after": TWO},
            [("fault", None)],
        ),
        (
            DEBEZIUM,
            {"id": 1},
            {"schema": {}, "payload": {"op": "r", "after": ONE}},
            [("row", [1, "a"])],
        ),
        (DEBEZIUM, {"schema": {}, "payload": {"id": 1}}, None, [("tombstone", "[1]")]),
        (DEBEZIUM, b"1", None, [("tombstone", "[1]")]),
        (DEBEZIUM, None, None, [("fault", None)]),
        (DEBEZIUM, b"\xff\x00", None, [("fault", None)]),
        (FLAT, {"id": 1}, b"null", [("tombstone", "[1]")]),
        (FLAT, {"id": 1}, {"schema": {}, "payload": None}, [("tombstone", "[1]")]),
        (MARKED, {"schema": {}, "payload": {"id": 1}}, b" null\n", [("tombstone", "[1]")]),
        (FLAT, None, b"null", [("fault", None)]),
        (FLAT, {"id": 1}, labelled(Op.READ, (b"1", b"a")), [("row", [1, "a"])]),
        (MARKED, {"id": 1}, labelled(Op.UPDATE, (b"1", None)), [("row", [1, None])]),
        (MARKED, {"id": 1}, labelled(Op.DELETE, None), [("gone", "[1]")]),
        (
            log(ValueShape.FLAT_JSON, {**COLUMNS, "__schema": "string", "__ingested": "bigint"}),
            None,
            labelled(Op.CREATE, (b"1", b"a")),
            [("row", [1, "a", "public", 9])],
        ),
        (FLAT, {"id": 1}, b"nul", [("fault", "[1]")]),
        (FLAT, {"id": 1}, ONE, [("row", [1, "a"])]),
        (FLAT, {"id": 1}, {"id": 1}, [("row", [1, None])]),
        (MARKED, {"id": 1}, {**ONE, "__deleted": "true"}, [("gone", "[1]")]),
        (MARKED, {"id": 1}, {**ONE, "__deleted": "false"}, [("row", [1, "a"])]),
        (MARKED, {"id": 1}, {**ONE, "__deleted": False}, [("row", [1, "a"])]),
        (MARKED, {"id": 1}, ONE, [("fault", "[1]")]),
        (MARKED, {"id": 1}, {**ONE, "__deleted": "maybe"}, [("fault", "[1]")]),
    ],
)
def test_a_record_says_what_became_of_which_key(of, key, value, wanted):
    assert said(of, key, value) == wanted


TEXT = "<nicht verfügbar>"


@pytest.mark.parametrize(
    ("kind", "value", "is_left_out"),
    [
        ("string", TEXT, True),
        ("string", [TEXT], True),
        ("string", [60, 110, 105, 99, 104, 116, 32, 118, 101, 114, 102, -61, -68, 103, 98, 97,
                    114, 62], True),
        ("string", ["754b1c1a-1e75-30bb-b915-4f023886c145"], True),
        ("string", ["PG5pY2h0IHZlcmbDvGdiYXI+"], True),
        ("string", {TEXT: TEXT}, True),
        ("string", json.dumps({TEXT: TEXT}, ensure_ascii=False, separators=(",", ":")), True),
        ("binary", "PG5pY2h0IHZlcmbDvGdiYXI+", True),
        ("decimal(9,2)", TEXT, True),
        ("string", TEXT + " ", False),
        ("string", [TEXT, TEXT], False),
        ("string", [60, 110], False),
        ("string", "__debezium_unavailable_value", False),
        ("string", None, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["u", "c"])
def test_a_value_that_the_source_left_out_is_known_in_every_form(kind, value, is_left_out, op):
    of = log(ValueShape.DEBEZIUM_JSON, {"id": "int", "v": kind}, placeholder=TEXT)
    raw = json.dumps({"op": op, "after": {"id": 1, "v": value}}).encode()
    (own,) = Interpreter(of, of.columns, {}, {}).statements(None, raw)
    (other,) = DeclaredReader(of, NOWHERE, 0).statements(None, raw)
    assert (own.missing, other.lacks) == (((1,), ("v",)) if is_left_out else ((), ()))
    assert own.begins is other.begins is (op == "c")
    for without in (replace(of, placeholder=""), replace(of, shape=ValueShape.CUD_JSON)):
        if kind == "string":
            assert not Interpreter(without, of.columns, {}, {}).statements(None, raw)[0].missing
            assert not DeclaredReader(without, NOWHERE, 0).statements(None, raw)[0].lacks


def test_a_key_that_was_left_out_is_none():
    of = log(ValueShape.FLAT_JSON, {"id": "string"})
    assert said(of, {"id": "x"}, {"id": PLACEHOLDER}) == [("fault", '["x"]')]


def test_the_source_s_position_is_read_where_the_log_is_ordered_by_it():
    of = log(ValueShape.DEBEZIUM_JSON, order=Order.LSN)
    event = {"op": "c", "after": ONE, "source": {"lsn": 77}}
    assert said(of, {"id": 1}, event) == [("row", [1, "a"])]
    assert said(of, {"id": 1}, {**event, "source": {}}) == [("fault", "[1]")]


KINDS = {
    "id": "int", "b": "boolean", "l": "bigint", "f": "float", "d": "double", "m": "decimal(10,2)",
    "s": "string", "x": "binary", "day": "date", "t": "timestamp_ntz", "z": "timestamp",
}  # fmt: skip
VALUES = [
    ("b", "true", True),
    ("b", "1", None),
    ("b", '"true"', None),
    ("l", "-9223372036854775808", -(2**63)),
    ("l", "9223372036854775808", None),
    ("l", "1.0", None),
    ("l", '"5"', None),
    ("id", "2147483648", None),
    ("f", "0.1", 0.10000000149011612),
    ("d", "-0.0", -0.0),
    ("d", '"NaN"', None),  # is not equal to itself: only that it is read
    ("d", "1e400", None),
    ("m", "1.10", Decimal("1.10")),
    ("m", '"1.1"', Decimal("1.10")),
    ("m", "12345678.99", Decimal("12345678.99")),
    ("m", "123456789.99", None),
    ("m", "1.105", None),
    ("m", '"NaN"', None),
    ("m", "1e1000000000", None),
    ("s", "12345678901234567.890", "12345678901234567.890"),
    ("s", "true", "true"),
    ("s", '{"a": [1.50, "x", null]}', '{"a":[1.50,"x",null]}'),
    ("s", '"1"', "1"),
    ("x", '"AP8="', b"\x00\xff"),
    ("x", '"A*P8="', None),
    ("x", "12", None),
    ("day", "-1", -1),
    ("day", '"1969-12-31"', -1),
    ("day", '"2024-02-30"', None),
    ("day", '"20240131"', None),
    ("t", '"1970-01-01T00:00:01.5"', 1_500_000),
    ("t", '"1970-01-01T00:00:01.0000005"', None),
    ("t", '"1970-01-01T00:00:01Z"', None),
    ("t", "1500", None),
    ("z", '"1970-01-01T01:00:00.000001+01:00"', 1),
    ("z", '"1969-12-31T23:59:59.999999Z"', -1),
    ("z", '"1970-01-01T00:00:01"', None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "wanted"), VALUES)
def test_a_value_is_exact_or_a_fault(name, text, wanted):
    of = log(ValueShape.FLAT_JSON, KINDS)
    number = "7" if name != "id" else text
    members = f'"id":{number}' + (f',"{name}":{text}' if name != "id" else "")
    raw = f"{{{members}}}".encode()
    ((kind, row),) = said(of, b"7", raw)
    is_nan = (name, text) == ("d", '"NaN"')
    assert kind == ("row" if wanted is not None or is_nan else "fault")
    if kind == "row" and not is_nan:
        assert isinstance(row, list)
        assert repr(row[list(KINDS).index(name)]) == repr(wanted)
        (other,) = [DeclaredReader(of, NOWHERE, 0).row(raw)[list(KINDS).index(name)]]
        if isinstance(wanted, Decimal):
            assert int.from_bytes(other, "big", signed=True) == int(wanted.scaleb(2))
        else:
            assert repr(other) == repr(wanted)


@pytest.mark.parametrize("text", ["decimal(39,2)", "decimal(2,3)", "text", ""])
def test_a_type_that_is_not_known_is_refused_by_its_place(text):
    with pytest.raises(ConfigurationError, match=r"logs\.things\.columns\.id"):
        declared_columns({"id": text}, "logs.things")
