"""Columns whose values views get by a choice: null where a value has no form, or PostgreSQL's text.

Spark's text of a day differs from PostgreSQL's outside of the years 1 to 9999: it has a sign, and
counts a year 0. The ends of the range of days and moments are PostgreSQL's infinities.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.rows.choices import ValueChoice
from changelog.contract.rows.types import ColumnType, Kind
from replay.decode.documents import ESCAPE, VALUE

_INFINITIES = {
    Kind.DATE: ("+5881580-07-11", "-5877641-06-23"),
    Kind.TIMESTAMP: ("+294247-01-10 04:00:54.775807", "-290308-12-21 19:59:05.224192"),
}
"""Spark's texts of the ends of the 32 and the 64 bits."""
_ZONES = {Kind.DATE: "", Kind.TIMESTAMP: "", Kind.TIMESTAMPTZ: "+00"}


def chosen(value: Column, kind: ColumnType, choice: ValueChoice) -> Column:
    """Return a column, as the log has it, in the form that was chosen for views."""
    if kind.has_escape:
        plain = value.getField(VALUE)
        if choice is ValueChoice.NULL:
            return plain
        return F.coalesce(value.getField(ESCAPE), plain.cast("string"))
    bare = value.cast("timestamp_ntz") if kind.kind is Kind.TIMESTAMPTZ else value
    text = bare.cast("string")
    last, first = _INFINITIES[Kind.DATE if kind.kind is Kind.DATE else Kind.TIMESTAMP]
    infinity = F.when(text == last, "infinity").when(text == first, "-infinity")
    if choice is ValueChoice.NULL:
        return F.when(infinity.isNull(), value)
    day = F.substring_index(text, " ", 1)
    clock = F.lit("") if kind.kind is Kind.DATE else F.substring_index(text, " ", -1)
    behind = F.concat(F.lit("" if kind.kind is Kind.DATE else " "), clock, F.lit(_ZONES[kind.kind]))
    year = F.year(bare)
    old = F.concat(F.format_string("%04d", 1 - year), F.right(day, F.lit(len("-MM-DD"))))
    return F.coalesce(
        infinity,
        F.when(year > 0, F.concat(F.ltrim(day, F.lit("+")), behind)),
        F.concat(old, behind, F.lit(" BC")),
    )
