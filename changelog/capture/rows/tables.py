"""Topic and codec of each captured table; a new version of a table registers its schema."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from changelog.capture.rows.shape import (
    RowEncoder,
    RowShape,
    ShapeOf,
    batch_codec,
    event_encoder,
    logged_schema,
    row_codec,
    whole,
)
from changelog.contract.base.errors import SchemaConflictError
from changelog.contract.base.position import Position
from changelog.contract.forms.event import EventEncoder
from changelog.contract.forms.event_record import read_value_schema
from changelog.contract.log.form import PLAIN, Output
from changelog.contract.rows.codec import SchemaIds, key_prefix
from changelog.contract.rows.evolution import (
    END,
    SchemaVersion,
    alive,
    marked,
    type_fits,
    version_at,
)
from changelog.contract.rows.missing import avro_default
from changelog.contract.rows.relation import Field, Relation, TableName
from changelog.contract.rows.schema import LoggedSchema, key_schema
from changelog.contract.rows.types import ColumnType, Kind
from changelog.native import BatchCodec
from changelog.source.tables.catalogue import Unknown
from changelog.source.tables.filter import left_out

log = logging.getLogger("changelog.capture")

OlderValues = Callable[[Relation, Sequence[str]], Mapping[str, Field | Unknown]]
"""Returns what rows of a table that are older than some new columns have in them."""


@dataclass(frozen=True, slots=True)
class _Codecs:
    relation: Relation  # as the rows come
    rows: RowEncoder
    batches: BatchCodec | None
    events: EventEncoder | None


class SchemaStore(Protocol):
    """Store of the topics' schemas: the registry, or the schema topic."""

    def register_key(self, topic: str, schema: str) -> int:
        """Return the id of a topic's key schema, which stays for the topic's life."""

    def register_value(self, topic: str, schema: str, *, fresh: bool = False) -> int:
        """Return the id of a topic's value schema, registering it when it is new."""

    def check_key(self, topic: str, schema: str) -> None:
        """Check that a topic's keys have this schema, or none yet; registers nothing."""

    def key_id(self, topic: str) -> int | None:
        """Return the id of a topic's key schema, or None where none is registered."""

    def check_value(self, topic: str, schema: str, *, fresh: bool = False) -> None:
        """Check that a topic's value schema would be taken; registers nothing."""

    def values(self, topic: str) -> Sequence[SchemaVersion]:
        """Return the versions of a topic's value schema, the oldest first."""


