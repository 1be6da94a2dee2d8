"""Settings of a project: `changelog.toml` read once at the edge, passed down as values.

`${NAME}` in a text takes the environment variable NAME and `${file:PATH}` the first line of a
file, so that no secret has to stand in the settings. A connection that is left out is taken from
the embedded servers of the project's own `.stack` folder, when they are up.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError, StackError
from changelog.contract.base.lsn import Lsn
from changelog.contract.forms.declared import (
    PLACEHOLDER,
    DeclaredLog,
    Order,
    Unavailable,
    ValueShape,
    declared_columns,
)
from changelog.contract.log.form import PLAIN, Envelope, Form, Output
from changelog.contract.log.properties import (
    check_producer_properties,
    check_topic_properties,
    largest_record,
    producer_properties,
)
from changelog.contract.log.scope import OPERATIONS
from changelog.contract.log.topic import (
    DEFAULT_DELETE_RETENTION_MS,
    DEFAULT_MIN_COMPACTION_LAG_MS,
    TopicSettings,
)
from changelog.contract.rows.relation import TableName

if TYPE_CHECKING:
    from changelog.stack.base.endpoints import Endpoints

log = logging.getLogger("changelog.config")

FILE_NAME = "changelog.toml"
STACK_FOLDER = ".stack"
MASK_KEY = "CHANGELOG_MASK_KEY"
"""Environment variable with the key of hashed columns, where the settings have none."""

SOURCE, BROKERS, REGISTRY = "postgres", "brokers", "schema_registry"
"""What a command may need; the names of the embedded servers' endpoints."""

_REFERENCE = re.compile(r"\$\{(?P<file>file:)?(?P<name>[^}]+)\}")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Postgres(_Section):
    dsn: str = ""


class _Kafka(_Section):
    brokers: str = ""
    options: dict[str, str] = {}


class _Registry(_Section):
    url: str = ""
    options: dict[str, str] = {}


class _Capture(_Section):
    slot: str = "changelog"
    publication: str = ""
    topic_prefix: str = ""
    tables: list[str] = ["public.*"]
    exclude: list[str] = []
    partitions: int = Field(default=2, ge=1)
    replication_factor: int = Field(default=-1, ge=-1)
    min_compaction_lag_ms: int = Field(default=DEFAULT_MIN_COMPACTION_LAG_MS, ge=0)
    delete_retention_ms: int = Field(default=DEFAULT_DELETE_RETENTION_MS, ge=0)
    fix_topics: bool = False
    snapshot_workers: int = Field(default=2, ge=1)
    frontier_interval_ms: int = Field(default=1000, ge=10)
    status_interval_ms: int = Field(default=10_000, ge=100)
    wait_s: float | None = Field(default=None, ge=0)
    create_publication: bool = True
    producer: dict[str, str] = {}
    topic: dict[str, str] = {}
    operations: list[str] = list(OPERATIONS)
    drop_columns: list[str] = []
    mask: dict[str, str] = {}
    mask_key: str = ""
    where: dict[str, str] = {}
    allow_unkeyed: bool = False
    exactly_once: bool = False
    skip_snapshot: bool = False
    start_lsn: str = ""
    temporary_slot: bool = False
    messages: list[str] = []
    ddl: bool = False
    output_format: Output = Output.AVRO
    envelope: Envelope = Envelope.ROW
    replica_identity: Literal["", "full"] = ""
    on_incompatible: Literal["stop", "resnapshot"] = "stop"
    on_error: Literal["exit", "log"] = "exit"


class _Spark(_Section):
    master: str = "local[*]"
    client: Literal["librdkafka", "java"] = "librdkafka"
    task_memory_mb: int = Field(default=256, ge=1)
    settings: dict[str, str] = {}


class _Rebuild(_Section):
    warehouse: str = "warehouse"
    keep: int = Field(default=2, ge=1)
    checkpoint_days: int = Field(default=7, ge=1)
    follow_seconds: float = Field(default=5, gt=0)
    deletion_vectors: bool = False
    on_bad_record: Literal["fail", "quarantine"] = "fail"


class _Sink(_Section):
    url: str = ""


class _Sinks(_Section):
    search: _Sink = _Sink()
    cache: _Sink = _Sink()


