"""The law of quotients beside a follower: what the verifier computes in its own words."""

from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from views.rebuild.local import functions, times
from views.rebuild.local.functions import function_of, quotient
from views.rebuild.plan.dialect import UnknownValueError
from views.verify.sql.translate import MACROS

NUMBERS = st.integers(-20, 20) | st.integers(-(10**17), 10**17)


@pytest.fixture(scope="module")
def database():
    with duckdb.connect() as database:
        for macro in MACROS:
            if "quotient" in macro or "error(" not in macro:
                database.execute(macro)
        yield database


def theirs(database, one, scale, other, below, most, rounded) -> Decimal | None:
    a = f"CAST('{Decimal(f'{one}E-{scale}'):f}' AS DECIMAL(38, {scale}))"
    b = f"CAST('{Decimal(f'{other}E-{below}'):f}' AS DECIMAL(38, {below}))"
    last = "NULL" if rounded is None else str(rounded)
    query = f"SELECT quotient_text({a}, {b}, {scale}, {below}, {most}, {last})"
    ((text,),) = database.execute(query).fetchall()
    return None if text is None else Decimal(text)


def ours(one, scale, other, below, most, rounded) -> Decimal | None:
    try:
        return quotient(scale, below, most, rounded, one, other)
    except UnknownValueError:
        return None


def is_same(database, one, scale, other, below, rounded) -> bool:
    mine = ours(one, scale, other, below, 24, rounded)
    try:
        return mine == theirs(database, one, scale, other, below, 24, rounded)
    except duckdb.OutOfRangeException:  # which no column of 24 digits behind the point holds
        return mine is None or abs(mine) >= 10**14


@examples(60)
@given(
    one=NUMBERS, scale=st.integers(0, 6), other=NUMBERS, below=st.integers(0, 6),
    rounded=st.none() | st.integers(0, 6),
)  # fmt: skip
def test_a_quotient_is_the_verifiers(database, one, scale, other, below, rounded):
    assert is_same(database, one, scale, other, below, rounded)


def test_twin_a_quotient_that_is_cut_is_another(database, monkeypatch):
    monkeypatch.setattr(functions, "_half_up", lambda number, divisor: number // divisor)
    assert not is_same(database, 2, 0, 3, 0, None)


def test_functions_take_columns_with_nulls():
    numbers = pa.array([Decimal("1.00"), None, Decimal("-2.00")], pa.decimal128(38, 2))
    threes = pa.array([3, 3, 3], pa.int64()).cast(pa.decimal128(38, 0))
    made = functions._each(lambda a, b: quotient(2, 0, 24, None, a, b), pa.decimal128(37, 24),
                           numbers, threes)  # fmt: skip
    assert [None if v is None else f"{v:.20f}" for v in made.to_pylist()] == [
        "0.33333333333333333333", None, "-0.66666666666666666667",
    ]  # fmt: skip
    rounded = functions._each(
        lambda a: functions._rounded(2, 1, a), pa.decimal128(38, 1),
        pa.array([Decimal("0.05"), Decimal("-0.05"), Decimal("0.04")], pa.decimal128(38, 2)),
    )  # fmt: skip
    assert rounded.to_pylist() == [Decimal("0.1"), Decimal("-0.1"), Decimal("0.0")]
    assert function_of("quotient_2_0_24") is not None
    days = pa.array([0, None, -719_162], pa.int32())
    micros = times.micros_of_day(days)
    part, _, _ = times.FUNCTIONS["part_year"]
    assert part(micros).to_pylist() == [1970, None, 1]
    assert times.day_of_micros(micros).equals(days)
    with pytest.raises(UnknownValueError, match="outside the years"):
        times.micros_of_day(pa.array([2**31 - 1], pa.int32()))
