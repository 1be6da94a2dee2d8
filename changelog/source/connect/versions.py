"""PostgreSQL's versions: what each brought that capture uses, and how a query does without it.

A query is written for the newest version. What an older catalogue lacks has one value there: no
column is generated before there are generated columns. Where there is no such value, whatever needs
the version asks for it by name (`need`). Pure.
"""

from __future__ import annotations

from changelog.contract.base.errors import SourceError

OLDEST = 100_000  # the first version that has publications and the plugin pgoutput
SENDS_TRUNCATE = 110_000
COPIES_SLOTS = 120_000
PUBLISHES_PARTITIONED = 130_000
"""Partitioned tables in publications, and rows of partitions as their root's."""
SENDS_MESSAGES = 140_000  # the messages of pg_logical_emit_message in the stream of pgoutput

# What a query says, the version that brought it, and what stands for it before.
_BROUGHT = (
    ("indnkeyatts", 110_000, "indnatts"),
    ("a.attmissingval::text", 110_000, "NULL::text"),
    ("a.atthasmissing", 110_000, "false"),
    ("pubtruncate", SENDS_TRUNCATE, "false"),
    ("a.attgenerated", 120_000, "''::\"char\""),
    ("r.reply_time", 120_000, "NULL::timestamptz"),
    ("pubviaroot", PUBLISHES_PARTITIONED, "true"),
    ("pg_current_snapshot()", 130_000, "txid_current_snapshot()"),
    # No slot is lost where nothing limits the WAL that it keeps.
    ("s.wal_status", 130_000, "CASE WHEN s.restart_lsn IS NULL THEN 'lost' ELSE 'reserved' END"),
    ("rngmultitypid", 140_000, "0"),
    (
        "SHOW in_hot_standby",
        140_000,
        "SELECT CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END",
    ),
    ("a.attcompression", 140_000, "''::\"char\""),
    # The length of all WAL that there was, at no known time.
    (
        "pg_stat_wal",
        140_000,
        """(SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS wal_bytes,
                   NULL::timestamptz AS stats_reset) pg_stat_wal""",
    ),
)


def for_version(query: str, version: int) -> str:
    """Return a query as a server of some version can answer it.

    >>> for_version("SELECT pubviaroot FROM pg_publication", 120_000)
    'SELECT true FROM pg_publication'
    >>> for_version("SELECT pubviaroot FROM pg_publication", 180_000)
    'SELECT pubviaroot FROM pg_publication'
    """
    for name, since, otherwise in _BROUGHT:
        if version < since:
            query = query.replace(name, otherwise)
    return query


def need(version: int, since: int, feature: str, hint: str) -> None:
    """Check that a server is new enough for something.

    `feature` cannot be done before: a sentence's beginning, such as `--ddl`.

    Raises SourceError: it is older.
    """
    if version < since:
        raise SourceError(
            f"{feature} needs PostgreSQL {since // 10_000} or newer, "
            f"and this is {version // 10_000}",
            hint=hint,
        )
