"""What one life of capture stands on: connections, tables, topics; all checked before use.

Everything that can be refused is looked at first; the publication and the topics are made last,
so that a refusal leaves nothing behind. `publish` comes after the decision how to begin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from changelog.capture.ddl import KEPT_FOR_EVER
from changelog.capture.forms import check_forms
from changelog.capture.rules import Rules, narrowed
from changelog.capture.tables import CapturedTables
from changelog.config import Project
from changelog.contract.backfill import BackfillRecord
from changelog.contract.errors import (
    ConfigurationError,
    LogError,
    SlotError,
    SourceError,
    UnavailableSourceError,
)
from changelog.contract.form import Output
from changelog.contract.frontier import Frontier
from changelog.contract.lsn import Lsn
from changelog.contract.position import Position
from changelog.contract.relation import Relation, TableName
from changelog.contract.scope import OPERATIONS, WHOLE, Scope
from changelog.contract.topic import (
    TopicSettings,
    ddl_topic,
    frontier_topic,
    messages_topic,
    schema_topic,
    topic_names,
)
from changelog.sink.bury import dead_keys
from changelog.sink.client import nothing
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.sink.registry import Registry
from changelog.sink.schema_topic import SchemaTopic
from changelog.sink.topics import (
    FRONTIER_SETTINGS,
    TopicDescription,
    cluster_id,
    describe,
    ensure_topics,
)
from changelog.source.catalogue import Catalogue, check_capturable, select_tables
from changelog.source.connect import Connection, connect
from changelog.source.ddl import has_ddl, install_ddl
from changelog.source.filter import TableFilter
from changelog.source.publication import (
    Wanted,
    make_publication,
    publication_version,
    published_tables,
    use_publication,
)
from changelog.source.system import SystemIdentity, check_ready, current_lsn, identify

log = logging.getLogger("changelog.capture")


@dataclass(slots=True, kw_only=True)
class Ground:
    """One life's connections and what was found there.

    Attributes:
        settings: the project.
        connection: to the source, in autocommit mode.
        system: the source's identity.
        relations: each captured table.
        tables: topics and codecs.
        frontiers: the frontier topic.
        cluster_id: the Kafka cluster's identifier.
        descriptions: each table's topic as the broker has it.
        logs: the topics that hold no table, such as the messages', as the broker has them.
        catalogue: the source's catalogue.
        rules: what of the tables is captured.
        scopes: what is captured of each table that is not captured whole.
        filters: the condition of each table's rows, as the server writes it; known once the
            publication is.
    """

    settings: Project
    connection: Connection = field(repr=False)
    system: SystemIdentity
    relations: dict[TableName, Relation]
    tables: CapturedTables
    frontiers: FrontierLog
    cluster_id: str
    descriptions: dict[str, TopicDescription]
    logs: dict[str, TopicDescription]
    catalogue: Catalogue
    rules: Rules
    scopes: dict[TableName, Scope]
    filters: dict[TableName, str] = field(default_factory=dict)
    _publication: str | None = None

    @property
    def topics(self) -> dict[TableName, str]:
        """Give the topic of each captured table."""
        return self.tables.topics

    @property
    def names(self) -> dict[int, TableName]:
        """Give each captured table by its object id."""
        return {relation.oid: name for name, relation in self.relations.items()}

    @property
    def topic_ids(self) -> dict[str, str]:
        """Give Kafka's id of each topic that is written."""
        found = {**self.descriptions, **self.logs}
        return {topic: each.topic_id for topic, each in found.items()}

    @property
    def partitions(self) -> dict[str, int]:
        """Give the number of partitions of each topic that is written."""
        found = {**self.descriptions, **self.logs}
        return {topic: each.partitions for topic, each in found.items()}

    def scope_of(self, table: TableName) -> Scope:
        """Give what is captured of a table."""
        return self.scopes.get(table, WHOLE)

    def current_lsn(self) -> Lsn:
        """Give the end of the source's WAL."""
        return current_lsn(self.connection)

    @property
    def unkeyed(self) -> set[str]:
        """Give the topics of tables without a primary key."""
        return {self.topics[name] for name, each in self.relations.items() if not each.key}

    def rescoped(self, frontier: Frontier, skipped: Collection[TableName] = ()) -> set[TableName]:
        """Give the tables of which the log holds another part than is asked for now.

        Those that are `skipped` have never been copied, and are not to be.

        Their rows have to be written anew: what was left out before is not on the log, and what
        is left out now would stay on it.
        """
        found = {
            table
            for topic, table in frontier.tables.items()
            if self.topics.get(table) == topic and frontier.scope_of(topic) != self.scope_of(table)
        } - {*skipped}
        for table in sorted(found):
            if not frontier.is_copied(self.topics[table]):
                log.info('table "%s" was not copied before: copying it', table)
                continue
            log.warning(
                'table "%s" is captured in another way than before: taking a fresh snapshot of it; '
                "its older records stay on the topic until they are cleaned",
                table,
            )
        return found

    def publish(
        self,
        frontier: Frontier | None,
        backfill: BackfillRecord | None = None,
        *,
        as_it_is: bool = False,
    ) -> frozenset[TableName]:
        """Make the publication have exactly the captured tables, or check that it has them.

        Returns:
            Tables whose rows were filtered in another way up to now.

        Args:
            frontier: from which the stream goes on, or None before the first.
            backfill: the backfills that go on, or None.
            as_it_is: only check it: PostgreSQL decodes WAL of before by what it was then.

        Raises:
            SlotError: a table of the frontier was taken out: what it changed since is lost.
            SourceError: the publication cannot be made or used.
        """
        name = self.settings.capture.publication
        copied = backfill.tables.values() if backfill is not None else ()
        begun = {table.table for table in copied if table.since is not None}
        streamed = {*(frontier.tables.values() if frontier is not None else ()), *begun}
        if streamed:
            captured = streamed & set(self.relations)
            gone = captured - published_tables(self.connection, name)
            if gone:
                raise SlotError(
                    f'the publication "{name}" was dropped or lost tables: '
                    + ", ".join(str(table) for table in sorted(gone)),
                    hint="their changes since then are lost; drop the slot with `changelog slot "
                    "drop`, and the next start takes a fresh snapshot",
                )
        scopes = [] if frontier is None else list(frontier.scopes.values())
        scopes += [table.scope for table in copied if table.since is not None]
        # Operations are the same for all tables, since they are the publication's.
        before = next((scope.operations for scope in scopes), OPERATIONS)
        wanted = Wanted(
            tables={table: self.rules.where(table) for table in self.relations},
            operations=self.rules.operations,
            before=before if streamed else None,
            filtered_before=any(scope.rows for scope in scopes),
        )
        may_make = self.settings.capture.create_publication and not as_it_is
        make = make_publication if may_make else use_publication
        change = make(self.connection, name, wanted)
        self.filters = dict(change.filters)
        self._publication = publication_version(self.connection, name)
        return change.refiltered

    def check_publication(self) -> None:
        """Check that nobody has altered the publication since `publish`.

        Called before each frontier: PostgreSQL leaves out the changes of a table that was taken
        out of the publication, without a word in the stream.

        Raises:
            SourceError: it was altered or dropped.
        """
        name = self.settings.capture.publication
        if publication_version(self.connection, name) != self._publication:
            raise SourceError(
                f'the publication "{name}" was altered while capture runs',
                hint="start capture again: it says what is missing",
            )

    def check_topics(self, frontier: Frontier) -> None:
        """Check that the topics are those of the frontier.

        Raises:
            LogError: the cluster is another one, or a topic was deleted and made anew.
        """
        if frontier.cluster_id != self.cluster_id:
            raise LogError(
                f"the frontier was written on Kafka cluster {frontier.cluster_id}, "
                f"this one is {self.cluster_id}",
                hint="drop the slot with `changelog slot drop`; the next start takes a snapshot",
            )
        for topic, known in frontier.topic_ids.items():
            found = self.topic_ids.get(topic)
            if found is None or found == known:
                continue
            if topic in self.logs:
                log.warning('topic "%s" was made anew: what it held is lost', topic)
            else:
                raise LogError(
                    f'topic "{topic}" was made anew: what it held is lost',
                    hint="drop the slot with `changelog slot drop`; the next start takes a "
                    "snapshot",
                )

    def dead_keys(
        self,
        producer: LogProducer,
        topic: str,
        since: Position,
        *,
        on_wait: Callable[[], None] = nothing,
    ) -> Iterator[tuple[int, bytes]]:
        """Give partition and key of the rows that live only before `since`."""
        if topic in self.unkeyed:
            return iter(())
        producer.flush()
        ends = self.frontiers.ends([topic])[topic]
        return iter(dead_keys(self.settings.kafka, topic, since, ends, on_wait=on_wait))


