"""Enums and composite types as capture saw them, and whether a change affects stored values.

A row holds the number of an enum's label, and of a composite type the fields that it had when it
was written. So `ALTER TYPE` changes what PostgreSQL shows of rows that no stream brings again. A
new label changes none of them, wherever it is put. Nor do the names of types and attributes, the
constraints and defaults of domains, or collations: none of these is in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from changelog.contract.base.errors import CorruptRecordError


class Label(NamedTuple):
    """A label of an enum: its text, and who wrote its entry in the catalogue last."""

    text: str
    xid: int


@dataclass(frozen=True, slots=True)
class EnumType:
    """An enum type of the source."""

    name: str  # as SQL has it
    late: bool  # whether it was altered after a column of the table that shows it had come
    labels: Mapping[int, Label]  # by object id

    def change_since(self, before: EnumType) -> str:
        """Return the change in how stored values are displayed, or an empty text."""
        for oid, label in before.labels.items():
            now = self.labels.get(oid)
            if now is None:
                return f'label "{label.text}" of type {self.name} is gone'
            if now.text != label.text:
                return f'label "{label.text}" of type {self.name} is called "{now.text}" now'
            if now.xid != label.xid:
                # Rows of the time between may have the name of the time between.
                return (
                    f'label "{label.text}" of type {self.name} was written anew: renamed there '
                    "and back, or numbered anew for a label before it"
                )
        return ""

    def to_json(self) -> list[Any]:
        """Return it as the record stores it."""
        return [
            "e",
            self.name,
            self.late,
            {str(oid): [*label] for oid, label in self.labels.items()},
        ]


@dataclass(frozen=True, slots=True)
class CompositeType:
    """A composite type, or the row type of a table."""

    name: str  # as SQL has it
    late: bool  # whether it was altered after a column of the table that shows it had come
    # oid and modifier of the type of each live one, by `attnum`
    attributes: Mapping[int, tuple[int, int]]
    last_number: int  # the highest `attnum` ever given

    def change_since(self, before: CompositeType) -> str:
        """Return the change in how stored values are displayed, or an empty text."""
        if self.last_number != before.last_number:
            return f"attributes of type {self.name} were added"
        if self.attributes.keys() != before.attributes.keys():
            return f"attributes of type {self.name} were dropped"
        if self.attributes != before.attributes:
            return f"attributes of type {self.name} have another type"
        return ""

    def to_json(self) -> list[Any]:
        """Return it as the record stores it."""
        attributes = {str(number): [*attribute] for number, attribute in self.attributes.items()}
        return ["c", self.name, self.late, attributes, self.last_number]


UserType = EnumType | CompositeType


def type_from_json(raw: list[Any]) -> UserType:
    """Read what `to_json` gave; raises CorruptRecordError if it is no type."""
    match raw:
        case ["e", name, late, labels]:
            return EnumType(name, late, {int(oid): Label(*label) for oid, label in labels.items()})
        case ["c", name, late, attributes, last]:
            kinds = {int(number): (kind, mod) for number, (kind, mod) in attributes.items()}
            return CompositeType(name, late, kinds, last)
        case _:
            raise CorruptRecordError(f"a record is no type: {raw!r}")


def types_changed(before: Mapping[int, UserType], now: Mapping[int, UserType]) -> str:
    """Return the change in how a table's rows are displayed by its types, or an empty text.

    A type that the table has only since then is compared with itself at the time at which the
    column came: rows may have been written, and streamed, between that and an alteration.
    """
    for oid, user_type in now.items():
        match before.get(oid), user_type:
            case EnumType() as old, EnumType():
                change = user_type.change_since(old)
            case CompositeType() as old, CompositeType():
                change = user_type.change_since(old)
            case None, _:
                change = (
                    f"type {user_type.name} was altered after columns of it came"
                    if user_type.late
                    else ""
                )
            case _:
                change = f"type {user_type.name} is another one"
        if change:
            return change
    return ""
