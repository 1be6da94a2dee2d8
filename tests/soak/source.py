"""The source of the storm: tables, and triggers that keep what every row ever was.

Each lane has a clock. A transaction moves the clocks of its lanes before anything else, and its
lanes wait for it, so the number of a clock says which transactions of its lane are in a state.
Triggers keep each change with that number in the schema `audit`, which is not captured, and each
transaction notes where the WAL stood just before it committed. So what any table held at an LSN can
be asked for later, whatever was killed meanwhile (`tests/soak/expected.py`).
"""

from contextlib import closing, contextmanager

import psycopg2

LANES = (1, 2, 3)
MART_LANE = 4
"""Of the tables of `benchmarks.mart`, where they are made."""
ACCOUNTS = 40
DEPOSIT = 1000

AUDIT = """
CREATE SCHEMA audit;
CREATE TABLE audit.ticks (lane int, tick bigint, before pg_lsn NOT NULL, PRIMARY KEY (lane, tick));
CREATE TABLE audit.changes (
    seq bigserial PRIMARY KEY, lane int, tick bigint, tbl text, op text, key text, content jsonb
);
CREATE INDEX ON audit.changes (tbl, lane, tick);
CREATE TABLE audit.columns (lane int, tick bigint, tbl text, action text, name text, value jsonb);

CREATE FUNCTION audit.content(row_of anyelement) RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE WHEN r ? 'doc' THEN r || jsonb_build_object('doc', md5(r ->> 'doc')) ELSE r END
    FROM (SELECT to_jsonb(row_of) AS r) AS each
$$;
CREATE FUNCTION audit.key(r jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT COALESCE(r ->> 'id', (r ->> 'order_id') || '-' || (r ->> 'no'),
        (r ->> 'lane') || '-' || COALESCE(r ->> 'account', ''))
$$;
CREATE FUNCTION audit.note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was jsonb; is_now jsonb; old_key text; new_key text; mine int;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        mine := TG_ARGV[0];
        INSERT INTO audit.changes (lane, tick, tbl, op)
        VALUES (mine, current_setting('soak.tick_' || mine)::bigint, TG_TABLE_NAME, 't');
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        was := to_jsonb(OLD);
        old_key := audit.key(was);
        mine := COALESCE(was ->> 'lane', TG_ARGV[0]);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        is_now := audit.content(NEW);
        new_key := audit.key(is_now);
        mine := COALESCE(is_now ->> 'lane', TG_ARGV[0]);
    END IF;
    IF old_key IS DISTINCT FROM new_key AND old_key IS NOT NULL THEN
        INSERT INTO audit.changes (lane, tick, tbl, op, key)
        VALUES (mine, current_setting('soak.tick_' || mine)::bigint, TG_TABLE_NAME, 'd', old_key);
    END IF;
    IF new_key IS NOT NULL THEN
        INSERT INTO audit.changes (lane, tick, tbl, op, key, content) VALUES (
            mine, current_setting('soak.tick_' || mine)::bigint, TG_TABLE_NAME, 'u', new_key, is_now
        );
    END IF;
    RETURN NULL;
END $$;
"""
CLOCKS = """
CREATE TABLE clock (lane int PRIMARY KEY, tick bigint NOT NULL);
CREATE TABLE bank (
    lane int, account int, balance numeric(12, 2) NOT NULL, tick bigint NOT NULL,
    PRIMARY KEY (lane, account)
);
"""
NOTES = """
CREATE TABLE {name} (
    id bigint PRIMARY KEY, tick bigint NOT NULL, amount numeric(12, 2), at timestamptz,
    flag boolean, note text, doc text
);
ALTER TABLE {name} ALTER COLUMN doc SET STORAGE EXTERNAL;
"""
TRIGGERS = """
CREATE TRIGGER kept AFTER INSERT OR UPDATE OR DELETE ON {name}
    FOR EACH ROW EXECUTE FUNCTION audit.note({lane});
CREATE TRIGGER emptied AFTER TRUNCATE ON {name}
    FOR EACH STATEMENT EXECUTE FUNCTION audit.note({lane});
"""
CLOCKS_AT_FIRST = "INSERT INTO clock SELECT unnest(%s), 1"
CLOSING = (
    "INSERT INTO audit.ticks SELECT lane, tick, pg_current_wal_insert_lsn()"
    " FROM clock WHERE lane = ANY(%s)"
)
DOCUMENT = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, {}))"


def notes_of(lane):
    return f"notes_{lane}"


def connect(dsn):
    return psycopg2.connect(dsn, connect_timeout=5, application_name="soak")


@contextmanager
def transaction(connection, lanes):
    """Move the clocks of the lanes, in their order so that none waits for another in a circle."""
    with connection, connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '10s'")
        for lane in sorted(lanes):
            cursor.execute(
                "SELECT set_config('soak.tick_' || %s, (tick + 1)::text, true)"
                " FROM clock WHERE lane = %s FOR UPDATE",
                (lane, lane),
            )
            cursor.execute("UPDATE clock SET tick = tick + 1 WHERE lane = %s", (lane,))
        yield cursor
        cursor.execute(CLOSING, (list(lanes),))


def touch(dsn, *, followed):
    """Write a row to each table that is altered: the stream tells of new columns with the next."""
    with closing(connect(dsn)) as connection:
        if followed:
            with transaction(connection, (MART_LANE,)) as cursor:
                cursor.execute("INSERT INTO orders VALUES (-1, 1, 'O', 0, '2026-01-01', 'plain')")
        for lane in LANES:
            with transaction(connection, (lane,)) as cursor:
                cursor.execute(
                    f"INSERT INTO {notes_of(lane)} (id, tick) VALUES"
                    f" (-1, current_setting('soak.tick_{lane}')::bigint)"
                )


def make(dsn):
    """Make the tables with their first rows; the clocks begin at 1."""
    with closing(connect(dsn)) as connection:
        with connection, connection.cursor() as cursor:
            cursor.execute(AUDIT)
            cursor.execute(CLOCKS)
            for name in ("clock", "bank"):
                cursor.execute(TRIGGERS.format(name=name, lane=0))
            for lane in LANES:
                cursor.execute(NOTES.format(name=notes_of(lane)))
                cursor.execute(TRIGGERS.format(name=notes_of(lane), lane=lane))
        with connection, connection.cursor() as cursor:
            for lane in LANES:
                cursor.execute(f"SET LOCAL soak.tick_{lane} = '1'")
            cursor.execute(CLOCKS_AT_FIRST, (list(LANES),))
            for lane in LANES:
                cursor.execute(
                    "INSERT INTO bank SELECT %s, n, %s, 1 FROM generate_series(1, %s) AS n",
                    (lane, DEPOSIT, ACCOUNTS),
                )
            cursor.execute(CLOSING, (list(LANES),))
