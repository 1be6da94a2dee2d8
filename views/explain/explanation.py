"""The origin of a row as a value: as text for people, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from views.explain.provenance import FieldOrigin
from views.project.spec import short_name
from views.rebuild.plan.plan import Plan, shown
from views.rebuild.result.report import frontier_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOnLog:
    """A record on the log."""

    partition: int  # of its topic
    offset: int  # in its partition
    position: Position  # its place in the order of changes
    schema_id: int | None  # under which its value was written; None for a document or a tombstone
    deleted: bool = False  # whether it is a tombstone

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        fields: dict[str, Any] = {
            "partition": self.partition,
            "offset": self.offset,
            "position": str(self.position),
            "schema_id": self.schema_id,
        }
        return {**fields, "deleted": True} if self.deleted else fields

    def __str__(self) -> str:
        """Return it in one line."""
        form = "a delete" if self.deleted else f"schema {self.schema_id}"
        if not self.deleted and self.schema_id is None:
            form = "a document"
        return f"partition {self.partition}, offset {self.offset}, position {self.position}, {form}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A record that the row is made of, and the records that it superseded."""

    place: RecordOnLog  # of the record
    key: Mapping[str, str | None]  # of its row, as text by column
    # older records of its key that are still on the log, the newest first
    superseded: tuple[RecordOnLog, ...] = ()
    superseded_count: int = 0  # how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """The records of one table that go into the row."""

    alias: str  # what the query calls the table
    table: TableName  # its name
    topic: str  # where the records lie
    records: tuple[Contribution, ...] = ()  # the first of them
    count: int | None = None  # how many there are; None where they are not traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The origin of a row."""

    view: str  # its name
    key: Mapping[str, str]  # the row's key, as text by column
    plan: Plan  # frontier and verdict
    # its values as text; None when the view has no such row, or none is computed here
    row: Mapping[str, str | None] | None
    fields: Mapping[str, FieldOrigin] = field(default_factory=dict)  # where each column comes from
    sources: tuple[Contributions, ...] = ()  # the records of each table
    notes: tuple[str, ...] = ()  # what is not traced

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--explain --json`."""
        topics = {source.alias: source.topic for source in self.sources}
        return {
            "view": self.view,
            "key": dict(self.key),
            "frontier": frontier_json(shown(self.plan.record)),
            "verdict": self.plan.cut.verdict.kind.value,
            "row": dict(self.row) if self.row is not None else None,
            "fields": {
                name: {
                    "from": [
                        {"source": alias, "topic": topics.get(alias), "column": column}
                        for alias, column in origin.columns
                    ],
                    "expression": origin.expression,
                    "note": origin.note,
                }
                for name, origin in self.fields.items()
            },
            "sources": [_source_json(source) for source in self.sources],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Return the explanation as lines for people."""
        frontier = self.plan.record.frontier
        key = ", ".join(f"{name} = {value}" for name, value in self.key.items())
        out = [f"{self.view}, {key}: at LSN {frontier.lsn}, epoch {frontier.epoch}"]
        for name, origin in self.fields.items():
            value = "" if self.row is None else f" = {self.row.get(name)}"
            parts = [", ".join(f"{alias}.{column}" for alias, column in origin.columns)]
            parts += [f"by {origin.expression}"] if origin.expression else []
            parts += [origin.note] if origin.note else []
            out.append(f"  {name}{value}: {'; '.join(filter(None, parts))}")
        for source in self.sources:
            out += _source_lines(source)
        return out + [f"  not traced: {note}" for note in self.notes]


def _source_json(source: Contributions) -> dict[str, Any]:
    return {
        "source": source.alias,
        "table": short_name(source.table),
        "topic": source.topic,
        "count": source.count,
        "records": [
            {
                **record.place.to_json(),
                "key": dict(record.key),
                "superseded_count": record.superseded_count,
                "superseded": [place.to_json() for place in record.superseded],
            }
            for record in source.records
        ],
    }


def _source_lines(source: Contributions) -> list[str]:
    named = short_name(source.table)
    alias = "" if source.alias == source.table.table else f" ({source.alias})"
    many = "records not traced" if source.count is None else f"{source.count:,} records"
    out = [f"  {named}{alias}, topic {source.topic}: {many}"]
    for record in source.records:
        key = ", ".join(f"{name} = {value}" for name, value in record.key.items())
        out.append(f"    {key}: {record.place}")
        out += [f"      superseded: {place}" for place in record.superseded]
        hidden = record.superseded_count - len(record.superseded)
        out += [f"      and {hidden:,} older ones"] if hidden else []
    hidden = (source.count or 0) - len(source.records)
    return [*out, f"    and {hidden:,} more"] if hidden > 0 else out
