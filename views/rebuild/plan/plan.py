"""Plan of a rebuild, made before it does anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from changelog.config import FILE_NAME, Project
from changelog.contract.base.errors import ConfigurationError, VerdictError, ViewError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.log.joined import CapturedLog, beside
from changelog.contract.rows.choices import ChoicesError, ColumnChoice, ValueChoice
from changelog.contract.rows.relation import TableName, unread
from changelog.contract.rows.schema import SchemaPin
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.archive.read import ArchivedCut, find_archived, gives, open_archived, segments_of
from replay.archive.store import Archive
from replay.base.config import OnBadRecord
from replay.base.sections import archive_of, warehouse_of
from replay.broker.topics import read_frontier
from replay.cut.cut import Cut, make_cut
from replay.cut.others import make_other_cuts
from replay.cut.past import find_past
from replay.declared.declared import NO_FRONTIER, make_declared_cut, open_declared
from replay.declared.joined import CutParts
from replay.decode.schemas import TopicSchemas, schemas_of
from replay.pipeline.replay import Replay, open_replay
from replay.spark.files import uri_of
from replay.store.checkpoint import CheckpointStore
from replay.store.plan import Advance, plan_advance
from replay.verdict.verdict import Verdict, together
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.failure import RebuildError
from views.generations.history import GenerationHistory
from views.generations.served import Served
from views.generations.succession import next_generation, serving
from views.project.definition import changed_declaration
from views.project.spec import SqlSource, ViewSpec, check_captured, check_distinct, short_name
from views.rebuild.plan.analysis import Analysis
from views.rebuild.plan.histories import doubts_of
from views.rebuild.result.report import frontier_json, others_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Plan:
    """One cut for all views of a run, and the verdict on it."""

    record: FrontierRecord  # the frontier; for declared logs alone, their ends
    cut: Cut  # the part of the log to read
    logs: tuple[DeclaredLog, ...] = ()  # the logs of other programs that are read
    # the plan to bring checkpoints there; None when the log is read from its start
    advance: Advance | None = None
    # of the captured tables, also of other captures, as they were read for this plan
    schemas: Mapping[TableName, TopicSchemas] = field(default_factory=dict)
    # the cuts of several logs; None if there is one
    parts: CutParts | None = None
    # the tables without a primary key that are read: their rows follow from the whole history, so
    # no state of them can be continued
    unkeyed: Collection[TableName] = ()
    others: tuple[CapturedLog, ...] = ()  # the logs of other captures that are read
    archived: ArchivedCut | None = None  # what is read in place of the log

    @property
    def cuts(self) -> CutParts:
        """Return the cut of each log."""
        if self.parts is not None:
            return self.parts
        return CutParts(declared=self.cut) if self.logs else CutParts(own=self.cut)

    @property
    def stands(self) -> list[TableName]:
        """Return the tables whose states cannot be continued: their views are computed whole."""
        if self.archived is not None:
            return [*self.cut.topics]
        foreign = [*(log.table for log in self.logs), *(log.table for log in self.others)]
        return [*foreign, *self.unkeyed]

    def open(self, spark: SparkSession, specs: Sequence[ViewSpec], project: Project) -> Replay:
        """Open the states that the views read from the log's start; reads no record yet.

        Raises VerdictError: the log can no longer give them; LogError: a schema of a declared log
        is not there, or not of the form that it should be.
        """
        kafka, registry, parts = project.kafka, project.registry, self.parts
        if self.logs and parts is None:
            return open_declared(spark, kafka, registry, self.cut, self.logs)
        schemas = {t: self.schemas[t] for t in tables_of(specs) if t in self.schemas}
        if self.archived is not None:
            return open_archived(spark, self.archived, schemas)
        if parts is None:
            return open_replay(spark, kafka, self.cut, schemas)
        opened = [
            open_replay(spark, kafka, cut, {t: schemas[t] for t in cut.topics if t in schemas})
            for cut in parts.captured
        ]
        if parts.declared is not None:
            opened.append(open_declared(spark, kafka, registry, parts.declared, self.logs))
        first, *further = opened
        for part in further:
            first = first.beside(part, self.cut)
        return replace(first, cut=self.cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlan:
    """Plan of the rebuild of one view."""

    spec: ViewSpec  # its declaration
    cut: Cut  # the part of the log that would be read
    generation: int  # the number that would be written
    serving: int | None  # the number that every sink serves, or None
    # the plan to bring checkpoints there; None when the log is read from its start
    advance: Advance | None = None
    archived: ArchivedCut | None = None  # what would be read in place of the log
    analysis: Analysis | None = None  # the facts about the view before it is built
    # the difference of its file to that of the serving generation; empty if there is none, None if
    # that file is not on record
    definition_diff: str | None = None
    # a sentence for each column whose values have another form than in its table, and for versions
    # that may have values of a later change
    choices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--plan --json`."""
        return {
            "view": self.spec.name,
            "plan": True,
            "kind": self.spec.kind,
            "key": list(self.spec.key),
            "sinks": list(self.spec.sinks),
            "views": list(self.spec.views),
            "parameters": dict(self.spec.parameters),
            "topics": {short_name(table): self.cut.topics[table] for table in self.spec.tables},
            "records_at_most": self.records_at_most,
            "generation": self.generation,
            "serving": self.serving,
            "frontier": frontier_json(shown(self.cut.record)),
            **others_json(beside(self.cut.record.frontier, self._topics)),
            **verdict_of(self.spec, self.cut).to_json(),
            "verdicts": {topic: self._topic_json(topic) for topic in self._topics},
            "from": self._from(),
            "warnings": list(self.warnings),
            "definition_changed": None if self.definition_diff is None else self._is_changed,
            "definition_diff": self.definition_diff,
            **({} if self.analysis is None else self.analysis.to_json()),
        }

    @property
    def _is_changed(self) -> bool:
        return bool(self.definition_diff)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the notes about a view's tables for its readers."""
        return (*warnings_of(self.spec, self.cut.record), *self.choices)

    @property
    def _topics(self) -> list[str]:
        return [self.cut.topics[table] for table in self.spec.tables]

    def _topic_json(self, topic: str) -> dict[str, Any]:
        density = self.cut.densities.get(topic)
        return {
            **self.cut.verdict.topics[topic].to_json(),
            "records": None if density is None else density.records,
            "density": None if density is None else density.ratio,
        }

    @property
    def records_at_most(self) -> int:
        """Return the number of offsets from the start of the read to the frontier, with gaps."""
        if self.advance is not None:
            return sum(self.advance.records_of(topic) for topic in self._topics)
        return sum(self.cut.offset_count(topic) for topic in self._topics)

    def _from(self) -> dict[str, str]:
        """Return for each topic the start of its read, as text."""
        topics = [self.cut.topics[table] for table in self.spec.tables]
        if self.archived is not None:
            return dict.fromkeys(topics, f"the archive {self.archived.archive.root}")
        if self.advance is None:
            return dict.fromkeys(topics, "the log's start")
        starts = {}
        for topic in topics:
            step = self.advance.steps[topic]
            starts[topic] = (
                f"the checkpoint of LSN {step.checkpoint.frontier.lsn}"
                if step.checkpoint is not None
                else f"the log's start: {step.why}"
            )
        return starts

    def short_lines(self) -> list[str]:
        """Return the plan in at most three lines."""
        now = f"generation {self.serving} serves" if self.serving else "nothing serves yet"
        reads = ", ".join(short_name(table) for table in self.spec.tables)
        proof = "" if self.analysis is None else f"; {self.analysis.line()}"
        changed = f"its definition is another than that of generation {self.serving}"
        notes = [*self.warnings, *([changed] if self.definition_diff else [])]
        sinks = ", ".join(self.spec.sinks)
        return [
            f"{self.spec.name} writes generation {self.generation} to {sinks}; {now}",
            f"  reads {reads}: at most {self.records_at_most:,} records{proof}",
            *([f"  warning: {'; '.join(notes)}"] if notes else []),
        ]

    def lines(self) -> list[str]:
        """Return the whole plan as lines for people."""
        now = f"generation {self.serving} serves" if self.serving else "nothing serves yet"
        reads = ", ".join(f"{short_name(t)} (topic {self.cut.topics[t]})" for t in self.spec.tables)
        return [
            f"{self.spec.name} ({self.spec.kind}, {self.spec.path.name})",
            f"  reads {reads}: at most {self.records_at_most:,} records",
            *self._view_lines(),
            *(f"  parameter {name} is {text}" for name, text in self.spec.parameters.items()),
            *(f"  from {where} (topic {topic})" for topic, where in self._from().items()),
            *(f"  {self._topic_line(topic)}" for topic in self._topics),
            *(f"  warning: {warning}" for warning in self.warnings),
            f"  writes generation {self.generation} to {', '.join(self.spec.sinks)}; {now}",
            *([] if self.analysis is None else (f"  {line}" for line in self.analysis.lines())),
            *self._definition_lines(),
        ]

    def _view_lines(self) -> list[str]:
        if not self.spec.views:
            return []
        return [f"  computes inside of it the views {', '.join(self.spec.views)}, from the log"]

    def _definition_lines(self) -> list[str]:
        if not self.definition_diff:
            return []
        changed = f"  its definition is another than that of generation {self.serving}:"
        return [changed, *(f"    {line}" for line in self.definition_diff.splitlines())]

    def _topic_line(self, topic: str) -> str:
        density = self.cut.densities.get(topic)
        about = "" if density is None else f"about {density.records:,} records, "
        return f"{topic}: {about}{self.cut.verdict.topics[topic]}"


