"""Topic and codec of each captured table; a new version of a table registers its schema."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from changelog.capture.shape import (
    Batches,
    Rows,
    Shape,
    ShapeOf,
    batch_codec,
    event_encoder,
    logged_schema,
    row_codec,
    whole,
)
from changelog.contract.codec import SchemaIds
from changelog.contract.errors import SchemaConflictError
from changelog.contract.event import EventEncoder
from changelog.contract.event_record import read_value_schema
from changelog.contract.form import PLAIN, Output
from changelog.contract.missing import avro_default
from changelog.contract.relation import Field, Relation, TableName
from changelog.contract.schema import LoggedSchema, key_schema
from changelog.contract.types import ColumnType, Kind
from changelog.source.catalogue import Unknown

log = logging.getLogger("changelog.capture")

OlderValues = Callable[[Relation, Sequence[str]], Mapping[str, Field | Unknown]]
"""Gives what rows of a table that are older than some new columns have in them."""


@dataclass(frozen=True, slots=True)
class _Codecs:
    relation: Relation  # as the rows come
    rows: Rows
    batches: Batches
    events: EventEncoder | None


class Schemas(Protocol):
    """Where the schemas of the topics are kept: the registry, or the schema topic."""

    def register_key(self, topic: str, schema: str) -> int:
        """Give the id of a topic's key schema, which stays for the topic's life."""

    def register_value(self, topic: str, schema: str) -> int:
        """Give the id of a topic's value schema, registering it when it is new."""

    def check(self, topic: str, key: str | None, value: str) -> None:
        """Check that the schemas of a topic would be taken, and register nothing."""

    def latest_value(self, topic: str) -> str | None:
        """Give the newest value schema of a topic, None when it has none."""

    def has_value(self, topic: str, schema: str) -> bool:
        """Tell whether some version of a topic's value schema is this one."""


