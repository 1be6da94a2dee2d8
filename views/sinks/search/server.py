"""A client of OpenSearch over HTTP: single requests, and bulk requests with every result checked.

It is used on the driver and on executors, and can be pickled because it has no open connection.
Requests to busy (429, 502, 503, 504) and unreachable servers are repeated with growing pauses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import httpx
import orjson

from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.tls_trust import authorities
from views.sinks.base import UnavailableSinkError
from views.sinks.load import Entry, Refusal, too_many
from views.sinks.retrying import retrying

T = TypeVar("T")
Body = Mapping[str, Any] | bytes | None

_BUSY = frozenset({429, 502, 503, 504})
_NOT_FOUND = 404
_ERROR = 400
_FAULTY = 400
"""Status of a document whose id or content is at fault, so sending it again would fail too."""
_TOO_LARGE = 413
_LONGEST_ID = 512
"""Bytes of a document's id."""
_CONNECT_S = 5.0
_BULK_ANSWER = "errors,items.*._id,items.*.status,items.*.error"
"""The parts of an answer that are needed."""
_OLDER = 409
"""Status of a document that is older than the stored one."""
GONE = ""
"""In place of the text of a document that is removed."""


class _BusyError(Exception):
    """The server may accept the same request later; the text is its answer."""


class _TooLargeError(SinkError):
    """A request is larger than the server accepts."""


@cache
def _connections(url: str, answer_seconds: float, _process: int) -> httpx.Client:
    """Return the connections of a process to a server; they stay open between requests."""
    timeout = httpx.Timeout(answer_seconds, connect=_CONNECT_S)
    return httpx.Client(base_url=url, timeout=timeout, verify=authorities())