def verdict_of(spec: ViewSpec, cut: Cut) -> Verdict:
    """Return the verdict on the topics of a cut that one view reads."""
    topics = {
        topic: cut.verdict.topics[topic] for topic in map(cut.topics.get, spec.tables) if topic
    }
    if topics.keys() == cut.verdict.topics.keys():
        return cut.verdict  # which also has the reasons of logs without a common frontier
    return together(topics, cut.verdict.allowance_ms)


def planned(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    *,
    sample: bool = False,
    steps: Steps = UNSEEN,
) -> Plan:
    """Choose the frontier and judge it; with `sample`, estimate the records from a few of them.

    `steps` counts the requests to brokers, and the places where records are sampled.

    Raises:
        NoFrontierError: nothing is captured yet.
        ViewError: a view reads a table that is not captured.
        VerdictError: an older state is asked for that cannot be given.
        ConfigurationError: records are to be quarantined that checkpoints do not keep.
    """
    project = settings.project
    if settings.archive is not None:
        return _from_archive(specs, settings, Archive(settings.archive), steps)
    if logs := logs_of(specs, settings):
        if settings.as_of is not None:
            raise no_frontier(specs, "no older state of them can be given", "leave out --as-of")
        return _side_by_side(specs, logs, settings, sample=sample, steps=steps)
    record = _newest(specs, (), settings, steps)
    if settings.reads_checkpoints and settings.on_bad_record is OnBadRecord.QUARANTINE:
        raise ConfigurationError(
            "checkpoints do not keep records that cannot be read, so none can be quarantined",
            hint="--on-bad-record fail, or read the log from its start: without --refresh, "
            "--follow and --from checkpoint",
        )
    tables = tables_of(specs)
    cut = _cut(record, tables, settings, sample=sample, steps=steps)
    if unkeyed := unkeyed_of({table: cut.topics[table] for table in tables}, record.frontier):
        _check_bags(specs, unkeyed, settings)
        return Plan(cut.record, cut, unkeyed=unkeyed)
    is_past = settings.as_of is not None and not cut.verdict.allows_read
    if not (settings.reads_checkpoints or is_past):
        return Plan(cut.record, cut)
    steps.more(1)
    steps.begin("checkpoints")
    advance = plan_advance(
        project.kafka, store_of(project), cut.record, tables, settings=settings.replay()
    )
    steps.done()
    if settings.verify is not VerifyMode.NONE:
        advance = replace(advance, proof=cut)
        if advance.verdict.allows_read:
            _require_proof(cut)
    return Plan(cut.record, advance.cut(), advance=advance)