class CapturedTables:
    """Knows the topic of each table, and the codec of each relation that was seen."""

    def __init__(
        self,
        registry: Schemas,
        topics: Mapping[TableName, str],
        older_values: OlderValues,
        shape: ShapeOf = whole,
    ) -> None:
        """Know the topics; nothing is registered yet.

        Args:
            registry: of the schemas.
            topics: of each table.
            older_values: what older rows have in some new columns.
            shape: how the rows of a relation are written.
        """
        self.shape = shape
        self._registry = registry
        self._older_values = older_values
        self.topics = dict(topics)
        self._codecs: dict[int, _Codecs] = {}
        self._said: set[tuple[TableName, str]] = set()

    def topic(self, relation: Relation) -> str:
        """Give the topic of a relation."""
        return self.topics[relation.name]

    def check_registry(self) -> None:
        """Ask for each topic's schema: a registry that is away is better known before the start.

        Raises:
            UnavailableLogError: the registry does not answer.
        """
        for topic in self.topics.values():
            self._registry.latest_value(topic)

    def schema_ids(self, relation: Relation, *, fresh: bool) -> SchemaIds:
        """Register the schemas of a relation, and give their ids.

        Args:
            relation: the table's version, as its rows come.
            fresh: whether all of its rows are written anew now, so that no older version counts.

        Raises:
            SchemaConflictError: the topic's key has another schema, the registry refuses, or
                rows that are on the log already would read wrong under the new version.
            UnavailableLogError: the registry does not answer.
        """
        return self._registered(relation if fresh else self._with_defaults(relation))

    def check(self, relation: Relation, *, fresh: bool) -> None:
        """Check that the schemas of a relation would be taken; registers nothing.

        Arguments and errors as for `schema_ids`.
        """
        shape = self.shape(relation if fresh else self._with_defaults(relation))
        key = key_schema(shape.logged) if shape.logged.key else None
        self._registry.check(self.topic(relation), key, logged_schema(shape))

    def copied(self, relation: Relation, *, fresh: bool) -> tuple[Shape, SchemaIds]:
        """Give how the rows of a table are copied: columns that are not written are not read.

        Arguments and errors as for `schema_ids`.
        """
        version = relation if fresh else self._with_defaults(relation)
        return self.shape(version).only_needed(), self._registered(version)

    def _registered(self, relation: Relation) -> SchemaIds:
        topic = self.topic(relation)
        shape = self.shape(relation)
        relation = shape.logged
        self._say_unmapped(relation)
        has_key = bool(relation.key)
        return SchemaIds(
            key=self._registry.register_key(topic, key_schema(relation)) if has_key else 0,
            value=self._registry.register_value(topic, logged_schema(shape)),
        )

    def codec(self, relation: Relation) -> Rows:
        """Give the codec of a relation version; the first call registers its schemas."""
        return self._codecs_of(relation).rows

    def batch_codec(self, relation: Relation) -> Batches:
        """Give the codec of many rows of a relation version; else as `codec`."""
        return self._codecs_of(relation).batches

    def events(self, relation: Relation) -> EventEncoder | None:
        """Give what encodes changes, None where values are rows; else as `codec`."""
        return self._codecs_of(relation).events

    def _codecs_of(self, relation: Relation) -> _Codecs:
        # By identity: a row's relation is the one object that the stream last described.
        found = self._codecs.get(id(relation))
        if found is None or found.relation is not relation:
            version = self._with_defaults(relation)
            ids = self._registered(version)
            shape = self.shape(version)
            found = _Codecs(
                relation,
                row_codec(shape, ids),
                batch_codec(shape, ids),
                event_encoder(shape, ids),
            )
            self._codecs[id(relation)] = found
        return found

    def _with_defaults(self, relation: Relation) -> Relation:
        """Give a version of a table with what older records stand for in its new columns.

        A column that was added with a constant has that as its default from then on. Other changes
        that give old rows values which the stream leaves out are refused. PostgreSQL tells the
        stream neither of those nor of the constant.
        """
        topic = self.topic(relation)
        before = self._registry.latest_value(topic)
        if before is None:
            return relation
        logged = read_value_schema(before)
        relation = relation.with_defaults({c.column: c.default for c in logged.columns})
        shape = self.shape(relation)
        written = shape.logged
        if self._registry.has_value(topic, logged_schema(shape)):
            return relation
        old = {column.column for column in logged.columns}
        new = {column.name for column in written.columns}
        added, gone = sorted(new - old), sorted(old - new)
        values = self._older_values(relation, added) if added else {}
        defaults = self._defaults(relation, values)
        unknown = [name for name in added if values.get(name) is not None and not defaults[name]]
        computed = sorted({*added} & {*logged.generated})
        # Of Avro the registry says whether older records read right.
        other = _retyped(logged, written) if shape.form.output is Output.JSON else []
        if added and gone:
            what = f"columns {added} came and {gone} went: one may be the other, renamed"
        elif computed:
            what = f"columns {computed} were generated, and older rows have their values too"
        elif unknown:
            what = f"columns {unknown} were added with a default, which older rows have too"
        elif other:
            what = f"columns {other} have another type, and older rows the form of the old one"
        else:
            return relation.with_defaults(defaults)
        raise SchemaConflictError(
            f'table "{relation.name}", subject "{topic}-value": {what}; the log has no word of it',
            hint="drop the slot with `changelog slot drop`; the next start takes a fresh snapshot",
        )

    def _defaults(
        self, relation: Relation, values: Mapping[str, Field | Unknown]
    ) -> dict[str, str | None]:
        """Give the defaults of new columns, None where a value has no such form.

        Only a plain row in Avro has readers that fill in what it lacks.
        """
        shape = self.shape(relation)
        if shape.form != PLAIN:
            return dict.fromkeys(values)
        plain = {
            relation.columns[place].name: relation.columns[place].type
            for place, mask in zip(shape.places, shape.masks, strict=True)
            if mask is None
        }
        return {
            name: avro_default(plain[name], value)
            if name in plain and isinstance(value, bytes)
            else None
            for name, value in values.items()
        }

    def _say_unmapped(self, relation: Relation) -> None:
        for column in relation.columns:
            where = (relation.name, column.name)
            if not column.type.mapped and where not in self._said:
                self._said.add(where)
                log.warning(
                    'table "%s", column "%s": type %s is carried as PostgreSQL\'s text',
                    relation.name,
                    column.name,
                    column.type.name,
                )


def _retyped(logged: LoggedSchema, relation: Relation) -> list[str]:
    """Give the columns whose values may be written in another way than before."""
    before = {column.column: column.type for column in logged.columns}
    return sorted(
        column.name
        for column in relation.columns
        if column.name in before and not _reads_alike(before[column.name], column.type)
    )


_TEXTS = ("text", "character varying")
_INTEGERS = {Kind.INT, Kind.LONG}


def _reads_alike(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether every value of the old type is written the same way under the new one."""
    texts = old.name.startswith(_TEXTS) and new.name.startswith(_TEXTS)
    return old.name == new.name or texts or {old.kind, new.kind} <= _INTEGERS
