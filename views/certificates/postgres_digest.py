"""Digest of rows in PostgreSQL's SQL, by the rule of docs/certificate.md. Pure.

The statement is plain SQL, which anybody can run in psql against the table. It shares no code with
the implementations for DuckDB and Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from views.verify.values.types import Type

_ARRAYS = {
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "decimal"), "numeric"),
    **dict.fromkeys(("float", "double"), "float8"),
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""The type as which the elements of an array are read."""
_NESTED = {"array", "struct", "map"}
_SHARES = [str(2 ** (32 * power)) for power in reversed(range(8))]


def digest_statement(
    relation: str, columns: Sequence[tuple[str, Type]], key: Sequence[str], names: dict[str, str]
) -> str:
    """Return the query that gives of each key range the number of rows and their digest.

    `relation`: the table, quoted. `names`: of the columns that have another name in the table.
    """
    kinds = dict(columns)

    def value(name: str) -> str:
        return _column(_quoted(names.get(name, name)), kinds[name])

    row = "\n      || ".join(value(name) for name, _ in columns)
    keys = " || ".join(value(name) for name in key)
    sums = " + ".join(
        f"sum(('x' || substr(digest, {1 + 8 * place}, 8))::bit(32)::bigint) * {share}"
        for place, share in enumerate(_SHARES)
    )
    words = " || ".join(
        f"lpad(to_hex(mod(div(total, {share}), 4294967296)::bigint), 8, '0')" for share in _SHARES
    )
    return (
        f"SELECT key_range, rows, {words} AS digest FROM (\n"
        f"  SELECT key_range, count(*) AS rows, {sums} AS total FROM (\n"
        f"    SELECT left({_sha256(keys)}, 1) AS key_range, {_sha256(row)} AS digest\n"
        f"    FROM {relation}) AS hashed GROUP BY key_range) AS added ORDER BY key_range"
    )


def _sha256(text: str) -> str:
    return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex')"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column(column: str, kind: Type) -> str:
    """Return the SQL of the encoding of a table's column."""
    inner = {field.name for _, field in kind.fields} & _NESTED
    if kind.name in {"struct", "map"} or (kind.name == "array" and inner):
        return _document(f"({column})::jsonb", kind)
    if kind.name != "array":
        return _scalar(column, kind)
    element = kind.fields[0][1]
    # A text is written by its type's output function: a cast would strip the blanks of char(n).
    items = column if element.name == "string" else f"({column})::{_ARRAYS[element.name]}[]"
    listed = (
        f"(SELECT string_agg({_scalar('item', element)}, '' ORDER BY place) FROM (SELECT "
        f"unnest({items}) AS item, generate_subscripts({items}, 1) AS place) AS items)"
    )
    return (
        f"CASE WHEN {column} IS NOT DISTINCT FROM NULL THEN '-' "
        f"WHEN array_ndims({column}) > 1 THEN {_tagged('s', f'({column})::text')} "
        f"ELSE {_measured('l', listed)} END"
    )


def _scalar(value: str, kind: Type) -> str:
    letter, body = _body(value, kind)
    return f"CASE WHEN {value} IS NOT DISTINCT FROM NULL THEN '-' ELSE {_tagged(letter, body)} END"


def _body(value: str, kind: Type) -> tuple[str, str]:  # noqa: PLR0911 - one per type
    """Return the letter of a type, and the SQL of the body of a value that is not null."""
    match kind.name:
        case "boolean":
            return "b", f"CASE WHEN {value} THEN 't' ELSE 'f' END"
        case "tinyint" | "smallint" | "int" | "bigint":
            return "n", f"({value})::text"
        case "decimal":
            text = f"({value})::text"
            trimmed = f"rtrim(rtrim({text}, '0'), '.')"
            return "n", f"CASE WHEN strpos({text}, '.') > 0 THEN {trimmed} ELSE {text} END"
        case "float" | "double":
            bits = f"encode(float8send(({value})::float8), 'hex')"
            return "f", f"CASE WHEN ({value})::float8 = 'NaN' THEN 'NaN' ELSE {bits} END"
        case "binary":
            return "x", f"encode({value}, 'hex')"
        case "date":
            days = f"(({value}) - date '1970-01-01')::text"
            return "d", f"CASE WHEN isfinite({value}) THEN {days} ELSE ({value})::text END"
        case "timestamp" | "timestamp_ntz":
            # In two parts: before PostgreSQL 14 seconds are a double, which holds no microseconds
            # of years that are far away.
            second = f"date_trunc('second', {value})"
            micros = (
                f"(extract(epoch FROM {second})::numeric(30, 0) * 1000000 + "
                f"mod(extract(microseconds FROM {value})::numeric(30, 0), 1000000))::bigint::text"
            )
            return "m", f"CASE WHEN isfinite({value}) THEN {micros} ELSE ({value})::text END"
        case _:
            return "s", f"format('%s', {value})"


def _document(document: str, kind: Type) -> str:
    """Return the SQL of the encoding of a JSON value, in the form in which sinks write rows."""
    null = f"({document}) IS NULL OR jsonb_typeof({document}) = 'null'"
    text = f"(({document}) #>> '{{}}')"
    match kind.name:
        case "array":
            element = _document("e.item", kind.fields[0][1])
            body = (
                f"(SELECT string_agg({element}, '' ORDER BY e.place) FROM "
                f"jsonb_array_elements({document}) WITH ORDINALITY AS e (item, place))"
            )
            whole = _measured("l", body)
        case "struct":
            fields = [
                _document(f"({document}) -> {_literal(name)}", field) for name, field in kind.fields
            ]
            whole = _measured("r", " || ".join(fields) or "''")
        case "map":
            entry = _scalar("e.key", kind.fields[0][1]) + " || "
            entry += _document("e.value", kind.fields[1][1])
            entries = f"SELECT {entry} AS entry FROM jsonb_each({document}) AS e"
            body = (
                f"(SELECT string_agg(entry, '' ORDER BY entry COLLATE \"C\") "
                f"FROM ({entries}) AS entries)"
            )
            whole = _measured("k", body)
        case "binary":
            whole = _tagged(*_body(f"decode({text}, 'base64')", kind))
        case _:
            whole = _tagged(*_body(f"{text}::{_ARRAYS[kind.name]}", kind))
    return f"CASE WHEN {null} THEN '-' ELSE {whole} END"


def _tagged(letter: str, body: str) -> str:
    return f"'{letter}' || octet_length(convert_to({body}, 'UTF8')) || ':' || {body}"


def _measured(letter: str, body: str) -> str:
    """Return the same of a body that costs too much to be written twice, and may be null."""
    whole = _tagged(letter, "body")
    return f"(SELECT {whole} FROM (SELECT coalesce({body}, '') AS body OFFSET 0) AS measured)"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
