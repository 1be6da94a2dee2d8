"""Connections, tables and topics of one attempt of capture, all checked before use.

Everything that can be refused is looked at first, also by `capture --check`; only then does `make`
make the topics, and `publish` the publication, so that a refusal leaves nothing behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from changelog.capture.rows.forms import check_forms
from changelog.capture.rows.groups import TableGroups
from changelog.capture.rows.rules import CaptureRules, catalogue_of, groups_of, narrowed
from changelog.capture.rows.tables import CapturedTables
from changelog.capture.start.rights import rights_lacking, to_alter
from changelog.capture.state.newcomers import NOT_THERE, WAITS, Newcomers
from changelog.capture.write.messages import KEPT_FOR_EVER
from changelog.config import Project
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    LookAgainError,
    SlotError,
    SourceError,
    UnavailableLogError,
    UnavailableSourceError,
    UncapturableTableError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord, TableBackfill, copies_of
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import OPERATIONS, WHOLE, Scope
from changelog.contract.log.standing import PublicationVersion
from changelog.contract.log.topic import (
    ddl_topic,
    frontier_topic,
    messages_topic,
    schema_topic,
    sequences_topic,
    topic_name,
    topic_names,
)
from changelog.contract.rows.relation import Relation, TableName
from changelog.kafka.cluster import Cluster, TopicDescription, describe, nothing
from changelog.postgres.connection import Connection
from changelog.sink.dead_keys import dead_keys
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.sink.topics import FRONTIER_SETTINGS, TopicPlan, make_topics, plan_topics, say_unlike
from changelog.source.connect.connect import connect
from changelog.source.connect.replica_identity import Identity, make_full
from changelog.source.connect.standby import HINT, Primary, await_replay, check_source
from changelog.source.connect.system import (
    SystemIdentity,
    current_lsn,
    identify,
    in_recovery,
)
from changelog.source.tables.catalogue import Catalogue, Table, check_capturable, no_such
from changelog.source.tables.ddl import has_ddl, install_ddl
from changelog.source.tables.filter import TableFilter
from changelog.source.tables.publication import (
    PublicationChange,
    WantedPublication,
    use_publication,
)
from changelog.source.tables.published import publication_versions, sends_still

if TYPE_CHECKING:
    from changelog.sink.registry import Registry
    from changelog.sink.schema_topic import SchemaTopic

log = logging.getLogger("changelog.capture")

_STABLE_S, _NAP_S = 10.0, 0.05


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
    descriptions: dict[str, TopicDescription]  # each table's topic as the broker has it
    # the topics that hold no table, such as the messages', as the broker has them
    logs: dict[str, TopicDescription]
    catalogue: Catalogue  # the source's catalogue
    rules: CaptureRules  # what of the tables is captured
    scopes: dict[TableName, Scope]  # what is captured of each table that is not captured whole
    # the condition of each table's rows, as the server writes it; known once the publication is
    filters: dict[TableName, str] = field(default_factory=dict)
    # tables that are wanted and cannot be captured as they are, with the reason
    refused: dict[TableName, str] = field(default_factory=dict)
    # of those the ones that were looked at again, since a copy was asked for there
    looked: dict[TableName, Lsn] = field(default_factory=dict)
    # what is going to get REPLICA IDENTITY FULL, as it is now
    altered: list[Identity] = field(default_factory=list)
    # the captured tables of which all is taken as it is with that
    full: frozenset[TableName] = frozenset()
    is_standby: bool = False  # whether the source was a standby when it was asked last
    primary: Primary | None = None  # where is written what a standby cannot write
    _plans: tuple[TopicPlan, ...] = ()
    _publication: PublicationVersion | None = None

    @property
    def writer(self) -> Connection:
        """Return a connection that can write: to the source, or to its primary.

        Raises SourceError: the source is a standby, and nobody named its primary;
        UnavailableSourceError: the primary does not answer.
        """
        if self.primary is None or not self.is_standby or not in_recovery(self.connection):
            return self.connection
        return self.primary.connection()

    @property
    def can_write(self) -> bool:
        """Tell whether there is somewhere to write."""
        return not self.is_standby or (self.primary is not None and self.primary.is_known)

    def notice_promotion(self) -> None:
        """Note that a standby was promoted: its stream goes on, under its own new timeline."""
        if not self.is_standby or in_recovery(self.connection):
            return
        before, self.system = self.system, identify(self.settings.postgres)
        self.is_standby = False
        log.warning(
            "the standby was promoted: timeline %d follows %d, and the stream goes on",
            self.system.timeline,
            before.timeline,
        )

    @property
    def topics(self) -> dict[TableName, str]:
        """Return the topic of each captured table."""
        return self.tables.topics

    @property
    def groups(self) -> TableGroups:
        """Return which publication sends which table."""
        return groups_of(self.settings.capture)

    @property
    def names(self) -> dict[int, TableName]:
        """Return each captured table by its object id."""
        return {relation.oid: name for name, relation in self.relations.items()}

    def table_of(self, topic: str) -> TableName:
        """Return the table of a topic; raises KeyError for one that holds none."""
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
            with suppress(ConfigurationError):  # it would share the topic of a captured one
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
        """Return the tables of which the log holds another part than is asked for now.

        Those that are `skipped` have never been copied, and are not to be.

        Their rows have to be written anew: what was left out before is not on the log, and what
        is left out now would stay on it.
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
        """Return the topics of tables, messages and schema changes, whether they are there or not.

        The frontiers of a capture name the ends of these.
        """
        _, logs = self._plans
        return {*self.topics.values(), *logs.there, *(topic.topic for topic in logs.missing)}

    @property
    def missing_topics(self) -> list[str]:
        """Return the topics that `make` makes."""
        return [topic.topic for plan in self._plans for topic in plan.missing]

    def take_identities(self, tables: Collection[Table]) -> None:
        """Note which of the captured tables are taken as they will be with another identity."""
        self.altered = to_alter(self.connection, tables)
        self.full = frozenset(table.name for table in tables if table.will_be_full)

    def give_identity(self) -> list[Identity]:
        """Give tables REPLICA IDENTITY FULL that are to have it; returns what they had.

        Raises SourceError: one cannot be altered; none is then.
        """
        altered, self.altered = self.altered, []
        if altered:
            writer = self.writer
            make_full(writer, [identity.table for identity in altered])
            for identity in altered:
                log.info("table %s has REPLICA IDENTITY FULL now", identity.table.said)
            if writer is not self.connection:
                await_replay(self.connection, writer)
        self.catalogue.gives_full = None  # it is as it was taken to be
        return altered

    def make(self) -> None:
        """Make the missing topics, alter the ones that differ, watch the schema if asked.

        Raises LogError: see `make_topics`.
        """
        tables, logs = (make_topics(self.settings.kafka, plan) for plan in self._plans)
        self.descriptions = {name: tables[name] for name in self.topics.values()}
        self.logs = logs
        if self.settings.capture.ddl:
            _watch_schema(self)

    def unpublished(
        self, frontier: Frontier | None, backfill: BackfillRecord | None
    ) -> set[TableName]:
        """Return the tables that are to be streamed on and that the publication does not have.

        One that was dropped and made anew is among them, since it is another table; and one that
        the publication has again.
        """
        streamed = self._streamed(frontier, backfill)
        if not streamed:
            return set()
        sent = self.groups.sent(self.connection)
        return streamed - (sent - self._unsent_meanwhile(streamed))

    def _unsent_meanwhile(self, streamed: Collection[TableName]) -> set[TableName]:
        """Return the tables that the publication did not send for a while, and sends again."""
        standings = self.frontiers.standings(self.settings.slot)
        before = standings.publication if standings is not None else None
        now = self._publication_now()
        if before is None or now is None:
            return set()
        oids = now.taken_out_since(before)
        return {table for table in streamed if oids is None or self.relations[table].oid in oids}

    def _publication_now(self) -> PublicationVersion | None:
        main, *groups = self.groups.publications
        return publication_versions(self.connection, main, groups)

    def _streamed(
        self, frontier: Frontier | None, backfill: BackfillRecord | None
    ) -> set[TableName]:
        """Return the tables whose changes the log has up to where the stream goes on."""
        copied = copies_of(backfill)
        excluded = {table.table for table in copied if table.is_excluded and table.since is None}
        begun = {table.table for table in copied if table.since is not None}
        spoken = set(frontier.tables.values()) if frontier is not None else set()
        return ((spoken | begun) & set(self.relations)) - excluded

    def _refuse_lost(self, tables: Collection[TableName], change: str) -> None:
        if tables:
            raise SlotError(
                f'the publication "{self.settings.capture.publication}" {change}, whose changes '
                "since then are lost: " + ", ".join(str(table) for table in sorted(tables)),
                hint="start with `--on-incompatible resnapshot`: it copies these tables anew",
            )

    def _refuse_moved(self, tables: Collection[TableName]) -> None:
        """Refuse to take tables into another group: some changes are in this slot, some in that."""
        moved = self.groups.elsewhere(self.connection, tables)
        if moved:
            senders = ", ".join(f'{table} by "{name}"' for table, name in sorted(moved.items()))
            raise ConfigurationError(
                f"tables are sent by the publication of another group than before: {senders}",
                hint="name the groups as before; or start with `--on-incompatible resnapshot`: it "
                "copies these tables anew",
            )

    def _check_there(self, tables: Collection[TableName]) -> None:
        """Check that tables still have the object ids that were listed at the start.

        Raises LookAgainError: one was dropped, renamed or moved since.
        """
        now = self.catalogue.names() if tables else {}
        gone = sorted(table for table in tables if now.get(self.relations[table].oid) != table)
        if gone:
            raise LookAgainError("tables vanished: " + ", ".join(map(str, gone)))

    def publish(
        self,
        frontier: Frontier | None,
        backfill: BackfillRecord | None = None,
        *,
        rehearse: bool = False,
        as_it_is: bool = False,
    ) -> PublicationChange:
        """Make the publication have exactly the captured tables, or check that it has them.

        Returns:
            What was changed, such as tables whose rows were filtered in another way up to now.

        Args:
            frontier: from which the stream goes on, or None before the first.
            backfill: the backfills that go on, or None.
            rehearse: change nothing, and say what would be.
            as_it_is: only check it: PostgreSQL decodes WAL of before by what it was then.

        Raises:
            SlotError: a table of the frontier was taken out: what it changed since is lost.
            LookAgainError: a table that is streamed on vanished since it was listed.
            SourceError: the publication cannot be made or used.
        """
        name = self.settings.capture.publication
        begun = [table for table in copies_of(backfill) if table.since is not None]
        streamed = bool(begun) or (frontier is not None and bool(frontier.tables))
        gone = self.unpublished(frontier, backfill)
        self._check_there(gone)
        # A row filter that others have set makes another entry too, and the table is copied anew.
        again = gone & self.groups.sent(self.connection)
        mended = rehearse and self.settings.capture.on_incompatible == "resnapshot"
        if not mended:
            self._refuse_moved(self._streamed(frontier, backfill))
            self._refuse_lost(gone - again, "was dropped or lost tables")
        scopes = [] if frontier is None else list(frontier.scopes.values())
        scopes += [table.scope for table in begun]
        # Operations are the same for all tables, since they are the publication's.
        before = next((scope.operations for scope in scopes), OPERATIONS)
        publication = WantedPublication(
            tables={table: self.rules.where(table) for table in self.relations},
            operations=self.rules.operations,
            before=before if streamed else None,
            filtered_before=any(scope.rows for scope in scopes),
            full=self.full,
            as_before=self._filtered_as_before(frontier, begun) - gone,
        )
        if self.settings.capture.create_publication and not as_it_is and self.can_write:
            writer = self.writer
            change = self.groups.make(writer, publication, rehearse=rehearse)
            if writer is not self.connection and not rehearse:
                await_replay(self.connection, writer)
        else:
            change = self._used_publication(name, publication)
        if not mended:
            self._refuse_lost(again - change.refiltered, "was without tables for a while")
        self._check_there(change.vanished & self._streamed(frontier, backfill))
        for table in sorted(change.vanished):
            log.info(
                "table %s vanished: it is not captured", table.said, extra={"table": str(table)}
            )
        if not rehearse:
            self.filters = dict(change.filters)
            self._publication = self._publication_now()
        return change

    def _filtered_as_before(
        self, frontier: Frontier | None, begun: Iterable[TableBackfill]
    ) -> frozenset[TableName]:
        """Return the tables whose rows the log has by the condition that is asked for now."""
        of_log = {} if frontier is None else frontier.tables
        rows = {table: frontier.scope_of(topic).rows for topic, table in of_log.items() if frontier}
        rows |= {copy.table: copy.scope.rows for copy in begun}
        return frozenset(
            table for table in self.relations if rows.get(table) == self.scope_of(table).rows
        )

    def _used_publication(self, name: str, publication: WantedPublication) -> PublicationChange:
        try:
            return use_publication(self.connection, name, publication)
        except SourceError as error:
            if self.settings.capture.create_publication and not self.can_write:
                error.hint = f"on a standby none can be made; have it made at its primary: {HINT}"
            raise

    @property
    def publication(self) -> PublicationVersion | None:
        """Return the publication as `publish` or the last check has seen it."""
        return self._publication

    def check_publication(self) -> None:
        """Check that nobody has taken anything away from the publication since `publish`.

        Called before each frontier: PostgreSQL leaves out the changes of a table that was taken
        out of the publication, without a word in the stream.

        Raises LookAgainError: it was altered or dropped, and that is to be mended; SourceError: the
        same, and it is not.
        """
        name = self.settings.capture.publication
        now = self._publication_now()
        if now == self._publication:
            return
        if not sends_still(self.connection, self._publication, now):
            mended = self.settings.capture.on_incompatible == "resnapshot"
            kind = LookAgainError if mended else SourceError
            raise kind(
                f'the publication "{name}" was altered while capture runs',
                hint="start capture again: it says what is missing",
            )
        self._publication = now

    def check_topics(self, frontier: Frontier) -> set[TableName]:
        """Check that the topics have the ids that the frontier knows.

        Returns:
            The tables whose topic was made anew, where that is to be mended.

        Raises LogError: the cluster is another one, or a topic was deleted, or made anew.
        """
        if frontier.cluster_id != self.cluster_id:
            raise LogError(
                f"the frontier was written on Kafka cluster {frontier.cluster_id}, "
                f"this one is {self.cluster_id}",
                hint="drop the slot with `changelog slot drop`; the next start takes a snapshot",
            )
        captured, anew = set(self.topics.values()), set()
        for topic, topic_id in frontier.topic_ids.items():
            present_id = self.topic_ids.get(topic)
            if present_id == topic_id or (present_id is None and topic not in captured):
                continue
            if topic in self.logs:
                log.warning('topic "%s" was made anew: what it held is lost', topic)
            elif self.settings.capture.on_incompatible == "resnapshot":
                anew.add(frontier.tables[topic])
            else:
                raise _lost(topic, present_id)
        return anew

    def refuse_gone(self, absent: Collection[str]) -> None:
        """Check, after an error of the log, that the topics have the ids of the start.

        Args:
            absent: topics of tables that are excluded.

        Raises LookAgainError: one was deleted or made anew, and the next attempt mends that;
        LogError: the same, and it is not mended.
        """
        of_start = {topic: of for topic, of in self.topic_ids.items() if topic not in absent}
        there = Cluster(self.settings.kafka, on_wait=self.frontiers.on_wait).topics(of_start)
        for topic, topic_id in of_start.items():
            now = there[topic].topic_id if topic in there else None
            if now == topic_id:
                continue
            lost = _lost(topic, now)
            mended = self.settings.capture.on_incompatible == "resnapshot"
            raise LookAgainError(str(lost.args[0])) if mended or topic in self.logs else lost

    def held_back(self) -> dict[str, int]:
        """Return the topics of ours in which a transaction is open, and from which offset on."""
        own = frontier_topic(self.settings.capture.topic_prefix)
        return self.frontiers.held_back([own, *self.topics.values(), *self.logs])

    def await_stable(self) -> None:
        """Wait until no transaction is open in our topics; aborted ones are over in a moment.

        Raises UnavailableLogError: one stays open.
        """
        deadline = time.monotonic() + _STABLE_S
        while held_back := self.held_back():
            if time.monotonic() > deadline:
                topic, offset = next(iter(held_back.items()))
                raise UnavailableLogError(
                    f'topic "{topic}": a transaction that is not of this capture is open since '
                    f"offset {offset}: nothing behind it can be read",
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
        on_wait: Callable[[], None] = nothing,
    ) -> Iterator[tuple[int, bytes]]:
        """Return partition and key of the rows that live only before `since` or `alive_from`."""
        if topic in self.unkeyed:
            return iter(())
        producer.commit()  # what is written counts too
        ends = self.frontiers.ends([topic])[topic]
        kafka = self.settings.kafka
        prefix = self.tables.key_prefix(self.relations[self.table_of(topic)])
        return dead_keys(
            kafka, topic, since, ends, prefix=prefix, alive_from=alive_from, on_wait=on_wait
        )