@contextmanager
def survey(settings: Project) -> Iterator[Ground]:
    """Connect, check, and make what is missing.

    Raises:
        ChangelogError: what stands against capture; see each family.
    """
    capture = settings.capture
    topic = frontier_topic(capture.topic_prefix)
    with (
        closing(connect(settings.postgres)) as connection,
        FrontierLog(settings.kafka, topic) as frontiers,
        closing(_schemas(settings, frontiers)) as schemas,
    ):
        check_ready(connection)
        system = identify(settings.postgres)
        rules = Rules(capture, str(connection.info.dbname))
        catalogue = Catalogue(connection, rules.unkeyed)
        relations = _wanted(catalogue, settings)
        rules.check(relations.values())
        names = topic_names(relations, capture.topic_prefix)
        cluster = cluster_id(settings.kafka)
        scopes = {table: rules.scope(relation) for table, relation in relations.items()}
        last = frontiers.last(capture.slot)
        if last is not None:
            check_forms(last.frontier, names, scopes, describe(settings.kafka, names.values()))
        tables = CapturedTables(schemas, names, catalogue.older_values, rules.shape)
        own = [topic]
        if isinstance(schemas, SchemaTopic):
            own.append(schema_topic(capture.topic_prefix))
        descriptions = ensure_topics(
            settings.kafka,
            {**dict.fromkeys(names.values(), capture.partitions), **dict.fromkeys(own, 1)},
            replication=capture.replication_factor,
            settings=capture.topics,
            fix=capture.fix_topics,
            extra={
                **dict.fromkeys(names.values(), capture.topic_properties),
                **{name: {**capture.topic_properties, **FRONTIER_SETTINGS} for name in own},
            },
            unkeyed={names[name] for name, each in relations.items() if not each.key},
        )
        logs: dict[str, dict[str, str]] = {}
        if capture.messages:
            logs[messages_topic(capture.topic_prefix)] = {}
        if capture.ddl:
            logs[ddl_topic(capture.topic_prefix)] = KEPT_FOR_EVER
        # One partition: what comes later in the WAL comes later on the topic.
        found_logs = ensure_topics(
            settings.kafka,
            dict.fromkeys(logs, 1),
            replication=capture.replication_factor,
            settings=TopicSettings(compacted=False),
            extra={name: {**capture.topic_properties, **own} for name, own in logs.items()},
        )
        tables.check_registry()
        if capture.ddl:
            _watch_schema(connection)
        yield Ground(
            settings=settings,
            connection=connection,
            system=system,
            relations=relations,
            tables=tables,
            frontiers=frontiers,
            cluster_id=cluster,
            descriptions={name: descriptions[name] for name in names.values()},
            logs=found_logs,
            catalogue=catalogue,
            rules=rules,
            scopes=narrowed(scopes),
        )


