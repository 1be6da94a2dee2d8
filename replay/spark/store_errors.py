"""Tell from what the clients of an object store say whether the store answers at all."""

from __future__ import annotations

import os
import re

from changelog.contract.base.secret import redacted
from replay.spark.object_store import named

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OF_OBJECT_STORE = (
    "client error (Connect)",
    "client error (SendRequest)",
    "operation timed out",
    "connection closed before message completed",
    "request or response body error",
    "AWS Error NETWORK_CONNECTION",
)
"""What deltalake and obstore say of a connection: the words of reqwest and hyper below them; and
what pyarrow says."""

_OF_S3A = ("fs.s3a", "awssdk")
_OF_JAVA = re.compile(
    r"\b(?:Connect|ConnectTimeout|SocketTimeout|Socket|NoHttpResponse|UnknownHost|ApiCallTimeout"
    r"|ApiCallAttemptTimeout)Exception: ([^\n]+)"
)
"""What Spark says, where the client of a store has thrown it."""


def unanswered(text: str) -> str | None:
    """Return briefly why a store did not answer, or None if the error is another.

    Args:
        text: the whole of an error of deltalake, obstore or Spark.
    """
    if any(sign in text for sign in _OF_OBJECT_STORE):
        return _lines(text)[-1]
    if any(sign in text for sign in _OF_S3A):
        causes = _OF_JAVA.findall(text)
        return causes[-1].strip() if causes else None
    return None


def silence(place: str, text: str) -> str | None:
    """Return that a place's store does not answer, and why, or None if the error is another.

    Args:
        place: URI of a table or file.
        text: the whole of an error of deltalake, obstore or Spark.
    """
    why = unanswered(text)
    if why is None:
        return None
    return f"{redacted(named(place, os.environ))} does not answer: {redacted(why)[:200]}"


def _lines(text: str) -> list[str]:
    """Return the lines of a client's error, without the colours and arrows of its tree."""
    plain = (line.strip().removeprefix("↳").strip() for line in _COLOURS.sub("", text).splitlines())
    return [line for line in plain if line]
