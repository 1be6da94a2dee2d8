"""Values that a project gives its views: `:name` in a query, `[parameters]` in `changelog.toml`.

A value takes its place in the text as a literal of Spark's SQL, before anything else reads the
text. So both engines, the fingerprint of a definition and `--plan` have it without knowing of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from changelog.contract.base.errors import ViewError
from changelog.runtime.setting import WrittenFloat
from views.base.spark_sql import SparkSql

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_SECTION = "[parameters] of changelog.toml"


def with_parameters(
    path: Path, text: str, values: Mapping[str, object]
) -> tuple[str, dict[str, str]]:
    """Put values in the places of a query that name them.

    Args:
        path: the file, for errors.
        text: what it holds.
        values: by name, as TOML has them.

    Returns:
        The text with literals, and the literals by the names of the parameters.

    Raises:
        ViewError: a parameter has no value or one that no literal gives exactly, or stands
            directly behind something else, where a colon means another thing.
    """
    try:
        tokens = sqlglot.tokenize(text, read=SparkSql)
    except TokenError:
        return text, {}  # the parser says where
    used: dict[str, str] = {}
    cuts = []
    for colon, name in pairwise(tokens):
        start, end = colon.start, name.end + 1
        is_one = colon.token_type is TokenType.COLON and name.start == colon.end + 1
        if not is_one or _NAME.fullmatch(text[name.start : end]) is None:
            continue
        place = f"{path.name}:{text.count(chr(10), 0, start) + 1}"
        if start and (text[start - 1].isalnum() or text[start - 1] in "_`'\")]:"):
            raise ViewError(
                f"{place}: {text[start:end]} stands directly behind something else",
                hint="write a space before a parameter; a field of a struct is s.field",
            )
        used[name.text] = _literal(place, name.text, values)
        cuts.append((start, end, used[name.text]))
    for start, end, literal in reversed(cuts):
        text = text[:start] + literal + text[end:]
    return text, used


def _literal(place: str, name: str, values: Mapping[str, object]) -> str:
    if name not in values:
        near = get_close_matches(name, values, n=1)
        raise ViewError(
            f'{place}: parameter "{name}" has no value',
            hint=(f"did you mean :{near[0]}? " if near else "") + f"give it one in {_SECTION}",
        )
    literal = literal_of(values[name])
    if literal is None:
        raise ViewError(
            f'{place}: the value of parameter "{name}" has no exact form in SQL',
            hint=f"in {_SECTION} write a text, a number, true or false, a date, or a moment with "
            "or without a zone",
        )
    return literal


def literal_of(value: object) -> str | None:
    r"""Return the literal of Spark's SQL that is a value of TOML; None where there is none.

    >>> literal_of("it's"), literal_of(-3), literal_of(True)
    ("'it\\'s'", '(-3)', 'TRUE')
    """
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return _number(value)
        case str() if "\0" not in value:
            return exp.Literal.string(value).sql("spark")
        case datetime():
            word = "TIMESTAMP" if value.tzinfo else "TIMESTAMP_NTZ"
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"{word} '{moment.isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return None


def _number(value: float) -> str | None:
    """Return a number by the characters in which it is written; a sign stands in brackets.

    `- -3` without them would begin a comment.
    """
    written = value.text if isinstance(value, WrittenFloat) else repr(value)
    text = written.replace("_", "").removeprefix("+")
    if _NUMBER.fullmatch(text) is None:
        return None
    return f"({text})" if text.startswith("-") else text
