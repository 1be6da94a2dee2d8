"""The part of a table that its topic holds, if it is not the whole table.

A frontier carries the scope of each narrowed topic, so that no reader takes a part for the
table. Two kinds of narrowing differ:

- Rows left out by a condition, columns left out or masked: the topic is exact about what is left,
  and rebuilds to just that.
- Operations left out, or rows that were there before and never copied: the topic holds what was
  published, and does not rebuild to anything that the table has ever been. Replay refuses it.

The topic of a table without a key holds all that was ever written and taken away, and rebuilds to
the table for as long as nothing of it is removed.

It also says in which form the records are, where they are not rows in Avro.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from changelog.contract.base.pattern import covers
from changelog.contract.log.form import PLAIN, Envelope, Form, Output

OPERATIONS = ("insert", "update", "delete", "truncate")
"""What a publication can send, in the order in which it is written everywhere."""

HASH, REDACT = "hash", "redact"
MASKS = (HASH, REDACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The part of a table that its topic holds."""

    operations: tuple[str, ...] = OPERATIONS  # that are written, of `OPERATIONS`
    dropped: tuple[str, ...] = ()  # patterns of columns that are left out
    # pattern of columns and how they are masked, `hash` or `redact`; of two patterns for a column
    # the first counts
    masked: tuple[tuple[str, str], ...] = ()
    # fingerprint of the key of the hashes; with another key a topic's old and new hashes could not
    # be compared
    mask_key: str = ""
    rows: str = ""  # the SQL condition that a row has to meet, or an empty text
    keyed: bool = True  # whether the table has a primary key
    # whether the topic got the rows that the table had before it was captured; without them it
    # holds what has changed since
    copied: bool = True
    form: Form = PLAIN  # of the records

    def drops(self, column: str) -> bool:
        """Tell whether a column is left out."""
        return any(covers(pattern, column) for pattern in self.dropped)

    def mask_of(self, column: str) -> str | None:
        """Return the mask of a column, or None."""
        return next((how for pattern, how in self.masked if covers(pattern, column)), None)

    @property
    def sort(self) -> str:
        """Return the sort of the topic's records, which cannot change while the topic lives."""
        return f"{self.form}, {'keyed' if self.keyed else 'without a key'}"

    def obstacles(self) -> tuple[str, ...]:
        """Return the reasons why the table's state cannot be computed from the topic."""
        reasons = []
        missing = [operation for operation in OPERATIONS if operation not in self.operations]
        if missing:
            reasons.append(f"it was captured without {', '.join(missing)}")
        if not self.keyed and self.form.has_events:
            reasons.append(
                f"its table has no primary key, and its records are events ({self.form})"
            )
        if self.form.envelope is Envelope.LABELLED:
            reasons.append(
                f"its records are {self.form}: declare it as a log of flattened rows ([logs.NAME])"
            )
        if not self.copied:
            reasons.append("its table was not copied (--skip-snapshot), it holds changes alone")
        return tuple(reasons)

    def notes(self) -> tuple[str, ...]:
        """Return notes on how the topic differs from the table."""
        notes = []
        if self.dropped:
            notes.append(f"columns left out: {', '.join(self.dropped)}")
        if self.masked:
            notes.append(
                "columns masked: " + ", ".join(f"{name} ({how})" for name, how in self.masked)
            )
        if self.rows:
            notes.append(f"only rows where {self.rows}")
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Return the differences from the whole table, in the form that the frontier stores."""
        own, whole = self._members(), Scope()._members()
        return {name: value for name, value in own.items() if value != whole[name]}

    def _members(self) -> dict[str, Any]:
        return {
            "operations": list(self.operations),
            "dropped": list(self.dropped),
            "masked": [list(mask) for mask in self.masked],
            "mask_key": self.mask_key,
            "rows": self.rows,
            "keyed": self.keyed,
            "copied": self.copied,
            "output": self.form.output.value,
            "envelope": self.form.envelope.value,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`.

        Raises ValueError: it holds something that we do not know, so it may be narrower than we
        could tell.
        """
        if unknown := sorted(raw.keys() - Scope()._members().keys()):
            raise ValueError(f"a scope with {unknown}")
        return cls(
            operations=tuple(raw.get("operations", OPERATIONS)),
            dropped=tuple(raw.get("dropped", ())),
            masked=tuple((pattern, how) for pattern, how in raw.get("masked", ())),
            mask_key=raw.get("mask_key", ""),
            rows=raw.get("rows", ""),
            keyed=raw.get("keyed", True),
            copied=raw.get("copied", True),
            form=Form(
                Output(raw.get("output", PLAIN.output)),
                Envelope(raw.get("envelope", PLAIN.envelope)),
            ),
        )


WHOLE = Scope()  # the whole table: what a topic holds of which a frontier says nothing