def _lost(topic: str, topic_id: str | None) -> LogError:
    fate = "was deleted" if topic_id is None else "was made anew"
    return LogError(
        f'topic "{topic}" {fate}: what it held is lost',
        hint="start with `--on-incompatible resnapshot`: it copies the table anew",
    )


@contextmanager
def survey(settings: Project, newcomers: Newcomers) -> Iterator[Environment]:
    """Connect and check; `Environment.make` makes the missing objects.

    Args:
        settings: the project.
        newcomers: what earlier attempts know of tables that appeared.

    Raises ChangelogError: what stands against capture; see each family.
    """
    capture = settings.capture
    with ExitStack() as stack:
        topic = frontier_topic(capture.topic_prefix)
        frontiers = stack.enter_context(FrontierLog(settings.kafka, topic))
        # The log answers while the source is asked.
        beside = stack.enter_context(ThreadPoolExecutor(1, "changelog frontiers"))
        log_says = beside.submit(lambda: (frontiers.cluster_id(), frontiers.last(capture.slot)))
        connection = stack.enter_context(closing(connect(settings.postgres)))
        check_source(connection)
        system = identify(settings.postgres)
        rules = CaptureRules(capture, str(connection.info.dbname))
        # Once this process streams, no table is altered any more: somebody would have to be asked.
        catalogue = catalogue_of(connection, capture, gives_full=not newcomers.proven)
        cluster, last = log_says.result()
        schemas = stack.enter_context(closing(schemas_of(settings, frontiers)))
        spoken = last.frontier.tables.values() if last is not None else ()
        if last is not None:
            newcomers.spoken(spoken)
        selected, refused = wanted_tables(connection, catalogue, settings, newcomers)
        for name, why in refused.items():
            if why == WAITS or name in newcomers.suspected:
                continue
            log.error("the table %s is excluded: it %s", name.said, why, extra={"table": str(name)})
        _say_uncaptured(catalogue, settings, selected)
        relations = {table.name: table.relation for table in selected}
        rules.check(
            relations.values(),
            last=last.frontier if last is not None else None,
            was_captured=partial(was_captured, settings, refused),
        )
        names = topic_names(relations, capture.topic_prefix)
        environment = stand(
            settings=settings,
            connection=connection,
            system=system,
            relations=relations,
            tables=CapturedTables(schemas, names, catalogue.older_values, rules.shape),
            frontiers=frontiers,
            cluster_id=cluster,
            catalogue=catalogue,
            rules=rules,
            refused=refused,
            last=last.frontier if last is not None else None,
        )
        environment.looked = newcomers.looked
        environment.take_identities(selected)
        try:
            yield environment
        finally:
            if environment.primary is not None:
                environment.primary.close()


