"""Headers as they are shown: our own as an LSN, a letter and a time; others as texts. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import orjson

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.headers import OP, POSITION, TS, RecordHeaders, decode_headers
from changelog.lines.moments import moment_text

Raw = Sequence[tuple[str, str | bytes | None]]
"""Headers as the client gives them."""


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
        texts = {
            POSITION: str(own.position),
            OP: own.op.value.decode(),
            TS: moment_text(own.ts_us),
        }
    found: dict[str, list[Any]] = {}
    for name, value in headers or ():
        found.setdefault(name, []).append(texts[name] if name in texts else _text(value))
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _text(value: str | bytes | None) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode("ascii")}


def header_text(headers: Raw | None, name: str) -> bytes | None:
    """Return what is shown of one header in a template; None where there is none, or a null."""
    found = shown(headers).get(name) if headers else None
    if found is None:
        return None
    return found.encode() if isinstance(found, str) else orjson.dumps(found)
