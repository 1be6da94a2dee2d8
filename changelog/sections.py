"""Declares the settings of capture: servers, and what to capture and how.

`changelog.config` reads their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationInfo,
    field_validator,
    model_validator,
)

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.expression import check_expression
from changelog.contract.base.jdbc import libpq_uri
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.names import SLOT_NAME, check_length, check_slot_name
from changelog.contract.log.form import Envelope, Form, Output
from changelog.contract.log.properties import (
    PRODUCER_BY_TOPIC,
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
    check_prefix,
)
from changelog.runtime.setting import Section, Setting

MASK_KEY = "CHANGELOG_MASK_KEY"
"""Environment variable with the key of hashed columns, where the settings have none."""

SLOT = ("slot", "topic_prefix", "source")
"""What says which log it is, of the settings of capture."""


SERVERS = "Servers"
"""The title under which help lists where servers are, and how they are spoken to."""


class Postgres(Section):
    """The source."""

    section: ClassVar[str] = "postgres"
    subjects: ClassVar[Mapping[str, str]] = {"dsn": SERVERS}
    dsn: Annotated[
        str,
        Setting(
            "The source: a URI of libpq or JDBC, or a key=value string.",
            "-d",
            "--postgres",
            secret=True,
        ),
    ] = ""
    primary: Annotated[
        str,
        Setting(
            "Where the source is a standby, its primary: for what has to be written there, such as "
            "the publication and the marks of copies.",
            "--primary",
            secret=True,
        ),
    ] = ""

    @field_validator("dsn", "primary")
    @classmethod
    def _for_libpq(cls, value: str) -> str:
        return libpq_uri(value)


class Kafka(Section):
    """The brokers."""

    section: ClassVar[str] = "kafka"
    subjects: ClassVar[Mapping[str, str]] = {"brokers": SERVERS}
    brokers: Annotated[str, Setting("Kafka brokers, host:port,….", "-b", "--broker")] = ""
    options: Annotated[
        dict[str, str], Setting("Settings of all clients, librdkafka's names.", secret=True)
    ] = Field(default_factory=dict)


class Registry(Section):
    """The schema registry."""

    section: ClassVar[str] = "registry"
    subjects: ClassVar[Mapping[str, str]] = {"url": SERVERS}
    url: Annotated[str, Setting("URL of the schema registry.", "-r", "--schema-registry")] = ""
    options: Annotated[
        dict[str, str], Setting("Settings of its client, confluent-kafka's names.", secret=True)
    ] = Field(default_factory=dict)


class SlotGroup(NamedTuple):
    """Tables that a slot of their own sends: its name, its publication's, and their patterns."""

    slot: str
    publication: str
    tables: tuple[str, ...]


_MOST_GROUPS = 64


