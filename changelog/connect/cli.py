"""The command `changelog serve`: a worker with Kafka Connect's REST interface."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from changelog.config import BROKERS, load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import stop_on_signals, tell
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import TOLD, DebugOption, ProjectOption
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.runtime.setting import Given
from changelog.sections import Kafka, Registry

TOKEN = "CHANGELOG_SERVE_TOKEN"  # noqa: S105 - the name of a variable
_LEAST_TOKEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serve:
    """Options of `changelog serve`."""

    subjects: ClassVar[Mapping[str, str]] = {
        "host": "Address and access",
        "projects": "Work",
        "debug": TOLD,
    }
    host: Annotated[
        str,
        typer.Option("--host", help="Address to listen on; one other than loopback needs a token."),
    ] = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 for any free one.")
    ] = 8083
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File with the token that requests must carry; if it is missing it is made, "
            f"readable by its owner only. Or the variable {TOKEN}.",
        ),
    ] = None
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="Certificate chain in PEM: HTTPS.")
    ] = None
    key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key in PEM.")] = None
    projects: Annotated[
        Path | None,
        typer.Option(
            "--projects",
            help="Folder of the projects whose views connectors may rebuild; without it none. "
            "Views are programs, which run as this user.",
        ),
    ] = None
    group: Annotated[
        str,
        typer.Option(
            "--group", help="Name of the workers that share the tasks, and of their topics."
        ),
    ] = "changelog-connect"
    debug: DebugOption = False


@with_examples(
    "`changelog serve` for this machine: connectors by REST, and the page at "
    "http://127.0.0.1:8083/page",
    "`changelog serve --host 0.0.0.0 --token-file token --tls-certificate chain.pem --tls-key "
    "key.pem` for others",
)
@takes(Chosen(Kafka), Chosen(Registry))
def serve(project: ProjectOption = Path(), *, overrides: Given, options: _Serve) -> None:
    """Run sinks to PostgreSQL, captures and rebuilds by Kafka Connect's REST interface.

    Any number of workers share the tasks, and each answers requests about all of them. Their state
    is on a compacted topic, the offsets of sinks are in their targets. /page shows the project's
    line from source to views in a browser. Ends with 0 on SIGTERM and Ctrl-C.
    """
    check_extra("serve", "changelog serve")
    import uvicorn

    from changelog.connect.answers import WorkerAnswers
    from changelog.connect.api import make_app
    from changelog.connect.http.additions import AdditionPlace, additions
    from changelog.connect.http.admission import LOOPBACK, Admission
    from changelog.connect.http.listening import Connection, RestServer, listening
    from changelog.connect.store import ConnectorStore, EndedSessions, make_topics
    from changelog.connect.worker import ConnectServers, Worker
    from changelog.kafka.cluster import Cluster

    collect_rarely()
    settings = load_project(project, overrides=overrides, needs=[BROKERS])
    kafka = settings.kafka
    servers = ConnectServers(
        kafka=kafka, group=options.group, registry=settings.registry, projects=options.projects
    )
    token = _token(options.token_file)
    if options.host not in LOOPBACK and not token:
        raise ConfigurationError(
            f"without a token everybody who reaches {options.host} could write to databases",
            hint=f"give --token-file, or the variable {TOKEN}",
        )
    if (options.certificate is None) != (options.key is None):
        raise ConfigurationError("--tls-certificate and --tls-key belong together")
    admission = Admission(token.encode())
    is_tls = options.certificate is not None
    cluster = Cluster(kafka).meet()
    make_topics(kafka, options.group)
    with (
        closing(listening(options.host, options.port)) as listener,
        closing(ConnectorStore(kafka, options.group)) as store,
    ):
        added = additions(
            AdditionPlace(
                folder=project,
                settings=settings,
                group=options.group,
                admission=admission,
                is_tls=is_tls,
                sessions=EndedSessions(store),
            )
        )
        name = f"{options.host}:{listener.getsockname()[1]}"
        pulses = [store.pulse]
        config = uvicorn.Config(
            make_app(
                WorkerAnswers(store, worker=name, cluster_id=cluster, pulses=lambda: pulses),
                admission,
                added,
            ),
            log_config=None,
            access_log=False,
            server_header=False,
            http=Connection,
            ws="none",
            timeout_keep_alive=10,
            timeout_graceful_shutdown=10,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
        )
        try:
            config.load()
        except OSError as error:  # ssl's errors are of this kind
            raise ConfigurationError(
                f"certificate or key cannot be used: {error.strerror or error}",
                hint="--tls-certificate and --tls-key are files in PEM that belong together",
            ) from None
        stop_on_signals()  # uvicorn takes signals first, and raises them again when it ends
        with closing(Worker(servers, store, group=options.group, name=name)) as worker:
            pulses.append(worker.pulse)
            tell(f"serving on http{'s' if options.certificate else ''}://{name}")
            RestServer(config, added).run(sockets=[listener])


def _make_token(path: Path) -> None:
    """Create the file with a new token if it is missing, readable by its owner only."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(file, "w") as opened:
        opened.write(f"{secrets.token_hex(32)}\n")
    tell(f"made a token in {path}")


def _token(path: Path | None) -> str:
    """Return the token, empty if there is none."""
    if path is None:
        token = os.environ.get(TOKEN, "")
    else:
        try:
            _make_token(path)
            token = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read the token in {path}: {error}") from None
    if (token or path) and len(token) < _LEAST_TOKEN:
        raise ConfigurationError(
            f"the token has fewer than {_LEAST_TOKEN} characters", hint="openssl rand -hex 32"
        )
    return token
