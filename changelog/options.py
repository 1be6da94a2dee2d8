"""Command-line options that several commands share: one spelling, one help text, one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProjectOption = Annotated[
    Path, typer.Option("--project", help="Folder with changelog.toml; it may be missing.")
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


def line_overrides(
    *,
    postgres: str | None = None,
    broker: str | None = None,
    schema_registry: str | None = None,
    slot: str | None = None,
    topic_prefix: str | None = None,
) -> dict[str, object]:
    """Give what was said about the line's servers as overrides of `changelog.toml`."""
    return {
        "postgres.dsn": postgres,
        "kafka.brokers": broker,
        "registry.url": schema_registry,
        "capture.slot": slot,
        "capture.topic_prefix": topic_prefix,
    }
