"""The schema registry: Apicurio, which speaks Confluent's API, with its state in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import httpx

from changelog.contract.base.errors import StackError
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.places import cache_dir
from changelog.stack.base.ports import LOOPBACK, answers
from changelog.stack.base.process import Launch
from changelog.stack.download import jre
from changelog.stack.download.artifacts import REGISTRY
from changelog.stack.download.fetch import resolve
from changelog.stack.download.unpack import unpack
from changelog.stack.servers.postgres import SUPERUSER, PostgresServer
from changelog.stack.servers.server import Server, probe

DATABASE = "registry"
# A replay reads every writer's schema of a range with the newest schema as reader: each earlier
# version must resolve to it, not only the last one.
COMPATIBILITY = "BACKWARD_TRANSITIVE"
# The quick compiler alone: half the processor time of a start, 30 MB less; the load is small.
_HEAP = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TIMEOUT_SECONDS = 5.0


class RegistryServer(Server):
    """A schema registry of our own; `postgres` keeps its schemas and must run."""

    name = "registry"

    def __init__(
        self, directory: Path, port: int, management_port: int, postgres: PostgresServer
    ) -> None:
        super().__init__(directory, port)
        self._management_port = management_port
        self._postgres = postgres

    @property
    def url(self) -> str:
        """The base URL of Confluent's API."""
        return f"http://{LOOPBACK}:{self.port}/apis/ccompat/v7"

    def prepare(self) -> None:
        """Make its database and unpack its files."""
        self._postgres.create_database(DATABASE)
        _home()

    def launch(self) -> Launch:
        """Run Apicurio's Quarkus application."""
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self.port),
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(self._management_port),
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "postgresql",
            "apicurio.datasource.url": f"jdbc:postgresql://{LOOPBACK}:{self._postgres.port}/{DATABASE}",
            "apicurio.datasource.username": SUPERUSER,
            # PostgreSQL here trusts loopback; Quarkus takes an empty value for a missing one.
            "apicurio.datasource.password": "unused",
            "apicurio.datasource.jdbc.initial-size": "2",
            "apicurio.datasource.jdbc.min-size": "1",
            "apicurio.datasource.jdbc.max-size": "10",
        }
        flags = [*_HEAP, *(f"-D{name}={value}" for name, value in settings.items())]
        jar = _home() / "quarkus-run.jar"
        return Launch(argv=[str(jre.java()), *flags, "-jar", str(jar)], cwd=self.directory)

    def is_ready(self) -> bool:
        """Ask for the subjects, which needs its database too."""
        if not answers(self.port):
            return False
        answer = probe(f"{self.url}/subjects", _TIMEOUT_SECONDS)
        return answer is not None and answer.status_code == httpx.codes.OK

    def complete(self) -> None:
        """Set the compatibility of all subjects, once: a later change by the user stays."""
        done = self.directory / "compatibility"
        if done.is_file():
            return
        answer = httpx.put(
            f"{self.url}/config",
            json={"compatibility": COMPATIBILITY},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
            verify=authorities(),
        )
        if answer.status_code != httpx.codes.OK:
            raise StackError(f"registry refuses compatibility {COMPATIBILITY}: {answer.text}")
        done.write_text(COMPATIBILITY, "utf-8")


def _home() -> Path:
    (archive,) = resolve([REGISTRY])
    return unpack(archive, cache_dir() / "unpacked" / f"{REGISTRY.name}-{REGISTRY.version}")