def stand(
    *,
    settings: Project,
    connection: Connection,
    system: SystemIdentity,
    relations: dict[TableName, Relation],
    tables: CapturedTables,
    frontiers: FrontierLog,
    cluster_id: str,
    catalogue: Catalogue,
    rules: CaptureRules,
    refused: dict[TableName, str],
    last: Frontier | None,
) -> Environment:
    """Check topics and registry, and return the environment; makes nothing.

    Raises:
        TopicSettingsError: topics hold other records than are asked for, or differ in settings.
        LogError: the brokers would not make what is missing.
        UnavailableLogError: broker or registry do not answer.
    """
    scopes = {table: rules.scope(relation) for table, relation in relations.items()}
    if last is not None:
        there = describe(settings.kafka, tables.topics.values())
        check_forms(last, tables.topics, scopes, there)
    plans = topic_plans(settings, relations, tables.topics, last)
    tables.check_registry()
    descriptions = plans[0].there
    return Environment(
        settings=settings,
        connection=connection,
        system=system,
        relations=relations,
        tables=tables,
        frontiers=frontiers,
        cluster_id=cluster_id,
        descriptions={
            name: descriptions[name] for name in tables.topics.values() if name in descriptions
        },
        logs=dict(plans[1].there),
        catalogue=catalogue,
        rules=rules,
        scopes=narrowed(scopes),
        refused=refused,
        is_standby=in_recovery(connection),
        primary=Primary(settings.primary, system),
        _plans=plans,
    )


