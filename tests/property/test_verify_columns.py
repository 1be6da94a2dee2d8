"""Rows by column are the rows one by one, of every type; whatever is odd goes by the rule."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.schema import value_schema
from changelog.contract.rows.types import array_type, column_type
from changelog.native.compiled.intake import RowDecoder
from tests.support.native_ways import needs_c
from views.verify.log import columns as by_column
from views.verify.log import tables
from views.verify.log.columns import ColumnReader, bare
from views.verify.log.decode import AvroDecoder, survivors_of
from views.verify.log.registry import parsed
from views.verify.log.tables import TableState, _by_column, _decoded, _default_column
from views.verify.values.faults import Quarantine

pytestmark = needs_c

INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DECIMALS = st.integers(-(10**38), 10**38).map(
    lambda n: n.to_bytes((n.bit_length() + 8) // 8, "big", signed=True)
)
OF = {
    ("bool", "boolean"): st.booleans(),
    ("int4", "integer"): INTS,
    ("int8", "bigint"): LONGS,
    ("float4", "real"): st.floats(width=32),
    ("float8", "double precision"): st.floats(),
    ("text", "text"): TEXTS,
    ("bytea", "bytea"): st.binary(max_size=5),
    ("date", "date"): INTS,
    ("timestamp", "timestamp without time zone"): LONGS,
    ("timestamptz", "timestamp with time zone"): LONGS,
    ("uuid", "uuid"): TEXTS,
    ("numeric", "numeric(38,6)"): st.one_of(DECIMALS, st.just(b"")),
}
TYPES = [(column_type(*name), values) for name, values in OF.items()]
ESCAPED = [(kind, values | TEXTS if kind.has_escape else values) for kind, values in TYPES] + [
    (array_type(kind, f"{kind.name}[]"), TEXTS | st.lists(st.none() | values, max_size=4))
    for kind, values in TYPES
    if not kind.has_escape
]
NAME = TableName("public", "t")
KINDS = {f"c{number}": kind for number, (kind, _) in enumerate(ESCAPED)}
VALUES = {f"c{number}": values for number, (_, values) in enumerate(ESCAPED)}


class Texts:
    """A registry of a few schemas."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def text(self, schema_id: int) -> str:
        if not 0 <= schema_id < len(self._texts):
            raise CorruptRecordError(f"no schema {schema_id}")
        return self._texts[schema_id]


def schema_of(names: list[str], defaults: bool = False) -> str:
    columns = [Column("id", column_type("int8", "bigint"))]
    columns += [Column(name, KINDS[name], "null" if defaults else None) for name in names]
    return value_schema(Relation(1, NAME, tuple(columns), ("id",)))


def encoded(schema_id: int, text: str, row: dict[str, Any]) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, parsed(json.loads(text)), row)
    return b"\0" + schema_id.to_bytes(4) + body.getvalue()