@dataclass(frozen=True, slots=True)
class SearchClient:
    """A client of a server of search indexes."""

    url: str = field(repr=False)  # its address; user and password may be in it
    retry_seconds: float  # how long requests to a busy or absent server are repeated
    answer_seconds: float = 60.0  # how long it may be silent before a request is repeated

    def client(self) -> httpx.Client:
        """Return this process's connections to the server, for any of its threads.

        Raises ConfigurationError: the address is none of a search server.
        """
        if not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"{redacted(self.url)} is not the address of a search server",
                hint="write http://host:port or https://host:port",
            )
        return _connections(self.url.rstrip("/"), self.answer_seconds, os.getpid())

    def request(self, method: str, path: str, body: Body = None) -> Any:  # noqa: ANN401 - JSON
        """Send one request; return the JSON of its answer, or None if the object does not exist.

        Raises SinkError: the server refuses the request; UnavailableSinkError: it does not answer,
        or is busy for too long.
        """
        client = self.client()
        answer = self._patiently(lambda: self._send(client, method, path, body))
        if answer.status_code == _NOT_FOUND:
            return None
        return answer.json() if answer.content else {}

    @contextmanager
    def bulk(
        self,
        index: str,
        version: int | None = None,
        routed_by: int | None = None,
        *,
        left_out_at_most: int = 0,
    ) -> Iterator[Callable[[Sequence[Entry]], Sequence[Refusal]]]:
        """Return a function that writes a batch of ids and documents into an index.

        The function returns the documents that the server refuses. If all batches together have
        more of them than may be left out, it raises SinkError with the id and the reason of one.

        `version`: of all documents, which replace older ones only, and remove them if the text is
        `GONE`; None to replace any. `routed_by`: the place in the key of the column that documents
        are routed by. `left_out_at_most`: how many documents may be refused.
        """
        about = _About(version, routed_by)
        client, total = self.client(), 0

        def write(entries: Sequence[Entry]) -> Sequence[Refusal]:
            nonlocal total
            pending = [entry for entry in entries if _is_possible(entry[0])]
            # A server refuses a whole request that has such an id.
            refused = [(*entry, _too_long(entry[0])) for entry in entries
                       if not _is_possible(entry[0]) and entry[1] != GONE]  # fmt: skip

            def once() -> None:
                nonlocal pending
                pending, reason = self._bulk_once(client, index, pending, about, refused)
                if pending:
                    raise _BusyError(f"{len(pending)} documents refused for now: {reason}")

            if pending:
                self._patiently(once)
            total += len(refused)
            if total > left_out_at_most:
                raise _refusing(index, left_out_at_most, refused)
            return refused

        yield write

    def _bulk_once(
        self,
        client: httpx.Client,
        index: str,
        entries: list[Entry],
        about: _About,
        refused: list[Refusal],
    ) -> tuple[list[Entry], str]:
        """Write a batch; return the entries to write again, and the reason.

        Entries that the server refuses for good are added to `refused`.
        """
        lines = b"".join(about.lines(name, document) for name, document in entries)
        path = f"/{index}/_bulk?filter_path={_BULK_ANSWER}"
        try:
            answer = orjson.loads(self._send(client, "POST", path, lines).content)
        except _TooLargeError as error:
            if len(entries) > 1:
                raise
            refused.append((*entries[0], str(error)))
            return [], ""
        items = [next(iter(item.values())) for item in answer.get("items", ())]
        if len(items) != len(entries):
            raise SinkError(f"{len(entries)} documents sent to {index}, with {len(items)} results")
        again, reason = [], ""
        for entry, item in zip(entries, items, strict=True):
            if item["status"] in _BUSY:
                again.append(entry)
                reason = _reason(item)
            elif about.version is not None and item["status"] == _OLDER:
                raise SinkError(
                    f'{index} has a later version of "{entry[0]}" than {about.version}',
                    hint="let one process follow a view",
                )
            elif item["status"] == _NOT_FOUND and entry[1] == GONE:
                continue
            elif item["status"] == _FAULTY:
                refused.append((*entry, _reason(item)))
            elif item["status"] > _ERROR:
                raise SinkError(f'{index} refuses the document "{entry[0]}": {_reason(item)}')
        return again, reason

    def _send(self, client: httpx.Client, method: str, path: str, body: Body) -> httpx.Response:
        content = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        headers = {"content-type": kind} if content is not None else {}
        try:
            answer = client.request(method, path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise _BusyError(f"{type(error).__name__}: {error}") from error
        if answer.status_code in _BUSY:
            raise _BusyError(_body_reason(answer))
        if answer.status_code >= _ERROR and answer.status_code != _NOT_FOUND:
            is_too_large = answer.status_code == _TOO_LARGE
            raise (_TooLargeError if is_too_large else SinkError)(
                f"{redacted(self.url)} refuses {method} {path.partition('?')[0]}: "
                f"{answer.status_code} {redacted(_body_reason(answer))}",
                hint="check user and password" if answer.status_code in {401, 403} else "",
            )
        return answer

    def _patiently(self, attempt: Callable[[], T]) -> T:
        try:
            return retrying(_BusyError, self.retry_seconds, 0.2, 5.0)(attempt)
        except _BusyError as error:
            raise UnavailableSinkError(
                f"the search server {redacted(self.url)} does not accept requests: "
                f"{redacted(str(error))[:300]}",
                hint="see that it runs and has room, then run it again",
            ) from error


@dataclass(frozen=True, slots=True)
class _About:
    """The parameters of a bulk request's documents."""

    version: int | None
    routed_by: int | None

    def lines(self, name: str, document: str) -> bytes:
        """Return the lines of one document."""
        about: dict[str, Any] = {"_id": name}
        if self.version is not None:
            about |= {"version": self.version, "version_type": "external_gte"}
        if self.routed_by is not None:
            about["routing"] = routing_of(name, self.routed_by)
        if self.version is not None and document == GONE:
            return b'{"delete":%b}\n' % orjson.dumps(about)
        return b'{"index":%b}\n%b\n' % (orjson.dumps(about), document.encode())


def routing_of(name: str, place: int) -> str:
    """Return the text of one column of a key of several columns, from a document's id."""
    part = json.loads(name, parse_int=str, parse_float=str)[place]
    text = json.dumps(part) if isinstance(part, bool) else part
    if not isinstance(text, str) or not text or "," in text:
        raise SinkError(
            f"the document {name} cannot be routed by {part!r}: servers take a comma for several "
            "values, and no text for none",
            hint="leave such rows out of the view, or take another column as routing",
        )
    return text


def _is_possible(name: str) -> bool:
    """Tell whether a document can have this id."""
    return len(name.encode()) <= _LONGEST_ID


def _too_long(name: str) -> str:
    return f"its id is too long: {len(name.encode())} bytes, of {_LONGEST_ID} at most"


def _refusing(index: str, most: int, refused: Sequence[Refusal]) -> SinkError:
    if most:
        return too_many(index, most, refused)
    name, _, reason = refused[0]
    return SinkError(
        f'{index} refuses the document "{name}": {reason}',
        hint="mend the row or its mapping, or let --on-refused-row quarantine leave it out",
    )


def _reason(item: dict[str, Any]) -> str:
    error = item.get("error", {})
    cause = error.get("caused_by", {}).get("reason")
    facts = f"{error.get('type', item['status'])}: {error.get('reason', '')}"
    return f"{facts} ({cause})" if cause else facts


def _body_reason(answer: httpx.Response) -> str:
    try:
        error = answer.json()["error"]
        reason = error if isinstance(error, str) else error["reason"] or error["type"]
        return str(reason)[:1_000]
    except (ValueError, KeyError, TypeError):
        return answer.text[:300] or f"{answer.status_code} {answer.reason_phrase}"
