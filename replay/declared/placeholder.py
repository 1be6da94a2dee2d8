"""Debezium's placeholder for a TOASTed value that PostgreSQL did not send.

PostgreSQL leaves a TOASTed column out of an update that does not touch it. Debezium puts a text in
its place (`unavailable.value.placeholder`), in a form that the column's type can hold
(`UnchangedToastedPlaceholder` of its connector). A true value of the same form looks the same.
Pure.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any


class Placeholder:
    """Knows the forms of one text; an empty one is never found."""

    def __init__(self, text: str) -> None:
        """Prepare the forms."""
        raw = text.encode()
        encoded = base64.b64encode(raw).decode()
        # Of the text, as Java makes a UUID of bytes.
        number = str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))
        self._is_set = bool(text)
        self._texts = {text, encoded, _dumped({text: text})}
        self._lengths = {len(form) for form in self._texts}
        self._items = {text, encoded, number}
        self._raw = raw
        self._numbers = [byte - 256 if byte > 127 else byte for byte in raw]  # noqa: PLR2004 - signed
        self._map = {text: text}

    def is_here(self, value: Any) -> bool:  # noqa: ANN401 - a value as its record has it
        """Tell whether a value of a record is the placeholder."""
        match value:
            case _ if not self._is_set:
                return False
            case str():
                # By the length first: a long text need not be hashed.
                return len(value) in self._lengths and value in self._texts
            case [str() | bytes() as item]:
                return item == self._raw or item in self._items
            case list():
                return len(value) == len(self._numbers) and self._are_bytes(value)
            case _:
                return value in (self._raw, self._map)

    def _are_bytes(self, value: list[Any]) -> bool:
        # Numbers of JSON are still texts.
        return [str(item) for item in value] == [str(number) for number in self._numbers]


def _dumped(members: dict[str, str]) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
