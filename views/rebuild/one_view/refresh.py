"""The rows of a view at a new frontier, made from its rows at an older one.

What serves was true at its frontier; the checkpoints know which keys of each table were touched
since. `views.project.lineage` says which keys of the view may differ for that. These are taken out
of the rows that serve and computed anew; all others are carried over as they are. The result is
written as a new generation, like any other: no sink is changed under its readers, and a generation
is verified whole before it is published (docs/decisions/0023-checkpoints-and-refresh.md).

Where the keys cannot be told, the view is computed whole from the stored states, and says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.store.committed import committed
from replay.store.stored import FEW_ROWS, StoredStates
from views.generations.history import HistoryRow, as_served
from views.project.lineage import MARK, NO_DELTA, KeyLineage, Untraceable, trace
from views.project.query import query
from views.project.spec import SqlSource, TableReference, ViewSpec
from views.project.sql import rewritten
from views.sinks.base import Change, ForwardSink
from views.sinks.unique import column, of_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("changelog.views")

DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Prior:
    """The generation of a view that serves now."""

    generation: int  # its number
    position: Position  # the first position that it does not hold any more
    definition: str  # what it was made by
    rows: int  # how many it has
    # where its rows are as a Delta table; None where nothing is to be carried over, because the
    # generation itself goes forward
    path: str | None


@dataclass(frozen=True, slots=True)
class UnchangedView:
    """No row of the view's tables was touched."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows of the view, most of them carried over."""

    change: Change  # what differs from what serves
    touched: int  # how many source rows were touched
    # the rows that serve, opened when they are asked for; None where the generation goes forward
    before: Callable[[], DataFrame] | None

    def frame(self) -> DataFrame:
        """Return the carried rows and the changed rows together."""
        assert self.before is not None  # noqa: S101 - it goes forward and has no other rows
        gone = _sent(self.change.gone, self.change.keys)
        remaining = _without(self.before(), gone, tuple(gone.columns))
        return remaining.unionByName(self.change.rows)


@dataclass(frozen=True, slots=True)
class WholeRefresh:
    """The view is computed as a whole, for a reason."""

    why: str  # it cannot be merged


@dataclass(frozen=True, slots=True)
class RefreshBase:
    """The generation that a refresh continues, with its lineage."""

    prior: Prior | WholeRefresh  # the generation that serves, or why none can be built upon
    # the sinks, where they bring that generation forward themselves
    forward: Mapping[str, ForwardSink]


def prior_of(
    rows: Iterable[HistoryRow],
    generation: int | None,
    path: str | None,
    *,
    goes_forward: bool = False,
    position: Position | None = None,
) -> Prior | WholeRefresh:
    """Return the serving generation, or the reason why it cannot be built upon.

    `rows`: the history of the view, oldest first. `generation`: the number that every sink serves.
    `path`: where its rows are as a Delta table, None without such a sink. `goes_forward`: whether
    the sinks themselves bring it to a later frontier. `position`: from which on they lack changes;
    None where only the history knows.
    """
    rows = list(rows)
    if generation is None:
        served = as_served(rows)
        if served is None:
            return WholeRefresh("nothing serves yet in every sink")
        number = served.generation
        return WholeRefresh(f"not every sink serves generation {number}, as the history says")
    # The row of a rollback names no frontier; that of the generation's own run does.
    own = [row for row in rows if row.generation == generation and row.lsn is not None]
    if not own or own[-1].epoch is None or not own[-1].definition:
        return WholeRefresh(f"the history does not say what generation {generation} was made of")
    if path is None and not goes_forward:
        return WholeRefresh(NO_DELTA)
    newest = own[-1]
    position = position or Position(newest.epoch or 0, Lsn.parse(newest.lsn or ""), 0)
    return Prior(generation, position, newest.definition, newest.rows or 0, path)


def lineage_of(
    spec: ViewSpec,
    columns: Mapping[TableName, Sequence[str]],
    keys: Mapping[TableName, Sequence[str]],
) -> KeyLineage | Untraceable:
    """Return the derivation of the view's keys from rows of its tables."""
    if not isinstance(spec.source, SqlSource):
        return Untraceable("a view in Python does not say where its keys come from")
    if any(MARK in names for names in columns.values()):
        return Untraceable(f"a table has a column {MARK}")
    return trace(spec.source, spec.key, columns, keys)


def is_by_key(lineage: KeyLineage, spec: ViewSpec, prior: Prior) -> bool:
    """Tell whether a table's keys alone determine the rows of the view to replace."""
    if lineage.by_key is None:
        return False
    return prior.path is not None or set(lineage.by_key.values()) == set(spec.key)


