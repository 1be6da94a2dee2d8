"""Answers of servers that others may run, in no more memory than they are worth."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from changelog.contract.base.errors import LogError
from changelog.runtime.http_modules import HTTP_MODULES

MOST_BYTES = 16 << 20
"""Of an answer of a schema registry; the largest schemas have some hundred kilobytes."""


def bound(client: Any) -> None:  # noqa: ANN401 - of any of the modules
    """Make a client refuse an answer that is too large, or compressed without being asked for.

    A few kilobytes that are compressed may be gigabytes.

    Raises LogError: (in the client's requests) the answer is too large.
    """
    client.headers["Accept-Encoding"] = "identity"
    client.event_hooks["response"].append(_bound)


def _bound(answer: Any) -> None:  # noqa: ANN401 - likewise
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        answer.close()
        raise LogError(
            f"{_place(answer)} compresses its answer, which it was asked not to",
            hint="is there a proxy that compresses?",
        )
    streams = (module.SyncByteStream for module in HTTP_MODULES)
    answer.stream = _bounded(next(kind for kind in streams if isinstance(answer.stream, kind)))(
        answer
    )


@cache
def _bounded(kind: Any) -> Any:  # noqa: ANN401 - likewise
    """Return the class of a stream of one of the modules, which looks at its class."""

    class Bounded(kind):  # type: ignore[misc]
        """The bytes of an answer, as long as they are not too many."""

        def __init__(self, answer: Any) -> None:  # noqa: ANN401 - likewise
            self._stream, self._place = answer.stream, _place(answer)

        def __iter__(self) -> Iterator[bytes]:
            count = 0
            for part in self._stream:
                count += len(part)
                if count > MOST_BYTES:
                    raise LogError(f"{self._place} answers with more than {MOST_BYTES >> 20} MiB")
                yield part

        def close(self) -> None:
            self._stream.close()

    return Bounded


def _place(answer: Any) -> str:  # noqa: ANN401 - likewise
    url = answer.request.url
    return f"the server at {url.host}:{url.port or url.scheme}"
