"""The commands `changelog stack up|down|status|logs|fetch`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.examples import examples
from changelog.stack.base.state import Endpoints
from changelog.stack.download.artifacts import all_artifacts, spark_artifacts
from changelog.stack.download.fetch import resolve, spark_jars
from changelog.stack.download.jre import has_wheel
from changelog.stack.download.spark_classes import keep_classes
from changelog.stack.stack import PartStatus, Stack

app = typer.Typer(
    name="stack",
    help="The embedded servers: PostgreSQL, Kafka, schema registry; OpenSearch, Valkey on request.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Dir = Annotated[Path, typer.Option("--dir", help="Directory of data, logs and state.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Port = Annotated[
    int | None, typer.Option(help="Fixed port; without it a free one.", min=1, max=65535)
]

_DEFAULT_DIR = Path(".stack")
_FIELDS = {
    "postgres": "postgres",
    "kafka": "brokers",
    "registry": "schema_registry",
    "search": "search",
    "cache": "cache",
}
_FOLLOW_SECONDS = 0.3


_OPEN = "for trials: every user of this machine can reach these ports, which ask for no password"


@app.command(
    epilog=examples(
        "`changelog stack up` starts what the log needs",
        "`changelog stack up --with search,cache --json` more servers, and their addresses for a "
        "program",
    )
)
def up(
    *,
    directory: Dir = _DEFAULT_DIR,
    with_: Annotated[
        str, typer.Option("--with", help="More servers, by comma: search, cache.")
    ] = "",
    as_json: Json = False,
    postgres_port: Port = None,
    broker_port: Port = None,
    schema_registry_port: Port = None,
) -> None:
    """Start the servers, or recover those that crashed; they run until `stack down`."""
    ports = {"postgres": postgres_port, "kafka": broker_port, "registry": schema_registry_port}
    stack = Stack(
        directory,
        with_=[part.strip() for part in with_.split(",") if part.strip()],
        ports={part: port for part, port in ports.items() if port is not None},
    )
    console = Console(stderr=True)
    endpoints = stack.up(lambda line: console.print(line, highlight=False, markup=False))
    if as_json:
        typer.echo(endpoints.to_json())
    else:
        Console().print(_endpoint_table(endpoints))
    console.print(_OPEN, highlight=False, markup=False, soft_wrap=True)


@app.command(
    epilog=examples("`changelog stack fetch` while the machine has a network, as for an image")
)
def fetch(
    *,
    spark_alone: Annotated[
        bool, typer.Option("--spark", help="Only what Spark needs: no servers.")
    ] = False,
) -> None:
    """Download what the servers and Spark need, once; the cache is shared by all projects.

    An archive of Spark's classes is made there too, with which its sessions open sooner.
    """
    resolve(spark_artifacts() if spark_alone else all_artifacts())
    if has_wheel():  # made here, since a service may not write to the cache
        console = Console(stderr=True)
        keep_classes(
            spark_jars(None),
            lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True),
        )


@app.command(epilog=examples("`changelog stack down`"))
def down(*, directory: Dir = _DEFAULT_DIR, as_json: Json = False) -> None:
    """Stop the servers; their data stays."""
    stopped = Stack(directory).down()
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


@app.command(epilog=examples("`changelog stack status --json` for programs"))
def status(*, directory: Dir = _DEFAULT_DIR, as_json: Json = False) -> None:
    """Show each server: state, address, memory. With --json null stands for one not ready."""
    parts = Stack(directory).status()
    if as_json:
        urls = {_FIELDS[part.name]: part.url for part in parts if part.state == "ready"}
        typer.echo(json.dumps({field: urls.get(field) for field in _FIELDS.values()}))
    elif parts:
        Console().print(_status_table(parts))
    else:
        typer.echo(f"no stack in {directory}; start one with `changelog stack up`")


@app.command(epilog=examples("`changelog stack logs kafka --lines 20 --follow`"))
def logs(
    part: Annotated[str, typer.Argument(help=f"One of {', '.join(_FIELDS)}.")],
    *,
    directory: Dir = _DEFAULT_DIR,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Lines to start with.", min=0)] = 50,
) -> None:
    """Show the end of a server's log."""
    server = Stack(directory).server(part)
    if not server.log_path.is_file():
        raise ConfigurationError(
            f"{part} has no log yet", hint="start it with `changelog stack up`"
        )
    size = server.log_path.stat().st_size
    if text := server.tail(lines) if lines else "":
        typer.echo(text)
    if follow:
        for piece in _growth(server.log_path, size):
            typer.echo(piece, nl=False)


def _growth(path: Path, position: int) -> Iterator[str]:
    """Yield the text that is appended to a file, for ever; a rotated file is read from 0."""
    while True:
        if path.stat().st_size < position:
            position = 0
        with path.open("rb") as log:
            log.seek(position)
            piece = log.read()
        position += len(piece)
        if piece:
            yield piece.decode("utf-8", errors="replace")
        else:
            time.sleep(_FOLLOW_SECONDS)


def _endpoint_table(endpoints: Endpoints) -> Table:
    table = Table("endpoint", Column("address", overflow="fold"))
    for name, address in asdict(endpoints).items():
        if address is not None:
            table.add_row(name, address)
    return table


def _status_table(parts: list[PartStatus]) -> Table:
    table = Table("server", "state", Column("address", overflow="fold"), "pid", "memory MB")
    for part in parts:
        memory = f"{part.memory_bytes / 1e6:.0f}" if part.pid else ""
        table.add_row(part.name, part.state, part.url, str(part.pid or ""), memory)
    return table
