"""States from checkpoints, with the present and the earlier records of keys.

A state is the records of a base layer, except for the keys that were touched since, whose records
are in the later layers. The log is no longer needed, so computing a view has no deadline.
`replay.store.advancer` makes the checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.base.clock import Clock
from replay.base.record_place import RECORD, cut_of
from replay.cut.cut import Cut, recheck
from replay.decode.decode import decode
from replay.decode.schemas import TopicSchemas
from replay.result.state import StateRows, States, TableMetrics
from replay.scan.fold import (
    before_position,
    fold_on,
    from_position,
    last_of_each_key,
    with_values,
)
from replay.store.checkpoint import Checkpoint

FEW_ROWS = 2_000_000  # keys that fit the memory of every task, so that a join may broadcast them


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStates(States):
    """The states of some tables at one frontier, from checkpoints; like a `Replay` of the log.

    Attributes:
        cut: the cut that the log was read at.
        states: the state of each table.
    """

    checkpoints: Mapping[TableName, Checkpoint]  # of each table
    from_start: Mapping[str, str]  # the topics that were read from their start, and why
    superseded: tuple[str, ...]  # places of layers that no checkpoint needs any more
    _metrics: Mapping[TableName, TableMetrics | None] = field(repr=False)
    _records: Mapping[TableName, StoredRecords] = field(repr=False)
    _proof: Cut | None = field(repr=False)
    _kafka: KafkaConnection = field(repr=False)
    _clock: Clock = field(repr=False)

    @property
    def reads_log(self) -> bool:
        """Return False: the log was read when the checkpoints were brought to the frontier."""
        return False

    def metrics(self) -> Mapping[TableName, TableMetrics | None]:
        """Return the counts of the read of the log for each table."""
        return self._metrics

    def watched(self) -> AbstractContextManager[None]:
        """Watch nothing: the log was watched while it was read, and is needed no more."""
        return nullcontext()

    def recheck(self) -> None:
        """Check that the log can still be read exactly from its start, as a verifier does.

        For these states themselves that was checked before the checkpoints were sealed.

        Raises VerdictError: a topic or its settings changed, a leader moved, or a deadline passed;
        UnavailableLogError: the brokers do not answer.
        """
        if self._proof is not None:
            recheck(self._proof, self._kafka, self._clock)

    def records(self, table: TableName) -> StoredRecords:
        """Return the records of a state."""
        return self._records[table]


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """The last records of the keys that were touched from a position on."""

    records: DataFrame  # one a key, tombstones included
    count: int | None  # how many, where that is known without reading them


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """The records of a checkpoint, as they were on the log."""

    checkpoint: Checkpoint  # the one that has them
    schemas: TopicSchemas  # to decode them
    base: DataFrame  # one record of each key that lived when the base layer was made
    # the last record of each key that was touched since, tombstones included; None when there is no
    # such layer
    touched: DataFrame | None
    layers: DataFrame | None  # all records behind the base layer; None when there is none
    read: Callable[[Sequence[str]], DataFrame]  # gives the records of some layers, by their names

    def survivors(self) -> DataFrame:
        """Return the record of each live key."""
        if self.touched is None:
            return self.base
        return fold_on(self.base, self.touched, few=self.touched_at_most <= FEW_ROWS)

    @property
    def touched_at_most(self) -> int:
        """Return an upper bound of the keys that were touched since the base layer."""
        return sum(layer.rows for layer in self.checkpoint.layers[1:])

    def knows_changes_since(self, position: Position) -> bool:
        """Tell whether every key that was touched from a position on is among the layers."""
        return cut_of(self.checkpoint.founded) <= position

    def knows_rows_at(self, position: Position) -> bool:
        """Tell whether the layers have the record that every touched key had at a position.

        A layer has only the last record of each key. For a position inside of a layer, to which a
        follower has brought sinks without Spark, the records of keys touched again are missing.
        """
        if position < cut_of(self.checkpoint.folded):
            return False
        return self.checkpoint.layers_since(position) is not None

    def changed_since(self, position: Position) -> ChangedRecords | None:
        """Return the last record of each key changed since a position; None if it has no layer."""
        layers = self.checkpoint.layers_since(position)
        if self.layers is None or (layers is not None and not layers):
            return None
        if layers is not None and len(layers) == 1:
            return ChangedRecords(self.read([layers[0].name]), layers[0].rows)
        # The last record of a key touched since is among those since: older layers need no fold.
        since = from_position(self.layers, position)
        is_single = self.touched is self.layers
        return ChangedRecords(since if is_single else last_of_each_key(since, RECORD[1:]), None)

    def before(self, position: Position, keys: DataFrame) -> DataFrame:
        """Return the records that some keys had before a position; a deleted key has none."""
        chosen = keys.select("key")
        if self.touched_at_most <= FEW_ROWS:
            chosen = F.broadcast(chosen)
        records = self.base.join(chosen, on="key", how="left_semi")
        if self.layers is not None:
            older = before_position(self.layers, position)
            records = records.unionByName(older.join(chosen, on="key", how="left_semi"))
        return with_values(last_of_each_key(records, RECORD[1:]))

    def decoded(self, records: DataFrame) -> DataFrame:
        """Return the rows of this topic's records, none of which is a tombstone."""
        return self.rows(records).frame

    def rows(self, records: DataFrame) -> StateRows:
        """Return the rows of records in the form that can be stored."""
        # Spark does not push a view's conditions below an observation. Otherwise it would merge
        # them with the filter "the value is not null" and evaluate them first, on tombstones too.
        sound = records.observe(Observation(), F.count(F.lit(1)).alias("rows"))
        return decode(sound, self.schemas)

    def decoded_keys(self, records: DataFrame) -> DataFrame:
        """Return the key columns alone, of tombstones too."""
        keys = records.select("key", F.col("key").alias("value"), "partition", "offset")
        return decode(keys, self.schemas.of_keys()).frame
