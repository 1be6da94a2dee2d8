"""Schema changes in the stream: event triggers that write each one as a logical message.

PostgreSQL does not replicate DDL. Two event triggers, in a schema of their own, write a
transactional message for each command on a table: they write to no table, so the only thing that a
user's database gets is the triggers themselves. They fail softly: whatever goes wrong in them is a
warning to who runs the command, never an error.

The text of the command goes along, as the client sent it, which may be several commands at once.
A text that may hold a password is left out as a whole, already by the trigger, so that it does not
get into the WAL. See "Event Trigger Functions" of PostgreSQL's manual.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from changelog.contract.base.errors import ProtocolError
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import row_of, source_errors
from changelog.source.connect.versions import SENDS_MESSAGES, need
from changelog.source.stream.message import DROP_IF_EMPTY, OWN_PREFIX

DDL_PREFIX = f"{OWN_PREFIX}.ddl"  # of the messages that the triggers write

WITHHELD = r"password|://[^/\s]*:[^/\s]*@"
"""A regular expression, in any case, of texts that may hold a secret."""

# The block that catches errors is a subtransaction. PostgreSQL merges its changes with the others
# by LSN; a message has the one behind it, which would be that of the next row, and the row wins.
_SPACER = f"PERFORM pg_logical_emit_message(false, '{OWN_PREFIX}.spacer', '');"


def _emitting(function: str, commands: str) -> str:
    """Return the SQL of a trigger's function that writes a message for each of some commands."""
    return f"""
CREATE OR REPLACE FUNCTION changelog.{function}() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $function$
DECLARE
    sent text := current_query();
    safe text := CASE WHEN sent ~* '{WITHHELD}' THEN NULL ELSE sent END;
    found record;
BEGIN
    FOR found IN {commands}
    LOOP
        PERFORM pg_logical_emit_message(true, '{DDL_PREFIX}', json_build_object(
            'tag', found.tag, 'kind', found.kind, 'identity', found.identity,
            'tables', found.tables, 'query', safe, 'withheld', safe IS NULL,
            'user', session_user, 'role', current_user)::text);
        {_SPACER}
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'changelog does not note this command: %', SQLERRM;
END $function$;
"""


_ALTERED = """
        SELECT c.command_tag AS tag, c.object_type AS kind, c.object_identity AS identity,
               CASE WHEN c.classid = 'pg_class'::regclass THEN ARRAY[c.objid]
                    ELSE ARRAY(SELECT r.oid FROM pg_class r
                                WHERE r.relnamespace = c.objid AND r.relkind IN ('r', 'p'))
               END AS tables
          FROM pg_event_trigger_ddl_commands() c
         WHERE c.object_type IN ('table', 'table column', 'schema')
           AND c.schema_name IS DISTINCT FROM 'pg_temp'"""
_DROPPED = """
        SELECT tg_tag AS tag, 'table' AS kind, d.object_identity AS identity,
               ARRAY[d.objid] AS tables
          FROM pg_event_trigger_dropped_objects() d
         WHERE d.object_type = 'table' AND NOT d.is_temporary"""
_INSTALL = f"""
CREATE SCHEMA IF NOT EXISTS changelog;
COMMENT ON SCHEMA changelog IS 'Event triggers of changelog: remove them by `changelog ddl remove`';
{_emitting("emit_ddl", _ALTERED)}
{_emitting("emit_drop", _DROPPED)}
DROP EVENT TRIGGER IF EXISTS changelog_ddl;
CREATE EVENT TRIGGER changelog_ddl ON ddl_command_end EXECUTE FUNCTION changelog.emit_ddl();
DROP EVENT TRIGGER IF EXISTS changelog_drop;
CREATE EVENT TRIGGER changelog_drop ON sql_drop EXECUTE FUNCTION changelog.emit_drop();
"""
_REMOVE = """
DROP EVENT TRIGGER IF EXISTS changelog_ddl;
DROP EVENT TRIGGER IF EXISTS changelog_drop;
DROP FUNCTION IF EXISTS changelog.emit_ddl();
DROP FUNCTION IF EXISTS changelog.emit_drop();
"""
_INSTALLED = """
SELECT count(*) = 2 FROM pg_catalog.pg_event_trigger
 WHERE evtname IN ('changelog_ddl', 'changelog_drop') AND evtenabled IN ('O', 'A')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """One command on tables."""

    tag: str  # the command, such as `ALTER TABLE`
    kind: str  # what it was done to: `table`, `table column` or `schema`
    identity: str  # the name of that, quoted as for SQL; its new name after a RENAME
    tables: tuple[int, ...]  # object ids of the tables that it concerns
    query: str | None  # what the client has sent; None when it was withheld
    user: str  # who was connected
    role: str  # who that was at the time

    @classmethod
    def parse(cls, content: bytes) -> SchemaChange:
        """Read the message of a trigger; raises ProtocolError if it is another message."""
        try:
            raw = json.loads(content)
            return cls(
                tag=raw["tag"],
                kind=raw["kind"],
                identity=raw["identity"],
                tables=tuple(int(oid) for oid in raw["tables"]),
                query=raw["query"],
                user=raw["user"],
                role=raw["role"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(
                f'a message of the prefix "{DDL_PREFIX}" is not one of the triggers'
            ) from error


def install_ddl(connection: Connection) -> None:
    """Make the event triggers, or renew them.

    Raises SourceError: the server refuses, as it does to all but superusers.
    """
    need(
        connection.server_version,
        SENDS_MESSAGES,
        "`changelog ddl install`",
        hint="the triggers write messages, which older servers do not send",
    )
    _run(connection, _INSTALL, "cannot make the event triggers of schema changes")


def remove_ddl(connection: Connection) -> None:
    """Remove what `install_ddl` has made; raises SourceError if the server refuses."""
    _run(connection, _REMOVE + DROP_IF_EMPTY, "cannot remove the event triggers of schema changes")


def has_ddl(connection: Connection) -> bool:
    """Tell whether the event triggers are there and enabled.

    Raises SourceError: the catalogue cannot be read.
    """
    (there,) = row_of(connection, "cannot read the event triggers", _INSTALLED)
    return bool(there)


def _run(connection: Connection, statements: str, failure: str) -> None:
    # In autocommit mode the text as a whole is one transaction.
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(statements)
