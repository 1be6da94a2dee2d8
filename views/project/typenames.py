"""Names of types in casts: Spark's, and the replacements of PostgreSQL's."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

_KNOWN = {
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
    *("float", "real", "double", "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "string"),
    *("binary", "void", "variant", "array", "struct", "map", "varchar", "char", "character"),
    *("decimal", "dec", "numeric"),
}
_DECIMALS = {"decimal", "dec", "numeric"}
_SIZED = {*_DECIMALS, "varchar", "char", "character", "nchar", "nvarchar", "bpchar"}
_OF_SPARK = {
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "real",
    "float8": "double",
    "double precision": "double",
    "bool": "boolean",
    "timestamptz": "timestamp",
    "timestamp with time zone": "timestamp",
    "datetime": "timestamp_ntz",
    "number": "decimal(18, 2), with the digits that its values need",
    "signed": "bigint",
}
_TEXTS = {
    *("text", "varchar", "character varying", "bpchar", "nvarchar", "uuid", "json", "jsonb"),
    *("xml", "citext"),
}
_TYPED = {*_KNOWN, *_OF_SPARK, *_TEXTS, "char"} - {
    *("date", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "array", "struct", "map"),
    *("long", "short", "number"),
}
"""Types before a constant in quotes that Spark has no such constants of."""


def refused_type(  # noqa: PLR0911 - one for each type
    tokens: Sequence[Token], cast: str = "cast"
) -> tuple[str, str] | None:
    """Return the refusal of the type that a text begins with, and what to write, or None.

    Args:
        tokens: the text from its first word on.
        cast: empty where it stands before a constant in quotes, without a cast.
    """
    name = _name(tokens)
    if not cast:
        if name not in _TYPED:
            return None
        return f"Spark has no constants of type {name}", f"write cast('…' AS {_instead(name)})"
    rest = tokens[len(name.split()) if name != "double precision" else 1 :]
    opening = rest[0].token_type if rest else None
    if opening == TokenType.L_BRACKET or (opening == TokenType.L_PAREN and _is_list(rest)):
        return f"Spark has no type {name}[]", f"write array(…) of values cast to {_instead(name)}"
    if opening == TokenType.L_PAREN and name in _SIZED:
        return None  # of those that cut the text the comparison of columns speaks
    if name in _DECIMALS:
        why = f"a cast to {name} without its digits: Spark's has none after the point"
        hint = f"write {name}(18, 2) with the digits that its values need, 38 at most"
        return f"{why}, PostgreSQL's as many as the value", hint
    if name in {"char", "character", "nchar"}:
        return f"Spark has no type {name} without a length", "write left(cast(… AS string), 1)"
    if name == "interval":
        return (
            "Spark casts no text to an interval",
            "write it as a constant where it is added, such as dt + interval '1' day",
        )
    if name == "bytea":
        return "Spark has no type bytea", "write the column without a cast: a bytea is binary here"
    if name == "time":
        return "Spark has no type time", "write date_format(…, 'HH:mm:ss') of a moment"
    if name in _KNOWN - _TEXTS and opening == TokenType.L_PAREN:
        return f"Spark's type {name} has no size", f"write {name}"
    if name in _KNOWN - _TEXTS or name == "timestamp without time zone":
        return None
    return f"Spark has no type {name}", f"write {_instead(name)}"


def _instead(name: str) -> str:
    if name in _DECIMALS:
        return "decimal(18, 2)"
    if name in _KNOWN - _TEXTS - {"char", "character"}:
        return name
    return _OF_SPARK.get(name, "string")


def _name(tokens: Sequence[Token]) -> str:
    """Return the words of a type's name, in lower case."""
    words = [" ".join(tokens[0].text.lower().split())] if tokens else [""]
    following = [token.text.lower() for token in tokens[1:4]]
    if words[0] in {"timestamp", "time"} and following[:1] in (["with"], ["without"]):
        words += following
    elif words[0] in {"character", "char"} and following[:1] == ["varying"]:
        words += following[:1]
    return " ".join(words)


def _is_list(rest: Sequence[Token]) -> bool:
    """Tell whether `[` follows the sizes of a type."""
    closing = next((n for n, t in enumerate(rest) if t.token_type == TokenType.R_PAREN), None)
    return (
        closing is not None
        and closing + 1 < len(rest)
        and rest[closing + 1].token_type == TokenType.L_BRACKET
    )