def _from_archive(
    specs: Sequence[ViewSpec], settings: RebuildSettings, archive: Archive, steps: Steps
) -> Plan:
    """Plan views from the archive of the log."""
    if logs_of(specs, settings):
        raise no_frontier(specs, "no archive has them", "leave out --from archive")
    if settings.on_bad_record is OnBadRecord.QUARANTINE:
        raise ConfigurationError(
            "records of an archive are not quarantined", hint="--on-bad-record fail"
        )
    steps.more(1)
    steps.begin("the archive")
    segments = segments_of(archive)
    last = segments[-1].frontier
    for spec in specs:
        check_captured(spec, {*last.tables.values()}, last.excluded)
    tables = tables_of(specs)
    archived = find_archived(archive, segments, settings.as_of, tables, settings=settings.replay())
    steps.done()
    unkeyed = unkeyed_of(archived.cut.topics, archived.cut.record.frontier)
    if unkeyed:
        _check_bags(specs, unkeyed, settings)
    return Plan(archived.cut.record, archived.cut, unkeyed=unkeyed, archived=archived)


def _check_bags(
    specs: Sequence[ViewSpec], unkeyed: Collection[TableName], settings: RebuildSettings
) -> None:
    """Refuse options that are not possible for tables without a primary key."""
    if settings.on_bad_record is OnBadRecord.QUARANTINE:
        names = ", ".join(short_name(table) for table in unkeyed)
        raise ConfigurationError(
            f"no record of {names} can be quarantined, which has no primary key: a delete that is "
            "left out would leave its row",
            hint="--on-bad-record fail",
        )
    for spec in specs:
        unkeyed_read = [short_name(table) for table in unkeyed if table in spec.tables]
        if unkeyed_read and spec.sql is None and settings.verify is not VerifyMode.NONE:
            raise RebuildError(
                f'view "{spec.name}" cannot be verified: it is in Python, and the rows of '
                f"{', '.join(unkeyed_read)} have no key to compare them by",
                hint="write it in SQL, or publish it unproved: --verify none",
            )


