"""Connections, tables and topics of one attempt of capture, all checked before use.

Everything that can be refused is checked first, also by `capture --check`; only then does `make`
create the topics, and `publish` the publication, so that a refused start leaves no objects.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from changelog.capture.rows.forms import check_forms
from changelog.capture.rows.groups import TableGroups
from changelog.capture.rows.rules import CaptureRules, catalogue_of, groups_of, narrowed
from changelog.capture.rows.tables import CapturedTables
from changelog.capture.start.rights import to_alter
from changelog.capture.start.selection import say_uncaptured, wanted_tables, was_captured
from changelog.capture.start.topics import schemas_of, topic_plans
from changelog.capture.state.newcomers import WAITS, Newcomers
from changelog.capture.state.report import CapturedTable
from changelog.config import Project
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    LookAgainError,
    SourceError,
    UnavailableLogError,
    UnavailableSourceError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import TableBackfill
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import WHOLE, Scope
from changelog.contract.log.standing import PublicationVersion
from changelog.contract.log.topic import frontier_topic, topic_names
from changelog.contract.rows.relation import Relation, TableName
from changelog.kafka.cluster import Cluster, TopicDescription, describe, nothing
from changelog.postgres.connection import Connection
from changelog.sink.dead_keys import DeadKeys, dead_keys
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.sink.topics import TopicPlan, make_topics
from changelog.source.connect.connect import connect
from changelog.source.connect.replica_identity import Identity, make_full
from changelog.source.connect.standby import Primary, await_replay, check_source
from changelog.source.connect.system import SystemIdentity, current_lsn, identify, in_recovery
from changelog.source.tables.catalogue import Catalogue, Table
from changelog.source.tables.ddl import has_ddl, install_ddl

log = logging.getLogger("changelog.capture")

_STABLE_S, _NAP_S = 10.0, 0.05
"""How long to wait for aborted transactions to end, and how often to look: brokers take moments."""


@dataclass(slots=True, kw_only=True)
class Environment:
    """Connections of one attempt, and the tables and topics looked up through them."""

    settings: Project  # the project
    connection: Connection = field(repr=False)  # to the source, in autocommit mode
    system: SystemIdentity  # the source's identity
    relations: dict[TableName, Relation]  # each captured table
    tables: CapturedTables  # topics and codecs
    frontiers: FrontierLog  # the frontier topic
    cluster_id: str  # the Kafka cluster's identifier
    descriptions: dict[str, TopicDescription]  # each table's topic as the broker describes it
    # the topics of messages and schema changes, as the broker describes them
    logs: dict[str, TopicDescription]
    catalogue: Catalogue  # the source's catalogue
    rules: CaptureRules  # which rows and columns are captured
    scopes: dict[TableName, Scope]  # the captured part of tables that are not captured whole
    # the row filter of each table as the server writes it; set by `publish`
    filters: dict[TableName, str] = field(default_factory=dict)
    # wanted tables that cannot be captured, with the reason
    refused: dict[TableName, str] = field(default_factory=dict)
    # refused tables that were examined again because of a request for a copy, with its LSN
    looked: dict[TableName, Lsn] = field(default_factory=dict)
    # the present identity of tables that are going to get REPLICA IDENTITY FULL
    altered: list[Identity] = field(default_factory=list)
    # the captured tables that have REPLICA IDENTITY FULL, or will have it
    full: frozenset[TableName] = frozenset()
    is_standby: bool = False  # whether the source was a standby at the last look
    primary: Primary | None = None  # takes the writes that a standby cannot take
    _plans: tuple[TopicPlan, ...] = ()
    publication: PublicationVersion | None = None  # at the last look

    @property
    def writer(self) -> Connection:
        """Return a connection that can write: to the source, or to its primary.

        Raises SourceError: the source is a standby, and the settings name no primary;
        UnavailableSourceError: the primary does not answer.
        """
        if self.primary is None or not self.is_standby or not in_recovery(self.connection):
            return self.connection
        return self.primary.connection()

    @property
    def can_write(self) -> bool:
        """Tell whether there is a server to write to."""
        return not self.is_standby or (self.primary is not None and self.primary.is_known)

    def notice_promotion(self) -> None:
        """Note that a standby was promoted: its stream goes on, under its own new timeline."""
        if not self.is_standby or in_recovery(self.connection):
            return
        before, self.system = self.system, identify(self.settings.postgres)
        self.is_standby = False
        log.warning(
            "the standby was promoted: timeline %d follows %d, and the stream continues",
            self.system.timeline,
            before.timeline,
        )

    @property
    def topics(self) -> dict[TableName, str]:
        """Return the topic of each captured table."""
        return self.tables.topics

    def captured(self) -> list[CapturedTable]:
        """Return each captured table and its topic."""
        tables = []
        for name, topic in self.topics.items():
            shape = self.rules.shape(self.relations[name])
            logged = shape.logged
            pairs = zip(logged.columns, shape.masks, strict=True)
            masked = frozenset(column.name for column, mask in pairs if mask is not None)
            tables.append(CapturedTable(shape.relation, topic, logged, masked))
        return tables

    @property
    def groups(self) -> TableGroups:
        """Return the groups of tables, each with its publication."""
        return groups_of(self.settings.capture)

    @property
    def names(self) -> dict[int, TableName]:
        """Return the names of the captured tables by object id."""
        return {relation.oid: name for name, relation in self.relations.items()}

    def table_of(self, topic: str) -> TableName:
        """Return the table of a topic; raises KeyError if the topic holds no table."""
        return {topic: table for table, topic in self.topics.items()}[topic]

    @property
    def topic_ids(self) -> dict[str, str]:
        """Return Kafka's id of each topic that is written."""
        descriptions = {**self.descriptions, **self.logs}
        return {topic: description.topic_id for topic, description in descriptions.items()}

    @property
    def partitions(self) -> dict[str, int]:
        """Return the number of partitions of each topic that is written."""
        descriptions = {**self.descriptions, **self.logs}
        return {topic: description.partitions for topic, description in descriptions.items()}

    def refused_records(self) -> dict[str, TableBackfill]:
        """Return the progress records of refused tables, by the topics that they would have."""
        records = {}
        for table, why in self.refused.items():
            with suppress(ConfigurationError):  # its topic's name is that of a captured table
                topic = topic_names({*self.topics, table}, self.settings.topic_prefix)[table]
                records[topic] = TableBackfill(
                    table=table, reason=f"it {why}", is_excluded=True, fault=why
                )
        return records

    def scope_of(self, table: TableName) -> Scope:
        """Return the scope of a table: which rows and columns are captured."""
        return self.scopes.get(table, WHOLE)

    def current_lsn(self) -> Lsn:
        """Return the end of the source's WAL."""
        return current_lsn(self.connection)

    @property
    def unkeyed(self) -> set[str]:
        """Return the topics of tables without a primary key."""
        return {self.topics[name] for name, relation in self.relations.items() if not relation.key}

    def rescoped(self, frontier: Frontier, skipped: Collection[TableName] = ()) -> set[TableName]:
        """Return the tables whose scope on the log differs from the settings, except `skipped`.

        Their rows have to be written again: what was left out before is missing on the log, and
        what is left out now would stay there.
        """
        tables = {
            table
            for topic, table in frontier.tables.items()
            if self.topics.get(table) == topic and frontier.scope_of(topic) != self.scope_of(table)
        } - {*skipped}
        for table in sorted(tables):
            if not frontier.is_copied(self.topics[table]):
                log.info("table %s was not copied before: copying it", table.said)
                continue
            log.warning(
                "table %s is captured in another way than before: taking a fresh snapshot of it; "
                "its older records stay on the topic until they are cleaned",
                table.said,
            )
        return tables

    @property
    def written_topics(self) -> set[str]:
        """Return the topics of tables, messages and schema changes, existing or not.

        A frontier names the ends of these topics.
        """
        _, logs = self._plans
        return {*self.topics.values(), *logs.there, *(topic.topic for topic in logs.missing)}

    @property
    def missing_topics(self) -> list[str]:
        """Return the topics that `make` creates."""
        return [topic.topic for plan in self._plans for topic in plan.missing]

    def give_identity(self) -> list[Identity]:
        """Give the tables in `altered` REPLICA IDENTITY FULL; return their former identities.

        Raises SourceError: a table cannot be altered; then none is.
        """
        altered, self.altered = self.altered, []
        if altered:
            writer = self.writer
            make_full(writer, [identity.table for identity in altered])
            for identity in altered:
                log.info("table %s has REPLICA IDENTITY FULL now", identity.table.said)
            if writer is not self.connection:
                await_replay(self.connection, writer)
        self.catalogue.gives_full = None  # from here on the catalogue itself says it
        return altered

    def make(self) -> None:
        """Create missing topics, alter topics that differ, and watch the schema if configured.

        Raises LogError: see `make_topics`.
        """
        tables, logs = (make_topics(self.settings.kafka, plan) for plan in self._plans)
        self.descriptions = {name: tables[name] for name in self.topics.values()}
        self.logs = logs
        if self.settings.capture.ddl:
            _watch_schema(self)

    def check_topics(self, frontier: Frontier) -> set[TableName]:
        """Check that the topics have the ids that the frontier names.

        Returns:
            The tables whose topic was deleted or recreated, if the settings want them copied again.

        Raises LogError: it is another cluster, or a topic was deleted or recreated.
        """
        if frontier.cluster_id != self.cluster_id:
            raise LogError(
                f"the frontier was written on Kafka cluster {frontier.cluster_id}, "
                f"this one is {self.cluster_id}",
                hint="drop the slot with `changelog slot drop`; the next start takes a snapshot",
            )
        captured, recreated = set(self.topics.values()), set()
        for topic, topic_id in frontier.topic_ids.items():
            present_id = self.topic_ids.get(topic)
            if present_id == topic_id or (present_id is None and topic not in captured):
                continue
            if topic in self.logs:
                log.warning('topic "%s" was made anew: what it held is lost', topic)
            elif self.settings.capture.on_incompatible == "resnapshot":
                recreated.add(frontier.tables[topic])
            else:
                raise _topic_lost(topic, present_id)
        return recreated

    def refuse_gone(self, absent: Collection[str]) -> None:
        """Check, after an error of the log, that the topics still have their ids of the start.

        `absent` are the topics of excluded tables.

        Raises LookAgainError: a topic was deleted or recreated, and the next attempt repairs that;
        LogError: the same, and the settings do not allow a repair.
        """
        ids = {topic: id_ for topic, id_ in self.topic_ids.items() if topic not in absent}
        described = Cluster(self.settings.kafka, on_wait=self.frontiers.on_wait).topics(ids)
        for topic, topic_id in ids.items():
            present_id = described[topic].topic_id if topic in described else None
            if present_id == topic_id:
                continue
            lost = _topic_lost(topic, present_id)
            is_repaired = self.settings.capture.on_incompatible == "resnapshot"
            raise LookAgainError(str(lost.args[0])) if is_repaired or topic in self.logs else lost

    def held_back(self) -> dict[str, int]:
        """Return our topics in which a transaction is open, each with its first offset."""
        own = frontier_topic(self.settings.capture.topic_prefix)
        return self.frontiers.held_back([own, *self.topics.values(), *self.logs])

    def await_stable(self) -> None:
        """Wait until no transaction is open in our topics: aborting takes the brokers a moment.

        Raises UnavailableLogError: a transaction stays open.
        """
        deadline = time.monotonic() + _STABLE_S
        while held_back := self.held_back():
            if time.monotonic() > deadline:
                topic, offset = next(iter(held_back.items()))
                raise UnavailableLogError(
                    f'topic "{topic}": a transaction of another program is open since '
                    f"offset {offset}: nothing after it can be read",
                    hint="it ends with its producer or after the producer's timeout; one that "
                    "hangs is ended by `kafka-transactions.sh abort`",
                )
            time.sleep(_NAP_S)

    def dead_keys(
        self,
        producer: LogProducer,
        topic: str,
        since: Position,
        *,
        alive_from: Sequence[int] = (),
        starts: Sequence[int] = (),
        on_wait: Callable[[], None] = nothing,
    ) -> DeadKeys:
        """Return the rows whose records are all before `since`; see `dead_keys`."""
        if topic in self.unkeyed:
            return DeadKeys((), ())
        producer.commit()  # else records that we have written would not be read
        ends = self.frontiers.ends([topic])[topic]
        kafka = self.settings.kafka
        prefix = self.tables.key_prefix(self.relations[self.table_of(topic)])
        keys = dead_keys(
            kafka,
            topic,
            since,
            ends,
            prefix=prefix,
            alive_from=alive_from,
            starts=starts,
            on_wait=on_wait,
        )
        return DeadKeys(ends, keys)


