"""Two readers of other programs' records, without common code, say the same of any record."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.forms.declared import DeclaredLog, Order, ValueShape, declared_columns
from changelog.contract.rows.relation import TableName
from replay.declared.interpret import Interpreter
from views.verify.log.declared import DeclaredReader
from views.verify.log.registry import WriterSchemas

TYPES = {
    "id": "int", "code": "string", "m": "decimal(6,2)", "d": "double", "f": "float", "b": "boolean",
    "day": "date", "t": "timestamp_ntz", "z": "timestamp", "x": "binary",
}  # fmt: skip
NOWHERE = WriterSchemas(RegistryConnection(url="http://127.0.0.1:9"))

texts = st.sampled_from(
    ["", "a", "ü", "1", "1.5", "NaN", "true", "AP8=", "2024-02-29", "2024-02-30", "null",
     "2024-02-29T12:00:00", "2024-02-29 12:00:00.123456", "2024-02-29T12:00:00.5Z",
     "2024-02-29T12:00:00-08:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999Z",
     "2024-02-29T12:00:00.1234567", "2024-02-29T12:00:00.123456000"]
)  # fmt: skip
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, -(2**31) - 1, 2**63, 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-9999, 9999, places=2).map(float),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)
rows = st.fixed_dictionaries({}, optional=dict.fromkeys(TYPES, values)) | st.none() | values
sound = st.fixed_dictionaries(
    {"id": st.integers(-3, 3), "code": texts},
    optional={name: values for name in TYPES if name not in {"id", "code"}},
)
events = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["c", "u", "d", "r", "t", None, 5]),
        "before": rows | sound,
        "after": rows | sound,
        "source": st.fixed_dictionaries({}, optional={"lsn": st.integers(0, 9) | st.none()}),
        "__deleted": st.sampled_from(["true", "false", True, False, None, "x", []]),
    },
)
documents = st.one_of(events, rows, sound, values)
wrapped = st.one_of(documents, st.fixed_dictionaries({"schema": st.none(), "payload": documents}))
raws = st.one_of(
    st.none(),
    wrapped.map(lambda found: json.dumps(found, ensure_ascii=False).encode()),
    st.binary(max_size=4),
)
logs = st.builds(
    lambda shape, key, delete, order, changes: DeclaredLog(
        table=TableName("public", "t"),
        topic="t",
        shape=shape,
        key=key,
        delete=delete if shape.is_flat else "",
        order=order if shape is ValueShape.DEBEZIUM_JSON else Order.OFFSET,
        columns=declared_columns(TYPES, "logs.t"),
        key_changes=changes,
    ),
    st.sampled_from([ValueShape.DEBEZIUM_JSON, ValueShape.FLAT_JSON, ValueShape.CUD_JSON]),
    st.sampled_from([("id",), ("code", "id"), ("m",)]),
    st.sampled_from(["", "__deleted"]),
    st.sampled_from(list(Order)),
    st.booleans(),
)


def comparable(value: Any) -> Any:
    return None if value is None else repr(value)


def own_form(value: Any) -> Any:
    """Return a value of replay's as the verifier has it."""
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(2))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return value


@given(logs, raws, raws)
def test_two_readers_say_the_same_of_any_record(log, key, value):
    own = Interpreter(log, log.columns, {}, {}).statements(key, value)
    reader = DeclaredReader(log, NOWHERE, 0)
    other = reader.statements(key, value)
    kinds = [
        "fault" if s.fault is not None
        else "tombstone" if s.is_tombstone
        else "gone" if s.row is None
        else "row"
        for s in own
    ]  # fmt: skip
    assert kinds == [each.kind for each in other], (own, other)
    assert [s.key is None for s in own] == [each.name is None for each in other]
    assert [s.lsn for s in own if s.fault is None] == [
        each.lsn for each in other if each.kind != "fault"
    ]
    if kinds and kinds[-1] == "row":
        assert value is not None
        assert own[-1].row is not None
        mine = [comparable(own_form(each)) for each in own[-1].row]
        assert mine == [comparable(each) for each in reader.row(value)]


@given(logs, st.tuples(raws, raws, raws, raws))
def test_two_readers_agree_on_which_keys_are_the_same(log, raw):
    own, other = [], []
    for key, value in (raw[:2], raw[2:]):
        own += [s.key for s in Interpreter(log, log.columns, {}, {}).statements(key, value)]
        other += [s.name for s in DeclaredReader(log, NOWHERE, 0).statements(key, value)]
    if None not in own:
        assert [[a == b for a in own] for b in own] == [[a == b for a in other] for b in other]
