"""Sources of columns, the parts of a record: `a=value.x,b=key.id,c=timestamp`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from changelog.contract.base.errors import ConfigurationError


class RecordPart(Enum):
    """A part of a record."""

    VALUE = "value"
    KEY = "key"
    HEADER = "header"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


_WITH_PATH = {RecordPart.VALUE, RecordPart.KEY, RecordPart.HEADER}
_HINT = (
    "COLUMN=value.FIELD, key.FIELD, header.NAME, value, key, topic, partition, offset, timestamp"
)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The part of a record that fills a column."""

    part: RecordPart
    path: tuple[str, ...] = ()  # names of nested fields; empty for the whole part

    def __str__(self) -> str:
        """Return the source as `--columns` names it."""
        return ".".join((self.part.value, *self.path))


def parse_columns(text: str) -> dict[str, ColumnSource]:
    """Parse the sources of columns, in their order.

    >>> {name: str(source) for name, source in parse_columns("id, at=timestamp").items()}
    {'id': 'value.id', 'at': 'timestamp'}

    Raises ConfigurationError: it has another form, or names a column twice.
    """
    columns: dict[str, ColumnSource] = {}
    for part in text.split(","):
        name, equals, source = (word.strip() for word in part.partition("="))
        if not name or (equals and not source):
            raise ConfigurationError(
                f'--columns "{text}" is not a list of columns and sources', hint=_HINT
            )
        if name in columns:
            raise ConfigurationError(f'--columns names the column "{name}" twice')
        columns[name] = _source(source) if equals else ColumnSource(RecordPart.VALUE, (name,))
    return columns


def _source(text: str) -> ColumnSource:
    head, _, path_text = text.partition(".")
    parts = {part.value: part for part in RecordPart}
    part = parts.get(head)
    names = [path_text] if part is RecordPart.HEADER else path_text.split(".")
    path = tuple(names) if path_text else ()
    if (
        part is None
        or (path and part not in _WITH_PATH)
        or (part is RecordPart.HEADER and not path)
    ):
        raise ConfigurationError(f'"{text}" is not a part of a record', hint=_HINT)
    return ColumnSource(part, path)


def of_names(names: Sequence[str]) -> dict[str, ColumnSource]:
    """Return the fields of the same names as the sources of columns."""
    return {name: ColumnSource(RecordPart.VALUE, (name,)) for name in names}


def of_tombstone(
    columns: Mapping[str, ColumnSource], keys: Sequence[str]
) -> dict[str, ColumnSource]:
    """Return the sources of the key's columns for a tombstone.

    A column that is filled from the value is filled from the record's key, by the same field name.
    """
    return {
        name: ColumnSource(RecordPart.KEY, source.path[-1:])
        if source.part is RecordPart.VALUE
        else source
        for name, source in columns.items()
        if name in keys
    }


class MissingError(Exception):
    """A record lacks the part that a column is read from."""


def picked(value: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return the value at a path, or None if a step on the way is null or missing.

    Raises MissingError: a value on the way is not an object.
    """
    for name in path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise MissingError(f"it has no object with the field {name}")
        value = value.get(name)
    return value
