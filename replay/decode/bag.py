"""Records of a table without a primary key -> its rows: written ones less removed ones. Pure.

Without a key no record replaces another: the rows of `r`, `c` and `u` are added to a bag, those of
`d` are taken out of it, and equal rows are interchangeable
(`docs/decisions/0007-tables-without-a-key.md`). A truncation is not counted here: the frontier's
`since` is behind everything that it removed.

The position at which a row was written is beside its columns (`_lsn`, `_sequence`). When one of
several equal rows is removed, nothing says which one it was; by definition it is the oldest, so
that every read gives the same rows.

Contents are compared as they were logged. Spark's own comparison takes -0.0 for 0.0, so that of a
float is its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.headers import POSITION, Op
from changelog.contract.base.position import Position
from changelog.contract.log.order import (
    LSN_COLUMN,
    PLACE_COLUMNS,
    PLACE_DIGITS,
    SEQUENCE_COLUMN,
    refuse_own_places,
)
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import ColumnType, Kind
from replay.base.failures import fail
from replay.base.record_place import NO_POSITION
from replay.base.task_faults import TaskFault
from replay.decode.decode import built, decoded, formless, logged_name, read_columns_of, sound_row
from replay.decode.documents import ESCAPE, VALUE
from replay.decode.schemas import TopicSchemas
from replay.result.metrics import StateObservations
from replay.result.state import StateRows
from replay.scan.fold import before_position, from_position
from replay.scan.java_source import place

_OP = "op"
_ADDED = [op.value for op in (Op.READ, Op.CREATE, Op.UPDATE)]
_TAKEN = Op.DELETE.value
# In a key of `changes`, counted from 1: the operation, an epoch of 4 bytes, then these of 8 each.
_LSN_BYTE, _SEQUENCE_BYTE = 6, 14
_FLOATS = {Kind.FLOAT, Kind.DOUBLE}


def changes(raw: DataFrame, topic: str, *, since: Position | None, before: Position) -> DataFrame:
    """Return the changes of a topic without keys: `key`, `value` and their place.

    Each key is made here: the letter of the operation, then the position.

    `raw`: its records as Spark's source gives them, with their headers. `since`: records before it
    are dead; None when none are. `before`: the first position that does not count.
    """
    position, op = header_of(POSITION), header_of(_OP)
    operations = [*_ADDED, _TAKEN, Op.TRUNCATE.value]
    fault = (
        F.when(F.length(position) != 20, F.lit(NO_POSITION))  # noqa: PLR2004 - epoch, LSN, sequence
        .when(position.isNull(), F.lit(NO_POSITION))
        .when(F.col("key").isNotNull(), F.lit("it has a key, which no row of its table has"))
        .when(~F.coalesce(op, F.lit(b"")).isin(operations), F.lit("it bears no operation of a row"))
        .when(F.col("value").isNull() & (op != F.lit(Op.TRUNCATE.value)), F.lit("it has no row"))
    )
    sound = F.when(fault.isNotNull(), fail(TaskFault.CORRUPT, *place(topic), ": ", fault))
    records = raw.select(
        sound.otherwise(F.concat(op, position)).alias("key"),
        "value",
        "partition",
        "offset",
        position.alias("position"),
    )
    records = before_position(records, before)
    records = records if since is None else from_position(records, since)
    is_row = F.substring("key", 1, 1) != F.lit(Op.TRUNCATE.value)
    return records.where(is_row).drop("position")


def header_of(name: str) -> Column:
    """Return the bytes of a header, or null."""
    of_name = F.filter("headers", lambda header: header["key"] == name)
    return F.get(of_name, F.lit(0))["value"]


@dataclass(frozen=True, slots=True)
class Bag:
    """The rows of a table without a key."""

    changes: DataFrame
    schemas: TopicSchemas
    seen: StateObservations

    def rows(self) -> StateRows:
        """Return the rows; a record that cannot be read, or that is missing, ends the task."""
        schemas = self.schemas
        columns = schemas.logged(schemas.reader_id).columns
        refuse_own_places(schemas.logged(schemas.reader_id))
        names = [logged_name(number) for number in range(len(columns))]
        read = decoded(self.changes, schemas).frame
        row = built(sound_row, schemas)
        rows = read.select("partition", "offset", "key", row).select(
            "partition",
            "offset",
            F.when(F.substring("key", 1, 1) == F.lit(_TAKEN), -1).otherwise(1).alias("sign"),
            number_at("key", _LSN_BYTE).alias(LSN_COLUMN),
            number_at("key", _SEQUENCE_BYTE).alias(SEQUENCE_COLUMN),
            *(
                F.col("row").getField(column.field).alias(name)
                for column, name in zip(columns, names, strict=True)
            ),
        )
        alike = Window.partitionBy("content").orderBy(
            F.desc("sign"), *map(_newest_first, PLACE_COLUMNS)
        )
        whole = alike.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        # Of equal rows the oldest were removed, so the newest, which sort first, are left.
        counted = rows.withColumn("content", _content(columns, names)).select(
            *rows.columns,
            F.sum("sign").over(whole).alias("copies"),
            F.min(F.struct("partition", "offset")).over(whole).alias("first"),
            F.row_number().over(alike).alias("nth"),
        )
        lost = fail(
            TaskFault.LOST,
            f'topic "{schemas.topic}": a row was taken away more often than it was written (first '
            "at partition ",
            F.col("first.partition"),
            ", offset ",
            F.col("first.offset"),
            "): records of before are missing",
        )
        copies = F.when(F.col("copies") < 0, lost).otherwise(F.col("copies"))
        logged = counted.withColumn("copies", copies).where(F.col("nth") <= F.col("copies"))
        logged = logged.drop("sign", "copies", "first", "nth")
        return StateRows(
            self.seen.of_survivors(logged),
            partial(_columns_with_places, schemas),
            partial(formless, schemas),
        )

    def sound_rows(self) -> StateRows:
        """Refuse: if a record that removes a row cannot be read, the row would stay."""
        raise _no_quarantine(self.schemas.topic)

    def quarantined(self) -> DataFrame:
        """Refuse to set records aside: a table without keys has no quarantine."""
        raise _no_quarantine(self.schemas.topic)


def _columns_with_places(schemas: TopicSchemas, logged: DataFrame) -> DataFrame:
    """Return the columns of logged rows, and the position of each row."""
    return logged.select(*read_columns_of(schemas), *PLACE_COLUMNS)


def _newest_first(name: str) -> Column:
    return F.desc(name)


def number_at(column: str, first: int) -> Column:
    """Return the number in eight bytes of a column, from the byte `first` on, counted from 1."""
    digits = F.conv(F.hex(F.substring(column, first, 8)), 16, 10)
    return digits.cast(f"decimal({PLACE_DIGITS},0)")


def _no_quarantine(topic: str) -> ConfigurationError:
    return ConfigurationError(
        f'topic "{topic}" is of a table without a primary key, so none of its records can be '
        "quarantined: a delete that is left out would leave its row",
        hint="--on-bad-record fail",
    )


def _content(columns: Sequence[LoggedColumn], names: Sequence[str]) -> Column:
    """Return a column that is equal for two rows if and only if the rows are the same."""
    return F.struct(
        *(
            _exact(F.col(name), column.type).alias(name)
            for column, name in zip(columns, names, strict=True)
        )
    )


def _exact(value: Column, kind: ColumnType) -> Column:
    if kind.has_escape:
        plain = _comparable(value.getField(VALUE), kind)
        return F.when(value.isNotNull(), F.struct(plain, value.getField(ESCAPE)))
    return _comparable(value, kind)


def _comparable(value: Column, kind: ColumnType) -> Column:
    if kind.kind in _FLOATS:
        return value.cast("string")
    if kind.element is not None and kind.element.kind in _FLOATS:
        return F.transform(value, lambda item: item.cast("string"))
    return value
