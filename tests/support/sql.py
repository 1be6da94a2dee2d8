"""Statements by connections of their own: another test may restart a server meanwhile."""

from contextlib import closing
from typing import Any

import psycopg2


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run each statement in a transaction of its own; return the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        for statement in statements:
            cursor.execute(statement)
            rows = cursor.fetchall() if cursor.description is not None else []
    return rows