class _Log(_Section):
    topic: str
    form: ValueShape
    key: list[str] = Field(min_length=1)
    delete: str = ""
    order: Order = Order.OFFSET
    columns: dict[str, str] = {}
    key_changes: bool = True
    placeholder: str = PLACEHOLDER
    on_unavailable: Unavailable = Unavailable.FAIL


class _File(_Section):
    postgres: _Postgres = _Postgres()
    kafka: _Kafka = _Kafka()
    registry: _Registry = _Registry()
    capture: _Capture = _Capture()
    spark: _Spark = _Spark()
    rebuild: _Rebuild = _Rebuild()
    sinks: _Sinks = _Sinks()
    logs: dict[str, _Log] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """What to capture and how.

    Attributes:
        slot: name of the replication slot.
        publication: name of the publication; the slot's name when left out.
        topic_prefix: put before each topic, with a dot.
        tables: patterns of tables to capture, `schema.table`, `*` for any text.
        exclude: patterns of tables to leave out.
        partitions: of a new topic.
        replication_factor: of a new topic; -1 for the brokers' default.
        topics: settings that every table's topic must have.
        fix_topics: alter an existing topic that differs, instead of refusing.
        snapshot_workers: processes that copy the snapshot.
        frontier_interval_ms: least time between two frontiers; three times that at most.
        status_interval_ms: longest time between two status messages to PostgreSQL.
        wait_s: how long a start waits for servers that are away and for a slot that is held; None
            for a minute, and for the time until PostgreSQL gives up a dead connection.
        create_publication: make and alter the publication; otherwise it has to be right already.
        producer: further settings of the producers, librdkafka's names; may hold secrets.
        topic_properties: further settings of new topics, Kafka's names; with
            `max.message.bytes`, existing ones have to take as large records too.
        operations: what is captured of each table.
        drop_columns: patterns of columns to leave out, `schema.table.column`.
        mask: how the columns of a pattern are masked: `hash` or `redact`.
        mask_key: the key of the hashes; a secret.
        where: an SQL condition for the rows of the tables of a pattern.
        exactly_once: write in transactions, each with its frontier.
        skip_snapshot: copy no table that the log does not have: what changes is all it gets.
        start_lsn: where the stream of a slot begins that others have made, for a fresh log.
        temporary_slot: the slot goes when capture ends; each start is a fresh log.
        allow_unkeyed: capture tables without a primary key too, on topics that cannot be rebuilt.
        messages: patterns of the prefixes of logical messages to capture; none by default.
        ddl: capture the schema changes of captured tables, by event triggers at the source.
        form: of the records on the tables' topics.
        replica_identity: `full` to alter the tables that lack it, after asking; or empty.
        on_incompatible: what follows when the log cannot go on with a table that was altered:
            `stop`, or `resnapshot` to copy it anew.
        on_error: what follows when a table cannot be captured: `exit`, or `log` to go on without.
    """

    slot: str = "changelog"
    publication: str = "changelog"
    topic_prefix: str = ""
    tables: tuple[str, ...] = ("public.*",)
    exclude: tuple[str, ...] = ()
    partitions: int = 2
    replication_factor: int = -1
    topics: TopicSettings = field(default_factory=TopicSettings)
    fix_topics: bool = False
    snapshot_workers: int = 2
    frontier_interval_ms: int = 1000
    status_interval_ms: int = 10_000
    wait_s: float | None = None
    create_publication: bool = True
    producer: Mapping[str, str] = field(default_factory=dict, repr=False)
    topic_properties: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[str, ...] = OPERATIONS
    drop_columns: tuple[str, ...] = ()
    mask: Mapping[str, str] = field(default_factory=dict)
    mask_key: str = field(default="", repr=False)
    where: Mapping[str, str] = field(default_factory=dict)
    allow_unkeyed: bool = False
    exactly_once: bool = False
    skip_snapshot: bool = False
    start_lsn: Lsn | None = None
    temporary_slot: bool = False
    messages: tuple[str, ...] = ()
    ddl: bool = False
    form: Form = PLAIN
    replica_identity: Literal["", "full"] = ""
    on_incompatible: Literal["stop", "resnapshot"] = "stop"
    on_error: Literal["exit", "log"] = "exit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project's settings, complete.

    Attributes:
        root: the project's folder.
        postgres: connection string of the source; holds a password, so no part of `repr`.
        kafka: the brokers.
        registry: the schema registry.
        capture: what to capture and how.
        warehouse: path or URI of the folder of Delta tables.
        keep: generations that stay for a rollback, the published one counted.
        checkpoint_days: how long checkpoints stay, one a day; for `--as-of`.
        follow_seconds: least time between two refreshes of `--follow`.
        deletion_vectors: a refresh may mark rows as gone in the files of a view in Delta, whose
            readers must know deletion vectors then.
        on_bad_record: what a rebuild does about a record that it cannot read: `fail`, or
            `quarantine` to leave its row out and set it apart.
        logs: the logs of other programs that views may read.
        search_url: OpenSearch, or None.
        cache_url: Redis or Valkey, or None.
        spark_master: Spark's master URL.
        spark_settings: further settings of the Spark session.
        spark_client: what reads topics in Spark's tasks: `librdkafka`, in Python, or `java`.
        task_memory_mb: what such a task in Python holds before it goes on in a file.
    """

    root: Path
    postgres: str = field(repr=False)
    kafka: KafkaConnection
    registry: RegistryConnection
    capture: CaptureSettings
    warehouse: str
    keep: int
    checkpoint_days: int
    follow_seconds: float
    deletion_vectors: bool
    search_url: str | None = field(repr=False)
    cache_url: str | None = field(repr=False)
    spark_master: str
    spark_settings: dict[str, str]
    spark_client: Literal["librdkafka", "java"] = "librdkafka"
    task_memory_mb: int = 256
    on_bad_record: Literal["fail", "quarantine"] = "fail"
    logs: tuple[DeclaredLog, ...] = ()

    @property
    def slot(self) -> str:
        """Return the slot's name."""
        return self.capture.slot

    @property
    def transactional_id(self) -> str:
        """Return the name under which capture writes transactions; empty when it does not."""
        return self.name_of_transactions if self.capture.exactly_once else ""

    @property
    def name_of_transactions(self) -> str:
        """Return the name that a capture of this slot has where it writes transactions."""
        return ".".join(filter(None, ["changelog", self.topic_prefix, self.slot]))

    @property
    def topic_prefix(self) -> str:
        """Return the prefix of the topics."""
        return self.capture.topic_prefix


