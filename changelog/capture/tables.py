"""Topic and codec of each captured table; a new version of a table registers its schema."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from changelog.capture.shape import Batches, Rows, ShapeOf, batch_codec, row_codec, whole
from changelog.contract.codec import SchemaIds
from changelog.contract.errors import SchemaConflictError
from changelog.contract.form import Output
from changelog.contract.relation import Relation, TableName
from changelog.contract.schema import LoggedSchema, key_schema, read_schema, value_schema
from changelog.contract.types import ColumnType, Kind

log = logging.getLogger("changelog.capture")


@dataclass(frozen=True, slots=True)
class _Codecs:
    relation: Relation  # as the rows come
    rows: Rows
    batches: Batches


class Schemas(Protocol):
    """Where the schemas of the topics are kept: the registry, or the schema topic."""

    def register_key(self, topic: str, schema: str) -> int:
        """Give the id of a topic's key schema, which stays for the topic's life."""

    def register_value(self, topic: str, schema: str) -> int:
        """Give the id of a topic's value schema, registering it when it is new."""

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
        backfilled: Callable[[Relation, Sequence[str]], list[str]],
        shape: ShapeOf = whole,
    ) -> None:
        """Know the topics; nothing is registered yet.

        Args:
            registry: of the schemas.
            topics: of each table.
            backfilled: which of some new columns may have a value in older rows.
            shape: how the rows of a relation are written.
        """
        self.shape = shape
        self._registry = registry
        self._backfilled = backfilled
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
        topic = self.topic(relation)
        shape = self.shape(relation)
        relation = shape.logged
        self._say_unmapped(relation)
        if not fresh:
            self._check_version(relation, topic, shape.form.output)
        has_key = bool(relation.key)
        return SchemaIds(
            key=self._registry.register_key(topic, key_schema(relation)) if has_key else 0,
            value=self._registry.register_value(topic, value_schema(relation)),
        )

    def codec(self, relation: Relation) -> Rows:
        """Give the codec of a relation version; the first call registers its schemas."""
        return self._codecs_of(relation).rows

    def batch_codec(self, relation: Relation) -> Batches:
        """Give the codec of many rows of a relation version; else as `codec`."""
        return self._codecs_of(relation).batches

    def _codecs_of(self, relation: Relation) -> _Codecs:
        # By identity: a row's relation is the one object that the stream last described.
        found = self._codecs.get(id(relation))
        if found is None or found.relation is not relation:
            ids = self.schema_ids(relation, fresh=False)
            shape = self.shape(relation)
            found = _Codecs(
                relation,
                row_codec(shape, ids),
                batch_codec(shape, ids),
            )
            self._codecs[id(relation)] = found
        return found

    def _check_version(self, relation: Relation, topic: str, output: Output) -> None:
        """Refuse a change of the table that gives old rows values which the stream leaves out.

        A new column reads as null from older records. That is right unless it has a default, or
        is an old column under a new name; PostgreSQL tells the stream of neither.
        """
        schema = value_schema(relation)
        before = self._registry.latest_value(topic)
        if before is None or self._registry.has_value(topic, schema):
            return
        logged = read_schema(before)
        old = {column.column for column in logged.columns}
        new = {column.name for column in relation.columns}
        added, gone = sorted(new - old), sorted(old - new)
        filled = self._backfilled(relation, added) if added else []
        computed = sorted({*added} & {*logged.generated})
        # Of Avro the registry says whether older records read right.
        other = _retyped(logged, relation) if output is Output.JSON else []
        if added and gone:
            what = f"columns {added} came and {gone} went: one may be the other, renamed"
        elif computed:
            what = f"columns {computed} were generated, and older rows have their values too"
        elif filled:
            what = f"columns {filled} were added with a default, which older rows have too"
        elif other:
            what = f"columns {other} have another type, and older rows the form of the old one"
        else:
            return
        raise SchemaConflictError(
            f'table "{relation.name}": {what}; the log has no word of it',
            hint="drop the slot with `changelog slot drop`; the next start takes a fresh snapshot",
        )

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
