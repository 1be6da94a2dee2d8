"""Apache Kafka: one node, broker and controller in one process (KRaft)."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from changelog.stack.base.places import make_directory
from changelog.stack.base.ports import LOOPBACK, answers
from changelog.stack.base.process import Launch
from changelog.stack.download import jre
from changelog.stack.download.artifacts import KAFKA_JARS
from changelog.stack.download.fetch import resolve
from changelog.stack.download.ivy import pyspark_jars_dir
from changelog.stack.servers.server import Server

_NODE_ID = 1
_PROBE_SECONDS = 5.0
_HEAP = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC")
_PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": str(_NODE_ID),
    "controller.listener.names": "CONTROLLER",
    # Topics are made on purpose, with the settings that the log needs, or not at all.
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # After a kill the broker cannot register again before its old session expires (9 s).
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    # The default of 128 MB would be a third of the heap; this one holds 1.4 million keys.
    "log.cleaner.dedupe.buffer.size": "33554432",
    "log.cleaner.backoff.ms": "15000",
}


class KafkaServer(Server):
    """A broker of our own."""

    name = "kafka"

    def __init__(
        self,
        directory: Path,
        port: int,
        controller_port: int,
        *,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """Describe the broker; `properties` go over the defaults of this module at each start."""
        super().__init__(directory, port)
        self._controller_port = controller_port
        self._properties = dict(properties or {})
        self._java_options = java_options

    @property
    def url(self) -> str:
        """The bootstrap address."""
        return f"{LOOPBACK}:{self.port}"

    def prepare(self) -> None:
        """Format the storage if it is new and write the settings, which hold the ports."""
        make_directory(self._data)
        meta = self._data / "meta.properties"
        if not meta.is_file():
            draft = meta.with_name("meta.properties.new")
            draft.write_text(_meta_properties(), "utf-8")
            draft.replace(meta)
        lines = [f"{name}={_escaped(value)}\n" for name, value in self._settings().items()]
        self._config.write_text("".join(lines), "utf-8")
        self._log_config.write_text(log4j2_xml("info"), "utf-8")

    def launch(self) -> Launch:
        """Run `kafka.Kafka` on the fetched jars and on pyspark's."""
        jars = [str(path) for path in resolve(KAFKA_JARS)]
        class_path = os.pathsep.join([*jars, f"{pyspark_jars_dir()}/*"])
        flags = [
            *_HEAP,
            *self._java_options,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._log_config}",
        ]
        argv = [str(jre.java()), *flags, "-cp", class_path, "kafka.Kafka", str(self._config)]
        return Launch(argv=argv, cwd=self.directory)

    def is_ready(self) -> bool:
        """Ask for the list of brokers: it is empty until this one is registered and unfenced."""
        if not answers(self.port):
            return False
        admin = AdminClient({"bootstrap.servers": self.url, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=_PROBE_SECONDS).brokers)
        except KafkaException:
            return False

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _config(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _log_config(self) -> Path:
        return self.directory / "log4j2.xml"

    def _settings(self) -> dict[str, str]:
        controller = f"{LOOPBACK}:{self._controller_port}"
        return {
            **_PROPERTIES,
            "controller.quorum.voters": f"{_NODE_ID}@{controller}",
            "listeners": f"PLAINTEXT://{self.url},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.url}",
            "log.dirs": str(self._data),
            **self._properties,
        }


def _meta_properties() -> str:
    """Return the properties of a formatted storage; ids as Kafka writes them."""
    cluster, directory = (
        base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in range(2)
    )
    return f"version=1\ncluster.id={cluster}\nnode.id={_NODE_ID}\ndirectory.id={directory}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


_LOG4J2 = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="warn">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1}}: %m%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="{level}"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


def log4j2_xml(level: str) -> str:
    """Return a configuration that logs from `level` upwards."""
    return _LOG4J2.format(level=level)
