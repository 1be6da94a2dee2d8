"""The command `changelog publish`: publishes the result of a query to a topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from changelog.config import BROKERS, load_project, resolved
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.form import Output
from changelog.contract.log.properties import parse_properties
from changelog.lines.as_kcat import SettingsOption
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, print_json, stop_on_signals, tell
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import TOLD, DebugOption, JsonOption, ProjectOption
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.runtime.setting import Given
from changelog.sections import CaptureSettings, Kafka, Registry

if TYPE_CHECKING:
    from changelog.publish.publish import Published, PublishSettings
    from changelog.publish.rows import QueryRows

log = logging.getLogger("changelog.publish")

_INTERRUPTED = 130
_TOPIC_SETTINGS = ("partitions", "replication_factor", "fix_topics", "topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Publish:
    """The options of `changelog publish`."""

    subjects: ClassVar[Mapping[str, str]] = {
        "query": "Query, topic and schedule",
        "key": "Rows and records",
        "as_json": TOLD,
    }
    query: Annotated[str, typer.Option("--query", help="The query; @FILE reads it from a file.")]
    source: Annotated[
        str,
        typer.Option(
            "--from", help="Where to run the query: postgres:DSN or duckdb:FILE; only read."
        ),
    ]
    topic: Annotated[
        str,
        typer.Option(
            "--to", help="The topic; if it is missing, it is created with capture's settings."
        ),
    ]
    every: Annotated[
        str,
        typer.Option(
            "--every", help="Repeat by a schedule of cron: '0 3 * * *' is every night at three."
        ),
    ] = ""
    key: Annotated[
        str,
        typer.Option("--key", help="Columns of the key, a,b; without it records have no key."),
    ] = ""
    output: Annotated[
        Output,
        typer.Option("--as", help="Form of keys and values: avro (needs a registry) or json."),
    ] = Output.AVRO
    tombstones: Annotated[
        bool,
        typer.Option(
            "--tombstones", help="Delete keys that are on the topic and not in the query."
        ),
    ] = False
    changed_only: Annotated[
        bool,
        typer.Option(
            "--changed-only", help="Leave out rows that are already on the topic unchanged."
        ),
    ] = False
    client: SettingsOption = None
    as_json: JsonOption = False
    debug: DebugOption = False


@with_examples(
    "`changelog publish --query 'SELECT id, name FROM brands' --from postgresql://me@db/shop --to "
    "brands --key id`",
    "`changelog publish --query @totals.sql --from duckdb:shop.db --to totals --key day --as json "
    "--tombstones --changed-only --every '0 3 * * *'` every night, only the changed rows",
)
@takes(Chosen(Kafka), Chosen(Registry), Chosen(CaptureSettings, *_TOPIC_SETTINGS))
def publish(project: ProjectOption = Path(), *, options_given: Given, options: _Publish) -> None:
    """Publish the rows of a query to a topic, all of them in one transaction.

    If the query fails, or two rows have the same key or one has a null in it, consumers see nothing
    of the run, and the command ends with 1. With --every a failed run is reported, and the next one
    comes at its time.
    """
    from changelog.publish.publish import Publish, PublishStoppedError
    from changelog.sink.registry import SchemaRegistry

    collect_rarely()
    overrides = {**options_given, "kafka.options": parse_properties(options.client, "-X")}
    settings = load_project(project, overrides=overrides, needs=[BROKERS], one_source=False)
    target = _settings(options)
    if target.output is Output.AVRO and not settings.registry.url:
        raise ConfigurationError(
            "Avro needs a schema registry, and none is set", hint="--schema-registry, or --as json"
        )
    publishing = Publish(
        settings.kafka,
        target,
        settings.capture,
        lambda: SchemaRegistry(settings.registry),
        bar_console(as_json=options.as_json),
    )
    query = _query(options.query)
    source = resolved(options.source, settings.root, named_by="--from")
    stop = stop_on_signals()

    def run() -> None:
        with closing(_rows(source, query)) as rows:
            _tell(publishing.run(rows, stop), target, as_json=options.as_json)

    try:
        if options.every:
            from changelog.runtime.cron import repeat

            repeat(options.every, run, stop)
        else:
            run()
    except PublishStoppedError:
        raise typer.Exit(_INTERRUPTED) from None


def _tell(published: Published, target: PublishSettings, *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": target.topic, **published.to_json()})
        return
    tell(
        f"{published.written} of {published.rows} rows and {published.tombstones} tombstones "
        f'to topic "{target.topic}" in {published.seconds:.1f} s'
    )


def _settings(options: _Publish) -> PublishSettings:
    from changelog.publish.publish import PublishSettings

    return PublishSettings(
        topic=options.topic,
        key=tuple(name.strip() for name in options.key.split(",") if name.strip()),
        output=options.output,
        tombstones=options.tombstones,
        changed_only=options.changed_only,
    )


def _query(text: str) -> str:
    if not text.startswith("@"):
        return text
    path = Path(text[1:])
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the query in {path}: {error}") from None


def _rows(source: str, query: str) -> QueryRows:
    kind, _, place = source.partition(":")
    if kind == "duckdb" and place:
        check_extra("verify", "a query of DuckDB")
        from changelog.publish.duckdb import DuckRows

        return DuckRows(Path(place), query)
    if kind in {"postgres", "postgresql"} and place:
        from changelog.publish.postgres import PostgresRows

        is_address = place.startswith("//")
        return PostgresRows(source if is_address else place, query)
    raise ConfigurationError(
        "--from names neither PostgreSQL nor DuckDB", hint="postgres:ADDRESS or duckdb:FILE"
    )
