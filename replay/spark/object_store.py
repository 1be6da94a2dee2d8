"""Spark's settings for a warehouse in a store, from the names that deltalake reads.

deltalake and obstore read the names `AWS_…`, `GOOGLE_…` and `AZURE_…` from the environment
(object_store, `AmazonS3ConfigKey` and its like), in each process of a run. Spark's clients have
settings of their own, which are derived here from the same names; for S3 and Azure of the
warehouse's bucket or account alone. Credentials are not among them: S3A and Google's client read
the environment themselves, and for Azure a setting holds the variable's name, which Hadoop
replaces where it is read (`Configuration`, "Environment Variables"). So no setting of Spark ever
holds a secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted
from changelog.runtime.stores import store_of

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_HOSTED = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"
_HTTP = "AWS_ALLOW_HTTP"
_CONNECT_S, _ANSWER_S = 15, 20
_LIMITS = {
    "connection.establish.timeout": f"{_CONNECT_S}s",
    "connection.timeout": f"{_ANSWER_S}s",
    # S3A retries after 1, 2 and 4 s; the client below it must not retry each of these again.
    "attempts.maximum": "0",
    "retry.limit": "3",
    "retry.interval": "1s",
}
"""Until an error, when a store is away or does not answer; Delta retries some requests four times
on top. With Hadoop's defaults a write waits for hours for a store that accepts connections only."""
_YES = frozenset({"1", "true", "on", "yes", "y"})