def _newest(
    specs: Sequence[ViewSpec],
    logs: Sequence[DeclaredLog | CapturedLog],
    settings: RebuildSettings,
    steps: Steps,
) -> FrontierRecord:
    """Read the newest frontier of the project's capture; checks that it has the views' tables."""
    project = settings.project
    steps.more(1)
    steps.begin("the frontier")
    record = read_frontier(project.kafka, settings.frontier_topic, project.slot)
    steps.done()
    captured = {*record.frontier.tables.values(), *(log.table for log in logs)}
    for spec in specs:
        check_captured(spec, captured, record.frontier.excluded)
    return record


def _side_by_side(
    specs: Sequence[ViewSpec],
    logs: tuple[DeclaredLog | CapturedLog, ...],
    settings: RebuildSettings,
    *,
    sample: bool,
    steps: Steps,
) -> Plan:
    """Plan views that read other logs than the project's own: all are read from their start."""
    kafka, replayed = settings.project.kafka, settings.replay()
    declared = tuple(log for log in logs if isinstance(log, DeclaredLog))
    others = tuple(log for log in logs if isinstance(log, CapturedLog))
    tables, own = captured_of(specs, logs), None
    if tables:
        record = _newest(specs, logs, settings, steps)
        own = make_cut(kafka, record, tables, settings=replayed, sample=sample, steps=steps)
    parts = CutParts(
        own=own,
        others=make_other_cuts(kafka, others, settings=replayed, sample=sample, steps=steps),
        # Last, so that its ends are never older than the frontiers.
        declared=make_declared_cut(kafka, declared, settings=replayed, sample=sample, steps=steps)
        if declared
        else None,
    )
    if parts.declared is not None and not parts.captured:
        return Plan(parts.declared.record, parts.declared, declared)
    cut = parts.joined(logs)
    unkeyed = [t for part in parts.captured for t in unkeyed_of(part.topics, part.record.frontier)]
    if unkeyed:
        _check_bags(specs, unkeyed, settings)
    return Plan(cut.record, cut, declared, parts=parts, unkeyed=unkeyed, others=others)