def _topic_lost(topic: str, topic_id: str | None) -> LogError:
    """Return the error about a topic that is gone, or that has another id now."""
    fate = "was deleted" if topic_id is None else "was made anew"
    return LogError(
        f'topic "{topic}" {fate}: what it held is lost',
        hint="start with `--on-incompatible resnapshot`: it copies the table anew",
    )


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Facts read from the source: the tables to capture, and the refused tables."""

    connection: Connection
    catalogue: Catalogue
    rules: CaptureRules
    tables: tuple[Table, ...]
    refused: dict[TableName, str]

    @property
    def relations(self) -> dict[TableName, Relation]:
        """Return the relation of each table to capture."""
        return {table.name: table.relation for table in self.tables}


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts read from the log: the cluster, and the last frontier, if there is one."""

    cluster_id: str
    frontiers: FrontierLog
    last: Frontier | None


@contextmanager
def survey(settings: Project, newcomers: Newcomers) -> Iterator[Environment]:
    """Connect and check everything; `Environment.make` creates the missing objects.

    Raises ChangelogError: capture cannot start; see each family.
    """
    capture = settings.capture
    with ExitStack() as stack:
        topic = frontier_topic(capture.topic_prefix)
        frontiers = stack.enter_context(FrontierLog(settings.kafka, topic))
        # The log is read in a thread while the source is asked: a start is as fast as the slower.
        pool = stack.enter_context(ThreadPoolExecutor(1, "changelog frontiers"))
        log_answer = pool.submit(lambda: (frontiers.cluster_id(), frontiers.last(capture.slot)))
        connection = stack.enter_context(closing(connect(settings.postgres)))
        check_source(connection)
        system = identify(settings.postgres)
        rules = CaptureRules(capture, str(connection.info.dbname))
        # Once this process streams, it alters no more tables: nobody is there to consent.
        catalogue = catalogue_of(connection, capture, gives_full=not newcomers.proven)
        cluster, record = log_answer.result()
        log_facts = LogFacts(cluster, frontiers, record.frontier if record is not None else None)
        schemas = stack.enter_context(closing(schemas_of(settings, frontiers)))
        if log_facts.last is not None:
            newcomers.spoken(log_facts.last.tables.values())
        selected, refused = wanted_tables(connection, catalogue, settings, newcomers)
        for name, why in refused.items():
            if why == WAITS or name in newcomers.suspected:
                continue
            log.error("the table %s is excluded: it %s", name.said, why, extra={"table": str(name)})
        say_uncaptured(catalogue, settings, selected)
        source = SourceFacts(connection, catalogue, rules, selected, refused)
        was = partial(was_captured, settings, refused)
        rules.check(source.relations.values(), last=log_facts.last, was_captured=was)
        names = topic_names(source.relations, capture.topic_prefix)
        tables = CapturedTables(schemas, names, catalogue.older_values, rules.shape)
        environment = checked(settings, source, system, log_facts, tables)
        environment.looked = newcomers.looked
        try:
            yield environment
        finally:
            if environment.primary is not None:
                environment.primary.close()