def _schemas(settings: Project, frontiers: FrontierLog) -> Registry | SchemaTopic:
    """Give where the schemas are kept: documents have no schema id, so they need no registry."""
    if settings.capture.form.output is Output.AVRO:
        return Registry(settings.registry)
    topic = schema_topic(settings.capture.topic_prefix)
    return SchemaTopic(settings.kafka, topic, frontiers)


def _watch_schema(connection: Connection) -> None:
    """Make the event triggers when they are missing, or say that they are."""
    if has_ddl(connection):
        return
    try:
        install_ddl(connection)
    except UnavailableSourceError:
        raise
    except SourceError as error:
        log.warning(
            "%s: schema changes are not captured until a superuser runs `changelog ddl install`",
            error,
        )
    else:
        log.info("made the event triggers of schema changes; `changelog ddl remove` removes them")


def _wanted(catalogue: Catalogue, settings: Project) -> dict[TableName, Relation]:
    capture = settings.capture
    wanted = TableFilter(capture.tables, capture.exclude)
    selected = select_tables(catalogue.tables(), wanted)
    check_capturable(selected)
    if not selected:
        raise ConfigurationError(
            f"no table matches {', '.join(capture.tables)}",
            hint="look at --tables and --exclude; a pattern is schema.table, * for any text",
        )
    for what in catalogue.uncaptured(wanted, selected):
        log.info("not captured: %s", what)
    for table in selected:
        if not table.relation.key:
            log.warning(
                'table "%s" has no primary key: its topic is not compacted and gives no state of '
                "the table",
                table.name,
            )
    return {table.name: table.relation for table in selected}