def schemas_now(
    plan: Plan, settings: RebuildSettings, steps: Steps = UNSEEN
) -> dict[TableName, TopicSchemas]:
    """Return the schemas by which a rebuild would read the captured tables now.

    `steps` counts the tables.

    Raises LogError: a schema is not there, or has columns that Spark cannot tell apart;
    UnavailableLogError: the registry or the brokers do not answer.
    """
    if plan.logs and plan.parts is None:
        return {}
    schemas = dict[TableName, TopicSchemas]()
    for cut in [plan.cut] if plan.parts is None else plan.parts.captured:
        schemas |= _schemas_of(plan, settings, cut.record.frontier, cut.topics, steps)
    if not settings.choices:
        return schemas
    return _with_choices(schemas, plan, settings)


def _schemas_of(
    plan: Plan,
    settings: RebuildSettings,
    frontier: Frontier,
    topics: Mapping[TableName, str],
    steps: Steps = UNSEEN,
) -> dict[TableName, TopicSchemas]:
    if plan.archived is not None:
        return plan.archived.schemas_of(topics)
    project = settings.project
    return schemas_of(project.registry, project.kafka, frontier, topics, steps)


def _with_choices(
    schemas: Mapping[TableName, TopicSchemas], plan: Plan, settings: RebuildSettings
) -> dict[TableName, TopicSchemas]:
    """Return the schemas with the forms that `rebuild.values` chooses for values.

    Raises ChoicesError: lines of `rebuild.values` contradict each other, or match no column.
    """
    chosen, mistakes = dict[TableName, TopicSchemas](), list[ConfigurationError]()
    for table, table_schemas in schemas.items():
        try:
            chosen[table] = table_schemas.with_choices(settings.choices)
        except ChoicesError as error:
            mistakes.append(error)
    for choice in settings.choices:
        try:
            _require_column(choice, schemas, plan, settings)
        except ConfigurationError as error:
            mistakes.append(error)
    if mistakes:
        raise ChoicesError.of(mistakes)
    return chosen


def _require_column(
    choice: ColumnChoice,
    schemas: Mapping[TableName, TopicSchemas],
    plan: Plan,
    settings: RebuildSettings,
) -> None:
    """Require that a choice matches a column, also of captured tables that no view reads."""
    reasons = list[str]()
    own = {
        table: table_schemas.logged(table_schemas.reader_id)
        for table, table_schemas in schemas.items()
    }
    for table, schema in own.items():
        if choice.is_of(table):
            if (why := choice.obstacles(schema)) is None:
                return
            reasons += why
    captured = [cut.record.frontier for cut in plan.cuts.captured]
    for frontier in captured:
        more = {
            table: topic
            for topic, table in frontier.tables.items()
            if table not in own and choice.is_of(table)
        }
        for table_schemas in _schemas_of(plan, settings, frontier, more).values():
            if (why := choice.obstacles(table_schemas.logged(table_schemas.reader_id))) is None:
                return
            reasons += why
    if captured:
        raise ConfigurationError(
            f'{FILE_NAME}: rebuild.values."{choice.pattern}": '
            + ("; ".join(reasons) or "no captured table has such a column"),
            hint="name a numeric(p,s), a date, a timestamp or an array of a captured table, as "
            "schema.table.column",
        )


