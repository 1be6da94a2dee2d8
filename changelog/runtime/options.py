"""Command-line options that several commands share: one spelling, one help text, one meaning."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from changelog.contract.log.form import Envelope, Output
from changelog.contract.log.properties import parse_properties

MAX_FRONTIER_AGE_S = 300.0
"""An older frontier is a fault: it is written again once a minute when nothing happens."""

ProjectOption = Annotated[
    Path, typer.Option("--project", help="Folder with changelog.toml; it may be missing.")
]


def _tell_version(asked: bool) -> None:
    if asked:
        print(version("changelog-store"))
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", callback=_tell_version, is_eager=True, help="Print the version and end."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Debug log, and stack traces.")]
PostgresOption = Annotated[
    str | None, typer.Option("--postgres", help="The source: a libpq URI or key=value string.")
]
BrokerOption = Annotated[str | None, typer.Option("--broker", help="Kafka brokers, host:port,….")]
RegistryOption = Annotated[
    str | None, typer.Option("--schema-registry", help="URL of the schema registry.")
]
SlotOption = Annotated[
    str | None, typer.Option("--slot", help="Replication slot; also names the publication.")
]
PrefixOption = Annotated[
    str | None, typer.Option("--topic-prefix", help="Put before each topic, with a dot.")
]

PublicationOption = Annotated[
    str | None, typer.Option("--publication", help="Publication; named as the slot by default.")
]
CreatePublicationOption = Annotated[
    bool | None,
    typer.Option(
        "--create-publication/--no-create-publication",
        help="Make and alter the publication, or only check that it sends what is needed.",
    ),
]
ProducerOption = Annotated[
    list[str] | None,
    typer.Option("-C", "--kafka-config", help="Setting of the producers, prop=value; repeatable."),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("-T", "--topic-config", help="Setting of new topics, prop=value; repeatable."),
]
StatusIntervalOption = Annotated[
    float | None,
    typer.Option(
        "--status-interval",
        min=0.1,
        help="Longest time between two status messages to PostgreSQL, in seconds.",
    ),
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        help="How long a start waits for servers that do not answer and for a slot that another "
        "connection reads, in seconds; without it 60, and for the slot wal_sender_timeout + 10. "
        "A capture that has begun waits for as long as it takes.",
    ),
]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="End at once when a server does not answer: --wait 0.")
]
WorkersOption = Annotated[
    int | None, typer.Option("--snapshot-workers", min=1, help="Processes that copy the snapshot.")
]

OperationsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--operations", help="What to capture: some of insert,update,delete,truncate; all."
    ),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", "--drop-columns", help="Columns to leave out: schema.table.column, * wild."
    ),
]
MaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mask",
        help="schema.table.column=hash (HMAC-SHA-256; key in CHANGELOG_MASK_KEY) or =redact.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where", help="schema.table=CONDITION: only rows that meet it (PostgreSQL 15+)."
    ),
]

AllowUnkeyedOption = Annotated[
    bool | None,
    typer.Option(
        "--allow-unkeyed",
        help="Tables without a primary key too: topics with cleanup.policy=delete, no rebuilds.",
    ),
]

MessagesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--messages",
        help="Messages of pg_logical_emit_message to the topic _messages: prefixes, * for any.",
    ),
]

OutputOption = Annotated[
    Output | None,
    typer.Option("--output-format", help="Keys and values as Avro, or as JSON documents."),
]

EnvelopeOption = Annotated[
    Envelope | None,
    typer.Option(
        "--envelope",
        help="A value is the row, or the change: nested as Debezium's, or flat (before_id).",
    ),
]

ReplicaIdentityOption = Annotated[
    str | None,
    typer.Option(
        "--replica-identity",
        help="`full`: give it to the tables that lack it, after asking; old rows come whole then.",
    ),
]

OnIncompatibleOption = Annotated[
    str | None,
    typer.Option(
        "--on-incompatible",
        help="A table is altered so that its log cannot go on: `stop`, or `resnapshot` it.",
    ),
]

OnErrorOption = Annotated[
    str | None,
    typer.Option(
        "--on-error",
        help="A table cannot be captured: `exit`, or `log` it and go on without it.",
    ),
]

ExactlyOnceOption = Annotated[
    bool | None,
    typer.Option(
        "--exactly-once/--at-least-once",
        help="Write in transactions, each with its frontier; others see a change a second later.",
    ),
]

SkipSnapshotOption = Annotated[
    bool | None,
    typer.Option(
        "--skip-snapshot/--no-skip-snapshot",
        help="Copy no table that the log lacks: topics get changes alone, and no view is rebuilt "
        "from them. A start without it, or `changelog resnapshot`, copies them.",
    ),
]

StartLsnOption = Annotated[
    str | None,
    typer.Option(
        "--start-lsn",
        help="For a fresh log on a slot that others have made: stream transactions that commit at "
        "this LSN or later. Mostly with --skip-snapshot; else all tables are copied as well.",
    ),
]

TemporarySlotOption = Annotated[
    bool | None,
    typer.Option(
        "--temporary-slot/--permanent-slot",
        help="The slot goes with the connection: each start, also after an outage, is a fresh log.",
    ),
]

DdlOption = Annotated[
    bool | None,
    typer.Option(
        "--ddl/--no-ddl",
        help="Schema changes to the topic changelog.ddl, by event triggers (superuser).",
    ),
]


def capture_overrides(
    *,
    publication: str | None,
    create_publication: bool | None,
    producer: list[str] | None,
    topic: list[str] | None,
    status_interval: float | None,
    wait: float | None,
    snapshot_workers: int | None,
    operations: list[str] | None,
    columns: list[str] | None,
    mask: list[str] | None,
    where: list[str] | None,
    allow_unkeyed: bool | None,
    messages: list[str] | None,
    ddl: bool | None,
    output_format: Output | None,
    envelope: Envelope | None,
    replica_identity: str | None,
    exactly_once: bool | None,
    on_incompatible: str | None,
    on_error: str | None,
    skip_snapshot: bool | None,
    start_lsn: str | None,
    temporary_slot: bool | None,
) -> dict[str, object]:
    """Return what was said about how to capture as overrides of `changelog.toml`.

    Raises:
        ConfigurationError: a setting is not `prop=value`.
    """
    return {
        "capture.publication": publication,
        "capture.create_publication": create_publication,
        "capture.producer": parse_properties(producer, "-C"),
        "capture.topic": parse_properties(topic, "-T"),
        "capture.status_interval_ms": None
        if status_interval is None
        else round(status_interval * 1000),
        "capture.wait_s": wait,
        "capture.snapshot_workers": snapshot_workers,
        "capture.operations": split(operations),
        "capture.drop_columns": split(columns),
        "capture.mask": parse_properties(mask, "--mask"),
        "capture.where": parse_properties(where, "--where"),
        "capture.allow_unkeyed": allow_unkeyed,
        "capture.messages": split(messages),
        "capture.ddl": ddl,
        "capture.output_format": output_format,
        "capture.envelope": envelope,
        "capture.replica_identity": replica_identity,
        "capture.exactly_once": exactly_once,
        "capture.on_incompatible": on_incompatible,
        "capture.on_error": on_error,
        "capture.skip_snapshot": skip_snapshot,
        "capture.start_lsn": start_lsn,
        "capture.temporary_slot": temporary_slot,
    }


def split(given: list[str] | None) -> list[str] | None:
    """Take `--tables a,b --tables c` as three patterns."""
    return [part.strip() for text in given for part in text.split(",")] if given else None


def line_overrides(
    *,
    postgres: str | None = None,
    broker: str | None = None,
    schema_registry: str | None = None,
    slot: str | None = None,
    topic_prefix: str | None = None,
) -> dict[str, object]:
    """Return what was said about the line's servers as overrides of `changelog.toml`."""
    return {
        "postgres.dsn": postgres,
        "kafka.brokers": broker,
        "registry.url": schema_registry,
        "capture.slot": slot,
        "capture.topic_prefix": topic_prefix,
    }
