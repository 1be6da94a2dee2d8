"""The stores of warehouses, each by an emulator that a package registry has.

S3 by moto, Google's by fake-gcs-server (built by Go) behind `tests.support.gcs_front`, Azure's by
Azurite (npm), HDFS by Hadoop's own namenode and datanode in one process. What is fetched stays in
the cache.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
from obstore.store import AzureStore, GCSStore, ObjectStore

from changelog.stack.base.ports import LOOPBACK, answers, pick
from changelog.stack.download.artifacts import HDFS
from changelog.stack.download.fetch import resolve
from changelog.stack.download.ivy import pyspark_jars_dir
from changelog.stack.download.jre import java
from tests.support.fetched import fetched
from tests.support.object_store import SECRET, object_store
from tests.support.wait import wait_until

GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE = "azurite@3.35.0"
_ACCOUNT = "devstoreaccount1"
_KEY = base64.b64encode(SECRET.encode()).decode()
KINDS = ("s3", "gs", "abfs", "hdfs")


@dataclass
class Emulated:
    """A store that runs, with a bucket `lake`."""

    kind: str
    base: str  # the URI of the bucket
    nowhere: str  # the URI of a bucket that is not there; empty where there are no buckets
    environ: Mapping[str, str]  # of a process that asks it
    secret: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def stop(self) -> None:
        """End it at once, as a machine that fails."""
        for process in self.processes:
            process.kill()
            process.wait()

    def names(self) -> list[str]:
        """List all objects or files."""
        if self.kind == "hdfs":
            from hdfs_native import Client

            entries = Client(self.base).list_status("/", True)
            return [entry.path.lstrip("/") for entry in entries if not entry.isdir]
        store: ObjectStore
        if self.kind == "gs":
            path = self.environ["GOOGLE_SERVICE_ACCOUNT"]
            store = GCSStore("lake", config={"service_account": path})
        else:
            store = AzureStore(
                "lake",
                account_name=_ACCOUNT,
                account_key=_KEY,
                endpoint=f"{self.environ['AZURITE_BLOB_STORAGE_URL']}/{_ACCOUNT}",
                client_options={"allow_http": True},
            )
        return [entry["path"] for batch in store.list() for entry in batch]

    def has(self, part: str) -> bool:
        """Tell whether a name has this part."""
        return any(part in name for name in self.names())


@contextmanager
def emulated(kind: str, folder: Path) -> Iterator[Emulated]:
    """A store of a kind that runs while the block does; skips the test where it cannot be had."""
    make = {"s3": _moto, "gs": _google, "abfs": _azure, "hdfs": _hdfs}[kind]
    with ExitStack() as stack:
        store = make(folder, stack)
        stack.callback(store.stop)
        yield store


def _moto(folder: Path, stack: ExitStack) -> Emulated:
    store = stack.enter_context(object_store(folder))
    store.make_bucket("lake")

    class Moto(Emulated):
        def stop(self) -> None:
            store.stop()

        def names(self) -> list[str]:
            return store.names("lake")

    return Moto("s3", "s3://lake", "s3://nowhere", store.environ, SECRET)


def _started(log: Path, words: list[str], port: int, **environ: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=out, cwd=log.parent, env={**os.environ, **environ}
        )
    wait_until(lambda: answers(port) or process.poll() is not None, 120, f"{words[0]} listens")
    assert process.poll() is None, log.read_text()
    return process


def _google(folder: Path, _: ExitStack) -> Emulated:
    behind, port = pick(), pick()
    own = f"{LOOPBACK}:{behind}"
    server = [
        *(str(fetched("go", GCS) / "fake-gcs-server"), "-scheme", "http", "-host", LOOPBACK),
        *("-port", str(behind), "-backend", "memory", "-public-host", own),
        *("-external-url", f"http://{LOOPBACK}:{port}", "-log-level", "warn"),
    ]
    account = folder / "account.json"
    base = f"http://{LOOPBACK}:{port}"
    nobody = {"client_email": "", "private_key": SECRET, "private_key_id": ""}
    account.write_text(json.dumps({"gcs_base_url": base, "disable_oauth": True, **nobody}))
    front = [sys.executable, "-m", "tests.support.gcs_front", str(port), str(behind)]
    processes = [
        _started(folder / "gcs.log", server, behind),
        _started(folder / "front.log", front, port, PYTHONPATH=str(Path(__file__).parents[2])),
    ]
    httpx.post(f"{base}/storage/v1/b?project=p", json={"name": "lake"}).raise_for_status()
    environ = {"GOOGLE_SERVICE_ACCOUNT": str(account)}
    return Emulated("gs", "gs://lake", "gs://nowhere", environ, SECRET, processes)


def _azure(folder: Path, _: ExitStack) -> Emulated:
    port = pick()
    command = fetched("npm", AZURITE) / "node_modules" / ".bin" / "azurite-blob"
    words = [
        *(str(command), "--blobHost", LOOPBACK, "--blobPort", str(port)),
        *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"),
    ]
    process = _started(folder / "azure.log", words, port, AZURITE_ACCOUNTS=f"{_ACCOUNT}:{_KEY}")
    endpoint = f"http://{LOOPBACK}:{port}/{_ACCOUNT}"
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": now, "x-ms-version": "2021-12-02"}
    lines = [f"{name}:{text}" for name, text in headers.items()]
    text = "\n".join(
        ["PUT", *[""] * 11, *lines, f"/{_ACCOUNT}/{_ACCOUNT}/lake", "restype:container"]
    )
    signed = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signed).decode()}"
    url = f"{endpoint}/lake?restype=container"
    httpx.put(url, headers=headers).raise_for_status()
    environ = {
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://{LOOPBACK}:{port}",
    }
    host = f"{_ACCOUNT}.dfs.core.windows.net"
    return Emulated(
        "abfs", f"abfs://lake@{host}", f"abfs://nowhere@{host}", environ, _KEY, [process]
    )


def _hdfs(folder: Path, _: ExitStack) -> Emulated:
    port = pick()
    jars = [str(path) for path in resolve(HDFS)]
    words = [
        *(str(java()), "-Xmx512m", "-Djava.net.preferIPv4Stack=true"),
        *(f"-Dtest.build.data={folder / 'hdfs'}", f"-Dhadoop.tmp.dir={folder / 'hdfs-tmp'}"),
        *("-cp", os.pathsep.join([*jars, f"{pyspark_jars_dir()}/*"])),
        *("org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format"),
        *("-nnport", str(port), "-D", "dfs.replication=1"),
        *("-writeDetails", str(folder / "hdfs.json")),
    ]
    process = _started(folder / "hdfs.log", words, port)
    wait_until((folder / "hdfs.json").exists, 60, "HDFS has its datanode")
    environ = {"HADOOP_USER_NAME": os.environ.get("USER") or "root"}
    return Emulated("hdfs", f"hdfs://{LOOPBACK}:{port}", "", environ, "", [process])
