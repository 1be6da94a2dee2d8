"""The keys of a sink: topics to PostgreSQL.

Names that the JDBC sinks of Confluent and Debezium have for the same thing are synonyms.
"""

from __future__ import annotations

from collections.abc import Mapping

from changelog.connect.rules.keys import MOST_TASKS, REGISTRY_KEYS, Key

SINK_CLASS = "changelog.PostgresSink"
ADB_CLASS = "Adb4PgSinkConnector"
"""AnalyticDB's sink, with any package before it."""
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
    Key(name="name", required=True, text="Name of the connector, unique among all."),
    Key(
        name="connector.class",
        default=SINK_CLASS,
        choices=tuple(name.lower() for name in SINK_CLASSES),
        text=f"One of {', '.join(SINK_CLASSES)}; all are this sink.",
    ),
    Key(name="topics", kind="LIST", required=True, text="Topics, separated by commas."),
    Key(
        name="tasks.max",
        kind="INT",
        default="1",
        least=1,
        most=MOST_TASKS,
        text="Most tasks; partitions are shared.",
    ),
    Key(
        name="connection.url",
        also=("connector.url",),
        kind="PASSWORD",
        required=True,
        text="postgresql://host:port/database, also with jdbc: before it.",
    ),
    Key(
        name="connection.user",
        also=("connection.username", "connector.user"),
        text="User at the database.",
    ),
    Key(
        name="connection.password",
        also=("connector.password",),
        kind="PASSWORD",
        text="The user's password.",
    ),
    Key(
        name="target.tablename",
        also=("table.name.format", "collection.name.format"),
        default="${topic}",
        text="Table, with its schema before a dot; ${topic} is the topic's name, ${table} what "
        f"stands behind its last dot, which is the default of {ADB_CLASS}.",
    ),
    Key(
        name="col.names",
        also=("fields.whitelist",),
        kind="LIST",
        text="Fields that are written; all by default, and then each must be a column.",
    ),
    Key(name="col.types", kind="LIST", text="Types of col.names, for auto.create."),
    Key(
        name="pk.fields",
        also=("primary.key.fields",),
        kind="LIST",
        text="Columns of the key; with record_key all its fields by default.",
    ),
    Key(
        name="pk.mode",
        also=("primary.key.mode",),
        choices=("none", "record_key", "record_value"),
        text="Where the key is: record_value by default where pk.fields is given, else none, and "
        f"record_key with {ADB_CLASS}.",
    ),
    Key(
        name="writeMode",
        also=("insert.mode",),
        default="insert",
        choices=("insert", "upsert", "update"),
        text="Rows are appended (with a key, updates and deletes are by it), written by key, or "
        "those that are there are changed by key.",
    ),
    Key(
        name="delete.enabled",
        kind="BOOLEAN",
        text="Whether tombstones and deletes delete (true by default with a key) or are left out.",
    ),
    Key(
        name="batch.size",
        kind="INT",
        default="3000",
        least=1,
        most=50_000,  # a producer of dead letters holds 100,000
        text="Most records of one transaction.",
    ),
    Key(name="auto.create", kind="BOOLEAN", text="Make a table that is missing."),
    Key(name="auto.evolve", kind="BOOLEAN", text="Add the columns that a table lacks; drop none."),
    Key(
        name="schema.evolution",
        choices=("none", "basic"),
        text="basic: auto.create and auto.evolve.",
    ),
    Key(
        name="auto.offset.reset",
        also=("consumer.override.auto.offset.reset",),
        default="earliest",
        choices=("earliest", "latest"),
        text="Where a partition begins of which the target has no place.",
    ),
    Key(
        name="consumer.override.group.id",
        text="Group to which the places are committed for monitors, connect-NAME by default.",
    ),
    Key(
        name="errors.tolerance",
        default="none",
        choices=("none", "all"),
        text="Whether a bad record fails the task or is left out, and told.",
    ),
    Key(
        name="errors.deadletterqueue.topic.name",
        text="Topic that takes bad records, with the reason in headers.",
    ),
    Key(
        name="errors.deadletterqueue.topic.replication.factor",
        kind="INT",
        least=1,
        most=2**15 - 1,
        text="Of that topic where it is made; the brokers' own by default.",
    ),
    Key(
        name="errorLimit",
        kind="INT",
        least=0,
        text="Bad records that a task leaves out before it fails; without it, any number.",
    ),
    Key(name="key.converter", text=_CONVERTERS),
    Key(name="value.converter", text=_CONVERTERS),
    *REGISTRY_KEYS,
    Key(
        name="basic.auth.credentials.source",
        also=(
            "value.converter.basic.auth.credentials.source",
            "key.converter.basic.auth.credentials.source",
        ),
        choices=("user_info",),
        text="USER_INFO: user and password are in basic.auth.user.info.",
    ),
    Key(name="key.converter.schemas.enable", kind="BOOLEAN", text="Both forms are recognised."),
    Key(name="value.converter.schemas.enable", kind="BOOLEAN", text="Both forms are recognised."),
    # What a configuration of the JDBC sinks says where it says what is so here anyhow.
    Key(
        name="dialect.name",
        choices=("postgresqldatabasedialect",),
        text="PostgreSQL's is the only one.",
    ),
    Key(name="quote.sql.identifiers", choices=("always",), text="Names are always quoted."),
    Key(
        name="db.timezone",
        also=("use.time.zone",),
        choices=("utc",),
        text="Times without a zone are written as they are; with one they are moments.",
    ),
    Key(name="truncate.enabled", choices=("false",), text="A truncation is not passed on."),
    Key(name="errors.log.enable", choices=("true",), text="Bad records are told in the log."),
    Key(
        name="errors.log.include.messages",
        choices=("false",),
        text="The log has the place of a bad record, never its values.",
    ),
    Key(
        name="errors.deadletterqueue.context.headers.enable",
        choices=("true",),
        text="The reason is in headers.",
    ),
    *(
        Key(
            name=name,
            kind="INT",
            text="Taken, and of no effect: a server that is away is waited for, however long.",
        )
        for name in ("max.retries", "retry.backoff.ms", "connection.attempts")
    ),
    Key(
        name="connection.backoff.ms",
        kind="INT",
        text="Taken, and of no effect: see connection.attempts.",
    ),
    Key(name="table.types", choices=("table",), text="Tables are written."),
    Key(name="header.converter", text="Taken, and of no effect: headers are not written."),
    *(
        Key(
            name=f"{part}.converter.decimal.format",
            choices=("base64", "numeric"),
            text="Both forms are recognised: base64 by the record's own schema.",
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