def topic_plans(
    settings: Project,
    relations: Mapping[TableName, Relation],
    names: Mapping[TableName, str],
    last: Frontier | None = None,
) -> tuple[TopicPlan, TopicPlan]:
    """Return the plans of the compacted topics (tables, frontiers, schemas) and of the log topics.

    Those of the last frontier may have other settings by now: a running capture goes on, and so
    does a start. Their readers refuse them, and `changelog status` names them.

    Raises TopicSettingsError: some have other settings than they must; LogError: the brokers would
    not make what is missing.
    """
    capture, topics = settings.capture, names.values()
    own = [frontier_topic(capture.topic_prefix)]
    if capture.form.output is Output.JSON:
        own.append(schema_topic(capture.topic_prefix))
    if capture.sequences:
        own.append(sequences_topic(capture.topic_prefix))
    logs: dict[str, dict[str, str]] = {}
    if capture.messages:
        logs[messages_topic(capture.topic_prefix)] = {}
    if capture.ddl:
        logs[ddl_topic(capture.topic_prefix)] = KEPT_FOR_EVER
    tables = plan_topics(
        settings.kafka,
        {**dict.fromkeys(topics, capture.partitions), **dict.fromkeys(own, 1)},
        replication=capture.replication_factor,
        settings=capture.topics,
        fix=capture.fix_topics,
        extra={
            **dict.fromkeys(topics, capture.topic),
            **{name: {**capture.topic, **FRONTIER_SETTINGS} for name in own},
        },
        unkeyed={names[name] for name, relation in relations.items() if not relation.key},
        known_ids=last.topic_ids if last is not None else {},
    )
    say_unlike({name: tables.there[name] for name in topics if name in tables.there}, capture.topic)
    # One partition: what comes later in the WAL comes later on the topic.
    return tables, plan_topics(
        settings.kafka,
        dict.fromkeys(logs, 1),
        replication=capture.replication_factor,
        settings=replace(capture.topics, compacted=False),
        fix=capture.fix_topics,
        unkeyed=logs,
        extra={name: {**capture.topic, **own} for name, own in logs.items()},
        known_ids=last.topic_ids if last is not None else {},
    )


