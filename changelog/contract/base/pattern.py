"""Patterns of names: `*` matches any characters, `?` one; quoted parts are literal."""

from __future__ import annotations

import re
import shlex

PART = r'"(?:[^"]|"")+"|[^."]+'  # a regular expression of one part of a dotted name

_WILD = re.compile(r"[*?]")


def is_wild(part: str) -> bool:
    """Return whether a part can match more than one name."""
    return not part.startswith('"') and _WILD.search(part) is not None


def literal(part: str) -> str:
    """Return the name that a part without wildcards matches."""
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def quoted(*names: str) -> str:
    """Return the pattern of one name of several parts, like a schema and a table.

    >>> quoted("public", "orders", "total"), quoted("a b", "c", "d.e")
    ('public.orders.total', '"a b".c."d.e"')
    """
    return ".".join(
        name if re.fullmatch(r"\w+", name) else '"' + name.replace('"', '""') + '"'
        for name in names
    )


def pasted(*patterns: str) -> str:
    """Return patterns as the value of an option that takes several, for a shell.

    >>> print(pasted(quoted("public", "orders")), pasted(quoted("public", "a b"), "s.t"))
    public.orders 'public."a b",s.t'
    """
    return shlex.quote(",".join(patterns))


def expression(part: str) -> str:
    """Return the regular expression of the names that a part covers."""
    if part.startswith('"'):
        return re.escape(literal(part))
    return re.escape(part).replace(r"\*", ".*").replace(r"\?", ".")


def covers(part: str, name: str) -> bool:
    """Tell whether a part covers a name; upper and lower case differ."""
    return re.fullmatch(expression(part), name, re.DOTALL) is not None