def load_project(
    directory: Path,
    *,
    overrides: dict[str, Any] | None = None,
    needs: Collection[str] = (SOURCE, BROKERS, REGISTRY),
) -> Project:
    """Read the settings of the project in `directory`.

    Args:
        directory: holds `changelog.toml`; without that file all is at its default.
        overrides: values of the command line by dotted name (`capture.slot`); None is skipped.
        needs: which connections have to be known; the others are empty when nobody named them.
            A rebuild works from the log alone.

    Raises:
        ConfigurationError: the file does not parse, has an unknown or malformed setting, names a
            missing environment variable or file, or a connection is neither given nor embedded.
    """
    root = directory.resolve()
    raw = _read(root / FILE_NAME)
    for name, value in (overrides or {}).items():
        _set(raw, name, value)
    try:
        settings = _File.model_validate(_resolved(raw, root))
    except ValidationError as error:
        raise _explained(error) from None
    if settings.capture.output_format is Output.JSON:
        needs = {*needs} - {REGISTRY}  # documents have no schema id
    return _project(root, settings, _Endpoints(root, needs))


def _explained(error: ValidationError) -> ConfigurationError:
    """Return the first thing that is wrong with the settings, in the user's words."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    said, meant = first["msg"].lower(), None
    if first["type"] == "extra_forbidden":
        said, meant = "there is no such setting", closest(name, _names(_File))
    hint = f"did you mean {meant}?" if meant else "`changelog init` writes a file with every one"
    return ConfigurationError(f"{FILE_NAME}: {name}: {said}", hint=hint)


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the setting that is meant by a name that none has, None where none is near.

    First one of the same section, then one of that name in another section.

    >>> closest("capture.tabels", ["capture.slot", "capture.tables", "logs.tables"])
    'capture.tables'
    >>> closest("postgres.slot", ["capture.slot", "postgres.dsn"])
    'capture.slot'
    """
    section, _, last = name.rpartition(".")
    siblings = {each.rpartition(".")[2]: each for each in known if _section(each) == section}
    others = {each.rpartition(".")[2]: each for each in known}
    for found in (siblings, others):
        near = get_close_matches(last, found, n=1, cutoff=0.7)
        if near:
            return found[near[0]]
    return None