def schemas_of(settings: Project, frontiers: FrontierLog) -> Registry | SchemaTopic:
    """Return the store of schemas: documents have no schema id, so they need no registry."""
    if settings.capture.form.output is Output.AVRO:
        # A third of all that a start loads, and needed when the other servers have answered.
        from changelog.sink.registry import Registry  # noqa: PLC0415

        return Registry(settings.registry)
    from changelog.sink.schema_topic import SchemaTopic  # noqa: PLC0415

    topic = schema_topic(settings.capture.topic_prefix)
    return SchemaTopic(settings.kafka, topic, frontiers)


def _watch_schema(environment: Environment) -> None:
    """Make the event triggers when they are missing, or say that they are."""
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


def was_captured(settings: Project, refused: Collection[TableName], table: TableName) -> bool:
    """Tell whether a table that is not captured now was captured once: its topic is there."""
    return table in refused or bool(
        describe(settings.kafka, [topic_name(table, settings.topic_prefix)])
    )


def wanted_tables(
    connection: Connection,
    catalogue: Catalogue,
    settings: Project,
    newcomers: Newcomers | None = None,
) -> tuple[tuple[Table, ...], dict[TableName, str]]:
    """Return the tables to capture, and why others cannot be, where these are excluded.

    Args:
        connection: to the source.
        catalogue: of the source.
        settings: the project.
        newcomers: what earlier attempts know of tables that appeared, and whether there is a log.

    Raises:
        UncapturableTableError: one is missing or cannot be captured, and there is no log yet that
            goes on without it; names all of them.
        ConfigurationError: there is none.
    """
    capture = settings.capture
    newcomers = newcomers or Newcomers()
    table_filter, tables = TableFilter(capture.tables, capture.exclude), catalogue.tables()
    there = {table.name for table in tables}
    missing = [name for name in table_filter.named if name not in there]
    if missing and not newcomers.goes_on:
        raise no_such(missing)
    matching = tuple(table for table in tables if table_filter.wants(table.name))
    obstacles = {table.name: table.obstacle for table in matching if table.obstacle}
    if newcomers.goes_on or capture.on_error == "log":
        of_log = newcomers.proven | obstacles.keys()
        new = [table for table in matching if table.name not in of_log]
        obstacles |= rights_lacking(connection, settings, new)
    there = {table.name for table in matching}
    refused = newcomers.refused(obstacles, there)
    if capture.on_error == "log":
        refused |= obstacles
    refused = {table: why for table, why in refused.items() if table in there}
    refused |= dict.fromkeys(missing, NOT_THERE)
    selected = tuple(table for table in matching if table.name not in refused)
    newcomers.listed(table.name for table in selected)
    # Without any table there is nothing to go on with: say what stands against each.
    check_capturable(selected or matching)
    if not selected:
        if refused:
            raise UncapturableTableError(
                "; ".join(f"table {name.said} {why}" for name, why in refused.items()),
                hint="no other table is left to capture; look at --tables and --exclude",
            )
        raise ConfigurationError(
            f"no table matches {', '.join(capture.tables)}",
            hint="look at --tables and --exclude; a pattern is schema.table, * for any text",
        )
    return selected, refused


def _say_uncaptured(catalogue: Catalogue, settings: Project, selected: Sequence[Table]) -> None:
    table_filter = TableFilter(settings.capture.tables, settings.capture.exclude)
    for line in catalogue.uncaptured(table_filter):
        log.info("not captured: %s", line)
    for line in catalogue.unnoticed(selected):
        log.warning("%s", line)
    for table in selected:
        if table.relation.key_index is not None:
            log.info(
                "table %s has no primary key: the unique index %s gives its key",
                table.name.said,
                table.relation.key_index,
                extra={"table": str(table.name)},
            )
        if not table.relation.key:
            log.warning(
                "table %s has no primary key: its topic is not compacted, and gives the table "
                "for as long as its retention keeps all of it",
                table.name.said,
            )
