"""Functions of dates and times for DataFusion, over days and microseconds since 1970.

Outside of the years 1 to 9999 the engines differ, and there PostgreSQL's infinite values are: such
a value raises UnknownValueError, and the view's rows are left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from views.rebuild.plan.dialect import UnknownValueError

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Of the years 1 to 9999, since 1970."""
_DAY = 86_400_000_000
_MINUTE = 60_000_000
_START = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone
_STAMP = pa.timestamp("us")


def _in_years(numbers: pa.Array, unit: int) -> pa.Array:
    """Return days (`unit` 1) or microseconds; raises UnknownValueError for one out of range."""
    ends = pc.min_max(numbers).as_py()
    first, last = _FIRST_DAY * unit, (_LAST_DAY + 1) * unit - 1
    if ends["min"] is not None and not first <= ends["min"] <= ends["max"] <= last:
        raise UnknownValueError("a date is outside the years 1 to 9999")
    return numbers


def _stamps(micros: pa.Array) -> pa.Array:
    return _in_years(micros, _DAY).view(_STAMP)


def _of_numbers(
    function: Callable[..., np.ndarray], kind: pa.DataType, *columns: pa.Array
) -> pa.Array:
    """Return a function of whole numbers; null where one of them is."""
    is_null = np.logical_or.reduce([column.is_null().to_numpy(False) for column in columns])
    numbers = [column.fill_null(0).to_numpy(False).astype(np.int64) for column in columns]
    return pa.array(function(*numbers), kind, mask=is_null)


def micros_of_day(days: pa.Array) -> pa.Array:
    """Return the microseconds of the first moment of days."""
    return pc.multiply(_in_years(days, 1).cast(pa.int64()), _DAY)


def day_of_micros(micros: pa.Array) -> pa.Array:
    """Return the days of moments."""
    return _of_numbers(lambda numbers: numbers // _DAY, pa.int32(), _in_years(micros, _DAY))


def day_of_parts(years: pa.Array, months: pa.Array, days: pa.Array) -> pa.Array:
    """Return the days of years, months and days of the month."""
    rows = zip(years.to_pylist(), months.to_pylist(), days.to_pylist(), strict=True)
    return pa.array([None if None in row else _day_number(*row) for row in rows], pa.int32())


def _day_number(year: int, month: int, day: int) -> int:
    try:
        return (date(year, month, day) - _START.date()).days
    except (ValueError, OverflowError) as error:
        raise UnknownValueError(f"there is no day {year}-{month}-{day}") from error


def moved_day(days: pa.Array, numbers: pa.Array) -> pa.Array:
    """Return days moved by some days."""
    moved = pc.add_checked(_in_years(days, 1).cast(pa.int64()), numbers)
    return _in_years(moved, 1).cast(pa.int32())


def days_between(days: pa.Array, others: pa.Array) -> pa.Array:
    """Return the number of days from the second day to the first."""
    return pc.subtract(_in_years(days, 1), _in_years(others, 1))


def moved(micros: pa.Array, months: pa.Array, steps: pa.Array) -> pa.Array:
    """Return moments moved by some months, and then by some microseconds.

    A day that the month does not have becomes its last one.
    """
    return _in_years(_of_numbers(_moved, pa.int64(), _in_years(micros, _DAY), months, steps), _DAY)


def _moved(micros: np.ndarray, months: np.ndarray, steps: np.ndarray) -> np.ndarray:
    days = (micros // _DAY).astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    target = month + months
    first = target.astype("datetime64[D]").astype(np.int64)
    last = (target + 1).astype("datetime64[D]").astype(np.int64) - first - 1
    place = (days - month.astype("datetime64[D]")).astype(np.int64)
    result: np.ndarray = (first + np.minimum(place, last)) * _DAY + micros % _DAY + steps
    return result


def _truncated(unit: str, micros: pa.Array) -> pa.Array:
    stamps = pc.floor_temporal(_stamps(micros), 1, unit, week_starts_monday=True)
    return _in_years(stamps.view(pa.int64()), _DAY)


def _part(part: Callable[[pa.Array], pa.Array], micros: pa.Array) -> pa.Array:
    return part(_stamps(micros)).cast(pa.int32())


def _seconds(micros: pa.Array) -> pa.Array:
    values = _in_years(micros, _DAY).to_pylist()
    seconds = [None if value is None else Decimal(value % _MINUTE).scaleb(-6) for value in values]
    return pa.array(seconds, pa.decimal128(8, 6))


def _texts(form: Callable[[datetime], str], micros: pa.Array) -> pa.Array:
    values = _in_years(micros, _DAY).to_pylist()
    texts = [None if v is None else form(_START + timedelta(microseconds=v)) for v in values]
    return pa.array(texts, pa.string())


def _time_text(moment: datetime) -> str:
    text = moment.isoformat(sep=" ")
    return text.rstrip("0") if moment.microsecond else text


def formatted(micros: pa.Array, patterns: pa.Array) -> pa.Array:
    """Return moments as texts; `patterns` has the same pattern in each row: %Y %m %d %H %M %S."""
    pattern = patterns[0].as_py() if len(patterns) else ""

    def form(moment: datetime) -> str:
        return moment.strftime(pattern.replace("%Y", f"{moment.year:04d}"))

    return _texts(form, micros)


_I32, _I64 = pa.int32(), pa.int64()
FUNCTIONS: Mapping[str, tuple[Callable[..., pa.Array], list[pa.DataType], pa.DataType]] = {
    "micros_of_day": (micros_of_day, [_I32], _I64),
    "day_of_micros": (day_of_micros, [_I64], _I32),
    "day_of_parts": (day_of_parts, [_I64] * 3, _I32),
    "moved_day": (moved_day, [_I32, _I64], _I32),
    "days_between": (days_between, [_I32] * 2, _I32),
    "moved": (moved, [_I64] * 3, _I64),
    "formatted": (formatted, [_I64, pa.string()], pa.string()),
    "date_text": (
        lambda micros: _texts(lambda at: at.date().isoformat(), micros),
        [_I64],
        pa.string(),
    ),
    "time_text": (lambda micros: _texts(_time_text, micros), [_I64], pa.string()),
    "part_second": (_seconds, [_I64], pa.decimal128(8, 6)),
    **{
        f"part_{name}": (lambda micros, part=part: _part(part, micros), [_I64], _I32)
        for name, part in {
            "year": pc.year,
            "quarter": pc.quarter,
            "month": pc.month,
            "week": pc.iso_week,
            "day": pc.day,
            "dow": lambda at: pc.day_of_week(at, count_from_zero=False, week_start=7),
            "doy": pc.day_of_year,
            "hour": pc.hour,
            "minute": pc.minute,
        }.items()
    },
    **{
        f"truncated_{unit}": (lambda micros, unit=unit: _truncated(unit, micros), [_I64], _I64)
        for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
    },
}
"""By name: the function, the types of its arguments, and the type of its result."""
