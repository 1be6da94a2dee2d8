"""A request's body and headers -> records that are not encoded yet. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from changelog.connect.produce.errors import ProduceError, bad_request, unprocessable
from changelog.connect.rules.records.reading import BadRecordError, parse_json

MOST_RECORDS = 10_000  # of a request: the places of all stand in one record beside its id
ID_HEADER = "idempotency-key"
_CONTENT_TYPE = re.compile(r"application/vnd\.kafka\.([a-z]+)\.v[12]\+json")
_WITHOUT_FORM = "application/vnd.kafka.v1+json"  # binary, as version 1 had it
_ID = re.compile(r"[\x21-\x7e]{1,255}")
_MOST_PARTITION = 2**31
_MEMBERS = {"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"}
_OF_RECORD = {"key", "value", "partition"}


class ValueForm(Enum):
    """The form of keys and values in a request."""

    BINARY = "binary"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema as a request names it: by its text, or by its id in the registry."""

    text: str = ""  # empty where the id is there
    number: int | None = None  # its id


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A record in JSON."""

    key: Any
    value: Any  # None deletes the key
    partition: int | None = None  # None where the key decides


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """The records of a request."""

    form: ValueForm
    records: tuple[PlainRecord, ...]
    key_schema: NamedSchema | None = None
    value_schema: NamedSchema | None = None


def form_of(content_type: str) -> ValueForm:
    """Return the form that a content type names.

    Raises ProduceError: it is none of the proxy's, or one that is not taken here.
    """
    plain = content_type.partition(";")[0].strip().lower()
    if plain == _WITHOUT_FORM:
        return ValueForm.BINARY
    match = _CONTENT_TYPE.fullmatch(plain)
    try:
        return ValueForm(match[1] if match else "")
    except ValueError:
        forms = ", ".join(form.value for form in ValueForm)
        raise ProduceError(
            415, f"the content type is application/vnd.kafka.FORM.v2+json, with FORM of {forms}"
        ) from None


def request_id(headers: Mapping[str, str]) -> str:
    """Return a request's id, empty where it has none; raises ProduceError if it is malformed."""
    name = headers.get(ID_HEADER)
    if name is None:
        return ""
    if not _ID.fullmatch(name):
        raise bad_request("Idempotency-Key has 1 to 255 visible characters of ASCII")
    return name


def digest_of(topic: str, partition: int | None, form: ValueForm, body: bytes) -> bytes:
    """Return a digest that tells a repeated request from a different one with the same id."""
    head = f"{topic}\n{'' if partition is None else partition}\n{form.value}\n"
    return hashlib.sha256(head.encode() + body).digest()


def parsed(form: ValueForm, body: bytes, partition: int | None = None) -> ProduceRequest:
    """Parse a body; `partition` is that of the path.

    Raises ProduceError: it is no request for records.
    """
    try:
        document = parse_json(body, "body")
    except BadRecordError as error:
        raise bad_request(str(error)) from None
    if not isinstance(document, dict):
        raise bad_request("the body is not a JSON object")
    _check_members(document, _MEMBERS, "the body")
    records = document.get("records")
    if not isinstance(records, list) or not 0 < len(records) <= MOST_RECORDS:
        raise unprocessable(f"records is an array of 1 to {MOST_RECORDS} records")
    return ProduceRequest(
        form,
        tuple(_record(number, record, partition) for number, record in enumerate(records)),
        _schema(document, "key_schema"),
        _schema(document, "value_schema"),
    )


def _check_members(document: Mapping[str, Any], members: set[str], where: str) -> None:
    if unknown := document.keys() - members:
        raise unprocessable(f"{where} has the member {min(unknown)!r}, which is not read")


def _record(number: int, raw: Any, partition: int | None) -> PlainRecord:  # noqa: ANN401 - JSON
    if not isinstance(raw, dict):
        raise unprocessable(f"record {number} is not a JSON object")
    _check_members(raw, _OF_RECORD, f"record {number}")
    if "value" not in raw:  # not null, which deletes: a client in JavaScript leaves out undefined
        raise unprocessable(f"record {number} has no value; null deletes its key")
    own = raw.get("partition")
    if own is not None and (type(own) is not int or not 0 <= own < _MOST_PARTITION):
        raise unprocessable(f"record {number}: its partition is no number of one")
    if own is not None and partition is not None and own != partition:
        raise unprocessable(f"record {number}: its partition is not that of the path")
    return PlainRecord(raw.get("key"), raw["value"], partition if own is None else own)


def _schema(document: Mapping[str, Any], name: str) -> NamedSchema | None:
    text, number = document.get(name), document.get(f"{name}_id")
    if text is not None and number is not None:
        raise unprocessable(f"{name} and {name}_id: one of the two is enough")
    if text is not None and (type(text) is not str or not text):
        raise unprocessable(f"{name} is no text")
    if number is not None and (type(number) is not int or not 0 < number < _MOST_PARTITION):
        raise unprocessable(f"{name}_id is no id")
    return None if text is None and number is None else NamedSchema(text or "", number)
