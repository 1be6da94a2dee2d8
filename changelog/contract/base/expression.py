"""Conditions that users give as SQL: each is one expression and nothing more."""

from __future__ import annotations

import re

from changelog.contract.base.errors import ConfigurationError

_TOKEN = re.compile(
    r"""
    (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
    | (?P<text>'(?:[^']|'')*')
    | "(?:[^"]|"")*"
    | (?P<comment>--|/\*)
    | [A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<odd>['";$\x00])
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_PAIRS = {")": "(", "]": "["}


def check_expression(text: str, where: str) -> None:
    """Check that a text stays one expression when it stands in brackets in a statement.

    PostgreSQL judges the expression itself; here its brackets have to close, so that none of it
    stands behind the statement's own bracket. It is read as PostgreSQL reads it; what depends on
    the server's settings, or would need more to be read so, is refused. `where` names the setting.

    Raises ConfigurationError: it does not stay one.
    """
    opened: list[str] = []
    for token in _TOKEN.finditer(text):
        symbol = token[0]
        if token["open"]:
            opened.append(symbol)
        elif token["close"] and (not opened or opened.pop() != _PAIRS[symbol]):
            raise _refused(where, f"it has a {symbol} that closes nothing")
        elif token["comment"]:
            raise _refused(where, f"it has a comment, {symbol}")
        elif token["odd"]:
            raise _refused(where, _ODD[symbol])
        elif token["text"] and "\\'" in symbol:
            raise _refused(where, "a text of it has a backslash before a quote: write E'…\\\\'")
    if opened:
        raise _refused(where, f"its {opened[-1]} is not closed")
    if not text.strip():
        raise _refused(where, "it is empty")


_ODD = {
    "'": "a text of it does not end",
    '"': "a name of it does not end",
    ";": "it has a semicolon",
    "$": "it has a $: write texts in single quotes",
    "\0": "it has a character of code 0",
}


def _refused(where: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where} is no single condition: {why}",
        hint="an expression as behind WHERE, such as amount > 0 AND state = 'new'",
    )
