"""Turn the options of a load into rules: columns, keys and types by the table and the schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from changelog.connect.rules.settings import TYPE
from changelog.contract.base.errors import ConfigurationError
from changelog.lines.forms.shown import form_named
from changelog.load.rules.columns import ColumnSource, RecordPart, of_names, parse_columns
from changelog.load.rules.options import LoadForm, Rules, Tombstones
from changelog.load.rules.schema import Schema, read_schema, type_of
from changelog.load.rules.table import LoadedTable
from changelog.load.target import LoadTarget
from changelog.sink.registry import RegisteredSchema

Latest = Callable[[str], RegisteredSchema | None]
"""Returns the newest schema of a subject, or None if there is none."""

_FORMS = {
    RecordPart.TIMESTAMP: "timestamp with time zone",
    RecordPart.OFFSET: "bigint",
    RecordPart.PARTITION: "integer",
    RecordPart.TOPIC: "text",
    RecordPart.HEADER: "text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of a load, as texts."""

    topics: Sequence[str]  # that are loaded
    table: str  # into which
    columns: str = ""  # the map; empty for the fields of the same names
    key: str = ""  # columns of the key, with commas between; empty for the table's own
    upsert: bool = False  # whether rows are replaced by key
    tombstones: str = ""  # delete or ignore; empty for what the mode means
    value_form: str = "auto"  # names of forms
    key_form: str = "auto"
    fields: str = ""  # of CSV, with commas between
    delimiter: str = ","  # of CSV
    create: bool = False  # whether a table that is missing is made
    types: str = ""  # of its columns, `a=int,b=text`


def prepare(wishes: Wishes, url: str, name: str, latest: Latest) -> tuple[Rules, Schema | None]:
    """Return the rules by which records become rows, and the newest schema of their values.

    Makes the table where that is wanted.

    Raises:
        ConfigurationError: something of it cannot be used, or is not there.
        SinkError: the database refuses.
        UnavailableError: a server is away.
    """
    value, key = form_named(LoadForm, wishes.value_form), form_named(LoadForm, wishes.key_form)
    if key is LoadForm.CSV:
        raise ConfigurationError("keys are not CSV", hint="--key-as avro, json or text")
    schema = _newest(wishes, latest, "value") if value in {LoadForm.AUTO, LoadForm.AVRO} else None
    types = _types(wishes.types)
    if types and not wishes.create:
        raise ConfigurationError(
            "--types is for a table that is made, and --create is not given",
            hint="leave it out, or add --create",
        )
    with closing(LoadTarget(url, name)) as target:
        if wishes.create:
            columns = _columns(wishes, value, schema, list(types))
            if unknown := types.keys() - columns.keys():
                raise ConfigurationError(
                    f"--types names {', '.join(sorted(unknown))}, which no column of the load is",
                    hint=f"the columns are {', '.join(columns)}",
                )
            types_of = {
                name: types.get(name) or _type(wishes, name, source, schema, latest)
                for name, source in columns.items()
            }
            own = schema.key if schema is not None and wishes.upsert else ()
            keys = _split(wishes.key) or [name for name in own if name in columns]
            target.create(wishes.table, types_of, keys)
        table = target.table(wishes.table)
    names = list(table.columns)
    columns = _columns(wishes, value, schema, names)
    fields = _split(wishes.fields) or (names if value is LoadForm.CSV else [])
    _check_columns(table, columns, schema, fields if value is LoadForm.CSV else None)
    return Rules(
        columns=columns,
        keys=_keys(wishes, table, columns),
        tombstones=_tombstones(wishes),
        value=value,
        key=key,
        fields=tuple(fields),
        delimiter=_delimiter(wishes.delimiter),
        all_fields=not wishes.columns and value is not LoadForm.CSV,
    ), schema


def parse_into(into: str, table: str) -> tuple[str, str]:
    """Return address and table of `postgres:DSN/table`, or of an address and a table.

    >>> parse_into("postgres:postgresql://db/shop/public.orders", "")
    ('postgresql://db/shop', 'public.orders')

    Raises ConfigurationError: one of them is missing.
    """
    has_table = into.startswith("postgres:") and not into.startswith("postgres://")
    address = into.removeprefix("postgres:") if has_table else into
    if has_table and not table:
        address, _, table = address.rpartition("/")
    if not address or not table:
        raise ConfigurationError(
            "--into names no table",
            hint="--into postgres:postgresql://host/database/table, or --into "
            "postgresql://host/database --table table",
        )
    return address, table


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _delimiter(text: str) -> bytes:
    delimiter = text.replace("\\t", "\t").encode()
    if len(delimiter) != 1 or delimiter in b'"\r\n':
        raise ConfigurationError(f'--delimiter "{text}" is not one character')
    return delimiter