def s3_settings(warehouse: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for reaching a warehouse, derived from the environment.

    `warehouse`: `s3://BUCKET/…`.
    """
    bucket = urlsplit(warehouse).netloc
    ours = f"spark.hadoop.fs.s3a.bucket.{bucket}"
    settings = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    settings |= {f"{ours}.{name}": value for name, value in _LIMITS.items()}
    if region := _first_set(environ, _REGIONS):
        settings[f"{ours}.endpoint.region"] = region
    if endpoint := _first_set(environ, _ENDPOINTS):
        settings[f"{ours}.endpoint"] = endpoint
        settings[f"{ours}.path.style.access"] = str(not _is_on(environ, _HOSTED)).lower()
        if urlsplit(endpoint).scheme == "http":
            _check_http(endpoint, _HTTP, environ)
            settings[f"{ours}.connection.ssl.enabled"] = "false"
    return settings


def _check_http(endpoint: str, name: str, environ: Mapping[str, str]) -> None:
    if not _is_on(environ, name):
        raise ConfigurationError(
            f"the store at {endpoint} speaks HTTP, by which anybody on the way can read",
            hint=f"set {name}=true if that is meant",
        )


_GS = "spark.hadoop.fs.gs"
_GS_CLIENT = "com.google.cloud.hadoop.fs.gcs"
_GS_ACCOUNT = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
_GS_LIMITS = {
    f"{_GS}.http.connect-timeout": str(_CONNECT_S * 1000),
    f"{_GS}.http.read-timeout": str(_ANSWER_S * 1000),
    f"{_GS}.http.max.retry": "4",
    # Hadoop 3.5 has defaults for a client of its own, such as `64m`, which this one takes amiss.
    f"{_GS}.block.size": str(64 << 20),
}


def gs_settings(warehouse: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a warehouse at Google, derived from the environment.

    `warehouse`: `gs://BUCKET/…`.
    """
    del warehouse  # Google's client has one account for all buckets
    settings = {
        f"{_GS}.impl": f"{_GS_CLIENT}.GoogleHadoopFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.gs.impl": f"{_GS_CLIENT}.GoogleHadoopFS",
        f"{_GS}.auth.type": "APPLICATION_DEFAULT",
        **_GS_LIMITS,
    }
    if path := _first_set(environ, _GS_ACCOUNT):
        account = _gs_account(path)
        settings[f"{_GS}.auth.type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
        settings[f"{_GS}.auth.service.account.json.keyfile"] = path
        if account.get("disable_oauth"):
            settings[f"{_GS}.auth.type"] = "UNAUTHENTICATED"
        if base := account.get("gcs_base_url"):
            settings[f"{_GS}.storage.root.url"] = f"{base.rstrip('/')}/"
    return settings


def _gs_account(path: str) -> dict[str, Any]:
    try:
        account: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the service account's file {path} cannot be read", hint=f"see {_GS_ACCOUNT[0]}"
        ) from error
    return account


_AZURE = "spark.hadoop.fs.azure"
_AZURE_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_AZURE_HTTP = "AZURE_ALLOW_HTTP"
_AZURITE = "AZURE_STORAGE_USE_EMULATOR"
_AZURE_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
_AZURE_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_AZURE_CLIENT = ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")
_AZURE_SECRET = ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")
_AZURE_TENANT = ("AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID")
_AZURE_FILE = ("AZURE_FEDERATED_TOKEN_FILE",)
_PROVIDER = "org.apache.hadoop.fs.azurebfs.oauth2"


def abfs_settings(warehouse: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a warehouse at Azure, derived from the environment.

    `warehouse`: `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…`.
    """
    place = urlsplit(warehouse)
    account = place.netloc.rpartition("@")[2]
    settings = {
        # Not by the library wildfly-openssl, which is not among our jars.
        f"{_AZURE}.ssl.channel.mode": "Default_JSSE",
        f"{_AZURE}.io.retry.max.retries": "4",
        f"{_AZURE}.http.connection.timeout": str(_CONNECT_S * 1000),
        f"{_AZURE}.http.read.timeout": str(_ANSWER_S * 1000),
    }
    ours = {f"{_AZURE}.{name}.{account}": text for name, text in _azure_account(environ).items()}
    endpoint = urlsplit(_azure_endpoint(environ))
    if not endpoint.netloc:
        return {**settings, **ours}
    # Other stores than Azure's speak its API of blobs alone.
    settings[f"{_AZURE}.abfs.endpoint"] = endpoint.netloc
    settings[f"{_AZURE}.fns.account.service.type"] = "BLOB"
    settings[f"{_AZURE}.ingress.service.type"] = "BLOB"
    settings[f"{_AZURE}.account.hns.enabled"] = "false"
    if endpoint.scheme == "http":
        if not _is_on(environ, _AZURITE):
            _check_http(endpoint.geturl(), _AZURE_HTTP, environ)
        if place.scheme != "abfs":
            raise ConfigurationError(
                f"the store at {endpoint.geturl()} speaks HTTP, and {place.scheme}:// is HTTPS",
                hint="write abfs:// if that is meant",
            )
        settings[f"{_AZURE}.always.use.https"] = "false"
        settings[f"{_AZURE}.networking.library"] = "JDK_HTTP_URL_CONNECTION"
    return {**settings, **ours}


def _azure_endpoint(environ: Mapping[str, str]) -> str:
    if _is_on(environ, _AZURITE):
        return environ.get("AZURITE_BLOB_STORAGE_URL") or "http://127.0.0.1:10000"
    return _first_set(environ, _AZURE_ENDPOINTS)


def _azure_account(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the account and its rights, by Hadoop's names; secrets as the names of variables."""
    if key := _first_name(environ, _AZURE_KEYS):
        return {"account.auth.type": "SharedKey", "account.key": _later(key)}
    if sas := _first_name(environ, _AZURE_SAS):
        return {"account.auth.type": "SAS", "sas.fixed.token": _later(sas)}
    tenant = _first_set(environ, _AZURE_TENANT)
    client = _first_set(environ, _AZURE_CLIENT)
    asks = {"account.auth.type": "OAuth"}
    if client:
        asks["account.oauth2.client.id"] = client
    if tenant:
        asks["account.oauth2.msi.tenant"] = tenant
    if secret := _first_name(environ, _AZURE_SECRET):
        asks["account.oauth.provider.type"] = f"{_PROVIDER}.ClientCredsTokenProvider"
        asks["account.oauth2.client.secret"] = _later(secret)
        asks["account.oauth2.client.endpoint"] = (
            f"https://login.microsoftonline.com/{tenant}/oauth2/token"
        )
    elif file := _first_set(environ, _AZURE_FILE):
        asks["account.oauth.provider.type"] = f"{_PROVIDER}.WorkloadIdentityTokenProvider"
        asks["account.oauth2.token.file"] = file
    else:
        asks["account.oauth.provider.type"] = f"{_PROVIDER}.MsiTokenProvider"
    return asks


def _later(name: str) -> str:
    """Return the text that Hadoop replaces by a variable of its environment, where it reads it."""
    return f"${{env.{name}}}"


def hdfs_settings(warehouse: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a warehouse in HDFS; the rest is in HADOOP_CONF_DIR."""
    del warehouse, environ
    return {"spark.hadoop.ipc.client.connect.max.retries.on.timeouts": "3"}


SETTINGS: Mapping[str, Callable[[str, Mapping[str, str]], dict[str, str]]] = MappingProxyType(
    {"s3": s3_settings, "gs": gs_settings, "abfs": abfs_settings, "hdfs": hdfs_settings}
)
"""Spark's settings by the kind of the store."""

MARKING = frozenset({"s3", "gs"})
"""The stores in which Hadoop marks an empty folder by an object whose name ends in a slash."""


def remove_markers(folder: str, environ: Mapping[str, str]) -> None:
    """Remove the objects below a folder by their whole names.

    Hadoop marks an empty folder by an empty object whose name ends in a slash; Delta's folder
    `_staged_commits` is one. object_store has no such names: it lists the folder, and removes
    nothing.

    `folder`: `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`.

    Raises OSError: the store does not do it.
    """
    place = urlsplit(folder)
    system = _google(environ) if store_of(folder) == "gs" else _amazon(environ)
    with suppress(FileNotFoundError):  # Google's client removes the last mark twice
        system.delete_dir(f"{place.netloc}{place.path}")


def _amazon(environ: Mapping[str, str]) -> fs.FileSystem:
    endpoint = urlsplit(_first_set(environ, _ENDPOINTS))
    return fs.S3FileSystem(
        endpoint_override=endpoint.geturl() or None,
        scheme=endpoint.scheme or "https",
        region=_first_set(environ, _REGIONS) or None,
        force_virtual_addressing=_is_on(environ, _HOSTED),
        connect_timeout=_CONNECT_S,
        request_timeout=_ANSWER_S,
    )


def _google(environ: Mapping[str, str]) -> fs.FileSystem:
    path = _first_set(environ, _GS_ACCOUNT)
    account = _gs_account(path) if path else {}
    base = urlsplit(account.get("gcs_base_url", ""))
    return fs.GcsFileSystem(
        anonymous=bool(account.get("disable_oauth")),
        scheme=base.scheme or "https",
        endpoint_override=base.netloc or None,
        retry_time_limit=timedelta(seconds=_ANSWER_S),
    )


def named(place: str, environ: Mapping[str, str]) -> str:
    """Return a text that names a place in a store, with the store's address if one is set."""
    ends = {"s3": _first_set(environ, _ENDPOINTS), "abfs": _azure_endpoint(environ)}
    endpoint = ends.get(store_of(place) or "")
    return f"the store of {place}" + (f" at {endpoint}" if endpoint else "")


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return environ.get(_first_name(environ, names), "")


def _first_name(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((name for name in names if environ.get(name)), "")


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() in _YES


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OF_OBJECT_STORE = (
    "client error (Connect)",
    "client error (SendRequest)",
    "operation timed out",
    "connection closed before message completed",
    "request or response body error",
    "AWS Error NETWORK_CONNECTION",
    "IO error occurred while communicating with HDFS",
)
"""Parts of error texts that mean a lost connection: of reqwest and hyper (under deltalake and
obstore), of hdfs-native, and of pyarrow."""
NOBODY = ("Error performing token request", "credential error")
"""Parts of error texts that mean that nobody has said who asks, or somebody who may not."""

_OF_HADOOP = ("fs.s3a", "awssdk", "fs.gcs", "azurebfs", "hadoop.hdfs", "hadoop.ipc")
_OF_JAVA = re.compile(
    r"\b(?:Connect|ConnectTimeout|SocketTimeout|Socket|NoHttpResponse|UnknownHost|ApiCallTimeout"
    r"|ApiCallAttemptTimeout)Exception: ([^\n]+)"
)
"""Exceptions of network clients in Spark's stack traces, with their messages."""


def unanswered(text: str) -> str | None:
    """Return briefly why a store did not answer, or None if the error is another.

    `text`: the whole of an error of deltalake, obstore or Spark.
    """
    if any(sign in text for sign in _OF_OBJECT_STORE):
        return _lines(text)[-1]
    if any(sign in text for sign in _OF_HADOOP):
        causes = _OF_JAVA.findall(text)
        return causes[-1].strip() if causes else None
    return None


def silence(place: str, text: str) -> str | None:
    """Return that a place's store does not answer, and why, or None if the error is another.

    `place`: URI of a table or file. `text`: the whole of an error of deltalake, obstore or Spark.
    """
    why = unanswered(text)
    if why is None:
        return None
    return f"{redacted(named(place, os.environ))} does not answer: {redacted(why)[:200]}"


def _lines(text: str) -> list[str]:
    """Return the lines of a client's error, without the colours and arrows of its tree."""
    plain = (line.strip().removeprefix("↳").strip() for line in _COLOURS.sub("", text).splitlines())
    return [line for line in plain if line]
