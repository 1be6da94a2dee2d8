"""Framed records to plain values, under the schema that each of them names.

Their form is that of `changelog.contract.forms.document`: numbers with a point as texts, bytes in
base64, time in ISO 8601.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import fastavro
import orjson

from changelog.avro.bodies import MALFORMED, BodyReader
from changelog.avro.jsonforms import LOG_FORM
from changelog.avro.messages import MessageDocuments
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.codec import FRAME_BYTES, unframe
from changelog.contract.rows.harmless_schema import check_tame
from changelog.protobuf.compile import compiled


class FramedReader:
    """Reads framed values; a schema is asked for once."""

    def __init__(
        self,
        schema: Callable[[int], tuple[str, str]],
        *,
        prepare: Callable[[Any], Any] = lambda raw: raw,
    ) -> None:
        """Take the function that returns a schema by its id.

        `schema` returns kind (AVRO, JSON, …) and text of a schema; `prepare` makes of an Avro
        schema the one that is read by, whose bodies are the same.
        """
        self._schema, self._prepare = schema, prepare
        self._bodies: dict[int, BodyReader | MessageDocuments | None] = {}

    def __call__(self, raw: bytes) -> Any:  # noqa: ANN401 - any JSON
        """Return a value in types that orjson writes exactly.

        Raises CorruptRecordError: it does not decode; LogError: the registry refuses, or does not
        answer.
        """
        number, _ = unframe(raw)
        if number not in self._bodies:
            self._bodies[number] = self._body(number)
        body = self._bodies[number]
        if body is None:
            return orjson.Fragment(one_line(raw[FRAME_BYTES:]))
        try:
            value, left_over = body.read(raw)
        except MALFORMED as error:
            raise CorruptRecordError(f"it does not decode by schema {number}: {error!r}") from error
        if left_over:
            raise CorruptRecordError(f"{left_over} bytes are left over behind schema {number}")
        return value

    def _body(self, number: int) -> BodyReader | MessageDocuments | None:
        """Return the reader of a schema's bodies, or None if they are JSON."""
        kind, text = self._schema(number)
        if kind == "JSON":
            return None
        if kind == "PROTOBUF":
            return MessageDocuments(compiled(text, f"schema {number}"))
        if kind != "AVRO":
            raise CorruptRecordError(f"its schema {number} is of the type {kind}")
        check_tame(text, f"schema {number}")
        try:
            return LOG_FORM.reader(self._prepare(json.loads(text)))
        except (*MALFORMED, fastavro.schema.SchemaParseException) as error:
            raise CorruptRecordError(f"schema {number} cannot be used: {error}") from error


def dumped(document: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Return a document of JSON, in no more memory than it needs.

    orjson shrinks a kilobyte to each result, and a batch of these costs ten times the time of its
    copies: the kilobyte of one is that of the next.
    """
    return b"%b" % orjson.dumps(document)


def one_line(document: bytes) -> bytes:
    r"""Return a JSON document as it is written, on one line.

    >>> one_line(b'{"a":\n 1.10}')
    b'{"a":  1.10}'

    Raises CorruptRecordError: it is none.
    """
    try:
        orjson.loads(document)
    except ValueError as error:
        raise CorruptRecordError(f"it is no JSON document: {error}") from error
    # A line's end in a string would be escaped, so that each one stands between two tokens.
    return document.strip().replace(b"\n", b" ").replace(b"\r", b" ")
