"""Topic and codec of each captured table; a new version of a table registers its schema."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from changelog.contract.codec import RowCodec
from changelog.contract.relation import Relation, TableName
from changelog.contract.schema import key_schema, value_schema
from changelog.sink.registry import Registry

log = logging.getLogger("changelog.capture")


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """The registry's ids under which a relation's keys and values are framed."""

    key: int
    value: int


class CapturedTables:
    """Knows the topic of each table, and the codec of each relation that was seen."""

    def __init__(self, registry: Registry, topics: Mapping[TableName, str]) -> None:
        self._registry = registry
        self.topics = dict(topics)
        self._codecs: dict[Relation, RowCodec] = {}
        self._said: set[tuple[TableName, str]] = set()

    def topic(self, relation: Relation) -> str:
        """Give the topic of a relation."""
        return self.topics[relation.name]

    def schema_ids(self, relation: Relation) -> SchemaIds:
        """Register the schemas of a relation, and give their ids.

        Raises:
            SchemaConflictError: the topic's key has another schema, or the registry refuses.
            UnavailableLogError: the registry does not answer.
        """
        topic = self.topic(relation)
        self._say_unmapped(relation)
        return SchemaIds(
            key=self._registry.register_key(topic, key_schema(relation)),
            value=self._registry.register_value(topic, value_schema(relation)),
        )

    def codec(self, relation: Relation) -> RowCodec:
        """Give the codec of a relation version; the first call registers its schemas."""
        found = self._codecs.get(relation)
        if found is None:
            ids = self.schema_ids(relation)
            found = RowCodec(relation, key_schema_id=ids.key, value_schema_id=ids.value)
            self._codecs[relation] = found
        return found

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
