"""`changelog capture --check`: what would go wrong, before anything is made.

Each step is what capture itself looks at, by the same functions and in the same order; where
capture ends with the first refusal, the check goes on with what does not depend on it. It makes no
topic, subject, publication or slot and writes no record: topics are put to the brokers as a
question only, and the publication is made in a transaction that is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing

from changelog.capture.rows.rules import CaptureRules, catalogue_of
from changelog.capture.rows.tables import CapturedTables
from changelog.capture.start.decide import Adopt, Continue, Fresh, Resume
from changelog.capture.start.environment import Environment, LogFacts, SourceFacts, checked
from changelog.capture.start.other_slots import refuse_shared
from changelog.capture.start.outlook import (
    Outlook,
    foresee,
    rehearse_publication,
    standing,
    uncarried,
)
from changelog.capture.start.rights import to_alter
from changelog.capture.start.selection import wanted_tables, was_captured
from changelog.capture.start.topics import schemas_of, topic_plans
from changelog.capture.state.newcomers import Newcomers
from changelog.capture.state.policy import Reaction, check_limit, with_way_out
from changelog.config import Project
from changelog.contract.base.errors import ChangelogError, SchemaConflictError
from changelog.contract.log.backfill import BackfillRecord, copies_of
from changelog.contract.log.form import Envelope, Output
from changelog.contract.log.topic import frontier_topic, topic_names
from changelog.contract.rows.relation import WAY_OUT, ReplicaIdentity, TableName, alone
from changelog.kafka.cluster import Cluster
from changelog.postgres.connection import Connection
from changelog.runtime.findings import Findings, Level
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.sink.registry import SchemaRegistry
from changelog.sink.topics import TopicPlan, changes
from changelog.source.connect.connect import connect
from changelog.source.connect.open_transactions import prepared_transactions
from changelog.source.connect.readiness import (
    check_owned,
    check_readable,
    check_room,
    table_bytes,
    unreadable,
)
from changelog.source.connect.standby import check_source
from changelog.source.connect.system import SystemIdentity, identify
from changelog.source.snapshot.sequences import read_sequences
from changelog.source.snapshot.snapshot import estimated_rows
from changelog.source.tables.catalogue import Table
from changelog.source.tables.ddl import has_ddl
from changelog.source.tables.filter import TableFilter
from changelog.source.tables.publication import PublicationChange

_MOST_NAMES = 10


def check_capture(settings: Project) -> Findings:
    """Look at everything that capture looks at before it begins; makes nothing."""
    findings = Findings()
    with ExitStack() as stack:
        _Check(settings, findings, stack).run()
    return findings


class _Check:
    """One run of all checks."""

    def __init__(self, settings: Project, findings: Findings, stack: ExitStack) -> None:
        self._settings = settings
        self._capture = settings.capture
        self._findings = findings
        self._stack = stack
        self._excluded: set[TableName] = set()
        self._system: SystemIdentity | None = None

    def run(self) -> None:
        self._findings.ask("producer settings", self._producer)
        log = self._kafka()
        source = self._source(log)
        self._all(source, log)
        self._findings.ask("limit", lambda: check_limit(self._excluded, self._capture))

    def _kafka(self) -> LogFacts | None:
        """Check the brokers, and read the slot's facts from the log."""
        findings, settings = self._findings, self._settings
        cluster = findings.ask("Kafka", lambda: Cluster(settings.kafka).meet())
        if cluster is None:
            return None
        findings.add("Kafka", Level.OK, f"cluster {cluster} at {settings.kafka.brokers}")
        frontiers = self._stack.enter_context(
            FrontierLog(settings.kafka, frontier_topic(settings.topic_prefix))
        )
        last = findings.ask("frontier", lambda: (frontiers.last(settings.slot),))
        if last is None:
            return None
        (record,) = last
        return LogFacts(cluster, frontiers, record.frontier if record is not None else None)

    def _exclude(self, step: str, table: TableName, text: str) -> None:
        self._excluded.add(table)
        self._findings.add(step, Level.NOTE, text)

    def _all(self, source: SourceFacts | None, log: LogFacts | None) -> None:
        if source is not None and self._system is not None and log is not None:
            self._log(source, self._system, log)
            return
        if self._capture.form.output is Output.AVRO:
            self._findings.passes("schema registry", self._registry_alone, "answers")
        if source is not None:
            self._findings.ask("rights", lambda: self._rights(source, source.tables))

    def _source(self, log: LogFacts | None) -> SourceFacts | None:
        findings = self._findings
        connection = findings.ask("PostgreSQL", lambda: connect(self._settings.postgres))
        if connection is None:
            return None
        self._stack.enter_context(closing(connection))
        version = connection.server_version // 10_000
        where = f"PostgreSQL {version}, database {connection.info.dbname}"
        encrypted = ", by TLS" if connection.info.ssl_in_use else ""
        findings.add("PostgreSQL", Level.OK, where + encrypted)
        findings.passes("server settings", lambda: check_source(connection), "wal_level is logical")
        self._system = findings.ask("replication", lambda: identify(self._settings.postgres))
        if self._system is not None:
            findings.add("replication", Level.OK, "the role may replicate")
        rules = findings.ask(
            "rules", lambda: CaptureRules(self._capture, str(connection.info.dbname))
        )
        if rules is None:
            return None
        catalogue = findings.ask(
            "publication", lambda: catalogue_of(connection, self._capture, gives_full=True)
        )
        if catalogue is None:
            return None
        newcomers = Newcomers()
        if log is not None and log.last is not None:
            newcomers.spoken(log.last.tables.values())
        selection = findings.ask(
            "tables", lambda: wanted_tables(connection, catalogue, self._settings, newcomers)
        )
        if selection is None:
            return None
        tables, refused = selection
        for name, why in sorted(refused.items()):
            self._exclude("tables", name, f'"{name}" would be excluded: it {why}')
        findings.add(
            "tables", Level.OK, f"{len(tables)}: {_listed(table.name for table in tables)}"
        )
        self._identity(connection, tables)
        source = SourceFacts(connection, catalogue, rules, tables, refused)
        self._notes(source)
        demand = "columns, masks and row filters fit the tables"
        last = log.last if log is not None else None

        def captured(table: TableName) -> bool:
            return log is not None and was_captured(self._settings, refused, table)

        fits = findings.passes(
            "rules",
            lambda: rules.check(source.relations.values(), last=last, was_captured=captured),
            demand,
        )
        return source if fits else None

    def _producer(self) -> None:
        """Check the settings by a producer of librdkafka that writes nothing."""
        name = self._settings.transactional_id
        kafka, options = self._settings.kafka, self._capture.producer
        LogProducer.open(kafka, options, transactional_id=name).close()
        how = f'transactions as "{name}"' if name else "records stand at once"
        self._findings.add("producer settings", Level.OK, how)

    def _identity(self, connection: Connection, captured: tuple[Table, ...]) -> None:
        """Report the tables that `--replica-identity full` would alter."""
        check = "replica identity"
        altered = self._findings.ask(check, lambda: to_alter(connection, captured))
        tables = [identity.table for identity in altered or ()]
        if tables and self._findings.passes(
            check, lambda: check_owned(connection, tables), "the role may alter the tables"
        ):
            effect = f"after asking, give FULL to {_listed(tables)}"
            self._findings.add(check, Level.MAKES, effect)

    def _notes(self, source: SourceFacts) -> None:
        """Report the objects that are not captured, or not as one may think."""
        table_filter = TableFilter(self._capture.tables, self._capture.exclude)
        lines = self._findings.ask(
            "not captured", lambda: source.catalogue.uncaptured(table_filter)
        )
        for line in lines or ():
            self._findings.add("not captured", Level.NOTE, line)
        lines = self._findings.ask("tables", lambda: source.catalogue.unnoticed(source.tables))
        for line in lines or ():
            self._findings.add("tables", Level.NOTE, line)
        children = self._findings.ask("inheritance", source.catalogue.children) or {}
        for table in sorted({table.name for table in source.tables} & children.keys()):
            note = f"{alone(table, children[table])}; {WAY_OUT}"
            self._findings.add("inheritance", Level.NOTE, note)
        for captured in source.tables:
            if captured.relation.key_index is not None:
                index = captured.relation.key_index
                note = f'"{captured.name}" gets its key from the unique index {index}'
                self._findings.add("no primary key", Level.NOTE, note)
        if self._capture.sequences:
            oids = [table.relation.oid for table in source.tables]
            sequences = self._findings.ask(
                "sequences", lambda: read_sequences(source.connection, table_filter, oids)
            )
            if sequences is not None:
                note = f"{len(sequences)}: {_listed(sequence.name for sequence in sequences)}"
                self._findings.add("sequences", Level.OK, note)
        unkeyed = [table.name for table in source.tables if not table.relation.key]
        if unkeyed:
            note = (
                "topics that are not compacted, and rebuilt from their whole history for as long "
                f"as that is kept: {_listed(unkeyed)}"
            )
            self._findings.add("no primary key", Level.NOTE, note)
        if self._capture.form.envelope is not Envelope.ROW:
            short = [
                table.name
                for table in source.tables
                if table.relation.identity is not ReplicaIdentity.FULL
            ]
            if short:
                note = f"old rows hold no more than the key: {_listed(short)}"
                self._findings.add("replica identity", Level.NOTE, note)
        if self._capture.ddl and not has_ddl(source.connection):
            note = "make the event triggers of schema changes, or warn where the role may not"
            self._findings.add("schema changes", Level.MAKES, note)

    def _registry_alone(self) -> None:
        """Send the registry a request, to see whether it answers."""
        with closing(SchemaRegistry(self._settings.registry)) as registry:
            registry.values("changelog")

    def _log(self, source: SourceFacts, system: SystemIdentity, log: LogFacts) -> None:
        findings, settings = self._findings, self._settings
        relations, prefix = source.relations, settings.topic_prefix
        names = findings.ask("topics", lambda: topic_names(relations, prefix))
        schemas = findings.ask("schema registry", lambda: schemas_of(settings, log.frontiers))
        if names is None or schemas is None:
            return
        self._stack.enter_context(closing(schemas))
        tables = CapturedTables(schemas, names, source.catalogue.older_values, source.rules.shape)
        plans = findings.ask("topics", lambda: topic_plans(settings, relations, names, log.last))
        if plans is not None:
            self._topics(plans)
        if settings.capture.form.output is Output.AVRO:
            answers = findings.passes("schema registry", tables.check_registry, "answers")
        else:
            answers = True
        if plans is None or not answers:
            findings.ask("rights", lambda: self._rights(source, source.tables))
            return
        environment = findings.ask("topics", lambda: checked(settings, source, system, log, tables))
        if environment is not None:
            self._beginning(source, environment)

    def _topics(self, plans: tuple[TopicPlan, TopicPlan]) -> None:
        """Report the topics that would be made and altered."""
        there = sorted(name for plan in plans for name in plan.there)
        missing = sorted(topic.topic for plan in plans for topic in plan.missing)
        if there:
            self._findings.add("topics", Level.OK, f"{len(there)} are there: {_listed(there)}")
        if missing:
            effect = f"make {len(missing)} topics: {_listed(missing)}"
            self._findings.add("topics", Level.MAKES, effect)
        for plan in plans:
            for name in plan.differing:
                settings = changes(plan.there[name].settings, plan.must(name))
                effect = ", ".join(
                    f"{key} to {'the default' if value is None else value}"
                    for key, value in sorted(settings.items())
                )
                self._findings.add("topics", Level.MAKES, f'alter "{name}": {effect}')

    def _beginning(self, source: SourceFacts, environment: Environment) -> None:
        findings = self._findings
        findings.ask("other captures", lambda: refuse_shared(environment))
        place = findings.ask("frontier", lambda: standing(environment))
        outlook = None
        if place is not None:
            slot_standing = place
            outlook = findings.ask("slot", lambda: foresee(environment, slot_standing))
        if place is None or outlook is None:
            findings.ask("rights", lambda: self._rights(source, source.tables))
            return
        findings.add("slot", *self._slot(environment, outlook))
        if isinstance(outlook.decision, Fresh):
            for transaction in prepared_transactions(environment.connection):
                findings.add("slot", Level.NOTE, f"would be waited for: {transaction}")
        self._faults(environment, place.unfinished_copies(outlook.decision))
        self._losses(outlook)
        check = "publication"
        change = findings.ask(check, lambda: rehearse_publication(environment, place, outlook))
        if change is not None:
            findings.add(check, *self._publication(change))
        decision = outlook.decision
        anew = set(outlook.copied)
        if change is not None:
            anew |= change.refiltered
        if isinstance(decision, Resume):
            anew |= environment.rescoped(decision.frontier, outlook.skipped)
        taken = (anew | outlook.continued) - self._excluded
        copied = [table for table in source.tables if table.name in taken]
        findings.ask("rights", lambda: self._rights(source, copied))
        fresh = anew | (set() if isinstance(decision, Resume) else outlook.continued)
        self._schemas(environment, decision, fresh)
        self._begins(source, outlook, copied)

    def _faults(self, environment: Environment, unfinished: BackfillRecord | None) -> None:
        """Report the tables that are excluded already, until a copy is requested."""
        for copy in copies_of(unfinished):
            if copy.fault and copy.topic_id and copy.table in environment.relations:
                self._exclude("tables", copy.table, f'"{copy.table}" stays excluded: {copy.fault}')

    def _losses(self, outlook: Outlook) -> None:
        """Report the topics that have lost records, and the reaction for their tables."""
        for loss in outlook.losses:
            match loss.answer:
                case Reaction.STOP:
                    self._findings.refused("topics", loss.explained())
                case Reaction.COPY:
                    effect = f"would be copied anew: {loss.error.args[0]}"
                    self._findings.add("topics", Level.NOTE, effect)
                case Reaction.EXCLUDE:
                    effect = f"would be excluded: {loss.error.args[0]}"
                    self._exclude("topics", loss.table, effect)

    def _slot(self, environment: Environment, outlook: Outlook) -> tuple[Level, str]:
        slot, decision = '", "'.join(self._capture.slots), outlook.decision
        room = check_room(environment.connection, senders=len(self._capture.slots))
        match decision:
            case Fresh(reason=reason, drop_slot=drop):
                done = "drop and make" if drop else "make"
                return Level.MAKES, f'{done} slot "{slot}" ({reason}); {room}'
            case Adopt() | Continue() | Resume():
                return Level.OK, f'slot "{slot}" is there, and free; {room}'

    def _publication(self, change: PublicationChange) -> tuple[Level, str]:
        names = self._capture.slots.values()
        name = ", ".join(f'"{slot}"' for slot in names)
        parts = [
            (change.added, "with"),
            (change.removed, "without"),
            (change.refiltered, "with other rows of"),
        ]
        words = [f"{word} {_listed(sorted(tables))}" for tables, word in parts if tables]
        words += ["with generated columns"] if change.generated else []
        summary = ", ".join(words)
        if change.created:
            return Level.MAKES, f"make {name} {summary}"
        return (
            (Level.MAKES, f"alter {name} {summary}") if summary else (Level.OK, f"{name} is right")
        )

    def _rights(self, source: SourceFacts, copied: Iterable[Table]) -> None:
        relations = [table.relation for table in copied]
        if self._capture.on_error == "log":
            for relation in relations:
                for refusal in unreadable(source.connection, [relation])[:1]:
                    text = f'"{relation.name}" would be excluded: {refusal.reason}'
                    self._exclude("rights", relation.name, text)
            return
        check_readable(source.connection, relations)
        if relations:
            self._findings.add("rights", Level.OK, "the role may read what is to be copied")

    def _schemas(
        self,
        environment: Environment,
        decision: Fresh | Adopt | Continue | Resume,
        fresh: set[TableName],
    ) -> None:
        """Ask for each table whether its next schema would be taken."""
        before = len(self._findings.all)
        errors = {}
        if isinstance(decision, Resume):
            refusals = self._findings.ask("schemas", lambda: uncarried(environment, decision))
            errors = refusals or {}
        for table, relation in sorted(environment.relations.items()):
            check, anew = f"schema of {table}", table in fresh
            try:
                if table in errors and not anew:
                    raise errors[table]
                environment.tables.check(relation, fresh=anew)
            except SchemaConflictError as error:
                way = self._way_out(anew)
                if way:
                    self._findings.add(check, Level.NOTE, f"would be {way}: {error.args[0]}")
                if way == "excluded":
                    self._excluded.add(table)
                elif not way:
                    self._findings.refused(check, with_way_out(error, copying=anew))
            except ChangelogError as error:
                self._findings.refused(check, error)
        if len(self._findings.all) == before:
            result = f"{len(environment.relations)} tables: each next version would be taken"
            self._findings.add("schemas", Level.OK, result)

    def _way_out(self, anew: bool) -> str:
        """Return the fate of a table whose schema is refused; empty when capture ends."""
        if self._capture.on_incompatible == "resnapshot" and not anew:
            return "copied anew"
        return "excluded" if self._capture.on_error == "log" else ""

    def _begins(self, source: SourceFacts, outlook: Outlook, copied: list[Table]) -> None:
        def size() -> str:
            rows = estimated_rows(source.connection, [table.name for table in copied])
            size = table_bytes(source.connection, [table.relation for table in copied])
            return f"{len(copied)} tables, about {rows:,} rows, {size:,} bytes"

        decision, check = outlook.decision, "beginning"
        match decision:
            case Resume(frontier=frontier):
                self._findings.add(check, Level.MAKES, f"resume at the frontier {frontier.lsn}")
            case Continue():
                self._findings.add(check, Level.MAKES, "go on with the snapshot that was cut off")
            case Adopt(lsn=start):
                self._findings.add(check, Level.MAKES, f"begin a fresh log at {start} of the slot")
            case Fresh(reason=reason):
                self._findings.add(check, Level.MAKES, f"begin a fresh log: {reason}")
        if copied:
            volume = self._findings.ask("snapshot", size)
            if volume is not None:
                names = _listed(table.name for table in copied)
                self._findings.add("snapshot", Level.MAKES, f"copy {volume}: {names}")


def _listed(names: Iterable[object]) -> str:
    texts = [str(name) for name in names]
    more = len(texts) - _MOST_NAMES
    shown = ", ".join(texts[:_MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown
