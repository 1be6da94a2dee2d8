"""Digest of rows in DuckDB, by the rule of docs/certificate.md.

The rule is implemented twice more, for PostgreSQL and for Spark. The three share no code, so that
a mistake in one shows as a difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from views.verify.values.types import Type, quoted

RowsDigest = dict[str, tuple[int, str]]
"""Of each key range that has rows: their number, and their digest in 64 hexadecimal digits."""
_WORDS = range(8)
"""A digest is added up in words of 32 bits, whose sums DuckDB holds exactly."""
_WORD_BITS, _DIGITS = 32, 8


def rows_digest(
    database: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[tuple[str, Type]],
    key: Sequence[str],
) -> RowsDigest:
    """Return the digest of the rows of a table, in one pass and in any order."""
    kinds = dict(columns)
    row = _concatenated([_value(quoted(name), kind) for name, kind in columns])
    keys = _concatenated([_value(quoted(name), kinds[name]) for name in key])
    sums = ", ".join(
        f"sum(CAST(concat('0x', substr(digest, {1 + _DIGITS * word}, {_DIGITS})) AS BIGINT))"
        for word in _WORDS
    )
    ranges = database.execute(
        f"SELECT key_range, count(*), {sums} FROM (SELECT sha256({row}) AS digest, "
        f"substr(sha256({keys}), 1, 1) AS key_range FROM {quoted(table)}) "
        "GROUP BY key_range ORDER BY key_range"
    ).fetchall()
    return {place: (count, _added(words)) for place, count, *words in ranges}


def _added(words: Sequence[int]) -> str:
    """Return the sum modulo 2^256 from the sums of its words, the highest first."""
    total = 0
    for word in words:
        total = (total << _WORD_BITS) + int(word)
    return f"{total % 2**256:064x}"


def _concatenated(values: Sequence[str]) -> str:
    return f"concat({', '.join(values)})"


def _value(value: str, kind: Type, depth: int = 0) -> str:
    """Return the SQL of a value's encoding."""
    letter, body = _body(value, kind, depth)
    return (
        f"CASE WHEN {value} IS NULL THEN '-' "
        f"ELSE concat('{letter}', strlen({body}), ':', {body}) END"
    )


def _body(value: str, kind: Type, depth: int) -> tuple[str, str]:  # noqa: PLR0911 - one per type
    """Return the letter of a type, and the SQL of the body of a value that is not null."""
    text = f"CAST({value} AS VARCHAR)"
    match kind.name:
        case "boolean":
            return "b", f"CASE WHEN {value} THEN 't' ELSE 'f' END"
        case "decimal" if kind.scale:
            # DuckDB leaves out the zero before the point where no digit may stand there.
            whole = f"regexp_replace({text}, '^(-?)[.]', '\\10.')"
            return "n", f"rtrim(rtrim({whole}, '0'), '.')"
        case "decimal" | "tinyint" | "smallint" | "int" | "bigint":
            return "n", text
        case "float" | "double":
            bits = f"lower(hex(CAST(CAST(CAST({value} AS DOUBLE) AS BIT) AS BLOB)))"
            return "f", f"CASE WHEN isnan({value}) THEN 'NaN' ELSE {bits} END"
        case "binary":
            return "x", f"lower(hex({value}))"
        case "date":
            return "d", _bounded(value, "DATE", f"{value} - DATE '1970-01-01'")
        case "timestamp" | "timestamp_ntz":
            return "m", _bounded(value, "TIMESTAMP", f"epoch_us({value})")
        case "array":
            item = f"item{depth}"
            return "l", _joined(value, item, _value(item, kind.fields[0][1], depth + 1))
        case "struct":
            fields = [_value(f"({value}).{quoted(n)}", field, depth) for n, field in kind.fields]
            return "r", _concatenated(fields)
        case "map":
            item = f"item{depth}"
            parts = zip(("key", "value"), kind.fields, strict=True)
            entry = [_value(f"{item}.{part}", field, depth + 1) for part, (_, field) in parts]
            entries = _joined(f"map_entries({value})", item, _concatenated(entry), "list_sort")
            return "k", entries
        case _:
            return "s", text


def _bounded(value: str, kind: str, number: str) -> str:
    """Return the SQL of a date's or a moment's number, or the word for an infinite one."""
    ends = " ".join(
        f"WHEN {value} = CAST('{end}' AS {kind}) THEN '{end}'" for end in ("infinity", "-infinity")
    )
    return f"CASE {ends} ELSE CAST({number} AS VARCHAR) END"


def _joined(items: str, item: str, element: str, order: str = "") -> str:
    """Return the SQL of the encodings of a list's items, one after the other."""
    encodings = f"{order}(list_transform({items}, lambda {item}: {element}))"
    return f"coalesce(array_to_string({encodings}, ''), '')"
