"""Values of other programs' records: what a column's type can hold is read as it was written."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import example, given

from changelog.contract.rows.schema import LoggedColumn
from replay.declared.exact import JsonNumber, reader
from tests.support.builders import decimal_type
from tests.support.source_texts import decimals


@given(decimals())
@example((38, 10, Decimal("1234567890123456789012345678.9012345678")))
def test_a_decimal_of_any_size_keeps_all_its_digits(case: tuple[int, int, Decimal]) -> None:
    precision, scale, value = case
    column = LoggedColumn("amount", "amount", decimal_type(precision, scale), nullable=False)
    unscaled = int(f"{value:f}".replace(".", ""))
    raw = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    for read in (
        reader(column, avro=True)(raw),
        reader(column, avro=False)(JsonNumber(f"{value:f}")),
    ):
        assert str(read) == str(value)
