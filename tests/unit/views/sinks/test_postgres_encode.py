"""Dates and timestamps that PostgreSQL does not have are refused before they are sent."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DateType, IntegerType, TimestampNTZType

from changelog.contract.base.errors import SinkError
from views.sinks.postgres import encode
from views.sinks.postgres.column_types import ColumnForm
from views.sinks.postgres.copy import tuples

FIRST_DAY, LAST_DAY = -2_440_588, 2_145_042_905
FIRST_MOMENT = -210_866_803_200_000_000
FORMS = (
    ColumnForm("id", "id", IntegerType(), "integer", "integer"),
    ColumnForm("day", "day", DateType(), "date", "date"),
    ColumnForm("at", "at", TimestampNTZType(), "timestamp", "timestamp"),
    ColumnForm("days", "days", ArrayType(DateType()), "date[]", "date[]"),
)


def days(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32()).view(pa.date32())


def moments(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int64()).view(pa.timestamp("us"))


@pytest.mark.parametrize("number", [FIRST_DAY, LAST_DAY, 0, None, -(2**31), 2**31 - 1])
def test_the_days_that_postgresql_has_are_taken(number):
    assert len(encode.date(days(number))) == 1


@pytest.mark.parametrize(
    ("number", "year"),
    [(FIRST_DAY - 328, "4715 BC"), (LAST_DAY + 1, "5874898"), (2**31 - 2, "5881580")],
)
def test_other_days_are_refused_with_their_year(number, year):
    with pytest.raises(encode.RangeError, match=f"a date of the year {year}, where") as caught:
        encode.date(days(0, None, number))
    assert caught.value.place == 2


def test_so_are_moments():
    ends = moments(FIRST_MOMENT, None, -(2**63), 2**63 - 1, 2**63 - 2)
    assert len(encode.moment(ends)) == 5
    with pytest.raises(encode.RangeError, match="from 4714 BC to 294276") as caught:
        encode.moment(moments(0, FIRST_MOMENT - 1))
    assert caught.value.place == 1


@pytest.mark.parametrize(
    ("day", "at", "listed", "named"),
    [
        (LAST_DAY + 1, 0, [[0]], "day"),
        (0, FIRST_MOMENT - 1, [[0]], "at"),
        (0, 0, [[], [0, None, LAST_DAY + 1]], "days"),
    ],
)
def test_the_column_and_the_row_are_named(day, at, listed, named):
    rows = [7, 8]
    lists = [[0], listed[-1]]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(rows, pa.int32()),
            days(None, day),
            moments(None, at),
            pa.array(lists, pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
        ],
        names=[form.name for form in FORMS],
    )
    with pytest.raises(SinkError, match=rf'column "{named}" holds .*\(in the row of id = 8\)'):
        list(tuples(FORMS, [batch], 100, ("id",)))
    with pytest.raises(SinkError, match=r"to \d+( |$)") as caught:
        list(tuples(FORMS, [batch], 100))
    assert "row of" not in str(caught.value)
