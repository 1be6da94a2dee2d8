"""How keys and values are shown: as text, JSON, decoded Avro or digits. Pure.

In a template bytes stand as they are; in an object of JSON each is a token of it, so that a text
has to be UTF-8.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from changelog.avro.framed import dumped, one_line
from changelog.contract.base.errors import ConfigurationError, CorruptRecordError
from changelog.contract.forms.document import quoted
from changelog.contract.rows.codec import FRAME_BYTES

Show = Callable[[bytes], bytes]
"""Returns what is shown of a key or a value that is not null; raises CorruptRecordError."""

Framed = Callable[[bytes], Any]
"""Returns what a framed value says; `changelog.avro.framed.FramedReader`."""

_MAGIC = b"\0"


FormT = TypeVar("FormT", bound=Enum)


class As(Enum):
    """The format in which keys or values are taken."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    HEX = "hex"
    BASE64 = "base64"


def parse_form(text: str) -> As:
    """Read the name of a form in which keys and values are shown.

    Raises ConfigurationError: there is none of that name.
    """
    return form_named(As, text)


def form_named(forms: type[FormT], text: str) -> FormT:
    """Return the form of a name, from the forms that a command knows.

    Raises ConfigurationError: there is none of that name.
    """
    try:
        return forms(text)
    except ValueError:
        raise ConfigurationError(
            f'"{text}" is no form of keys and values',
            hint=f"there are {', '.join(form.value for form in forms)}",
        ) from None


def is_framed(raw: bytes) -> bool:
    """Tell whether bytes look like a record of a registry's schema: no text begins so."""
    return raw[:1] == _MAGIC and len(raw) >= FRAME_BYTES


def plain(form: As, framed: Framed) -> Show | None:
    """Return the function that shows a key or value in a template; None for its bytes alone."""

    def avro(raw: bytes) -> bytes:
        row = framed(raw)
        return row.encode() if isinstance(row, str) else dumped(row)

    match form:
        case As.AUTO:
            return lambda raw: avro(raw) if raw[:1] == _MAGIC and is_framed(raw) else raw
        case As.TEXT:
            return None
        case As.JSON:
            return one_line
        case As.AVRO:
            return avro
        case As.HEX:
            return lambda raw: raw.hex().encode()
        case As.BASE64:
            return b64encode


def token(form: As, framed: Framed) -> Show:
    """Return the function that shows a key or value as a token of JSON."""

    def avro(raw: bytes) -> bytes:
        return dumped(framed(raw))

    match form:
        case As.AUTO:
            return lambda raw: avro(raw) if raw[:1] == _MAGIC and is_framed(raw) else text(raw)
        case As.TEXT:
            return text
        case As.JSON:
            return one_line
        case As.AVRO:
            return avro
        case As.HEX:
            return lambda raw: b'"%b"' % raw.hex().encode()
        case As.BASE64:
            return lambda raw: b'"%b"' % b64encode(raw)


def text(raw: bytes) -> bytes:
    """Return a text as a string of JSON; raises CorruptRecordError if it is not UTF-8."""
    try:
        return quoted(raw.decode()).encode()
    except UnicodeDecodeError as error:
        raise CorruptRecordError(f"it is no text in UTF-8 ({error.reason})") from error