class CaptureSettings(Section):
    """Settings of capture."""

    section: ClassVar[str] = "capture"
    subjects: ClassVar[Mapping[str, str]] = {
        "source": "Which log",
        "tables": "What is captured",
        "messages": "Beside the tables",
        "output_format": "How records are written",
        "partitions": "Topics and producers",
        "skip_snapshot": "The snapshot, and where a log begins",
        "publication": "At the source",
        "limit_rows": "Pace, patience and faults",
    }
    source: Annotated[
        str,
        Setting(
            "Where there are several ([sources.NAME]): the one that is meant, whose log is read "
            "too. `changelog capture` takes several names by commas.",
            "--source",
        ),
    ] = ""
    slot: Annotated[
        str, Setting("Replication slot; also names the publication.", "-s", "--slot")
    ] = "changelog"
    topic_prefix: Annotated[
        str, Setting("Put before each topic, with a dot.", "-p", "--topic-prefix")
    ] = ""
    tables: Annotated[
        tuple[str, ...], Setting("Tables to capture: schema.table, * for any text.", "--tables")
    ] = ("public.*",)
    exclude: Annotated[
        tuple[str, ...], Setting("Tables to leave out; same patterns.", "--exclude")
    ] = ()
    operations: Annotated[
        tuple[str, ...],
        Setting("What to capture: some of insert,update,delete,truncate; all.", "--operations"),
    ] = OPERATIONS
    drop_columns: Annotated[
        tuple[str, ...],
        Setting(
            "Columns to leave out: schema.table.column, * wild.", "--columns", "--drop-columns"
        ),
    ] = ()
    mask: Annotated[
        dict[str, str],
        Setting(
            f"schema.table.column=hash (HMAC-SHA-256; key in {MASK_KEY}) or =redact.", "--mask"
        ),
    ] = Field(default_factory=dict)
    mask_key: Annotated[
        str, Setting("Key of the hashes of `mask`.", secret=True, also=MASK_KEY)
    ] = ""
    where: Annotated[
        dict[str, str],
        Setting("schema.table=CONDITION: only rows that meet it (PostgreSQL 15+).", "--where"),
    ] = Field(default_factory=dict)
    allow_unkeyed: Annotated[
        bool,
        Setting(
            "Tables without a primary key too: cleanup.policy=delete, rebuilt while all is kept.",
            "-u",
            "--allow-unkeyed",
        ),
    ] = False
    key_index: Annotated[
        dict[str, str],
        Setting(
            "schema.table=INDEX: the unique index that gives a table without a primary key its "
            "key; `auto`: its replica identity, else the only one. Alone: `auto` for all tables.",
            "--key-index",
            alone="*.*",
        ),
    ] = Field(default_factory=dict)
    messages: Annotated[
        tuple[str, ...],
        Setting(
            "Messages of pg_logical_emit_message to the topic _messages: prefixes, * for any.",
            "--messages",
        ),
    ] = ()
    ddl: Annotated[
        bool,
        Setting(
            "Schema changes to the topic changelog.ddl, by event triggers (superuser).",
            "--ddl/--no-ddl",
        ),
    ] = False
    sequences: Annotated[
        bool,
        Setting(
            "Where sequences stand to the topic _sequences, before each frontier.",
            "--sequences/--no-sequences",
        ),
    ] = False
    output_format: Annotated[
        Output, Setting("Keys and values as Avro, or as JSON documents.", "-f", "--output-format")
    ] = Output.AVRO
    envelope: Annotated[
        Envelope,
        Setting(
            "A value is the row, or the change: nested as Debezium's, or flat (before_id); or "
            "labelled: the row with __schema, __table, __op, __lsn, __ts, __ingested, __deleted.",
            "--envelope",
        ),
    ] = Envelope.ROW
    partitions: Annotated[
        int, Field(ge=1, le=10_000), Setting("Partitions of a new topic.", "--partitions")
    ] = 2
    replication_factor: Annotated[
        int,
        Field(ge=-1),
        Setting("Replicas of a new topic; -1 for the brokers' default.", "--replication-factor"),
    ] = -1
    min_compaction_lag_ms: Annotated[
        int,
        Field(ge=0),
        Setting("How long a frontier stays exact: `min.compaction.lag.ms` of the topics."),
    ] = DEFAULT_MIN_COMPACTION_LAG_MS
    delete_retention_ms: Annotated[
        int,
        Field(ge=0),
        Setting("How long a tombstone stays: `delete.retention.ms` of the topics."),
    ] = DEFAULT_DELETE_RETENTION_MS
    fix_topics: Annotated[
        bool, Setting("Alter existing topics that have other settings.", "--fix-topics")
    ] = False
    topic: Annotated[
        dict[str, str],
        Setting("Setting of new topics, prop=value; repeatable.", "-T", "--topic-config"),
    ] = Field(default_factory=dict)
    producer: Annotated[
        dict[str, str],
        Setting(
            "Setting of the producers, prop=value; repeatable.",
            "-C",
            "--kafka-config",
            secret=True,
        ),
    ] = Field(default_factory=dict, validate_default=True)
    exactly_once: Annotated[
        bool,
        Setting(
            "Write in transactions, each with its frontier; others see a change a second later.",
            "--exactly-once/--at-least-once",
        ),
    ] = False
    skip_snapshot: Annotated[
        bool,
        Setting(
            "Copy no table that the log lacks: topics get changes alone, and no view is rebuilt "
            "from them. A start without it, or `changelog resnapshot`, copies them.",
            "--skip-snapshot/--no-skip-snapshot",
            "-x",
        ),
    ] = False
    start_lsn: Annotated[
        str,
        Setting(
            "For a fresh log on a slot that others have made: stream transactions that commit at "
            "this LSN or later. Mostly with --skip-snapshot; else all tables are copied as well.",
            "--start-lsn",
        ),
    ] = ""
    snapshot_workers: Annotated[
        int, Field(ge=1, le=64), Setting("Processes that copy the snapshot.", "--snapshot-workers")
    ] = 2
    publication: Annotated[
        str,
        Field(validate_default=True),
        Setting("Publication; named as the slot by default.", "--publication", filled=True),
    ] = ""
    create_publication: Annotated[
        bool,
        Setting(
            "Make and alter the publication, or only check that it sends what is needed.",
            "--create-publication/--no-create-publication",
        ),
    ] = True
    create_slot: Annotated[
        bool,
        Setting(
            "Make the slot where it is not there, or begin with one that others have made.",
            "--create-slot/--no-create-slot",
        ),
    ] = True
    failover_slot: Annotated[
        bool,
        Setting(
            "Let standbys follow the slot, so that capture goes on after a failover (PostgreSQL "
            "17+).",
            "--failover-slot/--no-failover-slot",
        ),
    ] = False
    temporary_slot: Annotated[
        bool,
        Setting(
            "The slot goes with the connection: each start, also after an outage, is a fresh log.",
            "--temporary-slot/--permanent-slot",
        ),
    ] = False
    groups: Annotated[
        dict[str, tuple[str, ...]],
        Setting(
            "Groups of tables, each with a slot and a publication of its own, so that PostgreSQL "
            "decodes in several processes: NAME = patterns, as in `tables`. A table is of the "
            "first group by name that covers it; what none covers is the main slot's.",
        ),
    ] = Field(default_factory=dict)
    replica_identity: Annotated[
        Literal["", "full"],
        Setting(
            "`full`: give it, after asking, to the tables whose old rows are needed: all where "
            "records tell them (--envelope nested or flat, --print, --into), else those without a "
            "key or with a row filter.",
            "--replica-identity",
        ),
    ] = ""
    heartbeat_table_s: Annotated[
        float,
        Field(ge=0),
        Setting(
            "Update a row of changelog.heartbeat at the source, or at a standby's primary, each so "
            "many seconds; 0 for never.",
            "--heartbeat-table",
        ),
    ] = 0.0
    limit_rows: Annotated[
        int,
        Field(ge=0),
        Setting(
            "Records a second at most, of snapshot and stream, to spare source and broker; 0: all.",
            "--limit-rows",
        ),
    ] = 0
    limit_bytes: Annotated[
        int,
        Field(ge=0),
        Setting("Bytes of keys and values a second at most; 0: all.", "--limit-bytes"),
    ] = 0
    frontier_interval_ms: Annotated[
        int,
        Field(ge=10),
        Setting(
            "Least time between two frontiers; up to three times that where writing one holds the "
            "stream up for more than 0.5 % of it."
        ),
    ] = 1000
    status_interval_ms: Annotated[
        int,
        Field(ge=100),
        Setting(
            "Longest time between two status messages to PostgreSQL; the option is in seconds.",
            "--status-interval",
            seconds=True,
        ),
    ] = 10_000
    wait_s: Annotated[
        float | None,
        Field(ge=0),
        Setting(
            "How long a start waits for servers that do not answer and for a slot that another "
            "connection reads, in seconds; without it 60, and for the slot wal_sender_timeout + "
            "10. A capture that has begun waits for as long as it takes.",
            "--wait",
        ),
    ] = None
    on_incompatible: Annotated[
        Literal["stop", "resnapshot"],
        Setting(
            "A table is altered so that its log cannot go on: `stop`, or `resnapshot` it.",
            "--on-incompatible",
        ),
    ] = "stop"
    on_error: Annotated[
        Literal["exit", "log"],
        Setting(
            "A table cannot be captured: `exit`, or `log` it and go on without it.",
            "-e",
            "--on-error",
        ),
    ] = "exit"
    error_limit: Annotated[
        int | None,
        Field(ge=0),
        Setting(
            "With --on-error log: how many tables may be excluded at a time; one more ends "
            "capture. Without it any number.",
            "--error-limit",
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _hand_to_the_producer(cls, value: object) -> object:
        """Accept librdkafka's topic settings, like `-T request.timeout.ms`, as its own."""
        if not isinstance(value, dict) or not isinstance(value.get("topic"), dict):
            return value
        topic, producer = value["topic"], value.get("producer") or {}
        moved = {name: topic[name] for name in topic if name in PRODUCER_BY_TOPIC}
        if not moved or not isinstance(producer, dict):
            return value
        rest = {name: value for name, value in topic.items() if name not in moved}
        return {**value, "topic": rest, "producer": {**moved, **producer}}

    @field_validator("slot")
    @classmethod
    def _can_name_a_slot(cls, value: str) -> str:
        return check_slot_name(value, "capture.slot (--slot)")

    @field_validator("topic_prefix")
    @classmethod
    def _leaves_room(cls, value: str) -> str:
        check_prefix(value)
        return value

    @field_validator("publication")
    @classmethod
    def _named_as_the_slot(cls, value: str, info: ValidationInfo) -> str:
        return check_length(value or str(info.data.get("slot", "")), "capture.publication")

    @field_validator("where")
    @classmethod
    def _single_conditions(cls, conditions: dict[str, str]) -> dict[str, str]:
        for table, condition in conditions.items():
            check_expression(condition, f"capture.where.{table}")
        return conditions

    @field_validator("start_lsn", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return str(value) if type(value) is int else value

    @field_validator("topic")
    @classmethod
    def _topic_properties(cls, properties: dict[str, str]) -> dict[str, str]:
        check_topic_properties(properties)
        largest_record(properties)
        return properties

    @field_validator("producer")
    @classmethod
    def _producer_properties(
        cls, properties: dict[str, str], info: ValidationInfo
    ) -> dict[str, str]:
        check_producer_properties(properties)
        return producer_properties(properties, largest_record(info.data.get("topic", {})))

    @field_validator("groups")
    @classmethod
    def _named_as_slots(cls, groups: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        if len(groups) > _MOST_GROUPS:
            raise ConfigurationError(
                f"capture.groups has {len(groups)} groups",
                hint=f"{_MOST_GROUPS} at most: each has a slot and a connection of its own",
            )
        for name, patterns in groups.items():
            if SLOT_NAME.fullmatch(name) is None:
                raise ConfigurationError(
                    f'capture.groups: "{name}" cannot end the name of a slot',
                    hint="lower-case letters, digits and underscores",
                )
            if not patterns:
                raise ConfigurationError(f"capture.groups.{name} has no pattern of tables")
        return dict(sorted(groups.items()))  # their order is that of rows in a transaction

    @model_validator(mode="after")
    def _can_have_groups(self) -> Self:
        if not self.groups:
            return self
        against = (
            (self.temporary_slot, "--temporary-slot"),
            (not self.create_slot, "--no-create-slot"),
            (not self.create_publication, "--no-create-publication"),
            (self.first_lsn is not None, "--start-lsn"),
            (self.failover_slot, "--failover-slot"),
        )
        for is_given, option in against:
            if is_given:
                raise ConfigurationError(
                    f"capture.groups and {option} contradict each other",
                    hint="groups have slots and publications that capture makes and keeps at the "
                    "primary; leave one of the two out",
                )
        for name in [*self.slots, *self.slots.values()]:
            check_length(name, "capture.groups: SLOT_GROUP or PUBLICATION_GROUP")
        return self

    @model_validator(mode="after")
    def _has_a_start(self) -> Self:
        if self.first_lsn is not None and self.temporary_slot:
            raise ConfigurationError(
                "--start-lsn and --temporary-slot contradict each other",
                hint="a temporary slot is made at the start, and has no WAL of before",
            )
        if self.temporary_slot and self.failover_slot:
            raise ConfigurationError(
                "--temporary-slot and --failover-slot contradict each other",
                hint="a temporary slot goes with the connection",
            )
        if self.temporary_slot and not self.create_slot:
            raise ConfigurationError(
                "--temporary-slot and --no-create-slot contradict each other",
                hint="a temporary slot is made at each start",
            )
        return self

    @property
    def slots(self) -> dict[str, str]:
        """Return each slot with its publication: the main one, then one for each group."""
        groups = {group.slot: group.publication for group in self.slot_groups}
        return {self.slot: self.publication} | groups

    @property
    def slot_groups(self) -> tuple[SlotGroup, ...]:
        """Return the groups of tables that have a slot of their own."""
        return tuple(
            SlotGroup(f"{self.slot}_{name}", f"{self.publication}_{name}", tables)
            for name, tables in self.groups.items()
        )

    @property
    def first_lsn(self) -> Lsn | None:
        """Return the start of the stream of a slot that others made; None for its own slot.

        0 is where the slot stands, as PostgreSQL has it.
        """
        return (Lsn.given(self.start_lsn) or None) if self.start_lsn else None

    @property
    def topics(self) -> TopicSettings:
        """Return the settings that every table's topic must have."""
        return TopicSettings(
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            delete_retention_ms=self.delete_retention_ms,
            max_message_bytes=largest_record(self.topic),
        )

    @property
    def form(self) -> Form:
        """Return the form of the records on the tables' topics."""
        return Form(self.output_format, self.envelope)


_LEAST_TOKEN = 16
_ORIGIN = re.compile(r"https?://[a-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")
"""As browsers write them: in lower case, without a path."""


class HttpToken(BaseModel):
    """A token that may write records by HTTP, or read the changes of views."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    token: Annotated[
        str, Field(min_length=_LEAST_TOKEN, repr=False), Setting("The token.", secret=True)
    ]
    topics: Annotated[list[str], Setting("The topics that it may write to, `*` for any text.")] = (
        Field(default_factory=list)
    )
    views: Annotated[
        list[str], Setting("The views whose changes it may read, `*` for any text.")
    ] = Field(default_factory=list)
    origins: Annotated[
        list[str],
        Setting("Sites whose pages may read with it, such as `https://app.example.com`."),
    ] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_a_use(self) -> Self:
        if not (self.topics or self.views):
            raise ConfigurationError(
                "a token below http.tokens may do nothing",
                hint="give it topics to write to, or views to read",
            )
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigurationError(
                    f'http.tokens: "{origin}" is no origin of a page',
                    hint="scheme, host, and the port if it is not the scheme's own: "
                    "https://app.example.com",
                )
        return self


class Http(Section):
    """Settings of the records that `changelog serve` takes by HTTP."""

    section: ClassVar[str] = "http"
    topics: Annotated[
        list[str],
        Setting(
            "The topics that requests with the worker's own token may write to by HTTP, or those "
            "by loopback where it has none; `*` for any text."
        ),
    ] = Field(default_factory=list)
    tokens: Annotated[
        dict[str, HttpToken],
        Setting(
            "Further tokens, each by a name, that may write to some topics (docs/http-in.md) or "
            "read the changes of some views (docs/page.md), and do nothing else.",
            secret=True,
        ),
    ] = Field(default_factory=dict)
    remember_hours: Annotated[
        float, Field(gt=0), Setting("How long the id of a request is remembered.")
    ] = 24.0
    largest_bytes: Annotated[int, Field(ge=1), Setting("The longest body of a request.")] = 1 << 20
    requests_per_second: Annotated[
        int, Field(ge=1), Setting("How many requests a worker takes in a second.")
    ] = 500


class Sources(RootModel[dict[str, dict[str, Any]]]):
    """Several databases, each with a capture and a log of its own."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    section: ClassVar[str] = "sources"
    root: Annotated[
        dict[str, dict[str, Any]],
        Setting(
            "Several databases by their names: `dsn` and `primary` of each, and all of [capture] "
            "that is its own; slot and the end of topic_prefix are its name where it has none.",
            secret=True,
        ),
    ] = Field(default_factory=dict)

    def __repr__(self) -> str:
        """Name them: what is said of them holds passwords."""
        return f"Sources({', '.join(self.root)})"

    @model_validator(mode="after")
    def _has_known_keys(self) -> Self:
        keys = {*CaptureSettings.model_fields, *Postgres.model_fields} - {"source"}
        for name, section in self.root.items():
            for key in section.keys() - keys:
                raise ConfigurationError(
                    f"sources.{name}.{key}: there is no such setting",
                    hint="dsn, primary, and the keys of [capture]",
                )
        sections = self.root.values()
        prefixes = [section["topic_prefix"] for section in sections if "topic_prefix" in section]
        repeated = {prefix for prefix in prefixes if prefixes.count(prefix) > 1}
        if repeated:
            raise ConfigurationError(
                f'several sources have the topic_prefix "{min(repeated)}"',
                hint="each has a log of its own",
            )
        return self


def of_source(name: str, settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the settings of one source by their names.

    >>> of_source("crm", {"tables": ["public.*"]}, "shop")["capture.topic_prefix"]
    'shop.crm'
    """
    topic_prefix = f"{prefix}.{name}" if prefix else name
    whole = {"slot": name, "topic_prefix": topic_prefix, **settings, "source": name}
    section = {key: "postgres" if key in Postgres.model_fields else "capture" for key in whole}
    return {f"{section[key]}.{key}": value for key, value in whole.items()}
