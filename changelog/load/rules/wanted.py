"""The options of a load as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from changelog.load.rules.columns import Part, Source


class Form(Enum):
    """The encoding of keys or values on a topic."""

    AUTO = "auto"
    """Avro where they are framed, else JSON."""
    AVRO = "avro"
    JSON = "json"
    CSV = "csv"
    TEXT = "text"


class Tombstones(Enum):
    """The treatment of a record without a value."""

    DELETE = "delete"
    IGNORE = "ignore"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules by which records become rows.

    Attributes:
        columns: what fills each column.
        keys: columns by which rows are replaced; empty where rows are appended.
        tombstones: what becomes of records without a value.
        value: how values are written.
        key: how keys are written.
        fields: names of the fields of CSV.
        delimiter: between them.
        all_fields: whether a field that fills no column is an error.
    """

    columns: Mapping[str, Source]
    keys: tuple[str, ...]
    tombstones: Tombstones
    value: Form
    key: Form
    fields: tuple[str, ...] = ()
    delimiter: bytes = b","
    all_fields: bool = False

    @property
    def reads_headers(self) -> bool:
        """Tell whether a header fills a column."""
        return any(source.part is Part.HEADER for source in self.columns.values())
