"""A real Kafka Connect worker: fetched by Maven, with connectors of other programs.

Needs Maven and Java on the machine.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from changelog.stack.base.ports import pick

KAFKA_VERSION = "4.3.1"
JSON = "org.apache.kafka.connect.json.JsonConverter"
_MAVEN = ("mvn", "-q", "-B")
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
WORKER = (
    f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-json:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
_LOG = (
    '<Configuration><Appenders><Console name="c"><PatternLayout pattern="%d %p %c{1} %m%n"/>'
    '</Console></Appenders><Loggers><Root level="INFO"><AppenderRef ref="c"/></Root></Loggers>'
    "</Configuration>"
)


def fetch_jars(into: Path, coordinates: Iterable[str]) -> None:
    """Fetch libraries and what they need into a folder, unless it is there."""
    if into.exists():
        return
    part = into.with_name(f"{into.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    names = ("groupId", "artifactId", "version")
    dependencies = "".join(
        "<dependency>"
        + "".join(f"<{n}>{v}</{n}>" for n, v in zip(names, library.split(":"), strict=True))
        + "</dependency>"
        for library in coordinates
    )
    pom = part / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>fetched</groupId>"
        "<artifactId>fetched</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>",
        encoding="utf-8",
    )
    goal = [f"{_PLUGIN}:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
    subprocess.run([*_MAVEN, "-f", str(pom), *goal], check=True)
    pom.unlink()
    part.rename(into)


def fetch_plugin(into: Path, artifact: str) -> None:
    """Fetch and unpack a connector as its makers pack it: `group:name:version:tar.gz:plugin`."""
    name = artifact.split(":")[1]
    if (into / name).exists():
        return
    into.mkdir(parents=True, exist_ok=True)
    archives = into.with_name("archives")
    goal = [f"{_PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={archives}"]
    subprocess.run([*_MAVEN, *goal], check=True)
    (archive,) = archives.glob(f"{name}-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a file of Java's properties."""
    escaped = {
        name: text.encode("ascii", "backslashreplace").decode().replace("\\x", "\\u00")
        for name, text in settings.items()
    }
    path.write_text("".join(f"{name}={text}\n" for name, text in escaped.items()), encoding="utf-8")
    return path


def start_worker(
    folder: Path,
    jars: Path,
    plugins: Path,
    brokers: str,
    connectors: Mapping[str, Mapping[str, str]],
    *,
    discovery: str = "service_load",
) -> subprocess.Popen[bytes]:
    """Start a standalone worker with connectors, by their names; its log is `folder/worker.log`.

    It goes on where one before it in the same folder was. `discovery`: `service_load` starts in
    seconds, `hybrid_warn` also finds plugins that name themselves nowhere, by looking at all jars.
    """
    settings = {
        "bootstrap.servers": brokers,
        "key.converter": JSON,
        "value.converter": JSON,
        "listeners": f"http://127.0.0.1:{pick()}",
        "plugin.path": str(plugins),
        "plugin.discovery": discovery,
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
    }
    files = [write_properties(folder / "worker.properties", settings)]
    for name, own in connectors.items():
        files.append(write_properties(folder / f"{name}.properties", {"name": name, **own}))
    log4j = folder / "log4j2.xml"
    log4j.write_text(_LOG, encoding="utf-8")
    java = ["java", "-Xmx1g", f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{jars}/*"]
    words = [*java, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)]
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
