"""OpenSearch: one node, from the distribution that its makers publish for integration tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx

from changelog.stack.base.location import data_home, own
from changelog.stack.base.places import make_directory, server_user, shared_cache_dir
from changelog.stack.base.ports import LOOPBACK, answers
from changelog.stack.base.process import Launch
from changelog.stack.download import jre
from changelog.stack.download.artifacts import OPENSEARCH
from changelog.stack.download.fetch import resolve
from changelog.stack.download.unpack import unpack
from changelog.stack.servers.server import Server, probe

_PROBE_SECONDS = 5.0
_FLAGS = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Djava.security.manager=allow",  # it installs one, which Java 18 and later must allow
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.disable.jmx=true",
    "-Dio.netty.noUnsafe=true",
    "-Dio.netty.allocator.numDirectArenas=0",
    "-Dopensearch.networkaddress.cache.ttl=60",
    "-Dopensearch.distribution.type=zip",
    "-Dopensearch.bundled_jdk=false",
)
_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class SearchServer(Server):
    """An OpenSearch of our own."""

    name = "search"

    def __init__(
        self, directory: Path, port: int, transport_port: int, *, java_options: Sequence[str] = ()
    ) -> None:
        super().__init__(directory, port)
        self._transport_port = transport_port
        self._java_options = java_options

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def work_directory(self) -> Path:
        """The directory of its data, settings and temporary files."""
        return data_home(self.directory) / "node"

    def prepare(self) -> None:
        """Unpack the distribution and write the settings."""
        _home()
        node = self.work_directory
        for name in ("config", "data", "logs", "tmp"):
            make_directory(node / name)
        settings = {
            "cluster.name": "changelog",
            "node.name": "changelog",
            "discovery.type": "single-node",
            "network.host": LOOPBACK,
            "http.port": self.port,
            "transport.port": self._transport_port,
            "path.data": node / "data",
            "path.logs": node / "logs",
            "action.auto_create_index": "false",
            # Developers have nearly full disks; ENOSPC is reported all the same.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        lines = [f'{name}: "{value}"\n' for name, value in settings.items()]
        (node / "config" / "opensearch.yml").write_text("".join(lines), "utf-8")
        (node / "config" / "log4j2.properties").write_text(_LOG4J, "utf-8")
        own(node, server_user())

    def launch(self) -> Launch:
        """Run OpenSearch's main class."""
        node = self.work_directory
        flags = (
            *_FLAGS,
            *self._java_options,
            f"-Dopensearch.path.home={_home()}",
            f"-Dopensearch.path.conf={node / 'config'}",
            f"-Djava.io.tmpdir={node / 'tmp'}",
        )
        main = ("-cp", f"{_home()}/lib/*", "org.opensearch.bootstrap.OpenSearch")
        return Launch(argv=[str(jre.java()), *flags, *main], cwd=node, user=server_user())

    def is_ready(self) -> bool:
        """Ask whether the cluster of one node serves its indexes."""
        if not answers(self.port):
            return False
        health = probe(f"{self.url}/_cluster/health", _PROBE_SECONDS)
        if health is None or health.status_code != httpx.codes.OK:
            return False
        return bool(health.json()["status"] != "red")


def _home() -> Path:
    (archive,) = resolve([OPENSEARCH])
    name = f"{OPENSEARCH.name}-{OPENSEARCH.version}"
    return unpack(archive, shared_cache_dir() / "unpacked" / name) / name