def batch_of(values: list[bytes | None], first: int = 0) -> pa.Table:
    places = range(first, first + len(values))
    return pa.table(
        {
            "part": pa.array([3] * len(values), pa.int32()),
            "off": pa.array(places, pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )


class Both:
    """A reader of the last of some schemas, by column and by the rule."""

    def __init__(self, *texts: str, quarantine: Quarantine | None = None) -> None:
        schemas = cast(Any, Texts(*texts))
        self.decoder = AvroDecoder(schemas, "t", len(texts) - 1, quarantine=quarantine)
        self.state = TableState(NAME, "t", "base", self.decoder.columns, ("id",))

        def default(number: int, value: Any, rows: int) -> Any:
            return _default_column(self.state, number, value, rows)

        self.reader = ColumnReader(self.decoder, default)

    def by_rule(self, batch: pa.Table) -> list[list[str]]:
        return rows_of([_decoded(self.state, self.decoder, survivors_of(batch))])

    def by_column(self, batch: pa.Table) -> list[list[str]]:
        return rows_of(_by_column(self.state, self.reader, self.decoder, batch))


def rows_of(found: list[pa.Table]) -> list[list[str]]:
    rows = []
    for table in found:
        table.validate(full=True)
        columns = [bare(table[name].combine_chunks()) for name in sorted(table.column_names)]
        rows += [list(row) for row in zip(*columns, strict=True)]
    return sorted(rows)


@given(st.data(), st.sampled_from(sorted(KINDS)), st.integers(0, 3))
def test_every_type_reads_alike_both_ways(data, name, first):
    text = schema_of([name])
    values = data.draw(st.lists(st.none() | VALUES[name], max_size=9))
    rows = [encoded(0, text, {"id": n, name: value}) for n, value in enumerate(values)]
    both, batch = Both(text), batch_of([b"", *rows], first).slice(1)
    assert both.by_column(batch) == both.by_rule(batch)
    assert not rows or both.reader.read(batch) is not None


@given(st.data(), st.permutations(sorted(KINDS)[::3]))
def test_columns_that_moved_came_or_went_read_alike(data, names):
    old, new = names[:4], names[2:]
    texts = schema_of(list(old)), schema_of(list(new))
    rows = []
    for number in range(data.draw(st.integers(0, 6))):
        which = data.draw(st.integers(0, 1))
        row = {name: data.draw(st.none() | VALUES[name]) for name in (old, new)[which]}
        rows.append(encoded(which, texts[which], {"id": number, **row}))
    both = Both(*texts)
    assert both.by_column(batch_of(cast(Any, rows))) == both.by_rule(batch_of(cast(Any, rows)))


@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_what_is_bent_reads_as_the_rule_says_or_not_at_all(data, name):
    text = schema_of([name])
    row = encoded(0, text, {"id": 5, name: data.draw(st.none() | VALUES[name])})
    at = data.draw(st.integers(0, len(row)))
    bent = row[:at] + data.draw(st.binary(max_size=2)) + row[at + data.draw(st.integers(0, 2)) :]
    sound = encoded(0, text, {"id": 6, name: None})
    batch = batch_of([sound, bent, sound], 1)
    both = Both(text)
    by_rule: Any
    try:
        by_rule = both.by_rule(batch)
    except (CorruptRecordError, OverflowError, pa.ArrowInvalid) as error:
        by_rule = str(error)
    try:
        found: Any = both.by_column(batch)
    except (CorruptRecordError, OverflowError, pa.ArrowInvalid) as error:
        found = str(error)
    assert found == by_rule


@pytest.mark.parametrize("bend", [lambda row: row + b"\0", lambda row: row[:-1]])
def test_a_row_that_is_long_or_short_is_named_and_shifts_no_other(bend):
    text = schema_of(["c5"])
    rows = [encoded(0, text, {"id": n, "c5": "text"}) for n in range(1, 4)]
    batch = batch_of([rows[0], bend(rows[1]), rows[2]], 7)
    with pytest.raises(CorruptRecordError, match="partition 3, offset 8:"):
        Both(text).by_column(batch)
    quarantine = Quarantine()
    both = Both(text, quarantine=quarantine)
    assert [row[0] for row in both.by_column(batch)] == ["7", "9"]
    assert len(quarantine) == 1
    assert both.reader.read(batch) is None


def test_schema_ids_of_two_writers_that_are_mixed_up_change_nothing(monkeypatch):
    texts = schema_of(["c1", "c2"]), schema_of(["c2", "c1"])
    rows = [encoded(n, texts[n], {"id": n, "c1": 10, "c2": 20}) for n in (0, 1)]
    both = Both(*texts)
    wanted = both.by_rule(batch_of(cast(Any, rows)))
    real = RowDecoder.__init__

    def mixed_up(self: Any, frame: bytes, fields: Any) -> None:
        real(self, frame[:4] + bytes([1 - frame[4]]), fields)

    monkeypatch.setattr(RowDecoder, "__init__", mixed_up)
    assert both.by_column(batch_of(cast(Any, rows))) == wanted
    assert both.reader.read(batch_of(cast(Any, rows))) is None


def test_twin_a_column_that_reads_otherwise_is_found_in_the_sample(monkeypatch):
    text = schema_of(["c1"])
    rows = [encoded(0, text, {"id": n, "c1": n}) for n in range(600)]
    both = Both(text)
    real = by_column._typed

    def wrong(values: pa.Array, kind: Any) -> pa.Array:
        found = real(values, kind)
        return pa.array([7] * len(found), found.type) if found.type == pa.int32() else found

    monkeypatch.setattr(by_column, "_typed", wrong)
    with pytest.raises(LogError, match='offset 256: column "c1" reads as 7, and as 255 by fastavr'):
        both.by_column(batch_of(cast(Any, rows), 1))
    monkeypatch.setattr(tables, "SAMPLED", 10**9)
    both.by_column(batch_of(cast(Any, rows), 1))  # the defect: nobody looks