class Refresher:
    """Makes the rows of the views of one run; keeps what it computes until `stack` is closed."""

    def __init__(
        self,
        spark: SparkSession,
        stored: StoredStates,
        states: Mapping[TableName, DataFrame],
        stack: ExitStack,
    ) -> None:
        """Take what is stored.

        `states`: the state of each table, for all views of the run. `stack`: keeps the frames that
        are computed until it is closed.
        """
        self._spark = spark
        self._stored = stored
        self._states = states
        self._held = stack
        self._changed: dict[tuple[TableName, Position], tuple[DataFrame, int] | None] = {}
        self._rows: dict[tuple[TableName, Position], DataFrame] = {}

    def told(self, spec: ViewSpec) -> str:
        """Return the origin of the states of a view's tables as text."""
        topics = (self._stored.cut.topics[table] for table in spec.tables)
        read = [f"{t}: {why}" for t in topics if (why := self._stored.from_start.get(t))]
        return f"checkpoint; read from the start: {'; '.join(read)}" if read else "checkpoint"

    def rows(
        self, spec: ViewSpec, prior: Prior | WholeRefresh, whole: DataFrame, definition: str
    ) -> UnchangedView | Merged | WholeRefresh:
        """Return the rows of a view at the frontier of the stored states."""
        why = self._obstacle(spec, prior, definition)
        if why is not None or isinstance(prior, WholeRefresh):
            return WholeRefresh(why or "")
        changed = {table: self._touched(table, prior.position) for table in spec.tables}
        touched_tables = {table: touch for table, touch in changed.items() if touch is not None}
        if not touched_tables:
            return UnchangedView()
        states = self._stored.states
        columns = {table: self._states[table].columns for table in spec.tables}
        lineage = lineage_of(spec, columns, {table: states[table].key for table in spec.tables})
        unknown = [
            t for t in touched_tables if not self._stored.records(t).knows_rows_at(prior.position)
        ]
        by_key = isinstance(lineage, KeyLineage) and is_by_key(lineage, spec, prior)
        if isinstance(lineage, KeyLineage) and not by_key and unknown:
            lineage = Untraceable(f"what {unknown[0]} held where its readers are is not stored")
        if isinstance(lineage, Untraceable):
            return WholeRefresh(lineage.why)
        before = None
        if prior.path is not None:
            before = partial(committed, self._spark, [prior.path], whole.schema)
        touched = sum(count for _, count in touched_tables.values())
        if by_key:
            gone, rows = self._by_key(spec, lineage, touched_tables)
            change = Change(prior=prior.generation, gone=gone, keys=touched, rows=rows)
            return Merged(change, touched, before)
        keys = self._keys(lineage, touched_tables, prior.position)
        affected = self._counted(keys)
        if affected * 2 > prior.rows and affected > FEW_KEYS:
            return WholeRefresh(f"{affected:,} of its {prior.rows:,} keys are affected")
        rows = self._by_query(spec, lineage, _sent(keys, affected), whole)
        change = Change(prior=prior.generation, gone=keys, keys=affected, rows=rows)
        return Merged(change, touched, before)

    def _obstacle(self, spec: ViewSpec, prior: Prior | WholeRefresh, definition: str) -> str | None:
        """Return the reason why the serving generation cannot be built upon, or None."""
        if isinstance(prior, WholeRefresh):
            return prior.why
        if prior.definition != definition:
            return "the view, or a schema of its tables, is another than what serves"
        for table in spec.tables:
            records = self._stored.records(table)
            is_known = records.knows_changes_since(prior.position)
            if records.checkpoint.frontier.epoch != prior.position.epoch or not is_known:
                return f"the checkpoint of {table} is younger than what serves"
        return None

    def _touched(self, table: TableName, position: Position) -> tuple[DataFrame, int] | None:
        """Return the last records of the touched keys, and their number, or None for no keys."""
        if (table, position) not in self._changed:
            changed = self._stored.records(table).changed_since(position)
            count = 0
            if changed is not None:
                count = self._counted(changed.records) if changed.count is None else changed.count
            self._changed[table, position] = (changed.records, count) if changed and count else None
        return self._changed[table, position]

    def _counted(self, frame: DataFrame) -> int:
        """Keep a frame and count its rows, which computes it."""
        with translated():
            return self._kept(frame).count()

    def _kept(self, frame: DataFrame) -> DataFrame:
        """Keep a frame once something computes it."""
        frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._held.callback(frame.unpersist)
        return frame

    def _by_key(
        self,
        spec: ViewSpec,
        lineage: KeyLineage,
        touched: Mapping[TableName, tuple[DataFrame, int]],
    ) -> tuple[DataFrame, DataFrame]:
        """Return the touched rows by the table's key, and what they are now."""
        ((table, (changed, _)),) = touched.items()
        records = self._stored.records(table)
        assert lineage.by_key is not None  # noqa: S101 - the caller looked
        gone = records.decoded_keys(changed).select(
            *(column(name).alias(key_column) for name, key_column in lineage.by_key.items())
        )
        rows = records.decoded(changed.where(F.col("value").isNotNull()))
        return gone, self._query(spec, dict.fromkeys(lineage.source.references, rows))

    def _by_query(
        self,
        spec: ViewSpec,
        lineage: KeyLineage,
        keys: DataFrame,
        whole: DataFrame,
    ) -> DataFrame:
        """Compute the rows of the affected keys again from their source rows."""
        anchor = lineage.anchor
        if anchor is None:
            return _only(whole, keys, {name: name for name in spec.key})
        columns = {origin.column: origin.view_column for origin in lineage.origins}
        frames = {place: self._states[place.table] for place in lineage.names}
        frames[anchor] = _only(frames[anchor], keys, columns)
        return self._query(spec, frames)

    def _query(self, spec: ViewSpec, frames: Mapping[TableReference, DataFrame]) -> DataFrame:
        assert isinstance(spec.source, SqlSource)  # noqa: S101 - only such a view has a lineage
        return query(self._spark, frames, partial(rewritten, spec.source))

    def _keys(
        self, lineage: KeyLineage, changed: Collection[TableName], position: Position
    ) -> DataFrame:
        """Return the keys of the view that may differ: of tuples with a touched row, old or new.

        One query asks for all of them where equalities join the tables: one for each place would
        plan all tables as often as there are places.
        """
        places = [place for place in lineage.names if place.table in changed]
        groups = [places] if lineage.is_linked else [[place] for place in places]
        keys = (self._keys_at(lineage, group, changed, position) for group in groups)
        return reduce(lambda one, other: one.unionByName(other), keys).distinct()

    def _keys_at(
        self,
        lineage: KeyLineage,
        places: Sequence[TableReference],
        changed: Collection[TableName],
        position: Position,
    ) -> DataFrame:
        """Return the keys of tuples with a touched row at one of some places."""
        rows: dict[TableName, DataFrame] = {}
        for table in {place.table: None for place in lineage.names}:
            rows[table] = _marked(self._states[table], False)
            if table in changed:
                touched = _marked(self._touched_rows(table, position), True)
                rows[table] = rows[table].union(touched)
        named = {place: rows[place.table] for place in lineage.names}
        if len(places) == 1:  # every tuple that is asked for has a touched row there
            named[places[0]] = _marked(self._touched_rows(places[0].table, position), True)
        return query(self._spark, named, partial(lineage.keys_sql, places))

    def _touched_rows(self, table: TableName, position: Position) -> DataFrame:
        """Return the rows that a table's touched keys had at a position, and have."""
        if (table, position) not in self._rows:
            touched = self._touched(table, position)
            assert touched is not None  # noqa: S101 - the caller looked
            records = self._stored.records(table)
            older = records.rows(records.before(position, touched[0]))
            newer = records.rows(touched[0].where(F.col("value").isNotNull()))
            kept = self._kept(older.logged.unionByName(newer.logged))
            self._rows[table, position] = newer.read(kept)
        return self._rows[table, position]


def _marked(rows: DataFrame, is_touched: bool) -> DataFrame:
    return rows.withColumn(MARK, F.lit(is_touched))


FEW_KEYS = 100_000
"""Up to so many affected keys are merged whatever their share is."""


def _sent(keys: DataFrame, count: int) -> DataFrame:
    """Send keys to every task where they are few, so that rows are neither sorted nor moved."""
    return F.broadcast(keys) if count <= FEW_ROWS else keys


def _without(rows: DataFrame, keys: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """Leave out the rows with one of the keys."""
    own_keys, same = of_keys(keys, {name: name for name in names})
    return rows.join(own_keys, on=same, how="left_anti")


def _only(rows: DataFrame, keys: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Keep the rows with one of the keys; `names` maps row columns to key columns."""
    own_keys, same = of_keys(keys, names)
    return rows.join(own_keys, on=same, how="left_semi")