class CapturedTables:
    """Knows the topic of each table, and the codec of each relation that was seen."""

    def __init__(
        self,
        registry: SchemaStore,
        topics: Mapping[TableName, str],
        older_values: OlderValues,
        shape: ShapeOf = whole,
    ) -> None:
        """Take the topics; registers nothing yet."""
        self.shape = shape  # how the rows of a relation are written
        self._registry = registry
        self._older_values = older_values
        self.topics = dict(topics)  # of each table
        self._codecs: dict[int, _Codecs] = {}
        self._warned: set[tuple[TableName, str]] = set()
        # per topic the id of its key schema, as far as it is known
        self.key_ids: dict[str, int] = {}

    @property
    def registered(self) -> dict[str, int | None]:
        """Return the topics with schemas, each with the id of its keys' where it has keys."""
        written = {codecs.relation.name for codecs in self._codecs.values()}
        return {
            topic: self.key_ids.get(topic)
            for table, topic in self.topics.items()
            if topic in self.key_ids or table in written
        }

    def topic(self, relation: Relation) -> str:
        """Return the topic of a relation."""
        return self.topics[relation.name]

    def check_registry(self) -> None:
        """Ask for each topic's schema: a registry that is away is better known before the start.

        Raises UnavailableLogError: the registry does not answer.
        """
        for topic in self.topics.values():
            self._registry.values(topic)

    def begin_anew(self, relation: Relation, since: Position) -> None:
        """Register the schemas of a table whose rows are all written again from a position on.

        No older version counts from then on.

        Raises SchemaConflictError: the topic's key has another schema, or the registry refuses;
        UnavailableLogError: the registry does not answer.
        """
        topic, text = self.topic(relation), logged_schema(self.shape(relation))
        versions = self._registry.values(topic)
        now = alive(versions)
        if len(now) != 1 or not now[0].is_like(text):
            text = marked(text, since, fresh=True) if versions else text
            self._registry.register_value(topic, text, fresh=True)
        self._key_id(relation)

    def copied(self, relation: Relation, at: Position) -> tuple[RowShape, SchemaIds]:
        """Return the shape of a table's copied rows: columns that are not written are not read.

        Raises SchemaConflictError: the topic's key has another schema, the registry refuses, or
        rows that are on the log already would read wrong under the new version;
        UnavailableLogError: the registry does not answer.
        """
        version, ids = self._registered(relation, at)
        return self.shape(version).only_needed(), ids

    def has_versions(self, relation: Relation) -> bool:
        """Tell whether a schema of a table's rows is registered, so that it may have rows.

        Raises UnavailableLogError: the registry does not answer.
        """
        return bool(self._registry.values(self.topic(relation)))

    def check(self, relation: Relation, *, fresh: bool) -> None:
        """Check that the schemas of a relation would be taken; registers nothing.

        With `fresh` all of its rows are written anew, so that no older version counts.

        Raises SchemaConflictError: as for `begin_anew` and `copied`; UnavailableLogError: the
        registry does not answer.
        """
        topic, shape = self.topic(relation), self.shape(relation)
        if shape.logged.key:
            self._registry.check_key(topic, key_schema(shape.logged))
        versions = alive(self._registry.values(topic))
        if not versions:
            return
        if not fresh:
            relation, is_known = self._next(relation, versions, versions[-1])
        else:
            is_known = len(versions) == 1 and versions[0].is_like(logged_schema(shape))
        if not is_known:
            text = logged_schema(self.shape(relation))
            self._registry.check_value(topic, text, fresh=fresh)

    def forgotten(self, relation: Relation, key_id: int | None) -> SchemaConflictError | None:
        """Return the error about a registry that does not have the schemas of a topic's records.

        It was emptied, or is another one. Under another id the same key has other bytes, which
        compaction does not see as one, and an id may stand for another schema than it did. The
        table has records on its topic, with `key_id` in their keys; None where it is not known.

        Raises UnavailableLogError: the registry does not answer.
        """
        topic, has_key = self.topic(relation), bool(self.shape(relation).logged.key)
        registered = self._registry.key_id(topic) if has_key else None
        if has_key and registered is None:
            has = "does not know the schema of its keys"
        elif not self._registry.values(topic):
            has = "does not know the schema of its values"
        elif has_key and key_id is not None and registered != key_id:
            has = f"gives the schema of its keys the id {registered}, and they have {key_id}"
        else:
            return None
        return SchemaConflictError(
            f'table {relation.name.said}: topic "{topic}" has records, and the schema registry '
            f"{has}: it was emptied, or is another one",
            hint="name the registry of the log, or put its schemas back with their ids",
        )

    def uncarried(self, relation: Relation) -> SchemaConflictError | None:
        """Return the error about new generated columns that rows on the log lack.

        A row that brings them may be long in coming, and for so long nobody would say it.

        Raises UnavailableLogError: the registry does not answer.
        """
        if not relation.computed:
            return None
        versions = alive(self._registry.values(self.topic(relation)))
        if not versions:
            return None
        logged = {column.column for column in read_value_schema(versions[-1].text).columns}
        written = {column.name for column in self.shape(relation).logged.columns}
        names = sorted((written & {*relation.computed}) - logged)
        if not names:
            return None
        conflict = (
            f"generated columns {names} were left out up to now, and older rows have them too"
        )
        return self._conflict(relation, conflict, left_out(relation.name, names))

    def _registered(self, relation: Relation, at: Position) -> tuple[Relation, SchemaIds]:
        """Return a version of a table, with defaults, and the ids of its schemas."""
        topic = self.topic(relation)
        versions = alive(self._registry.values(topic))
        self._say_unmapped(self.shape(relation).logged)
        # The key first: when it is another one, there is no way out by way of the value.
        key = self._key_id(relation)
        if not versions:
            text = marked(logged_schema(self.shape(relation)), at, fresh=False)
            return relation, SchemaIds(key=key, value=self._registry.register_value(topic, text))
        version = version_at(versions, at)
        relation, is_known = self._next(relation, versions, version, at)
        value = version.id
        if not is_known:
            text = marked(logged_schema(self.shape(relation)), at, fresh=False)
            try:
                value = self._registry.register_value(topic, text)
            except SchemaConflictError as error:
                raise self._conflict(relation, str(error.args[0]), hint=error.hint) from error
        self._keep_newest_last(topic)
        return relation, SchemaIds(key=key, value=value)

    def _keep_newest_last(self, topic: str) -> None:
        """Register the table's present version again if an older one was registered after it.

        That happens where a copy has registered new columns and rows without them are sent again.
        Readers take the last version for the present one.
        """
        versions = alive(self._registry.values(topic))
        newest = version_at(versions, END)
        if newest.since is not None and not newest.is_like(versions[-1].text):
            epoch, lsn, sequence = newest.since
            again = marked(newest.text, Position(epoch, lsn, sequence + 1), fresh=False)
            self._registry.register_value(topic, again)

    def _next(
        self,
        relation: Relation,
        versions: Sequence[SchemaVersion],
        version: SchemaVersion,
        at: Position = END,
    ) -> tuple[Relation, bool]:
        """Return a version of a table, with defaults, and whether the one before it is the same."""
        logged = read_value_schema(version.text)
        relation = relation.with_defaults({c.column: c.default for c in logged.columns})
        if version.is_like(logged_schema(self.shape(relation))):
            return relation, True
        if version.since is not None and version.since > at:
            reason = "a row has other columns than the copy of the table, which is newer"
            raise self._conflict(relation, reason)
        older = [
            read_value_schema(older_version.text)
            for older_version in versions
            if older_version is not version
            and (older_version.since is None or older_version.since <= at)
        ]
        return self._with_defaults(relation, logged, older), False

    def _key_id(self, relation: Relation) -> int:
        logged = self.shape(relation).logged
        if not logged.key:
            return 0
        topic = self.topic(relation)
        number = self._registry.register_key(topic, key_schema(logged))
        if number:
            self.key_ids[topic] = number
        return number

    def key_prefix(self, relation: Relation) -> bytes:
        """Return the bytes that every key on a table's topic begins with."""
        return key_prefix(self._key_id(relation) or None)

    def _conflict(self, relation: Relation, conflict: str, hint: str = "") -> SchemaConflictError:
        subject = f"{self.topic(relation)}-value"
        return SchemaConflictError(
            f'table {relation.name.said}, subject "{subject}": {conflict}', hint=hint
        )

    def codec(self, relation: Relation, at: Position) -> RowEncoder:
        """Return the codec of a relation version.

        `at` is the position of its row: the first call registers the schemas from there on.

        Raises SchemaConflictError: as for `copied`; UnavailableLogError: the registry does not
        answer.
        """
        return self._codecs_of(relation, at).rows

    def batch_codec(self, relation: Relation, at: Position) -> BatchCodec | None:
        """Return the codec of many rows of a relation version, if there is one; else as `codec`."""
        return self._codecs_of(relation, at).batches

    def events(self, relation: Relation, at: Position) -> EventEncoder | None:
        """Return the encoder of changes, or None if values are rows; else as `codec`."""
        return self._codecs_of(relation, at).events

    def _codecs_of(self, relation: Relation, at: Position) -> _Codecs:
        # By identity: a row's relation is the one object that the stream last described.
        codecs = self._codecs.get(id(relation))
        if codecs is None or codecs.relation is not relation:
            version, ids = self._registered(relation, at)
            shape = self.shape(version)
            codecs = _Codecs(
                relation,
                row_codec(shape, ids),
                batch_codec(shape, ids),
                event_encoder(shape, ids),
            )
            self._codecs[id(relation)] = codecs
        return codecs

    def forget(self, table: TableName) -> None:
        """Forget the codecs of a table that is copied again."""
        self._codecs = {
            key: codecs for key, codecs in self._codecs.items() if codecs.relation.name != table
        }

    def _with_defaults(
        self, relation: Relation, logged: LoggedSchema, older: Sequence[LoggedSchema]
    ) -> Relation:
        """Return a version of a table with the values of older records in its new columns.

        A column that was added with a constant has that as its default from then on. Other changes
        that give old rows values which the stream leaves out are refused. PostgreSQL tells the
        stream neither of those nor of the constant. `logged` is the version before it; of the
        `older` ones rows may be alive.
        """
        shape = self.shape(relation)
        written = shape.logged
        old = {column.column for column in logged.columns}
        new = {column.name for column in written.columns}
        ever = {column.column for schema in older for column in schema.columns}
        added, gone = sorted(new - old), sorted(old - new)
        values = self._older_values(relation, added) if added else {}
        defaults = self._defaults(relation, values)
        unknown = [name for name in added if values.get(name) is not None and not defaults[name]]
        computed = sorted({*added} & {*logged.generated, *relation.computed})
        back = sorted({*added} & ever)
        hint = ""
        if added and gone:
            reason = f"columns {added} came and {gone} went: one may be the other, renamed"
        elif computed:
            reason = (
                f"columns {computed} are or were generated, and older rows have their values too"
            )
            hint = left_out(relation.name, computed)
        elif back:
            reason = (
                f"columns {back} were dropped and are back, and older records have their values"
            )
        elif unknown:
            reason = f"columns {unknown} were added with a default, which older rows have too"
        elif places := _places_changed(logged, shape):
            reason = f"columns {places} stand in another order: they may have changed names"
        elif other := _retyped([logged, *older], shape):
            reason = f"columns {other} have another type, and older rows the form of the old one"
        else:
            return relation.with_defaults(defaults)
        raise self._conflict(relation, f"{reason}; the log has no word of it", hint)

    def _defaults(
        self, relation: Relation, values: Mapping[str, Field | Unknown]
    ) -> dict[str, str | None]:
        """Return the defaults of new columns, None where a value cannot be a default.

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
            if not column.type.mapped and where not in self._warned:
                self._warned.add(where)
                log.warning(
                    'table %s, column "%s": type %s is carried as PostgreSQL\'s text',
                    relation.name.said,
                    column.name,
                    column.type.name,
                )


def _places_changed(before: LoggedSchema, shape: RowShape) -> list[str]:
    """Return the columns that both versions have and that stand in another order now.

    PostgreSQL never moves a column: its name has gone to another one, with the values that are
    there, or it was dropped and is back.
    """
    old = [column.column for column in before.columns]
    new = [column.name for column in shape.logged.columns]
    pairs = zip((n for n in old if n in new), (n for n in new if n in old), strict=True)
    return sorted({name for pair in pairs if pair[0] != pair[1] for name in pair})


def _retyped(versions: Sequence[LoggedSchema], shape: RowShape) -> list[str]:
    """Return the columns whose older values do not read as the new type; JSON has no types."""
    now = {column.name: column.type for column in shape.logged.columns}
    fits = _reads_alike if shape.form.output is Output.JSON else type_fits
    return sorted(
        {
            column.column
            for schema in versions
            for column in schema.columns
            if column.column in now
            and (
                not fits(column.type, now[column.column])
                or (column.type.name, now[column.column].name) in _SHOWN_OTHERWISE
            )
        }
    )


_SHOWN_OTHERWISE = {
    ("cidr", "inet"),
    ("integer", "oid"),
    ("regoper", "regoperator"),
    ("regoperator", "regoper"),
    ("regproc", "regprocedure"),
    ("regprocedure", "regproc"),
}
"""Types between which PostgreSQL takes stored values as they are, and writes some otherwise."""

_TEXTS = ("text", "character varying")
_INTEGERS = {Kind.INT, Kind.LONG}


def _reads_alike(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether every value of the old type is written the same way under the new one."""
    texts = old.name.startswith(_TEXTS) and new.name.startswith(_TEXTS)
    return old.name == new.name or texts or {old.kind, new.kind} <= _INTEGERS