def choices_of(spec: ViewSpec, schemas: Mapping[TableName, TopicSchemas]) -> list[str]:
    """Return sentences on the values that a view has in another form than its tables."""
    return choices_told(
        {t: table_schemas.choices for t, table_schemas in schemas.items() if t in spec.tables}
    )


def choices_told(choices: Mapping[TableName, Sequence[tuple[str, str]]]) -> list[str]:
    """Return a sentence for each column with a chosen form of its values."""
    sentences = {
        ValueChoice.TEXT: "{} is PostgreSQL's text, as rebuild.values says",
        ValueChoice.NULL: "what {} cannot hold is null, as rebuild.values says",
    }
    return [
        sentences[ValueChoice(choice)].format(f"{table}.{column}")
        for table, choices_of_table in choices.items()
        for column, choice in choices_of_table
    ]


def pins_now(plan: Plan, settings: RebuildSettings) -> dict[str, SchemaPin]:
    """Return by topic the versions by which a rebuild would read the captured tables now.

    Raises LogError: a schema is not there, or has columns that Spark cannot tell apart.
    """
    return {
        table_schemas.topic: table_schemas.pin
        for table_schemas in schemas_now(plan, settings).values()
    }


def _cut(
    last: FrontierRecord,
    tables: Sequence[TableName],
    settings: RebuildSettings,
    *,
    sample: bool,
    steps: Steps,
) -> Cut:
    """Judge the log at the newest frontier, or at the older one that the settings name."""
    project = settings.project
    if settings.as_of is None:
        sample = sample and not settings.reads_checkpoints
        return make_cut(
            project.kafka, last, tables, settings=settings.replay(), sample=sample, steps=steps
        )
    may_be_stored = (
        settings.source is not RowsSource.START
        and settings.on_bad_record is not OnBadRecord.QUARANTINE
    )
    steps.more(1)
    steps.begin("the older state")
    try:
        past = find_past(
            project.kafka,
            settings.frontier_topic,
            project.slot,
            settings.as_of,
            tables,
            stored=_stored(store_of(project), last, tables) if may_be_stored else (),
            settings=settings.replay(),
        )
    except VerdictError as error:
        archived = gives(Archive(archive_of(project)), settings.as_of, tables)
        if archived is None:
            raise
        has = f"the archive has it: --from archive --as-of {archived.lsn}"
        raise VerdictError(str(error.args[0]), hint=f"{has}; or {error.hint}") from error
    steps.done()
    return past.cut


def store_of(project: Project) -> CheckpointStore:
    """Return the checkpoints of a project's warehouse."""
    return CheckpointStore(uri_of(warehouse_of(project)))


def _stored(
    store: CheckpointStore, last: FrontierRecord, tables: Sequence[TableName]
) -> list[FrontierRecord]:
    """Return the frontiers at which every table has a checkpoint, oldest first."""
    by_place: dict[tuple[int, int], FrontierRecord] = {}
    common: set[tuple[int, int]] | None = None
    for table in tables:
        topic = last.frontier.topic_of(table)
        checkpoints = store.manifest(topic).checkpoints if topic is not None else ()
        own = {(c.frontier.epoch, int(c.frontier.lsn)): c.base.record for c in checkpoints}
        by_place |= own
        common = set(own) if common is None else common & set(own)
    return [by_place[place] for place in sorted(common or ())]


def _require_proof(cut: Cut) -> None:
    """Refuse a proof if the log itself can no longer give the state."""
    if not cut.verdict.allows_read:
        raise VerdictError(
            f"a checkpoint gives the state at LSN {cut.record.frontier.lsn}, but the log cannot "
            f"prove it any more: {'; '.join(cut.verdict.reasons)}",
            hint="--verify none publishes it as it was stored",
        )