def _section(name: str) -> str:
    return name.rpartition(".")[0]


def _names(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted names of all settings and sections."""
    found = []
    for name, each in model.model_fields.items():
        found.append(prefix + name)
        if isinstance(each.annotation, type) and issubclass(each.annotation, BaseModel):
            found += _names(each.annotation, f"{prefix}{name}.")
    return found


def _project(root: Path, settings: _File, embedded: _Endpoints) -> Project:
    capture = settings.capture
    check_producer_properties(capture.producer)
    check_topic_properties(capture.topic)
    largest = largest_record(capture.topic)
    return Project(
        root=root,
        postgres=settings.postgres.dsn or embedded.need(SOURCE, "postgres.dsn"),
        kafka=KafkaConnection(
            brokers=settings.kafka.brokers or embedded.need(BROKERS, "kafka.brokers"),
            options=settings.kafka.options,
        ),
        registry=RegistryConnection(
            url=(settings.registry.url or embedded.need(REGISTRY, "registry.url")).rstrip("/"),
            options=settings.registry.options,
        ),
        capture=CaptureSettings(
            slot=capture.slot,
            publication=capture.publication or capture.slot,
            topic_prefix=capture.topic_prefix,
            tables=tuple(capture.tables),
            exclude=tuple(capture.exclude),
            partitions=capture.partitions,
            replication_factor=capture.replication_factor,
            topics=TopicSettings(
                min_compaction_lag_ms=capture.min_compaction_lag_ms,
                delete_retention_ms=capture.delete_retention_ms,
                max_message_bytes=largest,
            ),
            fix_topics=capture.fix_topics,
            snapshot_workers=capture.snapshot_workers,
            frontier_interval_ms=capture.frontier_interval_ms,
            status_interval_ms=capture.status_interval_ms,
            wait_s=capture.wait_s,
            create_publication=capture.create_publication,
            producer=producer_properties(capture.producer, largest),
            topic_properties=capture.topic,
            operations=tuple(capture.operations),
            drop_columns=tuple(capture.drop_columns),
            mask=capture.mask,
            mask_key=capture.mask_key or os.environ.get(MASK_KEY, ""),
            where=capture.where,
            allow_unkeyed=capture.allow_unkeyed,
            exactly_once=capture.exactly_once,
            skip_snapshot=capture.skip_snapshot,
            start_lsn=_start_lsn(capture),
            temporary_slot=capture.temporary_slot,
            messages=tuple(capture.messages),
            ddl=capture.ddl,
            form=Form(capture.output_format, capture.envelope),
            replica_identity=capture.replica_identity,
            on_incompatible=capture.on_incompatible,
            on_error=capture.on_error,
        ),
        warehouse=_under(root, settings.rebuild.warehouse),
        keep=settings.rebuild.keep,
        checkpoint_days=settings.rebuild.checkpoint_days,
        follow_seconds=settings.rebuild.follow_seconds,
        deletion_vectors=settings.rebuild.deletion_vectors,
        search_url=settings.sinks.search.url or embedded.find("search"),
        cache_url=settings.sinks.cache.url or embedded.find("cache"),
        spark_master=settings.spark.master,
        spark_settings=settings.spark.settings,
        spark_client=settings.spark.client,
        task_memory_mb=settings.spark.task_memory_mb,
        on_bad_record=settings.rebuild.on_bad_record,
        logs=_declared(settings.logs),
    )


def _declared(logs: Mapping[str, _Log]) -> tuple[DeclaredLog, ...]:
    """Return the declared logs, checked as far as it can be done without a server."""
    found: list[DeclaredLog] = []
    for name, log in logs.items():
        where, parts = f"logs.{name}", name.split(".")
        columns = declared_columns(log.columns, where)
        names = [column.column for column in columns]
        problem = ""
        if len(parts) > 2 or not all(parts):  # noqa: PLR2004 - schema and table
            problem = "its name is not `table` or `schema.table`"
        elif log.form.is_avro and columns:
            problem = "`columns` are those that the registry has, for an Avro form"
        elif not log.form.is_avro and not columns:
            problem = "a JSON form needs `columns`: documents do not say what they are"
        elif columns and (missing := [each for each in log.key if each not in names]):
            problem = f"its key names {', '.join(missing)}, which is none of its columns"
        elif log.delete and not log.form.is_flat:
            problem = "`delete` names a marker of flattened rows; an envelope says it by its `op`"
        elif log.order is Order.LSN and not log.form.value.startswith("debezium"):
            problem = "`order` can be lsn in Debezium's envelope alone"
        elif log.topic in [other.topic for other in found]:
            problem = f'topic "{log.topic}" is declared twice'
        if problem:
            raise ConfigurationError(
                f"{FILE_NAME}: {where}: {problem}", hint="docs/reading.md describes the section"
            )
        found.append(
            DeclaredLog(
                table=TableName(*parts) if len(parts) > 1 else TableName("public", parts[0]),
                topic=log.topic,
                shape=log.form,
                key=tuple(log.key),
                delete=log.delete,
                order=log.order,
                columns=columns,
                key_changes=log.key_changes,
                placeholder=log.placeholder,
                on_unavailable=log.on_unavailable,
            )
        )
    return tuple(found)


def _start_lsn(capture: _Capture) -> Lsn | None:
    if not capture.start_lsn:
        return None
    if capture.temporary_slot:
        raise ConfigurationError(
            "--start-lsn and --temporary-slot contradict each other",
            hint="a temporary slot is made at the start, and has no WAL of before",
        )
    return Lsn.parse(capture.start_lsn)


class _Endpoints:
    """The project's embedded servers, looked up only when a setting is left out."""

    def __init__(self, root: Path, needs: Collection[str]) -> None:
        self._needs = needs
        self._directory = root / STACK_FOLDER
        self._found: Endpoints | None = None

    def find(self, name: str) -> str | None:
        if self._found is None and self._directory.is_dir():
            # Here, since a quarter of a command's start would go into servers that few have.
            from changelog.stack.stack import Stack  # noqa: PLC0415

            try:
                self._found = Stack(self._directory).endpoints()
            except StackError as error:
                log.debug("%s", error)
        value: str | None = getattr(self._found, name, None)
        return value

    def need(self, name: str, setting: str) -> str:
        found = self.find(name)
        if found is None and name not in self._needs:
            return ""
        if found is None:
            raise ConfigurationError(
                f"{setting} is not set and no embedded servers run in {self._directory}",
                hint=f"set it in {FILE_NAME} or on the command line, or run `changelog stack up`",
            )
        return found


def _under(root: Path, place: str) -> str:
    return place if "://" in place else str((root / place).resolve())


def _read(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"{path.parent} is not a folder", hint="`changelog init DIR` makes a project"
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error


def _set(raw: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        return
    *sections, last = name.split(".")
    for section in sections:
        raw = raw.setdefault(section, {})
    if isinstance(value, dict) and isinstance(raw.get(last), dict):
        raw[last] = {**raw[last], **value}  # single settings of a section, such as `-C`
    else:
        raw[last] = value


def _resolved(value: Any, root: Path) -> Any:  # noqa: ANN401 - TOML is any nesting of values
    match value:
        case str():
            return _REFERENCE.sub(_reader(root), value)
        case dict():
            return {name: _resolved(item, root) for name, item in value.items()}
        case list():
            return [_resolved(item, root) for item in value]
        case _:
            return value


def _reader(root: Path) -> Callable[[re.Match[str]], str]:
    def read(match: re.Match[str]) -> str:
        name = match["name"]
        if match["file"]:
            path = root / name
            if not path.is_file():
                raise ConfigurationError(f"{FILE_NAME} names the file {path}, which is missing")
            return path.read_text(encoding="utf-8").partition("\n")[0].strip()
        if name not in os.environ:
            raise ConfigurationError(
                f"{FILE_NAME} names the environment variable {name}, which is not set",
                hint=f"export {name}=…",
            )
        return os.environ[name]

    return read
