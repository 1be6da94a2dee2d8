"""JSON documents of another system as a side of a comparison, through a scratch file of DuckDB.

All documents are read once, in batches, into a table that has a column of text for each field; the
digests are computed there as of any copy in DuckDB. Before keys are looked at again, the documents
that may have their rows are read again.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from changelog.compare.duckdb_side import DuckdbSide
from changelog.compare.duckdb_texts import (
    DOCUMENT_JSON_FUNCTION,
    DOCUMENT_LIST_FUNCTION,
    literal,
)
from changelog.compare.forms import Native, TypeFamily
from changelog.compare.plan import ComparePlan
from changelog.compare.side import Key, SideRow, batched
from changelog.compare.texts import document_json, document_list, row_text
from changelog.connect.rules.records.reading import (
    BadRecordError,
    WrittenNumber,
    json_of,
    parse_json,
)
from changelog.contract.base.errors import ConfigurationError, SinkError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

ID = "_id"
"""The column that has the id of a document, or what stands in the name of an entry for it."""
FIELD = Native("a JSON value", TypeFamily.TEXT, is_document=True)
_BATCH = 2_000
_MOST_FIELDS = 5_000
TABLE = "scratch.documents"
"""The table of the documents in the scratch file."""
_PART_FUNCTION = "id_part"
_OWN = ("id", "version", "batch", "is_gone")


class UnavailableCopyError(SinkError, UnavailableError):
    """The server of a copy does not answer now."""


class Document(NamedTuple):
    """A document: the texts of its fields by name; None if it no longer exists."""

    id: str
    fields: Mapping[str, str | None] | None
    version: str = ""  # of two documents with one id the one with the greater version counts
    key: Mapping[str, str | None] | None = None  # the key's fields, of one that no longer exists


def field_texts(document: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the text of each field of a document that was parsed with all digits of its numbers.

    >>> field_texts(parse_json(b'{"a": 1.50, "b": true, "c": [1, {"d": null}]}', "value"))
    {'a': '1.50', 'b': 'true', 'c': '[1,{"d":null}]'}

    Raises BadRecordError: a text is not valid Unicode.
    """
    return {name: _text(value) for name, value in document.items()}


def _text(value: Any) -> str | None:  # noqa: ANN401 - any JSON
    match value:
        case None:
            return None
        case WrittenNumber():
            return str(value)
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise BadRecordError("a text is not valid Unicode") from None
            return value
        case float():
            return repr(value)
        case bool() | dict() | list():
            return json_of(value).decode()
        case _:
            return str(value)


