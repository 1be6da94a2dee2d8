"""The explanation of a row: its origin, as lines for people and as JSON."""

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

    partition: int
    offset: int
    position: Position  # its place in the order of changes
    schema_id: int | None  # schema of its value; None for a JSON document or a tombstone
    deleted: bool = False  # whether it is a tombstone

    def to_json(self) -> dict[str, Any]:
        """Return the record as an object of JSON."""
        fields: dict[str, Any] = {
            "partition": self.partition,
            "offset": self.offset,
            "position": str(self.position),
            "schema_id": self.schema_id,
        }
        return {**fields, "deleted": True} if self.deleted else fields

    def __str__(self) -> str:
        """Return a description in one line."""
        form = "a delete" if self.deleted else f"schema {self.schema_id}"
        if not self.deleted and self.schema_id is None:
            form = "a document"
        return f"partition {self.partition}, offset {self.offset}, position {self.position}, {form}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A record that the row is made of, and the records that it superseded."""

    place: RecordOnLog
    key: Mapping[str, str | None]  # the key of its row, as text by column
    # older records with its key that are still on the log, newest first, not more than the most
    superseded: tuple[RecordOnLog, ...] = ()
    superseded_count: int = 0  # the number of all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """The records of one table that go into the row."""

    alias: str  # the table's name in the query
    table: TableName
    topic: str
    records: tuple[Contribution, ...] = ()  # the first records, not more than the most
    count: int | None = None  # the number of all records; None if they are not traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The origin of a row."""

    view: str  # the view's name
    key: Mapping[str, str]  # the row's key, as text by column
    plan: Plan  # has the frontier and the verdict
    row: Mapping[str, str | None] | None  # its values as text; None if DuckDB cannot compute it
    fields: Mapping[str, FieldOrigin] = field(default_factory=dict)  # the origin of each column
    sources: tuple[Contributions, ...] = ()  # the records of each table
    notes: tuple[str, ...] = ()  # remarks about parts that are not traced

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as an object of JSON, for `--explain --json`."""
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
        """Return the lines of the explanation for people."""
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
    count = "records not traced" if source.count is None else f"{source.count:,} records"
    out = [f"  {named}{alias}, topic {source.topic}: {count}"]
    for record in source.records:
        key = ", ".join(f"{name} = {value}" for name, value in record.key.items())
        out.append(f"    {key}: {record.place}")
        out += [f"      superseded: {place}" for place in record.superseded]
        hidden = record.superseded_count - len(record.superseded)
        out += [f"      and {hidden:,} older ones"] if hidden else []
    hidden = (source.count or 0) - len(source.records)
    return [*out, f"    and {hidden:,} more"] if hidden > 0 else out
