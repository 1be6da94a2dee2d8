"""Headers as they are shown: our own as an LSN, a letter and a time; others as texts. Pure."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from changelog.avro.framed import dumped
from changelog.contract.base.errors import ChangelogError, CorruptRecordError
from changelog.contract.base.headers import (
    OP,
    POSITION,
    TS,
    Headers,
    Op,
    RecordHeaders,
    decode_headers,
    encode_headers,
)
from changelog.contract.base.position import Position
from changelog.contract.forms.moments import moment_text
from changelog.contract.rows.text import micros_of

Raw = Sequence[tuple[str, str | bytes | None]]  # headers as the client gives them

_OURS = [POSITION, OP, TS]


def ours(headers: Raw | None) -> RecordHeaders | None:
    """Return the headers of a record of our log; None of any other."""
    if not headers:
        return None
    try:
        return decode_headers(headers)
    except CorruptRecordError:
        return None


def shown(headers: Raw | None) -> dict[str, Any]:
    """Return headers by name, in their order; one that is there again has a list.

    Ours are `position` as epoch:LSN:sequence, `op` as its letter, `ts` in ISO 8601. Others are
    texts; what is not UTF-8 is an object, `{"base64": …}`.
    """
    own = ours(headers)
    texts: dict[str, Any] = {}
    if own is not None:
        texts = {POSITION: str(own.position), OP: own.op.value.decode(), TS: moment_text(own.ts_us)}
    by_name: dict[str, list[Any]] = {}
    for name, value in headers or ():
        by_name.setdefault(name, []).append(texts[name] if name in texts else _text(value))
    return {name: values if len(values) > 1 else values[0] for name, values in by_name.items()}


def as_json(headers: Raw | None) -> bytes:
    """Return headers as an object of JSON, as `shown` says them."""
    if not headers:
        return b"{}"
    own = ours(headers) if [name for name, _ in headers] == _OURS else None
    if own is None:
        return dumped(shown(headers))
    # Nearly all records of our log, at a third of the time; nothing in it needs an escape.
    ts = moment_text(own.ts_us)
    text = f'{{"position":"{own.position}","op":"{own.op.value.decode()}","ts":"{ts}"}}'
    return text.encode()


def _text(value: str | bytes | None) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode("ascii")}


def header_text(headers: Raw | None, name: str) -> bytes | None:
    """Return the text of one header in a template, or None if it is missing or null."""
    header = shown(headers).get(name) if headers else None
    if header is None:
        return None
    return header.encode() if isinstance(header, str) else dumped(header)


def written(members: Mapping[str, Any]) -> Headers:
    """Return the headers of which `shown` says this: the way back.

    Raises TypeError: a header is neither a text, a null, `{"base64": …}` nor a list of these;
    ValueError: base64 is malformed.
    """
    own = _written_ours(members)
    return [
        (name, own[name] if name in own else _bytes(name, item))
        for name, value in members.items()
        for item in (value if isinstance(value, list) else [value])
    ]


def _written_ours(members: Mapping[str, Any]) -> dict[str, str | bytes | None]:
    """Return the headers of a record of our log; none where one of the three is not as it is."""
    try:
        position, op, ts = (members[name] for name in (POSITION, OP, TS))
        moment = ts.removesuffix("+00:00").replace("T", " ", 1)
        return dict(
            encode_headers(
                Position.parse(position), Op(op.encode()), micros_of(f"{moment}+00".encode())
            )
        )
    except (KeyError, ValueError, AttributeError, ChangelogError):
        return {}


def _bytes(name: str, value: Any) -> bytes | None:  # noqa: ANN401 - JSON
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(text), **rest} if not rest:
            return b64decode(text, validate=True)
        case _:
            raise TypeError(f'"{name}" is neither a text, null nor {{"base64": …}}')
