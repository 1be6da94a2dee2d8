"""Turns the options of a load into rules, by the table's columns and the schemas."""

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
class RowOptions:
    """The options that say how records become rows, as texts of the command line."""

    topics: Sequence[str]
    table: str
    columns: str = ""  # sources of the columns; empty for the fields of the same names
    key: str = ""  # columns of the key, separated by commas; empty for the table's primary key
    upsert: bool = False  # whether rows are replaced by key
    tombstones: str = ""  # delete or ignore; empty for the default of the mode
    value_form: str = "auto"
    key_form: str = "auto"
    fields: str = ""  # names of the fields of CSV, separated by commas
    delimiter: str = ","  # of CSV
    create: bool = False  # whether a missing table is created
    types: str = ""  # types of a new table's columns, `a=int,b=text`


def prepare(
    options: RowOptions, url: str, name: str, latest: Latest
) -> tuple[Rules, Schema | None]:
    """Return the rules by which records become rows, and the newest schema of their values.

    Creates the table if the options say so.

    Raises:
        ConfigurationError: an option is wrong, or names a missing table, column or field.
        SinkError: the database refuses.
        UnavailableError: a server does not answer.
    """
    value, key = form_named(LoadForm, options.value_form), form_named(LoadForm, options.key_form)
    if key is LoadForm.CSV:
        raise ConfigurationError("keys are not CSV", hint="--key-as avro, json or text")
    schema = _newest(options, latest, "value") if value in {LoadForm.AUTO, LoadForm.AVRO} else None
    types = _types(options.types)
    if types and not options.create:
        raise ConfigurationError(
            "--types only works with --create",
            hint="leave it out, or add --create",
        )
    with closing(LoadTarget(url, name)) as target:
        if options.create:
            columns = _columns(options, value, schema, list(types))
            if unknown := types.keys() - columns.keys():
                raise ConfigurationError(
                    f"--types names {', '.join(sorted(unknown))}, which the load does not write",
                    hint=f"the columns are {', '.join(columns)}",
                )
            types_of = {
                name: types.get(name) or _type(options, name, source, schema, latest)
                for name, source in columns.items()
            }
            schema_key = schema.key if schema is not None and options.upsert else ()
            keys = _split(options.key) or [name for name in schema_key if name in columns]
            target.create(options.table, types_of, keys)
        table = target.table(options.table)
    names = list(table.columns)
    columns = _columns(options, value, schema, names)
    fields = _split(options.fields) or (names if value is LoadForm.CSV else [])
    _check_columns(table, columns, schema, fields if value is LoadForm.CSV else None)
    return Rules(
        columns=columns,
        keys=_keys(options, table, columns),
        tombstones=_tombstones(options),
        value=value,
        key=key,
        fields=tuple(fields),
        delimiter=_delimiter(options.delimiter),
        all_fields=not options.columns and value is not LoadForm.CSV,
    ), schema


def parse_into(into: str, table: str) -> tuple[str, str]:
    """Return the address and table from `postgres:DSN/table`, or from an address and a table.

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
    if part.strip(","):  # the brackets do not match
        raise _no_types(text)
    return types


def _no_types(text: str) -> ConfigurationError:
    return ConfigurationError(
        f'--types "{text}" is not a list of columns and types',
        hint="such as id=bigint,price=numeric(10,2)",
    )


def _newest(options: RowOptions, latest: Latest, part: str) -> Schema | None:
    newest = latest(f"{options.topics[0]}-{part}")
    return None if newest is None or newest.kind != "AVRO" else read_schema(newest.text)


def _columns(
    options: RowOptions, value: LoadForm, schema: Schema | None, names: Sequence[str]
) -> dict[str, ColumnSource]:
    if options.columns:
        return parse_columns(options.columns)
    if value is LoadForm.TEXT:
        raise ConfigurationError(
            "the column for the text is not named", hint="--columns NAME=value"
        )
    if schema is not None:
        return of_names([field.column for field in schema.fields])
    if value is LoadForm.CSV and options.fields:
        return of_names(_split(options.fields))
    if not names:
        raise ConfigurationError(
            "the columns of the new table are unknown, since the values have no Avro schema",
            hint="--types id=bigint,name=text gives the columns and types of the table",
        )
    return of_names(names)


def _type(
    options: RowOptions, name: str, source: ColumnSource, schema: Schema | None, latest: Latest
) -> str:
    if source.part in _FORMS:
        return _FORMS[source.part]
    described = schema if source.part is RecordPart.VALUE else _newest(options, latest, "key")
    field = described.by_name.get(source.path[0]) if described is not None and source.path else None
    if field is not None and len(source.path) == 1:
        return type_of(field)
    raise ConfigurationError(
        f'the type of the new column "{name}" is unknown', hint=f"--types {name}=…"
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
            hint=f"it has {', '.join(table.columns)}; --columns names the source of each column",
        )
    known_fields = list(schema.by_name) if schema is not None else fields
    missing = [
        source.path[0]
        for source in columns.values()
        if known_fields is not None and source.part is RecordPart.VALUE and source.path
        and source.path[0] not in known_fields
    ]  # fmt: skip
    if missing:
        raise ConfigurationError(
            f"values have no field {', '.join(missing)}",
            hint=f"they have {', '.join(dict.fromkeys(known_fields or ()))}",
        )


def _keys(
    options: RowOptions, table: LoadedTable, columns: Mapping[str, ColumnSource]
) -> tuple[str, ...]:
    if not options.upsert:
        if options.key and not options.create:
            raise ConfigurationError(
                "--key only works with --mode upsert or --create", hint="leave it out"
            )
        return ()
    keys = tuple(_split(options.key)) or table.key
    if not keys:
        raise ConfigurationError(
            f"table {table.name} has no primary key",
            hint="give the columns of a unique index with --key",
        )
    missing = [name for name in keys if name not in columns]
    if missing:
        raise ConfigurationError(f"no field fills {', '.join(missing)}, a column of the key")
    nullable = [name for name in keys if not table.columns[name].is_not_null]
    if frozenset(keys) not in table.unique or nullable:
        raise ConfigurationError(
            f"table {table.name} has no unique index of {', '.join(keys)}, or they may be null",
            hint="create one on NOT NULL columns: rows are replaced by it",
        )
    return keys


def _tombstones(options: RowOptions) -> Tombstones:
    if not options.tombstones:
        return Tombstones.DELETE if options.upsert else Tombstones.REFUSE
    try:
        tombstones = Tombstones(options.tombstones)
    except ValueError:
        tombstones = Tombstones.REFUSE
    if tombstones is Tombstones.REFUSE:
        raise ConfigurationError(
            f'--tombstones "{options.tombstones}" is unknown', hint="give delete or ignore"
        )
    if tombstones is Tombstones.DELETE and not options.upsert:
        raise ConfigurationError(
            "--tombstones delete needs --mode upsert",
            hint="with --mode insert give --tombstones ignore",
        )
    return tombstones