def checked(
    settings: Project,
    source: SourceFacts,
    system: SystemIdentity,
    log_facts: LogFacts,
    tables: CapturedTables,
) -> Environment:
    """Check topics and registry, and return the environment; creates nothing.

    Raises:
        TopicSettingsError: topics hold records of another form, or have other settings.
        LogError: the brokers would not create the missing topics.
        UnavailableLogError: broker or registry do not answer.
    """
    relations, rules = source.relations, source.rules
    scopes = {table: rules.scope(relation) for table, relation in relations.items()}
    if log_facts.last is not None:
        described = describe(settings.kafka, tables.topics.values())
        check_forms(log_facts.last, tables.topics, scopes, described)
    plans = topic_plans(settings, relations, tables.topics, log_facts.last)
    tables.check_registry()
    descriptions = plans[0].there
    return Environment(
        settings=settings,
        connection=source.connection,
        system=system,
        relations=relations,
        tables=tables,
        frontiers=log_facts.frontiers,
        cluster_id=log_facts.cluster_id,
        descriptions={
            name: descriptions[name] for name in tables.topics.values() if name in descriptions
        },
        logs=dict(plans[1].there),
        catalogue=source.catalogue,
        rules=rules,
        scopes=narrowed(scopes),
        refused=source.refused,
        altered=to_alter(source.connection, source.tables),
        full=frozenset(table.name for table in source.tables if table.will_be_full),
        is_standby=in_recovery(source.connection),
        primary=Primary(settings.primary, system),
        _plans=plans,
    )


def _watch_schema(environment: Environment) -> None:
    """Create the event triggers of schema changes, or warn if the role may not."""
    if has_ddl(environment.connection):
        return
    try:
        install_ddl(environment.writer)
    except UnavailableSourceError:
        raise
    except SourceError as error:
        log.warning(
            "%s: schema changes are not captured until a superuser runs `changelog ddl install`",
            error,
        )
    else:
        log.info("made the event triggers of schema changes; `changelog ddl remove` removes them")
