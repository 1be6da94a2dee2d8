"""Access to a log: connections, a slot, and a moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from replay.api.values import LogFrontier
from replay.base.config import ReplaySettings
from replay.broker.topics import read_frontier
from replay.cut.asof import AsOf, parse_as_of
from replay.cut.cut import Cut, make_cut
from replay.cut.past import find_past

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Moment = Lsn | datetime | LogFrontier | str
"""An LSN, a time (without a zone it is UTC), a frontier, or the text of an LSN or a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccess:
    """Access to a log.

    Attributes:
        kafka: the brokers.
        registry: the schema registry.
        slot: the slot whose frontiers are read.
        topic_prefix: of its topics.
        settings: safety margins and limits of reads.
        frontiers: the topic of the frontiers; when empty, named by the prefix.
        session: returns the Spark session, started at the first call.
    """

    kafka: KafkaConnection
    registry: RegistryConnection
    slot: str
    topic_prefix: str = ""
    settings: ReplaySettings = field(default_factory=ReplaySettings)
    frontiers: str = ""
    session: Callable[[], SparkSession] = field(repr=False)

    @property
    def frontier_topic(self) -> str:
        """Return the topic of the frontiers."""
        return self.frontiers or frontier_topic(self.topic_prefix)

    def newest(self) -> FrontierRecord:
        """Return the newest frontier."""
        return read_frontier(self.kafka, self.frontier_topic, self.slot)

    def cut(self, tables: Sequence[TableName], at: Moment | None = None) -> Cut:
        """Return the cut of some tables at a moment; None is now.

        Raises:
            ConfigurationError: a table is not captured, or the moment is not one.
            VerdictError: the log cannot give an older state.
            NoFrontierError: nothing is captured yet.
            UnavailableLogError: the brokers do not answer.
        """
        if isinstance(at, LogFrontier):
            return make_cut(self.kafka, at.record, tables, settings=self.settings)
        as_of = None if at is None else as_of_moment(at)
        if as_of is None:
            return make_cut(self.kafka, self.newest(), tables, settings=self.settings)
        topic = self.frontier_topic
        past = find_past(
            self.kafka, topic, self.slot, as_of, tables, settings=self.settings, option="LSN"
        )
        return past.cut


def as_of_moment(at: Moment) -> AsOf | None:
    """Convert a moment to the form that the search for a cut takes.

    Raises:
        ConfigurationError: it is not a moment.
    """
    match at:
        case Lsn():
            return AsOf(str(at), lsn=at)
        case LogFrontier():
            return AsOf(str(at.lsn), lsn=at.lsn, epoch=at.epoch)
        case datetime():
            return parse_as_of((at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat())
        case str():
            return parse_as_of(at)
        case _:
            raise ConfigurationError(
                f"{at!r} is no moment of the log", hint="give an LSN, a time or a frontier"
            )


def table_of(name: str) -> TableName:
    """Return the table of a name; without a schema it is one of `public`.

    Raises:
        ConfigurationError: it is not a name.
    """
    table = TableName.parse(name)
    if table is None:
        raise ConfigurationError(f'"{name}" is no name of a table', hint="write table, or s.table")
    return table
