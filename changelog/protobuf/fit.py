"""Documents in Protobuf's JSON form, looked at before the library reads them.

The library takes what is close to a value: it drops letters that are not base64, reads `1_0` as a
number, a number's digits as a text, and of two names of one field the second. All of these are
refused here.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from changelog.protobuf.compile import UnfitMessageError

_F = FieldDescriptor
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER_KEY = re.compile(r"0|-?[1-9][0-9]*")
_SPECIAL = {"NaN", "Infinity", "-Infinity"}
_URL_SAFE = str.maketrans("-_", "+/")
_WELL_KNOWN = "google.protobuf."
WRAPPERS = {
    f"{_WELL_KNOWN}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_FREE = {f"{_WELL_KNOWN}{name}" for name in ("Struct", "Value", "ListValue", "Any")}
_TEXTS = {f"{_WELL_KNOWN}{name}" for name in ("Timestamp", "Duration", "FieldMask")}


def fitted(document: Any, message: Descriptor) -> Any:  # noqa: ANN401 - any JSON
    """Return a document as the library takes it for a message, with numbers as numbers.

    Numbers are `int`, `float`, or a subclass of `str` with their digits.

    Raises UnfitMessageError: it does not fit; the message has the place and no values.
    """
    name = message.full_name
    if name in _FREE:
        return _free(document)
    if name in _TEXTS:
        return _text(document)
    if name in WRAPPERS:
        return _scalar(document, message.fields_by_name["value"])
    if not isinstance(document, Mapping):
        raise UnfitMessageError("it is no object")
    by_name = {field.name: field for field in message.fields}
    by_name |= {field.json_name: field for field in message.fields}
    members: dict[str, Any] = {}
    for key, value in document.items():
        field = by_name.get(key)
        if field is None:
            raise UnfitMessageError(f"{key}: {name} has no such field")
        if field.name in members:
            raise UnfitMessageError(f"{key}: the field is there twice")
        members[field.name] = _at(key, _field, value, field)
    return members


def _field(value: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    if value is None:
        return None
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        if not isinstance(value, Mapping):
            raise UnfitMessageError("it is no object")
        own_key, own_value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        if own_key.type not in {_F.TYPE_STRING, _F.TYPE_BOOL}:
            for key in value:
                if not _INTEGER_KEY.fullmatch(key):
                    raise UnfitMessageError(f"{key}: it is no integer")
        return {key: _at(key, _single, one, own_value) for key, one in value.items()}
    if field.is_repeated:
        if not isinstance(value, list):
            raise UnfitMessageError("it is no array")
        return [_at(f"[{number}]", _single, one, field) for number, one in enumerate(value)]
    return _single(value, field)


def _single(value: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    if field.message_type is not None:
        return fitted(value, field.message_type)
    return _scalar(value, field)


def _scalar(value: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    if field.type == _F.TYPE_STRING:
        return _text(value)
    if field.type == _F.TYPE_BYTES:
        return _base64(_text(value))
    if field.cpp_type in {_F.CPPTYPE_BOOL, _F.CPPTYPE_ENUM}:
        return value
    is_float = field.cpp_type in {_F.CPPTYPE_FLOAT, _F.CPPTYPE_DOUBLE}
    if isinstance(value, str):
        if is_float and value in _SPECIAL and type(value) is str:
            return value
        if not _NUMBER.fullmatch(value):
            raise UnfitMessageError("it is no number")
    if is_float and not isinstance(value, bool) and not _is_finite(value):
        raise UnfitMessageError("it is no number that fits")
    return value


def _is_finite(value: Any) -> bool:  # noqa: ANN401
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
    except (TypeError, ValueError):  # the library says so
        return True


def _text(value: Any) -> str:  # noqa: ANN401
    if type(value) is not str:
        raise UnfitMessageError("it is no text")
    return value


def _base64(text: str) -> str:
    """Return base64 in its usual form; the URL's letters and missing padding are taken."""
    bare = text.rstrip("=")
    plain = bare.translate(_URL_SAFE) + "=" * (-len(bare) % 4)
    is_padded = len(text) == len(bare) or len(text) == len(plain)
    try:
        if is_padded and base64.b64encode(base64.b64decode(plain, validate=True)).decode() == plain:
            return plain
    except (binascii.Error, ValueError):
        pass
    raise UnfitMessageError("it is not base64")


def _free(value: Any) -> Any:  # noqa: ANN401
    """Return any JSON with its numbers as numbers."""
    if isinstance(value, Mapping):
        return {key: _at(key, lambda one, _: _free(one), one, None) for key, one in value.items()}
    if isinstance(value, list):
        return [_free(one) for one in value]
    if isinstance(value, bool) or value is None or type(value) is str:
        return value
    if not _is_finite(value):
        raise UnfitMessageError("it is no number that fits")
    return float(value)


def _at(place: str, read: Callable[[Any, Any], Any], value: Any, field: Any) -> Any:  # noqa: ANN401
    try:
        return read(value, field)
    except UnfitMessageError as error:
        raise UnfitMessageError(f"{place}: {error}") from None
