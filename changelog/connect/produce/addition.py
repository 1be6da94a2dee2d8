"""The calls of the REST proxy as an addition to `changelog serve`."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from changelog.connect.http.additions import AdditionPlace
from changelog.connect.http.bodies import whole_body
from changelog.connect.http.rights import Holder, Rights
from changelog.connect.produce.encode import Encoders, PartEncoder, encoded
from changelog.connect.produce.errors import FORBIDDEN, NO_PARTITION, ProduceError
from changelog.connect.produce.lane import Lane, Outgoing
from changelog.connect.produce.remembered import (
    Answer,
    RememberedIds,
    lane_of,
    make_topic,
    name_of,
)
from changelog.connect.produce.requests import (
    ProduceRequest,
    ValueForm,
    digest_of,
    form_of,
    parsed,
    request_id,
)
from changelog.connect.produce.topics import TopicLooks
from changelog.connect.requests import RequestError
from changelog.connect.rules.topics import requests_topic
from changelog.sections import Http

ROOT = "/topics"
_MEDIA_TYPE = "application/vnd.kafka.v2+json"
_MOST_DIGITS = 9
Handler = Callable[[Request, Holder], Awaitable[Response]]


class Produce:
    """The records by HTTP of one worker."""

    def __init__(self, place: AdditionPlace) -> None:
        self._settings = place.settings.section(Http)
        tokens = self._settings.tokens.values()
        self._is_open = bool(self._settings.topics) or any(token.topics for token in tokens)
        self._rights = Rights(self._settings, place.admission)
        self._looks = TopicLooks(place.settings.kafka)
        self._encoders = Encoders(place.settings.registry)
        self._kafka, self._group = place.settings.kafka, place.group
        self._lock = threading.Lock()
        self._lanes: dict[int | None, Lane] = {}
        if self._is_open:
            make_topic(self._kafka, requests_topic(self._group), self._settings.remember_hours)
        one = f"{ROOT}/{{topic}}"
        routes: list[tuple[str, Handler, str]] = [
            (ROOT, self._topics, "GET"),
            (one, self._topic, "GET"),
            (one, self._produce, "POST"),
            (f"{one}/partitions", self._partitions, "GET"),
            (f"{one}/partitions/{{partition}}", self._partitions, "GET"),
            (f"{one}/partitions/{{partition}}", self._produce, "POST"),
        ]
        self._app = Starlette(
            routes=[Route(path, self._endpoint(act), methods=[name]) for path, act, name in routes],
            exception_handlers={
                ProduceError: lambda _, error: _refused(error),
                RequestError: lambda _, error: _refused(ProduceError(error.code, error.message)),
                HTTPException: lambda _, error: _refused(
                    ProduceError(error.status_code, f"HTTP {error.status_code} {error.detail}")
                ),
            },
        )

    @property
    def app(self) -> ASGIApp:
        """Return the application."""
        return self._app

    @property
    def per_second(self) -> float:
        """Return the number of requests with credentials that are answered in a second."""
        return self._settings.requests_per_second

    def takes(self, path: str) -> bool:
        """Return whether a path is one of topics; without settings none is."""
        return self._is_open and (path == ROOT or path.startswith(f"{ROOT}/"))

    def admits(self, scope: Scope) -> bool:
        """Return whether a request carries a token that may write to some topic."""
        return self._rights.writer(scope["headers"]) is not None

    def is_for_links(self, path: str, query: bytes) -> bool:  # noqa: ARG002 - of the protocol
        """Return whether links of other sites may lead to a path: to none."""
        return False

    def is_for_pages(self, scope: Scope) -> bool:  # noqa: ARG002 - of the protocol
        """Return whether a page of another site may send a request: none may."""
        return False

    def end(self) -> None:
        """Do nothing: there are no streams."""

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            writer = self._rights.writer(request.scope["headers"])
            if writer is None:
                answer = _refused(ProduceError(401, "a token is needed"))
                answer.headers["WWW-Authenticate"] = 'Bearer, Basic realm="topics"'
                return answer
            topic = request.path_params.get("topic")
            if topic is not None and not writer.may_write(topic):
                raise ProduceError(FORBIDDEN, f'this token may not write to topic "{topic}"')
            return await handler(request, writer)

        return run

    async def _topics(self, _: Request, writer: Holder) -> Response:
        names = await run_in_threadpool(self._looks.names)
        return _json([name for name in names if writer.may_write(name)])

    async def _topic(self, request: Request, _: Holder) -> Response:
        return _json(await run_in_threadpool(self._looks.described, request.path_params["topic"]))

    async def _partitions(self, request: Request, _: Holder) -> Response:
        number = _partition(request)
        described = await run_in_threadpool(self._looks.described, request.path_params["topic"])
        partitions = described["partitions"]
        if number is None:
            return _json(partitions)
        if number >= len(partitions):
            raise ProduceError(NO_PARTITION, "Partition not found.")
        return _json(partitions[number])

    async def _produce(self, request: Request, writer: Holder) -> Response:
        form = form_of(request.headers.get("content-type", ""))
        sent_id = request_id(request.headers)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise ProduceError(415, "bodies are not compressed")
        topic, partition = request.path_params["topic"], _partition(request)
        body = await whole_body(request, self._settings.largest_bytes)
        name = name_of(writer.name, sent_id) if sent_id else b""
        plain = await run_in_threadpool(self._checked, topic, partition, form, body)
        key, value = self._encoders.of(topic, plain)
        encoders = await _awaited(key), await _awaited(value)
        digest = partial(digest_of, topic, partition, form, body)
        writing = await run_in_threadpool(self._submitted, topic, plain, encoders, name, digest)
        # A client that goes away does not take its request back.
        answer = await asyncio.shield(asyncio.wrap_future(writing))
        document = {
            "offsets": [
                {"partition": at, "offset": offset, "error_code": None, "error": None}
                for at, offset in answer.places
            ],
            "key_schema_id": answer.key_schema_id,
            "value_schema_id": answer.value_schema_id,
        }
        headers = {"Idempotent-Replayed": "true"} if answer.is_repeated else None
        return _json(document, headers=headers)

    def _checked(
        self, topic: str, partition: int | None, form: ValueForm, body: bytes
    ) -> ProduceRequest:
        """Parse a request, and look at its topic."""
        request = parsed(form, body, partition)
        places = {record.partition for record in request.records if record.partition is not None}
        self._looks.check(topic, places)
        return request

    def _submitted(
        self,
        topic: str,
        request: ProduceRequest,
        encoders: tuple[PartEncoder, PartEncoder],
        name: bytes,
        digest: Callable[[], bytes],
    ) -> Future[Answer]:
        """Encode a request, and give it to a lane."""
        key, value = encoders
        records = encoded(request, key, value)
        outgoing = Outgoing(topic, records, key.number, value.number, name, digest())
        return self._lane(lane_of(name) if name else None).submit(outgoing)

    def _lane(self, number: int | None) -> Lane:
        """Return the lane of ids with a number, or that of requests without ids."""
        with self._lock:
            if number not in self._lanes:
                topic = requests_topic(self._group)
                own = uuid.uuid4() if number is None else number
                ids = None
                if number is not None:
                    ids = RememberedIds(self._kafka, topic, number, self._settings.remember_hours)
                self._lanes[number] = Lane(self._kafka, f"{topic}-{own}", ids, topic)
            return self._lanes[number]


async def _awaited(encoder: Future[PartEncoder]) -> PartEncoder:
    if encoder.done():
        return encoder.result()
    # A client that goes away does not take the question back: others may wait for the answer.
    return await asyncio.shield(asyncio.wrap_future(encoder))


def _partition(request: Request) -> int | None:
    text = request.path_params.get("partition")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ProduceError(NO_PARTITION, "Partition not found.")
    return int(text)


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(body, status, headers, media_type=_MEDIA_TYPE)


def _refused(error: ProduceError) -> Response:
    return _json({"error_code": error.error_code, "message": error.message}, error.status)


def produce(place: AdditionPlace) -> Produce:
    """Return the records by HTTP of a worker."""
    return Produce(place)
