"""Columns that no sink holds, and the hint of each."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from changelog.contract.base.errors import SinkError
from views.sinks.shape import check_shape


@pytest.mark.parametrize(
    "kind", [DayTimeIntervalType(), YearMonthIntervalType(), CalendarIntervalType()]
)
def test_of_an_interval_the_days_between_two_dates_are_proposed(kind: DataType) -> None:
    schema = StructType([StructField("id", IntegerType()), StructField("a", kind)])
    with pytest.raises(SinkError, match='column "a" is an interval') as refused:
        check_shape(schema, ["id"])
    assert refused.value.hint.startswith("write datediff(x, y)")
