"""Answers of servers that others may run, in no more memory than they are worth."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from changelog.contract.base.errors import LogError

MOST_BYTES = 16 << 20
"""Of an answer of a schema registry; the largest schemas have some hundred kilobytes."""


def bound(client: httpx.Client) -> None:
    """Make a client refuse an answer that is too large, or compressed without being asked for.

    A few kilobytes that are compressed may be gigabytes.

    Raises LogError: (in the client's requests) the answer is too large.
    """
    client.headers["Accept-Encoding"] = "identity"
    client.event_hooks["response"].append(_bound)


def _bound(answer: httpx.Response) -> None:
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        answer.close()
        raise LogError(
            f"{_place(answer)} compresses its answer, which it was asked not to",
            hint="is there a proxy that compresses?",
        )
    answer.stream = _Bounded(answer)


class _Bounded(httpx.SyncByteStream):
    """The bytes of an answer, as long as they are not too many."""

    def __init__(self, answer: httpx.Response) -> None:
        stream = answer.stream
        assert isinstance(stream, httpx.SyncByteStream)  # noqa: S101 - of a client that waits
        self._stream, self._place = stream, _place(answer)

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for part in self._stream:
            count += len(part)
            if count > MOST_BYTES:
                raise LogError(f"{self._place} answers with more than {MOST_BYTES >> 20} MiB")
            yield part

    def close(self) -> None:
        self._stream.close()


def _place(answer: httpx.Response) -> str:
    url = answer.request.url
    return f"the server at {url.host}:{url.port or url.scheme}"