def parsed(raw: bytes | str, place: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON; numbers keep their digits.

    Raises SinkError: it is not JSON; names the place.
    """
    try:
        return parse_json(raw.encode() if isinstance(raw, str) else raw, "document")
    except (BadRecordError, UnicodeEncodeError) as error:
        raise SinkError(f"{place}: {error}") from error


class DocumentSide(DuckdbSide):
    """Documents, each with an id and fields.

    `_read` and `_read_again` are what a kind of documents has of its own.
    """

    id_name: str | None = ID
    """The name under which the ids are a column; None if they are not."""
    comes_twice = False
    """Whether `_read` may yield several states of a document, of which the last one counts."""

    def __init__(self, place: str, key: Sequence[str], fields: Sequence[str] = ()) -> None:
        """Make the scratch table; `load` fills it.

        `key`: the names of the key's columns. `fields`: fields that are there, if null, where no
        document has them.
        """
        from duckdb.func import FunctionNullHandling  # noqa: PLC0415 - an extra

        super().__init__(place, None)
        self._key_names = tuple(key)
        self._fields: dict[str, str] = {}  # the scratch table's column by the field's name
        self._batches = 0
        self._key_in_id: tuple[str, ...] = ()
        self._ids_are_keys = False
        path = Path(self._folder.name) / "documents.duckdb"
        self.database.execute(f"ATTACH {literal(str(path))} AS scratch")
        self.database.execute(
            f"CREATE TABLE {TABLE} (id VARCHAR, version VARCHAR, batch BIGINT, is_gone BOOLEAN)"
        )
        self.database.create_function(DOCUMENT_JSON_FUNCTION, document_json, ["VARCHAR"], "VARCHAR")
        self.database.create_function(
            DOCUMENT_LIST_FUNCTION,
            document_list,
            ["VARCHAR"],
            "VARCHAR[]",
            null_handling=FunctionNullHandling.SPECIAL,
        )
        self.database.create_function(
            _PART_FUNCTION,
            id_part,
            ["VARCHAR", "INTEGER", "INTEGER"],
            "VARCHAR",
            null_handling=FunctionNullHandling.SPECIAL,
        )
        self.relation = f"(SELECT * FROM {TABLE} WHERE NOT is_gone)"
        for name in fields:
            self._add_field(name)

    def expect(self, fields: Iterable[str]) -> None:
        """Take fields for granted if there is no document, which would tell them."""
        if not self._batches:
            for name in fields:
                if name not in self._fields:
                    self._add_field(name)

    @abstractmethod
    def _read(self) -> Iterator[Document]:
        """Yield all documents."""

    @abstractmethod
    def _read_again(self, ids: Sequence[str]) -> Iterator[Document]:
        """Yield the documents of some ids as they are now; a removed document need not come."""

    def _paths(self) -> Iterable[str]:
        return []

    def load(self) -> None:
        """Read all documents.

        Raises ConfigurationError, SinkError: they cannot be read, or have no key.
        """
        try:
            self._read_all()
            self._find_key()
        except BaseException:
            self.close()
            raise

    def _read_all(self) -> None:
        """Read all documents and remove the rows of earlier reads."""
        before = self._batches
        self._append(self._read())
        self.database.execute(f"DELETE FROM {TABLE} WHERE batch <= {before}")
        if self.comes_twice:
            self._keep_last(before)

    def _append(self, documents: Iterable[Document]) -> None:
        for batch in batched(documents, _BATCH):
            self._batches += 1
            latest: dict[str, list[Document]] = {}
            for document in batch:
                self._merge(latest.setdefault(document.id, []), document)
            self._insert([document for same in latest.values() for document in same])

    def _merge(self, same: list[Document], document: Document) -> None:
        """Add a document to the batch; here it replaces an older one with the same id."""
        if not same or document.version >= same[0].version:
            same[:] = [document]

    def _insert(self, documents: Sequence[Document]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - an extra

        names = {name: None for d in documents for name in d.fields or d.key or ()}
        for name in names.keys() - self._fields.keys():
            self._add_field(name)
        table: pa.Table = pa.table(
            {
                "id": pa.array([document.id for document in documents], pa.string()),
                "version": pa.array([document.version for document in documents], pa.string()),
                "batch": pa.array([self._batches] * len(documents), pa.int64()),
                "is_gone": pa.array([d.fields is None for d in documents], pa.bool_()),
                **{
                    self._fields[name]: pa.array(
                        [(d.fields or d.key or {}).get(name) for d in documents], pa.string()
                    )
                    for name in names
                },
            }
        )
        listed = ", ".join((*_OWN, *(self._fields[name] for name in names)))
        self.database.register("batch_of_documents", table)
        try:
            self.database.execute(
                f"INSERT INTO {TABLE} ({listed}) SELECT {listed} FROM batch_of_documents"
            )
        finally:
            self.database.unregister("batch_of_documents")

    def _add_field(self, name: str) -> None:
        if len(self._fields) == _MOST_FIELDS:
            raise SinkError(
                f"{self.place} has documents with more than {_MOST_FIELDS:,} different fields",
                hint="is each of them a row of one table?",
            )
        column = f"f{len(self._fields)}"
        self.database.execute(f"ALTER TABLE {TABLE} ADD COLUMN {column} VARCHAR")
        self._fields[name] = column

    def _keep_last(self, since: int) -> None:
        """Remove all but the last document of each id that has come in a batch after `since`."""
        ids = f"SELECT id FROM {TABLE} WHERE batch > {since}"
        places = (
            "SELECT rowid AS row, row_number() OVER"
            f" (PARTITION BY id ORDER BY version DESC, batch DESC) AS place FROM {TABLE}"
            f" WHERE id IN ({ids})"
        )
        self.database.execute(
            f"DELETE FROM {TABLE} WHERE rowid IN (SELECT row FROM ({places}) WHERE place > 1)"
        )

    def _find_key(self) -> None:
        """Take the key's columns that are no fields from the ids.

        Raises ConfigurationError: an id does not have the values of a key of several columns.
        """
        if self.id_name is None:
            return
        there = {*self._fields, self.id_name}
        lacking = [name for name in self._key_names if name not in there]
        if not lacking:
            return
        self._key_in_id = self._key_names
        if len(self._key_names) == 1:
            return
        count = len(self._key_names)
        wrong = self.database.execute(
            f"SELECT id FROM {TABLE} WHERE {_PART_FUNCTION}(id, 0, {count}) IS NULL LIMIT 1"
        ).fetchone()
        if wrong:
            raise ConfigurationError(
                f"the documents of {self.place} have no field {', '.join(lacking)}, and the id "
                f"{wrong[0]!r} is not a JSON array of the {count} values of the key",
                hint="--query with one column that has the text of the id, and --key and --columns "
                f"'*,COLUMN={self.id_name}'",
            )

    def columns(self) -> Mapping[str, Native]:
        """Return the fields of the documents, and their ids."""
        own = [] if self.id_name is None else [self.id_name]
        return dict.fromkeys([*self._key_in_id, *self._fields, *own], FIELD)

    def _column(self, name: str) -> str:
        if name in self._key_in_id:
            place, count = self._key_in_id.index(name), len(self._key_in_id)
            return "id" if count == 1 else f"{_PART_FUNCTION}(id, {place}, {count})"
        return self._fields.get(name, "id")

    def bind(self, plan: ComparePlan) -> None:
        """Take the plan of the comparison, and find out whether the ids can be told by the keys."""
        super().bind(plan)
        if self.id_name is None:
            return
        statement = f"SELECT id, {self._key} FROM (SELECT id, {self._canonical} FROM {TABLE})"
        cursor = self.database.execute(statement)
        self._ids_are_keys = True
        while self._ids_are_keys and (rows := cursor.fetchmany(_BATCH)):
            self._ids_are_keys = all(row[0] == self._id_of(row[1:]) for row in rows)

    def _id_of(self, key: Key) -> str | None:
        """Return the id of a key's document, if ids are keys."""
        if len(key) == 1:
            return key[0]
        parts = [
            text if column.form.kind is TypeFamily.INTEGER else json.dumps(text, ensure_ascii=False)
            for column, text in zip(self._plan.key, key, strict=True)
        ]
        return None if None in key else f"[{','.join(map(str, parts))}]"

    def look(self, keys: Sequence[Key]) -> list[SideRow]:
        """Return the rows of some keys as they are now."""
        self._refresh(keys)
        return super().look(keys)

    def _refresh(self, keys: Sequence[Key]) -> None:
        """Read again the documents that have some keys, or all if their ids are not known."""
        statement = (
            f"SELECT DISTINCT id, {self._key_row} FROM"
            f" (SELECT id, {self._canonical} FROM {self.relation})"
            f" WHERE {self._key_row} IN (SELECT unnest($1::VARCHAR[]))"
        )
        texts = {row_text(key): key for key in keys}
        stored = self._fetched(statement, [[*texts]])
        ids = {id_ for id_, _ in stored}
        lacking = [texts[text] for text in texts.keys() - {text for _, text in stored}]
        if lacking and not self._ids_are_keys:
            self._read_all()
            return
        ids |= {id_ for key in lacking if (id_ := self._id_of(key)) is not None}
        for some in batched(sorted(ids), _BATCH):
            documents = [*self._read_again(some)]
            self.database.execute(
                f"DELETE FROM {TABLE} WHERE id IN (SELECT unnest($1::VARCHAR[]))", [list(some)]
            )
            self._append(documents)


def id_part(id_: str | None, place: int, count: int) -> str | None:
    """Return one value of an id that is a JSON array of the key's values; None if it is not.

    >>> id_part('["UA",1545]', 1, 2)
    '1545'
    """
    if id_ is None or not id_.startswith("["):
        return None
    try:
        parts = parse_json(id_.encode(), "id")
    except (BadRecordError, UnicodeEncodeError):
        return None
    if not isinstance(parts, list) or len(parts) != count:
        return None
    return _text(parts[place])
