"""The end of a server's WAL."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg2

from changelog.contract.base.errors import (
    ConfigurationError,
    SourceError,
    UnavailableSourceError,
)
from changelog.contract.base.lsn import Lsn
from changelog.postgres.connection import DEFAULTS, opened, parts_of
from changelog.postgres.errors import why_not_opened, without_secrets

_WAL_END = """
SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_insert_lsn() END
"""


def end_of_wal(dsn: str) -> Lsn | None:
    """Return the end of a server's WAL, which no commit that has returned is past.

    None of a standby, which does not know what its primary has committed.

    Raises UnavailableSourceError: no server answers; ConfigurationError: the connection string
    cannot be used, or the server refuses it; SourceError: it does not say.
    """
    parts = parts_of(
        dsn,
        named="the connection string of PostgreSQL",
        example="postgresql://user@host:5432/database",
    )
    settings: dict[str, Any] = {**DEFAULTS, "application_name": "changelog wait", **parts}
    try:
        connection = opened(**settings)
    except psycopg2.Error as error:
        why = why_not_opened(error, parts)
        kind = UnavailableSourceError if why.passes else ConfigurationError
        raise kind(f"PostgreSQL does not let us in: {why.message}", hint=why.hint) from None
    with closing(connection):
        try:
            with connection.cursor() as cursor:
                cursor.execute(_WAL_END)
                (text,) = cursor.fetchone() or (None,)
        except psycopg2.Error as error:
            said_by_server = without_secrets(str(error), parts)
            raise SourceError(f"cannot read the WAL position: {said_by_server}") from error
    return None if text is None else Lsn.parse(text)
