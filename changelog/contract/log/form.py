"""The form of a topic's records: how values are written, and what a value tells of a change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Output(Enum):
    """The encoding of keys and values."""

    AVRO = "avro"
    JSON = "json"


class Envelope(Enum):
    """The content of a value."""

    ROW = "row"  # the row as it is now; a deleted row has no value
    NESTED = "nested"  # the change, with the row before and after it, as Debezium writes it
    FLAT = "flat"  # the change, with each column twice: `before_…` and `after_…`
    LABELLED = "labelled"
    """The row, and beside its columns where it comes from and when: `__schema`, `__ingested`, …"""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a topic's records; it stays the same for the topic's life."""

    output: Output = Output.AVRO
    envelope: Envelope = Envelope.ROW

    @property
    def has_events(self) -> bool:
        """Tell whether a value is a change and not a row."""
        return self.envelope is not Envelope.ROW

    def __str__(self) -> str:
        """Return a few words that complete "it holds …"."""
        kind = "Avro" if self.output is Output.AVRO else "JSON"
        if self.envelope is Envelope.ROW:
            return f"{kind} rows"
        return f"{kind} in the {self.envelope.value} envelope"


PLAIN = Form()  # Avro rows: the form of a topic of which nothing else is said
