"""The table that is measured, and what is done to it: `orders`, about 220 bytes a row."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import psycopg2
from psycopg2.extensions import parse_dsn

ROWS = 1_000_000
UPDATED = 500_000
SINGLE = 200_000
DELETED = 50_000
NARROW = "narrow"

_COLUMNS = """
    id bigint NOT NULL, customer_id bigint, status text, amount numeric(12, 2),
    created_at timestamptz, updated_at timestamp, active boolean, score double precision,
    attrs jsonb, note text
"""
_SEED = """
INSERT INTO orders
SELECT n,
       1000000000 + n * 7919 %% 250000,
       (ARRAY['pending', 'paid', 'packed', 'shipped', 'delivered', 'cancelled'])[1 + n %% 6],
       (n * 37 %% 1000000)::numeric / 100,
       timestamptz '2024-01-01 00:00:00+00' + n * interval '17.317 seconds',
       timestamp '2024-06-01' + n * interval '11.013 seconds',
       n %% 3 <> 0,
       sqrt(n::float8) * 1.7,
       jsonb_build_object(
           'sku', 'SKU-' || lpad((n * 31 %% 99991)::text, 6, '0'), 'qty', 1 + n %% 9,
           'channel', (ARRAY['web', 'app', 'store'])[1 + n %% 3],
           'tags', jsonb_build_array('promo' || n %% 20, 'r' || n %% 7)),
       CASE WHEN n %% 2 = 0 THEN 'customer asked for delivery window ' || n %% 24 || 'h' END
  FROM generate_series(1::bigint, %s::bigint) n
"""
_SINGLE_UPDATE = """\\set id random({first}, {last})
UPDATE orders SET status = 'paid', amount = amount + 0.01, updated_at = now() WHERE id = :id;
"""
_TIMED_UPDATE = """\\set id random(1, {last})
UPDATE orders SET note = 'clk=' || extract(epoch FROM clock_timestamp()) || ';' WHERE id = :id;
"""


def execute(dsn: str, *commands: str) -> list[tuple[object, ...]]:
    """Run commands; returns the rows of the last one."""
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for command in commands:
                cursor.execute(command)
            return cursor.fetchall() if cursor.description else []


def make(dsn: str, rows: int) -> None:
    """Make the table anew, with `rows` rows, frozen and checkpointed."""
    execute(
        dsn,
        "DROP TABLE IF EXISTS orders",
        f"CREATE TABLE orders ({_COLUMNS})",
        _SEED % rows,
        "ALTER TABLE orders ADD PRIMARY KEY (id)",
        "VACUUM (FREEZE, ANALYZE) orders",
        "CHECKPOINT",
    )


def make_narrow(dsn: str) -> None:
    """Make the table of a very long transaction, of one row."""
    execute(
        dsn,
        f"DROP TABLE IF EXISTS {NARROW}",
        f"CREATE TABLE {NARROW} (id bigint PRIMARY KEY, number bigint, text text)",
        f"INSERT INTO {NARROW} VALUES (0, 0, '')",
    )


def insert_in_one(dsn: str, rows: int) -> None:
    """Insert rows into the narrow table, in one transaction."""
    execute(
        dsn,
        f"INSERT INTO {NARROW} SELECT n, n * 7919, 'row ' || n "
        f"FROM generate_series(1::bigint, {rows}) n",
        "CHECKPOINT",
    )


def update_in_one(dsn: str, rows: int) -> None:
    """Update rows in one transaction."""
    execute(
        dsn,
        "UPDATE orders SET status = 'shipped', amount = amount + 1, updated_at = now(), "
        f"score = score * 1.01 WHERE id <= {rows}",
    )


def update_some(dsn: str, *, one_of: int, first: int) -> int:
    """Update one row of so many, spread over the table, at once; returns their number."""
    found = execute(
        dsn,
        "WITH changed AS (UPDATE orders SET status = 'returned', amount = amount + 1, "
        f"updated_at = now() WHERE id % {one_of} = {first % one_of} RETURNING 1) "
        "SELECT count(*)::int FROM changed",
    )
    return int(str(found[0][0]))


def delete_in_one(dsn: str, first: int, rows: int) -> None:
    """Delete rows in one transaction."""
    execute(dsn, f"DELETE FROM orders WHERE id >= {first} AND id < {first + rows}")


def update_singly(dsn: str, bin_dir: Path, work: Path, *, rows: int, first: int, last: int) -> None:
    """Update rows in a transaction each, by two clients of pgbench."""
    script = work / "single.sql"
    script.write_text(_SINGLE_UPDATE.format(first=first, last=last), encoding="ascii")
    options = ["-c", "2", "-j", "1", "-t", str(rows // 2)]
    # Commits that wait for no disk: what is measured begins when the rows are there.
    with _pgbench(dsn, bin_dir, script, options, "-c synchronous_commit=off") as process:
        if process.wait() != 0:
            raise SystemExit("pgbench failed")


def update_steadily(
    dsn: str, bin_dir: Path, work: Path, *, rate: int, seconds: int, last: int
) -> subprocess.Popen[bytes]:
    """Start updating `rate` rows a second, each with the time of its change in `note`."""
    script = work / "steady.sql"
    script.write_text(_TIMED_UPDATE.format(last=last), encoding="ascii")
    options = ["-c", "4", "-j", "1", "-R", str(rate), "-T", str(seconds)]
    return _pgbench(dsn, bin_dir, script, options)


def _pgbench(
    dsn: str, bin_dir: Path, script: Path, options: list[str], settings: str = ""
) -> subprocess.Popen[bytes]:
    at = parse_dsn(dsn.replace("postgresql://", "postgres://"))
    words = [str(bin_dir / "pgbench"), "-n", "-M", "prepared", "-f", str(script), *options]
    words += ["-h", at["host"], "-p", at["port"], "-U", at["user"], at["dbname"]]
    return subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PGOPTIONS": settings},
    )