def _types(text: str) -> dict[str, str]:
    types: dict[str, str] = {}
    depth, part = 0, ""
    for letter in text + ",":
        depth += (letter == "(") - (letter == ")")
        if letter != "," or depth:
            part += letter
            continue
        name, _, kind = (word.strip() for word in part.partition("="))
        part = ""
        if not name and not kind:
            continue
        if not name or not TYPE.fullmatch(kind) or name in types:
            raise _no_types(text)
        types[name] = kind
    if part.strip(","):  # a bracket too many or too few has kept the rest together
        raise _no_types(text)
    return types


def _no_types(text: str) -> ConfigurationError:
    return ConfigurationError(
        f'--types "{text}" is no map of types', hint="id=bigint,price=numeric(10,2)"
    )


def _newest(wishes: Wishes, latest: Latest, part: str) -> Schema | None:
    newest = latest(f"{wishes.topics[0]}-{part}")
    return None if newest is None or newest.kind != "AVRO" else read_schema(newest.text)


def _columns(
    wishes: Wishes, value: LoadForm, schema: Schema | None, names: Sequence[str]
) -> dict[str, ColumnSource]:
    if wishes.columns:
        return parse_columns(wishes.columns)
    if value is LoadForm.TEXT:
        raise ConfigurationError(
            "which column takes the text is not said", hint="--columns NAME=value"
        )
    if schema is not None:
        return of_names([field.column for field in schema.fields])
    if value is LoadForm.CSV and wishes.fields:
        return of_names(_split(wishes.fields))
    if not names:
        raise ConfigurationError(
            "nothing says which columns the table is to have",
            hint="--types id=bigint,name=text, with the columns and types of the table",
        )
    return of_names(names)


def _type(
    wishes: Wishes, name: str, source: ColumnSource, schema: Schema | None, latest: Latest
) -> str:
    if source.part in _FORMS:
        return _FORMS[source.part]
    described = schema if source.part is RecordPart.VALUE else _newest(wishes, latest, "key")
    field = described.by_name.get(source.path[0]) if described is not None and source.path else None
    if field is not None and len(source.path) == 1:
        return type_of(field)
    raise ConfigurationError(
        f'nothing says which type the column "{name}" is to have', hint=f"--types {name}=…"
    )


def _check_columns(
    table: LoadedTable,
    columns: Mapping[str, ColumnSource],
    schema: Schema | None,
    fields: Sequence[str] | None,
) -> None:
    unknown = [name for name in columns if name not in table.columns]
    if unknown:
        raise ConfigurationError(
            f"table {table.name} has no column {', '.join(unknown)} that can be written",
            hint=f"it has {', '.join(table.columns)}; --columns says what goes where",
        )
    fields_known = list(schema.by_name) if schema is not None else fields
    lacking = [
        source.path[0]
        for source in columns.values()
        if fields_known is not None and source.part is RecordPart.VALUE and source.path
        and source.path[0] not in fields_known
    ]  # fmt: skip
    if lacking:
        raise ConfigurationError(
            f"values have no field {', '.join(lacking)}",
            hint=f"they have {', '.join(dict.fromkeys(fields_known or ()))}",
        )


def _keys(
    wishes: Wishes, table: LoadedTable, columns: Mapping[str, ColumnSource]
) -> tuple[str, ...]:
    if not wishes.upsert:
        if wishes.key and not wishes.create:
            raise ConfigurationError("--key is of --mode upsert")
        return ()
    keys = tuple(_split(wishes.key)) or table.key
    if not keys:
        raise ConfigurationError(
            f"table {table.name} has no primary key", hint="--key names the columns of one"
        )
    lacking = [name for name in keys if name not in columns]
    if lacking:
        raise ConfigurationError(f"no field fills {', '.join(lacking)}, a column of the key")
    nullable = [name for name in keys if not table.columns[name].is_not_null]
    if frozenset(keys) not in table.unique or nullable:
        raise ConfigurationError(
            f"table {table.name} has no unique index of {', '.join(keys)}, or they may be null",
            hint="make one, with NOT NULL: rows are replaced by it",
        )
    return keys


def _tombstones(wishes: Wishes) -> Tombstones:
    if not wishes.tombstones:
        return Tombstones.DELETE if wishes.upsert else Tombstones.REFUSE
    try:
        tombstones = Tombstones(wishes.tombstones)
    except ValueError:
        tombstones = Tombstones.REFUSE
    if tombstones is Tombstones.REFUSE:
        raise ConfigurationError(
            f'--tombstones "{wishes.tombstones}"', hint="it is delete or ignore"
        )
    if tombstones is Tombstones.DELETE and not wishes.upsert:
        raise ConfigurationError(
            "rows that are appended are not deleted",
            hint="--mode upsert with --tombstones delete, or --tombstones ignore",
        )
    return tombstones
