"""PostgreSQL's SQL as sqlglot parses it, with the functions by their own names. Pure."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser

_WITH_WORDS = ("CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")
"""Functions whose arguments have words between them."""
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def name_of(identifier: exp.Expr) -> str:
    """Return the name that an identifier means: without quotes letters of ASCII are folded."""
    name = str(identifier.name)
    return name if identifier.args.get("quoted") else name.translate(_SMALL)


class PostgresSql(Postgres):
    """PostgreSQL's SQL; a function is what it is called, and not what sqlglot has for it."""

    INDEX_OFFSET = 0  # the number of an element stays as it is written

    class Parser(PostgresParser):
        """Has no functions of other databases by the names of PostgreSQL's."""

        FUNCTIONS = {}  # noqa: RUF012 - as its base has it
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse
            for name, parse in PostgresParser.FUNCTION_PARSERS.items()
            if name in _WITH_WORDS
        }
