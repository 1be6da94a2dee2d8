"""Topic and codec of each captured table; a new version of a table registers its schema."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from changelog.batch.rows import BatchCodec
from changelog.capture.shape import ShapeOf, batch_codec, row_codec, whole
from changelog.contract.codec import RowCodec, SchemaIds
from changelog.contract.errors import SchemaConflictError
from changelog.contract.relation import Relation, TableName
from changelog.contract.schema import key_schema, read_schema, value_schema
from changelog.sink.registry import Registry

log = logging.getLogger("changelog.capture")


@dataclass(frozen=True, slots=True)
class _Codecs:
    relation: Relation  # as the rows come
    rows: RowCodec
    batches: BatchCodec


class CapturedTables:
    """Knows the topic of each table, and the codec of each relation that was seen."""

    def __init__(
        self,
        registry: Registry,
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
        relation = self.shape(relation).logged
        self._say_unmapped(relation)
        if not fresh:
            self._check_version(relation, topic)
        has_key = bool(relation.key)
        return SchemaIds(
            key=self._registry.register_key(topic, key_schema(relation)) if has_key else 0,
            value=self._registry.register_value(topic, value_schema(relation)),
        )

    def codec(self, relation: Relation) -> RowCodec:
        """Give the codec of a relation version; the first call registers its schemas."""
        return self._codecs_of(relation).rows

    def batch_codec(self, relation: Relation) -> BatchCodec:
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

    def _check_version(self, relation: Relation, topic: str) -> None:
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
        if added and gone:
            what = f"columns {added} came and {gone} went: one may be the other, renamed"
        elif computed:
            what = f"columns {computed} were generated, and older rows have their values too"
        elif filled:
            what = f"columns {filled} were added with a default, which older rows have too"
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
