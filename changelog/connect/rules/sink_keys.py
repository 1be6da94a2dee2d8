"""The keys of a sink: topics to PostgreSQL.

Names that the JDBC sinks of Confluent and Debezium have for the same thing are synonyms.
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
    "JsonConverter, StringConverter over JSON, or AvroConverter; without it Avro where a record "
    "is framed as a registry's are, else JSON."
)
SINK_KEYS = (
    Key("name", "Name of the connector, unique among all.", required=True),
    Key(
        "connector.class",
        f"One of {', '.join(SINK_CLASSES)}; all are this sink.",
        default=SINK_CLASS,
        choices=tuple(name.lower() for name in SINK_CLASSES),
    ),
    Key("topics", "Topics, separated by commas.", kind="LIST", required=True),
    Key(
        "tasks.max",
        "Most tasks; partitions are shared.",
        kind="INT",
        default="1",
        least=1,
        most=MOST_TASKS,
    ),
    Key(
        "connection.url",
        "postgresql://host:port/database, also with jdbc: before it.",
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
        "Table, with its schema before a dot; ${topic} is the topic's name, ${table} what "
        f"stands behind its last dot, which is the default of {ADB_CLASS}.",
        also=("table.name.format", "collection.name.format"),
        default="${topic}",
    ),
    Key(
        "col.names",
        "Fields that are written; all by default, and then each must be a column.",
        also=("fields.whitelist",),
        kind="LIST",
    ),
    Key("col.types", "Types of col.names, for auto.create.", kind="LIST"),
    Key(
        "pk.fields",
        "Columns of the key; with record_key all its fields by default.",
        also=("primary.key.fields",),
        kind="LIST",
    ),
    Key(
        "pk.mode",
        "Where the key is: record_value by default where pk.fields is given, else none, and "
        f"record_key with {ADB_CLASS}.",
        also=("primary.key.mode",),
        choices=("none", "record_key", "record_value"),
    ),
    Key(
        "writeMode",
        "Rows are appended (with a key, updates and deletes are by it), written by key, or "
        "those that are there are changed by key.",
        also=("insert.mode",),
        default="insert",
        choices=("insert", "upsert", "update"),
    ),
    Key(
        "delete.enabled",
        "Whether tombstones and deletes delete (true by default with a key) or are left out.",
        kind="BOOLEAN",
    ),
    Key(
        "batch.size",
        "Most records of one transaction.",
        kind="INT",
        default="3000",
        least=1,
        most=50_000,  # a producer of dead letters holds 100,000
    ),
    Key("auto.create", "Make a table that is missing.", kind="BOOLEAN"),
    Key("auto.evolve", "Add the columns that a table lacks; drop none.", kind="BOOLEAN"),
    Key("schema.evolution", "basic: auto.create and auto.evolve.", choices=("none", "basic")),
    Key(
        "auto.offset.reset",
        "Where a partition begins of which the target has no place.",
        also=("consumer.override.auto.offset.reset",),
        default="earliest",
        choices=("earliest", "latest"),
    ),
    Key(
        "consumer.override.group.id",
        "Group to which the places are committed for monitors, connect-NAME by default.",
    ),
    Key(
        "errors.tolerance",
        "Whether a bad record fails the task or is left out, and told.",
        default="none",
        choices=("none", "all"),
    ),
    Key(
        "errors.deadletterqueue.topic.name",
        "Topic that takes bad records, with the reason in headers.",
    ),
    Key(
        "errors.deadletterqueue.topic.replication.factor",
        "Of that topic where it is made; the brokers' own by default.",
        kind="INT",
        least=1,
        most=2**15 - 1,
    ),
    Key(
        "errorLimit",
        "Bad records that a task leaves out before it fails; without it, any number.",
        kind="INT",
        least=0,
    ),
    Key("key.converter", _CONVERTERS),
    Key("value.converter", _CONVERTERS),
    *REGISTRY_KEYS,
    Key(
        "basic.auth.credentials.source",
        "USER_INFO: user and password are in basic.auth.user.info.",
        also=(
            "value.converter.basic.auth.credentials.source",
            "key.converter.basic.auth.credentials.source",
        ),
        choices=("user_info",),
    ),
    Key("key.converter.schemas.enable", "Both forms are recognised.", kind="BOOLEAN"),
    Key("value.converter.schemas.enable", "Both forms are recognised.", kind="BOOLEAN"),
    # What a configuration of the JDBC sinks says where it says what is so here anyhow.
    Key("dialect.name", "PostgreSQL's is the only one.", choices=("postgresqldatabasedialect",)),
    Key("quote.sql.identifiers", "Names are always quoted.", choices=("always",)),
    Key(
        "db.timezone",
        "Times without a zone are written as they are; with one they are moments.",
        also=("use.time.zone",),
        choices=("utc",),
    ),
    Key("truncate.enabled", "A truncation is not passed on.", choices=("false",)),
    Key("errors.log.enable", "Bad records are told in the log.", choices=("true",)),
    Key(
        "errors.log.include.messages",
        "The log has the place of a bad record, never its values.",
        choices=("false",),
    ),
    Key(
        "errors.deadletterqueue.context.headers.enable",
        "The reason is in headers.",
        choices=("true",),
    ),
    *(
        Key(
            name,
            "Taken, and of no effect: a server that is away is waited for, however long.",
            kind="INT",
        )
        for name in ("max.retries", "retry.backoff.ms", "connection.attempts")
    ),
    Key("connection.backoff.ms", "Taken, and of no effect: see connection.attempts.", kind="INT"),
    Key("table.types", "Tables are written.", choices=("table",)),
    Key("header.converter", "Taken, and of no effect: headers are not written."),
    *(
        Key(
            f"{part}.converter.decimal.format",
            "Both forms are recognised: base64 by the record's own schema.",
            choices=("base64", "numeric"),
        )
        for part in ("key", "value")
    ),
)
SINK_INSTEAD: Mapping[str, str] = {
    "transforms": "leave it out; events of Debezium are read as they are, and ${table} in "
    "target.tablename stands for the last part of a topic's name",
    "predicates": "leave it out, as transforms",
    "topics.regex": "topics names each topic",
    "consumer.override.": "leave it out; auto.offset.reset and group.id are known of these",
    "errors.retry.": "leave it out; a server that is away is waited for, however long",
    "date.": "leave it out; times are written as the records have them",
    "fields.": "col.names names the fields that are written",
    "field.": "col.names names the fields that are written",
    "connection.pool.": "leave it out; a task has one connection",
    "hibernate.": "leave it out; parts of the address belong into connection.url",
    "database.": "connection.url, connection.user and connection.password say where the database "
    "is",
    "connector.": "connection.url, connection.user and connection.password say where the "
    "database is",
    "target.": "target.tablename holds the schema too: schema.table",
    "value.converter.": "leave it out; converters have schemas.enable and the registry's keys",
    "key.converter.": "leave it out; converters have schemas.enable and the registry's keys",
}
"""What users of other sinks are told in place of keys that are not known here, by beginnings."""