def plan_view(
    spec: ViewSpec,
    plan: Plan,
    served: Served,
    history: GenerationHistory,
    *,
    analysis: Analysis | None = None,
    steps: Steps = UNSEEN,
) -> ViewPlan:
    """Return the plan of one view's rebuild; `steps` counts the sinks that are asked."""
    steps.more(len(served.sinks))
    generations = list(served.held_without_listing(steps).values())
    number = serving(generations)
    return ViewPlan(
        spec=spec,
        cut=plan.cut,
        generation=next_generation(generations, history.states(spec.name)),
        serving=number,
        advance=plan.advance,
        archived=plan.archived,
        analysis=analysis,
        definition_diff=_definition_diff(spec, number, history),
        choices=(
            *choices_of(spec, plan.schemas),
            *doubts_of(spec, plan.schemas, plan.record.frontier),
        ),
    )


def _definition_diff(spec: ViewSpec, serving: int | None, history: GenerationHistory) -> str | None:
    """Return the changes of a view's files since the serving generation, or None if unknown."""
    if serving is None:
        return None
    before = history.declaration(spec.name, serving)
    if before is None:
        return None
    return changed_declaration(before, spec, since=f"generation {serving}")


def warnings_of(spec: ViewSpec, record: FrontierRecord) -> tuple[str, ...]:
    """Return sentences on the rows that a view lacks and its source has.

    A view in PostgreSQL's SQL has none: without ONLY it is refused.
    """
    source = spec.source
    if isinstance(source, SqlSource) and (source.written or source).dialect == "postgres":
        return ()
    return tuple(unread(spec.tables, record.frontier.children))


def shown(record: FrontierRecord) -> Frontier | None:
    """Return the frontier to show for a cut, or None for logs of other programs."""
    return record.frontier if record.offset != NO_FRONTIER else None


def groups_of(specs: Sequence[ViewSpec], settings: RebuildSettings) -> list[Sequence[ViewSpec]]:
    """Group the views by their logs, own, declared or both: each group has one cut."""
    groups: dict[tuple[bool, bool], list[ViewSpec]] = {}
    for spec in specs:
        logs = logs_of([spec], settings)
        groups.setdefault((bool(logs), bool(captured_of([spec], logs))), []).append(spec)
    return [groups[group] for group in sorted(groups)]


def captured_of(
    specs: Sequence[ViewSpec], logs: Sequence[DeclaredLog | CapturedLog]
) -> list[TableName]:
    """Return the tables of views that are in none of the logs, each once."""
    declared = {log.table for log in logs}
    return [table for table in tables_of(specs) if table not in declared]


def logs_of(
    specs: Sequence[ViewSpec], settings: RebuildSettings
) -> tuple[DeclaredLog | CapturedLog, ...]:
    """Return the logs that views read in addition to the project's capture.

    Raises ViewError: they name a view by the name of a declared table.
    """
    tables = tables_of(specs)
    for spec in specs:
        check_distinct(spec, {log.table for log in settings.logs})
    return tuple(log for log in settings.logs if log.table in tables)


def unkeyed_of(topics: Mapping[TableName, str], frontier: Frontier) -> list[TableName]:
    """Return the tables of some topics that have no primary key."""
    return [table for table, topic in topics.items() if not frontier.scope_of(topic).keyed]


def no_frontier(specs: Sequence[ViewSpec], consequence: str, hint: str) -> ViewError:
    """Return the error for an action that needs a frontier, on views of other programs' logs."""
    names = ", ".join(spec.name for spec in specs)
    return ViewError(
        f"{names}: logs of other programs and captures do not stand at a frontier of this one, "
        f"so {consequence}",
        hint=hint,
    )


def tables_of(specs: Sequence[ViewSpec]) -> list[TableName]:
    """Return the tables of all views, each once."""
    return list(dict.fromkeys(table for spec in specs for table in spec.tables))
