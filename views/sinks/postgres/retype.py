"""Columns that are to have another type than they are loaded in: is any value changed by that?"""

from __future__ import annotations

from typing import Any

from psycopg2 import sql

from views.sinks.postgres.forms import Form


def first_changed(cursor: Any, table: sql.Composable, form: Form) -> str | None:  # noqa: ANN401
    """Return a value of a column, as text, that its final type would not hold exactly."""
    cursor.execute(
        sql.SQL(
            f"SELECT {{0}}::text FROM {{1}} WHERE {{0}}::{form.type}::{form.loaded}::text "
            "IS DISTINCT FROM {0}::text LIMIT 1"
        ).format(sql.Identifier(form.target), table)
    )
    row = cursor.fetchone()
    return None if row is None else str(row[0])
