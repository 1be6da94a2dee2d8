"""The rules of a load, parsed from its options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from changelog.load.rules.columns import ColumnSource, RecordPart


class LoadForm(Enum):
    """The encoding of keys or values on a topic."""

    AUTO = "auto"  # Avro if they begin with a schema id, else JSON
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
    """The rules by which records become rows."""

    columns: Mapping[str, ColumnSource]
    keys: tuple[str, ...]  # columns by which rows are replaced; empty if rows are appended
    tombstones: Tombstones
    value: LoadForm  # the form of values
    key: LoadForm  # the form of keys
    fields: tuple[str, ...] = ()  # names of the fields of CSV
    delimiter: bytes = b","  # of CSV
    all_fields: bool = False  # whether a field that fills no column is an error

    @property
    def reads_headers(self) -> bool:
        """Return whether a header fills a column."""
        return any(source.part is RecordPart.HEADER for source in self.columns.values())
