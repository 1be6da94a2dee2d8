"""The keys of a sink, which writes topics to PostgreSQL.

Keys of the JDBC sinks of Confluent and Debezium that mean the same are synonyms.
"""

from __future__ import annotations

from collections.abc import Mapping

from changelog.connect.rules.keys import MOST_TASKS, REGISTRY_KEYS, Key

SINK_CLASS = "changelog.PostgresSink"
ADB_CLASS = "Adb4PgSinkConnector"  # AnalyticDB's sink, with any package before it
SINK_CLASSES = (
    SINK_CLASS,
    "io.confluent.connect.jdbc.JdbcSinkConnector",
    "io.debezium.connector.jdbc.JdbcSinkConnector",
    ADB_CLASS,
)
CONVERTERS = ("JsonConverter", "StringConverter", "AvroConverter")
_CONVERTERS = (
    "JsonConverter, StringConverter for JSON, or AvroConverter; by default Avro if a record begins "
    "like one of a registry, else JSON."
)
SINK_KEYS = (
    Key("name", "Name of the connector, unique among all.", required=True),
    Key(
        "connector.class",
        f"One of {', '.join(SINK_CLASSES)}; all name this sink.",
        default=SINK_CLASS,
        choices=tuple(name.lower() for name in SINK_CLASSES),
    ),
    Key("topics", "Topics, separated by commas.", kind="LIST", required=True),
    Key(
        "tasks.max",
        "Most tasks; they share the partitions.",
        kind="INT",
        default="1",
        least=1,
        most=MOST_TASKS,
    ),
    Key(
        "connection.url",
        "postgresql://host:port/database, with or without jdbc: before it.",
        also=("connector.url",),
        kind="PASSWORD",
        required=True,
    ),
    Key("connection.user", "User at the database.", also=("connection.username", "connector.user")),
    Key(
        "connection.password", "The user's password.", also=("connector.password",), kind="PASSWORD"
    ),
    Key(
        "target.tablename",
        "The table, as table or schema.table; ${topic} is the topic's name, ${table} the part "
        f"after its last dot, which is the default with {ADB_CLASS}.",
        also=("table.name.format", "collection.name.format"),
        default="${topic}",
    ),
    Key(
        "col.names",
        "Fields that are written; by default all, and then each must be a column.",
        also=("fields.whitelist",),
        kind="LIST",
    ),
    Key("col.types", "Types of col.names, for auto.create.", kind="LIST"),
    Key(
        "pk.fields",
        "Columns of the key; with record_key by default all fields of the record's key.",
        also=("primary.key.fields",),
        kind="LIST",
    ),
    Key(
        "pk.mode",
        "Part of a record that has the key; by default record_value if pk.fields is given, else "
        f"record_key with {ADB_CLASS}, else none.",
        also=("primary.key.mode",),
        choices=("none", "record_key", "record_value"),
    ),
    Key(
        "writeMode",
        "insert appends rows (updates and deletes go by key if there is one), upsert writes rows "
        "by key, update changes existing rows by key.",
        also=("insert.mode",),
        default="insert",
        choices=("insert", "upsert", "update"),
    ),
    Key(
        "delete.enabled",
        "Whether tombstones and deletes delete rows, by default true with a key, or are left out.",
        kind="BOOLEAN",
    ),
    Key(
        "batch.size",
        "Most records of one transaction.",
        kind="INT",
        default="3000",
        least=1,
        most=50_000,  # the producer of dead letters has room for 100,000
    ),
    Key("auto.create", "Create a missing table.", kind="BOOLEAN"),
    Key("auto.evolve", "Add missing columns to the table; none is dropped.", kind="BOOLEAN"),
    Key("schema.evolution", "basic: auto.create and auto.evolve.", choices=("none", "basic")),
    Key(
        "auto.offset.reset",
        "Where to begin in a partition for which the target has no offset.",
        also=("consumer.override.auto.offset.reset",),
        default="earliest",
        choices=("earliest", "latest"),
    ),
    Key(
        "consumer.override.group.id",
        "Consumer group to which offsets are committed for monitors; by default connect-NAME.",
    ),
    Key(
        "errors.tolerance",
        "Whether a bad record fails the task (none), or is left out and logged (all).",
        default="none",
        choices=("none", "all"),
    ),
    Key(
        "errors.deadletterqueue.topic.name",
        "Topic to which bad records are sent, with the reason in headers.",
    ),
    Key(
        "errors.deadletterqueue.topic.replication.factor",
        "Replication factor of that topic if it is created; by default the brokers'.",
        kind="INT",
        least=1,
        most=2**15 - 1,
    ),
    Key(
        "errorLimit",
        "Most bad records that a task leaves out before it fails; by default any number.",
        kind="INT",
        least=0,
    ),
    Key("key.converter", _CONVERTERS),
    Key("value.converter", _CONVERTERS),
    *REGISTRY_KEYS,
    Key(
        "basic.auth.credentials.source",
        "Only USER_INFO: user and password are in basic.auth.user.info.",
        also=(
            "value.converter.basic.auth.credentials.source",
            "key.converter.basic.auth.credentials.source",
        ),
        choices=("user_info",),
    ),
    Key("key.converter.schemas.enable", "Both forms are recognised.", kind="BOOLEAN"),
    Key("value.converter.schemas.enable", "Both forms are recognised.", kind="BOOLEAN"),
    # Keys of the JDBC sinks whose allowed values say what this sink does in any case.
    Key("dialect.name", "Only PostgreSQL's.", choices=("postgresqldatabasedialect",)),
    Key("quote.sql.identifiers", "Names are always quoted.", choices=("always",)),
    Key(
        "db.timezone",
        "Times without a zone are written unchanged; times with one are moments.",
        also=("use.time.zone",),
        choices=("utc",),
    ),
    Key("truncate.enabled", "Tables are never truncated.", choices=("false",)),
    Key("errors.log.enable", "Bad records are always logged.", choices=("true",)),
    Key(
        "errors.log.include.messages",
        "The log has topic, partition and offset of a bad record, never its values.",
        choices=("false",),
    ),
    Key(
        "errors.deadletterqueue.context.headers.enable",
        "The reason is always in headers.",
        choices=("true",),
    ),
    *(
        Key(
            name,
            "Accepted without effect: the task waits for a server however long it takes.",
            kind="INT",
        )
        for name in ("max.retries", "retry.backoff.ms", "connection.attempts")
    ),
    Key("connection.backoff.ms", "Accepted without effect: see connection.attempts.", kind="INT"),
    Key("table.types", "Only tables are written.", choices=("table",)),
    Key("header.converter", "Accepted without effect: headers are not written."),
    *(
        Key(
            f"{part}.converter.decimal.format",
            "Both forms are recognised; base64 is read by the record's own schema.",
            choices=("base64", "numeric"),
        )
        for part in ("key", "value")
    ),
)
SINK_INSTEAD: Mapping[str, str] = {
    "transforms": "leave it out; Debezium's events are read as they are, and ${table} in "
    "target.tablename is the last part of a topic's name",
    "predicates": "leave it out, like transforms",
    "topics.regex": "list each topic in topics",
    "consumer.override.": "leave it out; only auto.offset.reset and group.id can be set",
    "errors.retry.": "leave it out; the task waits for a server however long it takes",
    "date.": "leave it out; times are written as the records have them",
    "fields.": "list the fields to write in col.names",
    "field.": "list the fields to write in col.names",
    "connection.pool.": "leave it out; a task has one connection",
    "hibernate.": "leave it out; write parts of the address into connection.url",
    "database.": "give the address in connection.url, connection.user and connection.password",
    "connector.": "give the address in connection.url, connection.user and connection.password",
    "target.": "write the schema into target.tablename too: schema.table",
    "value.converter.": "leave it out; converters only have schemas.enable and the registry's keys",
    "key.converter.": "leave it out; converters only have schemas.enable and the registry's keys",
}
"""Advice about keys of other sinks that are unknown here, by their prefix."""
