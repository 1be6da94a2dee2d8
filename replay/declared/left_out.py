"""Columns that a record left out -> their values in older records of its key. Pure expressions.

PostgreSQL does not send an unchanged value that it keeps outside of the row, and Debezium writes a
placeholder. The value is then that of the newest older record of the key that has it. Three things
are kept of each key: its newest complete statement (a delete is one), its newest incomplete one,
and for each column the newest value among the incomplete ones. So no key carries a list of its
records, and a log without placeholders costs no more than without this.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.forms.declared import DeclaredLog, Unavailable
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import Kind
from replay.declared import key_changes

_KINDS = {Kind.STRING, Kind.BYTES, Kind.ARRAY, Kind.DECIMAL}
"""The types that PostgreSQL may store outside of the row, with a placeholder by Debezium."""


class LeftOutColumns:
    """The columns of a log that its records may leave out."""

    def __init__(self, log: DeclaredLog, columns: Sequence[LoggedColumn]) -> None:
        self._log, self._columns = log, columns
        self._follows = False
        self.places = [
            place
            for place, column in enumerate(columns)
            if log.leaves_out and column.type.kind in _KINDS and column.column not in log.key
        ]

    def aggregates(self, statement: Column, order: Column) -> list[Column]:
        """Return the aggregates over a key's statements: `row`, `missing` and `begins`."""
        if not self.places:
            return [F.max_by(statement, order).alias("last")]
        is_partial = F.size("missing") > 0
        ordered = F.struct(order.alias("order"), statement.alias("statement"))
        aggregates = [
            F.max_by(ordered, F.when(~is_partial, order)).alias("whole"),
            F.max_by(ordered, F.when(is_partial, order)).alias("partial"),
            F.max_by(
                F.struct(order.alias("order"), "lsn"),
                F.when(is_partial & F.col("begins"), order),
            ).alias("began"),
        ]
        for place in self.places:
            value = F.struct(order.alias("order"), self._of(F.col("row"), place).alias("value"))
            has_it = is_partial & ~F.array_contains("missing", F.lit(place))
            aggregates.append(F.max_by(value, F.when(has_it, order)).alias(_name(place)))
        return aggregates

    def followed(self, groups: DataFrame, carried: DataFrame | None) -> DataFrame:
        """Join the values that rows had under their old keys to their new keys."""
        self._follows = carried is not None
        return key_changes.joined(groups, carried)

    def last(self) -> Column:
        """Return a key's newest statement with its missing values filled, or a fault."""
        if not self.places:
            return F.col("last")
        whole, partial = F.col("whole"), F.col("partial")
        is_whole = partial.isNull() | (whole.getField("order") > partial.getField("order"))
        return F.when(is_whole, whole.getField("statement")).otherwise(
            self._filled(partial.getField("statement"))
        )

    def _filled(self, statement: Column) -> Column:
        row, missing = statement.getField("row"), statement.getField("missing")
        values, faults = [], []
        for place, column in enumerate(self._columns):
            own = self._of(row, place)
            if place in self.places:
                is_missing = F.array_contains(missing, F.lit(place))
                newest, other = self._newest(place), self._otherwise(own)
                lacks = is_missing & newest.isNull() & other.isNull()
                faults.append(F.when(lacks, F.lit(_why(column.column))))
                filled = F.coalesce(newest, other).getField("value")
                own = F.when(is_missing, filled).otherwise(own)
            values.append(own.alias(column.column))
        fault = F.coalesce(*faults)
        return statement.withField("fault", fault).withField(
            "row", F.when(fault.isNull(), F.struct(*values))
        )

    def _otherwise(self, own: Column) -> Column:
        """Return the `value` to use if no record has one, or null if that is a fault."""
        match self._log.on_unavailable:
            case Unavailable.NULL:
                return _value(F.lit(None).cast("void"))
            case Unavailable.KEEP:
                return F.when(own.isNotNull(), _value(own))  # where the type can hold it
            case _:
                return F.lit(None)

    def _newest(self, place: int) -> Column:
        """Return `value` of this row's newest statement that has one, or null."""
        whole, partial = F.col("whole"), F.col(_name(place))
        # A create starts a new row under its key: values of statements before it are another row's.
        began = F.col("began").getField("order")
        floor = F.greatest(whole.getField("order"), began)
        is_newer = floor.isNull() | (partial.getField("order") >= floor)
        before = whole.getField("statement").getField("row")
        is_own = before.isNotNull() & (began.isNull() | (whole.getField("order") > began))
        newest = F.when(partial.isNotNull() & is_newer, _value(partial.getField("value"))).when(
            is_own, _value(self._of(before, place))
        )
        is_carried = began.isNotNull() & (whole.isNull() | (began > whole.getField("order")))
        return newest.when(is_carried, F.col(key_changes.name(place))) if self._follows else newest

    def _of(self, row: Column, place: int) -> Column:
        return row.getField(self._columns[place].column)


def _value(value: Column) -> Column:
    return F.struct(value.alias("value"))


def _name(place: int) -> str:
    return f"newest_{place}"


def _why(column: str) -> str:
    return (
        f'column "{column}" was left out by the source, which does not send an unchanged value '
        "that PostgreSQL keeps outside of the row, and no older record has it"
    )
