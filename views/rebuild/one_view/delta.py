"""Bring the generation that serves to a later frontier by the rows of the keys that changed.

A refresh writes a new generation. Where little has changed and readers want it soon, the one that
serves goes forward instead: the changed rows are computed as in a refresh, brought here (they are
few), proved, and given to each sink, which lets its readers see all of them at once.

Each sink knows the position that it was brought to last, since that is written with the rows. The
least of them is where the next delta begins, so that a sink that was down, or a follower that was
killed between two sinks, catches up by itself: what a delta says is true at its frontier, however
often it is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from replay.base.failures import translated
from views.generations.served import Served
from views.rebuild.local.join_values import Value, logged_values, typed_values
from views.sinks.base import GONE, Change, ForwardSink
from views.sinks.rendering import check_session, identity
from views.sinks.unique import column
from views.sinks.values import identities
from views.verify.view import SentRows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MOST_KEYS = 100_000
"""Most keys of a delta: their rows fit the driver's memory, and one step of a sink."""
KEY = "__key"
"""The column of a delta that names each of its keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Rows of some keys of a view at a frontier."""

    # a row for each key: the view's columns, `GONE`, `KEY`, and the columns that sinks are sent
    table: pa.Table
    schema: StructType  # of the view's columns
    key: tuple[str, ...]  # names of the key's columns

    def digests(self) -> dict[str, bytes]:
        """Return for each key a digest of key and row, as sinks are sent it, or of its absence.

        Raises ValueError, OverflowError: a value has no form in Python.
        """
        unsent = {KEY, *self.schema.fieldNames()}
        names = [name for name in self.table.column_names if name not in unsent]
        rows = zip(*(logged_values(self.table[name]) for name in names), strict=True)
        return {
            key: blake2b(repr((key, row)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            for key, row in zip(self.table[KEY].to_pylist(), rows, strict=True)
        }

    def only(self, keys: Collection[str]) -> Delta:
        """Return the delta of some of its keys."""
        if len(keys) == self.table.num_rows:
            return self
        is_in = pc.is_in(self.table[KEY], value_set=pa.array(list(keys), pa.string()))
        return replace(self, table=self.table.filter(is_in))

    def proof_request(self) -> SentRows:
        """Return the rows and keys that the verifier has to prove."""
        return SentRows(rows=self.table.select(self.schema.fieldNames()), is_gone=self.table[GONE])


def forward_sinks(served: Served, generation: int) -> Mapping[str, ForwardSink] | str:
    """Return a view's sinks by name if all can bring a generation forward.

    Else returns, as text, the reason that one cannot.
    """
    forward: dict[str, ForwardSink] = {}
    for name, sink in served.sinks.items():
        if not isinstance(sink, ForwardSink):
            return f"sink {name} takes only all rows of a view"
        if (why := sink.holds_back(generation)) is not None:
            return f"sink {name}: {why}"
        forward[name] = sink
    return forward


def position_of(sinks: Mapping[str, ForwardSink], generation: int) -> Position | None:
    """Return the lowest position of the sinks, or None before the first delta."""
    positions = [sink.position(generation) for sink in sinks.values()]
    known_positions = [position for position in positions if position is not None]
    return min(known_positions) if len(known_positions) == len(positions) else None


def delta_from_spark(
    change: Change, schema: StructType, key: Sequence[str], sinks: Mapping[str, ForwardSink]
) -> Delta:
    """Fetch a change from Spark: the new rows, and the keys whose rows are gone.

    Raises SinkError: a row has a null in its key, or two rows have the same.
    """
    (delta,) = deltas_from_spark(change, schema, key, sinks, parts=1)
    return delta


def deltas_from_spark(
    change: Change,
    schema: StructType,
    key: Sequence[str],
    sinks: Mapping[str, ForwardSink],
    *,
    parts: int,
) -> Iterator[Delta]:
    """Fetch the rows of a change from Spark in parts with distinct keys; see `delta_from_spark`."""
    check_session(change.rows.sparkSession)
    rows = change.rows.withColumn(GONE, F.lit(False))
    gone = change.gone.select(
        *(
            column(field.name) if field.name in key
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema.fields
        ),
        F.lit(True).alias(GONE),
    )  # fmt: skip
    both = rows.unionByName(gone).select(
        "*",
        identity(schema, key).alias(KEY),
        *(computed for sink in sinks.values() for computed in sink.delta_columns(schema)),
    )
    part = F.pmod(F.hash(KEY), F.lit(parts))
    for number in range(parts):
        with translated():
            table = (both.where(part == number) if parts > 1 else both).toArrow()
        yield Delta(table=_one_row_per_key(table, key), schema=schema, key=tuple(key))


@dataclass(frozen=True, slots=True)
class Affected:
    """Keys that a change affects, and their rows, computed without Spark."""

    rows: pa.Table  # in the types of the view
    keys: pa.Table  # all affected keys, each once, in the types of the view's key
    gone: pa.Table  # the keys without a row


def select_affected(
    rows: pa.Table, names: Sequence[str], keys: Collection[tuple[Value, ...]]
) -> Affected:
    """Return the affected keys with their rows.

    `rows`: in the types of the view, perhaps of other keys too. `names`: the columns of its key, in
    the order of the values in `keys`. `keys`: the affected keys, in the values of the log.
    """
    keys_of_rows = list(zip(*(logged_values(rows[name]) for name in names), strict=True))
    # A row with a null in its key stays, to be refused.
    is_kept = [key in keys or None in key for key in keys_of_rows]
    live_keys = {key for key, is_in in zip(keys_of_rows, is_kept, strict=True) if is_in}
    named = [key for key in keys if None not in key]
    kinds = [rows.schema.field(name).type for name in names]

    def table(some: Sequence[tuple[Value, ...]]) -> pa.Table:
        columns = [
            typed_values([key[place] for key in some], kind) for place, kind in enumerate(kinds)
        ]
        return pa.Table.from_arrays(columns, names=list(names))

    return Affected(
        rows=rows.filter(pa.array(is_kept, pa.bool_())),
        keys=table(named),
        gone=table([key for key in named if key not in live_keys]),
    )


def logged_keys(keys: pa.Table) -> set[tuple[Value, ...]]:
    """Return the rows of a table of keys in the values that are on the log."""
    return set(zip(*(logged_values(column) for column in keys.columns), strict=True))


def delta_from_arrow(
    affected: Affected, schema: StructType, key: Sequence[str], sinks: Mapping[str, ForwardSink]
) -> Delta:
    """Return the delta of rows that were computed without Spark.

    Raises SinkError: a row has a null in its key, or two rows have the same; NotRenderedError: only
    Spark renders a value as a sink needs it.
    """
    rows, gone = affected.rows, affected.gone
    columns = [
        gone[field.name] if field.name in gone.column_names else pa.nulls(len(gone), field.type)
        for field in rows.schema
    ]
    both = pa.concat_tables([rows, pa.Table.from_arrays(columns, schema=rows.schema)])
    is_gone = pa.array([False] * rows.num_rows + [True] * gone.num_rows, pa.bool_())
    delta = both.append_column(GONE, is_gone)
    delta = delta.append_column(KEY, pa.array(identities(both, key), pa.string()))
    table = _one_row_per_key(delta, key)
    plain = table.drop_columns([KEY])
    for sink in sinks.values():
        for name, values in sink.delta_values(schema, plain).items():
            table = table.append_column(name, values)
    return Delta(table=table, schema=schema, key=tuple(key))


def _one_row_per_key(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return a table with one row per key: of a key with a row and as gone, the row.

    Raises SinkError: a row has a null in its key, or two rows have the same.
    """
    is_gone, keys = table[GONE].to_pylist(), table[KEY].to_pylist()
    live_keys = _check_keys(
        [name for name, gone in zip(keys, is_gone, strict=True) if not gone], key
    )
    return _drop_duplicates(table, live_keys)


def _check_keys(keys: Sequence[str | None], columns: Sequence[str]) -> set[str]:
    """Check that no key of a row is null or occurs twice; returns them."""
    live_keys: set[str] = set()
    for name in keys:
        if name is None or name in live_keys:
            reason = "has a null in its key" if name is None else f"has the key {name} of another"
            raise SinkError(
                f"a row {reason} ({', '.join(columns)})",
                hint="declare the key that the rows really have, or aggregate them",
            )
        live_keys.add(name)
    return live_keys


def _drop_duplicates(table: pa.Table, live_keys: set[str]) -> pa.Table:
    """Drop the gone keys that are null, have a row, or came before."""
    settled = {None, *live_keys}
    keep = []
    for name, gone in zip(table[KEY].to_pylist(), table[GONE].to_pylist(), strict=True):
        keep.append(not gone or name not in settled)
        settled.add(name)
    return table.filter(pa.array(keep, pa.bool_()))


def apply(
    deltas: Sequence[tuple[Mapping[str, ForwardSink], int, Delta]], position: Position
) -> list[Exception | None]:
    """Apply a delta of each view to its sinks, all at the same time.

    `deltas`: for each view its sinks, the generation that serves, and the delta. `position`: where
    the changes start that the sinks lack afterwards.

    Returns:
        For each view its first error, or None.
    """
    jobs = [
        (number, sink, generation, delta)
        for number, (sinks, generation, delta) in enumerate(deltas)
        for sink in sinks.values()
    ]
    failed: list[Exception | None] = [None] * len(deltas)
    with ThreadPoolExecutor(max(len(jobs), 1), "apply") as pool:
        running = [
            (number, pool.submit(sink.apply, generation, delta.schema, delta.table, position))
            for number, sink, generation, delta in jobs
        ]
        for number, future in running:
            failed[number] = failed[number] or _failure(future.exception())
    return failed


def _failure(error: BaseException | None) -> Exception | None:
    if error is None or isinstance(error, Exception):
        return error
    raise error
