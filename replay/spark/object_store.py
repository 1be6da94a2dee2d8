"""Spark's settings for a warehouse on an S3-compatible store, from the names that deltalake reads.

deltalake and obstore read the names `AWS_…` from the environment (object_store,
`AmazonS3ConfigKey`), in each process of a run. Spark's S3A has settings of its own, which are
derived here from the same names, for the warehouse's bucket alone (Hadoop-AWS, "Configuring
different S3 buckets with Per-Bucket Configuration"). Credentials are not among them: S3A reads
`AWS_ACCESS_KEY_ID` and the like from the environment itself, so that no setting of Spark ever
holds a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from pyarrow import fs

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted

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


def is_s3(warehouse: str | None) -> bool:
    """Tell whether a warehouse is on an S3-compatible store."""
    return urlsplit(warehouse or "").scheme in {"s3", "s3a"}


def s3_settings(warehouse: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for reaching a warehouse, derived from the environment.

    `warehouse`: `s3://BUCKET/…`.
    """
    bucket = urlsplit(warehouse).netloc
    if not bucket:
        raise ConfigurationError(
            f'the warehouse "{warehouse}" names no bucket', hint="write s3://BUCKET/FOLDER"
        )
    ours = f"spark.hadoop.fs.s3a.bucket.{bucket}"
    settings = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    settings |= {f"{ours}.{name}": value for name, value in _LIMITS.items()}
    if region := _first_set(environ, _REGIONS):
        settings[f"{ours}.endpoint.region"] = region
    if endpoint := _first_set(environ, _ENDPOINTS):
        settings[f"{ours}.endpoint"] = endpoint
        settings[f"{ours}.path.style.access"] = str(not _is_on(environ, _HOSTED)).lower()
        if urlsplit(endpoint).scheme == "http":
            if not _is_on(environ, _HTTP):
                raise ConfigurationError(
                    f"the store at {endpoint} speaks HTTP, by which anybody on the way can read",
                    hint=f"set {_HTTP}=true if that is meant",
                )
            settings[f"{ours}.connection.ssl.enabled"] = "false"
    return settings


def remove_markers(folder: str, environ: Mapping[str, str]) -> None:
    """Remove the objects below a folder by their whole names.

    Hadoop marks an empty folder by an empty object whose name ends in a slash; Delta's folder
    `_staged_commits` is one. object_store has no such names: it lists the folder, and removes
    nothing.

    `folder`: `s3://BUCKET/FOLDER`.

    Raises OSError: the store does not do it.
    """
    place, endpoint = urlsplit(folder), urlsplit(_first_set(environ, _ENDPOINTS))
    system = fs.S3FileSystem(
        endpoint_override=endpoint.geturl() or None,
        scheme=endpoint.scheme or "https",
        region=_first_set(environ, _REGIONS) or None,
        force_virtual_addressing=_is_on(environ, _HOSTED),
        connect_timeout=_CONNECT_S,
        request_timeout=_ANSWER_S,
    )
    system.delete_dir(f"{place.netloc}{place.path}")


def named(place: str, environ: Mapping[str, str]) -> str:
    """Return a text that names a place in a store, with the store's address if one is set."""
    endpoint = _first_set(environ, _ENDPOINTS)
    return f"the store of {place}" + (f" at {endpoint}" if endpoint and is_s3(place) else "")


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


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
)
"""Parts of error texts that mean a lost connection: of reqwest and hyper (under deltalake and
obstore), and of pyarrow."""

_OF_S3A = ("fs.s3a", "awssdk")
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
    if any(sign in text for sign in _OF_S3A):
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
