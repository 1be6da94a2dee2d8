"""Functions that DataFusion has not, or has otherwise: exact ones, over columns of Arrow.

They are asked for by names that say all that decides their types: `quotient_2_0_24` (see
`views.project.quotients`), `rounded_4_2`, `part_year`. What has no exact answer raises, and the
rows are left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import ScalarUDF, udf

from views.rebuild.local import texts, times
from views.rebuild.plan.dialect import UnknownValueError

_DIGITS, _ROUNDED_DIGITS = 37, 38
"""Digits of a quotient by itself, and rounded to some places."""
_GROUP = 4
_SIGNIFICANT = 16


def function_of(name: str) -> ScalarUDF:
    """Return the function of a name."""
    if name in _NAMED:
        return _made(name, *_NAMED[name])
    kind, *sizes = name.split("_")
    numbers = [int(size) for size in sizes]
    scale = numbers[0]
    if kind in _OF_ONE:
        make, places_of, result = _OF_ONE[kind]
        places = numbers[1] if kind == "rounded" else 0
        result_type = result or pa.decimal128(38, places_of(scale, places))
        function = partial(_each, partial(make, scale, places), result_type)
        return _made(name, function, [pa.decimal128(38, scale)], result_type)
    below, most, *rounded = numbers[1:]
    result_type = pa.decimal128(_ROUNDED_DIGITS if rounded else _DIGITS, *(rounded or [most]))
    parameter_types = [pa.decimal128(38, scale), pa.decimal128(38, below)]
    divide = partial(quotient, scale, below, most, rounded[0] if rounded else None)
    return _made(name, partial(_each, divide, result_type), parameter_types, result_type)


def _made(
    name: str,
    function: Callable[..., Any],
    parameter_types: list[pa.DataType],
    result_type: pa.DataType,
) -> ScalarUDF:
    return udf(function, parameter_types, result_type, "immutable", name)


def _each(function: Callable[..., Any], result_type: pa.DataType, *columns: pa.Array) -> pa.Array:
    """Return the values of a function of unscaled numbers, of which none is null."""
    rows = zip(*(_unscaled(column) for column in columns), strict=True)
    return pa.array([None if None in row else function(*row) for row in rows], result_type)


def _unscaled(column: pa.Array) -> Iterable[int | None]:
    """Return decimals as whole numbers without their point: Python's arithmetic would round."""
    for value in column.to_pylist():
        yield None if value is None else int(format(value, "f").replace(".", ""))


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal(f"{unscaled}E-{scale}")


def _half_up(number: int, divisor: int) -> int:
    """Divide whole numbers and round, halves away from zero."""
    whole = (2 * abs(number) + abs(divisor)) // (2 * abs(divisor))
    return whole if (number < 0) == (divisor < 0) else -whole


def quotient(  # noqa: PLR0917 - as they stand in a call
    scale: int, below: int, most: int, rounded: int | None, one: int, other: int
) -> Decimal:
    """Return PostgreSQL's quotient of two numbers, given without their points.

    `scale`, `below`: their decimal places. `most`: those that the result may have. `rounded`: to
    how many it is rounded, or None.

    Raises UnknownValueError: it is divided by zero, or has more places.
    """
    if other == 0:
        raise UnknownValueError("a number is divided by zero")
    places = max(scale, below)
    if one:
        places = max(places, _SIGNIFICANT - _GROUP * _weight(one, scale, other, below))
    if places > most:
        if rounded is None:
            raise UnknownValueError(f"a quotient has more than {most} decimal places")
        return _decimal(0, rounded)
    shift = places + below - scale
    divided = _half_up(one * 10**shift, other)
    if rounded is None:
        return _decimal(divided, places)
    if places > rounded:
        divided, places = _half_up(divided, 10 ** (places - rounded)), rounded
    return _decimal(divided, places)


def _weight(one: int, scale: int, other: int, below: int) -> int:
    """Return the place of a quotient's first group of four digits, as PostgreSQL guesses it."""
    first, groups = _grouped(one, scale)
    first_below, groups_below = _grouped(other, below)
    shift = -(-scale // _GROUP) - -(-below // _GROUP)
    return groups - groups_below - shift - (first <= first_below)


def _grouped(unscaled: int, scale: int) -> tuple[int, int]:
    """Return the first group of four digits of a number, and how many it has."""
    digits = f"{abs(unscaled)}{'0' * (-scale % _GROUP)}"
    groups = -(-len(digits) // _GROUP)
    return int(digits[: len(digits) - _GROUP * (groups - 1)]), groups


def _rounded(scale: int, places: int, value: int) -> Decimal:
    if places >= scale:
        return _decimal(value, scale)
    return _decimal(_half_up(value, 10 ** (scale - places)), places)


def _floored(scale: int, _places: int, value: int) -> Decimal:
    return Decimal(value // 10**scale)


def _ceiled(scale: int, _places: int, value: int) -> Decimal:
    return Decimal(-(-value // 10**scale))


def _sign(_scale: int, _places: int, value: int) -> float:
    return float((value > 0) - (value < 0))


def _rounded_to_even(values: pa.Array) -> pa.Array:
    return pa.array(
        np.rint(values.fill_null(0).to_numpy(False)), mask=values.is_null().to_numpy(False)
    )


def _divided(values: pa.Array, others: pa.Array) -> pa.Array:
    """Return quotients of doubles; raises UnknownValueError where the divisor is zero."""
    if pc.any(pc.equal(others, 0.0)).as_py():
        raise UnknownValueError("a number is divided by zero")
    return pc.divide(values, others)


_NAMED: Mapping[str, tuple[Callable[..., pa.Array], list[pa.DataType], pa.DataType]] = {
    **times.FUNCTIONS,
    **texts.FUNCTIONS,
    "divided": (_divided, [pa.float64()] * 2, pa.float64()),
    "rounded_to_even": (_rounded_to_even, [pa.float64()], pa.float64()),
}
_OF_ONE: Mapping[str, tuple[Callable[..., Any], Callable[[int, int], int], pa.DataType | None]] = {
    "rounded": (_rounded, min, None),
    "floored": (_floored, lambda _scale, _places: 0, None),
    "ceiled": (_ceiled, lambda _scale, _places: 0, None),
    "sign": (_sign, min, pa.float64()),
}
"""Functions of one decimal: the places of the result, and its type where it is no decimal."""
