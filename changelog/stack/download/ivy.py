"""Run Apache Ivy, which pyspark carries, to fetch files by name from the public Maven repository.

Ivy is asked for single files, without their descriptions or dependencies: one request each. It
knows the repository's address by itself and keeps a file only when it is whole.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

from changelog.contract.base.errors import StackError
from changelog.runtime.installed.extras import MissingExtraError, pip_command
from changelog.stack.download.artifacts import Artifact

_SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
_TRUST_PASSWORD = "changeit"  # noqa: S105 - Java's own default; the file holds public certificates
_POLL_SECONDS = 0.2
_MAVEN = "http://ant.apache.org/ivy/maven"


@dataclass(frozen=True, slots=True)
class Ivy:
    """Ivy, with the working directory for the files it fetches."""

    java: Path
    work: Path

    def file(self, artifact: Artifact) -> Path:
        """Return the path of the complete file of `artifact`."""
        return self.work / "files" / artifact.group / artifact.file_name

    def size_bytes(self, artifact: Artifact) -> int:
        """Return the bytes of `artifact` on disk, complete or not."""
        whole = self.file(artifact)
        for path in (whole, whole.with_name(whole.name + ".part")):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                continue
        return 0

    def fetch(self, artifacts: Sequence[Artifact], on_poll: Callable[[], None]) -> str:
        """Fetch `artifacts`; return what Ivy said. Which ones arrived, the files tell."""
        self.work.mkdir(parents=True, exist_ok=True)
        settings = self.work / "settings.xml"
        module_file = self.work / "wanted.xml"
        log_file = self.work / "ivy.log"
        settings.write_text(_settings(self.work), "utf-8")
        module_file.write_text(_module_text(artifacts), "utf-8")
        command = [str(self.java), "-Xmx128m", *_trust(self.work), "-jar", str(ivy_jar())]
        command += ["-settings", str(settings), "-ivy", str(module_file)]
        with log_file.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
            try:
                while process.poll() is None:
                    on_poll()
                    time.sleep(_POLL_SECONDS)
            finally:
                process.kill()
                process.wait()
        on_poll()
        return log_file.read_text("utf-8", errors="replace")


def ivy_jar() -> Path:
    """Return the Ivy jar inside pyspark."""
    jars = sorted(pyspark_jars_dir().glob("ivy-*.jar"))
    if not jars:
        raise StackError(f"no Ivy jar in {pyspark_jars_dir()}", hint="reinstall pyspark")
    return jars[-1]


def pyspark_jars_dir() -> Path:
    """Return the directory of the jars that pyspark ships, without importing pyspark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "files are fetched by a program that comes with pyspark, which is not installed",
            hint=pip_command("spark"),
        )
    return Path(spec.origin).parent / "jars"


def _settings(work: Path) -> str:
    root = ET.Element("ivysettings")
    ET.SubElement(root, "settings", defaultResolver="central")
    timeouts = ET.SubElement(root, "timeout-constraints")
    ET.SubElement(
        timeouts,
        "timeout-constraint",
        name="patience",
        connectionTimeout="20000",
        readTimeout="60000",
    )
    pattern = "files/[organisation]/[artifact]-[revision](-[classifier]).[ext]"
    ET.SubElement(root, "caches", defaultCacheDir=str(work), artifactPattern=pattern)
    ET.SubElement(
        ET.SubElement(root, "resolvers"),
        "ibiblio",
        name="central",
        m2compatible="true",
        usepoms="false",
        useMavenMetadata="false",
        timeoutConstraint="patience",
    )
    return ET.tostring(root, encoding="unicode")


def _module_text(artifacts: Sequence[Artifact]) -> str:
    ET.register_namespace("m", _MAVEN)
    root = ET.Element("ivy-module", version="2.0")
    ET.SubElement(root, "info", organisation="changelog", module="stack")
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(root, "dependencies")
    for artifact in artifacts:
        dependency = ET.SubElement(
            dependencies,
            "dependency",
            org=artifact.group,
            name=artifact.name,
            rev=artifact.version,
            transitive="false",
            conf="default->*",
        )
        item = ET.SubElement(
            dependency, "artifact", name=artifact.name, type=artifact.ext, ext=artifact.ext
        )
        if artifact.classifier:
            item.set(f"{{{_MAVEN}}}classifier", artifact.classifier)
    # Several versions of one artifact are several files; otherwise the newest evicts the others.
    ET.SubElement(dependencies, "conflict", manager="all")
    return ET.tostring(root, encoding="unicode")


def _trust(work: Path) -> list[str]:
    """Return the flags by which Java trusts whom the system trusts.

    The wheel of the JRE has a list of its own, which knows no authority that a company added.
    """
    if _SYSTEM_TRUST.is_file():
        return [f"-Djavax.net.ssl.trustStore={_SYSTEM_TRUST}"]
    bundle = os.environ.get("SSL_CERT_FILE", "")
    if not bundle or not Path(bundle).is_file():
        return []
    store = work / "trust.p12"
    store.write_bytes(_java_trust_store(Path(bundle).read_bytes()))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_TRUST_PASSWORD}",
    ]


def _java_trust_store(pem: bytes) -> bytes:
    from cryptography import x509  # noqa: PLC0415 - only machines without a store for Java need it
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        BestAvailableEncryption,
        pkcs12,
    )

    certificates = [
        pkcs12.PKCS12Certificate(certificate, f"authority-{number}".encode())
        for number, certificate in enumerate(x509.load_pem_x509_certificates(pem))
    ]
    encryption = BestAvailableEncryption(_TRUST_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(certificates, encryption)
