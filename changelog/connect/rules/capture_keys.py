"""The keys of a capture: all settings of `changelog.toml` by their names, and Debezium's names.

Debezium's keys are there where they mean the same; those that do not are unknown, and refused.
"""

from __future__ import annotations

from changelog.connect.rules.keys import MOST_TASKS, REGISTRY_KEYS, Key
from changelog.runtime.setting import Declared, declared
from changelog.sections import CaptureSettings

CAPTURE_CLASS = "changelog.PostgresSource"
DEBEZIUM_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
CAPTURE_CLASSES = (CAPTURE_CLASS, DEBEZIUM_CLASS)

_ALSO = {
    "capture.slot": ("slot.name",),
    "capture.topic_prefix": ("topic.prefix",),
    "capture.publication": ("publication.name",),
    "capture.partitions": ("topic.creation.default.partitions",),
    "capture.replication_factor": ("topic.creation.default.replication.factor",),
}
PRODUCER_ALLOWED = frozenset(
    {
        "batch.num.messages",
        "batch.size",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.level",
        "compression.type",
        "connections.max.idle.ms",
        "linger.ms",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.max.bytes",
        "message.send.max.retries",
        "metadata.max.age.ms",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        "sticky.partitioning.linger.ms",
        "topic.metadata.refresh.interval.ms",
        "transaction.timeout.ms",
    }
)
"""Settings of the producers that may be given by REST: sizes and times. The worker's brokers, and
how it speaks to them, are those of whoever started it."""
PRODUCER_ALLOWED_TEXT = "sizes and times alone, such as linger.ms, batch.size, compression.type"
_KINDS = {bool: "BOOLEAN", list: "LIST"}
SETTINGS = {setting.name: setting for setting in declared(CaptureSettings, CaptureSettings.section)}


def _key(setting: Declared) -> Key:
    kind = "PASSWORD" if setting.setting.secret else _KINDS.get(setting.shape, "STRING")
    return Key(
        name=setting.name,
        also=_ALSO.get(setting.name, ()),
        kind=kind,
        required=setting.name == "capture.slot",
        text=setting.setting.help,
    )


CAPTURE_KEYS = (
    Key(name="name", required=True, text="Name of the connector, unique among all."),
    Key(
        name="connector.class",
        required=True,
        choices=tuple(name.lower() for name in CAPTURE_CLASSES),
        text="Our own; or Debezium's, whose values are changes (capture.envelope nested).",
    ),
    Key(
        name="tasks.max",
        kind="INT",
        default="1",
        least=1,
        most=MOST_TASKS,
        text="A capture has one task.",
    ),
    Key(name="postgres.dsn", kind="PASSWORD", text="The source: a libpq URI or key=value string."),
    Key(name="database.hostname", text="The source's host, where postgres.dsn is not given."),
    Key(name="database.port", kind="INT", least=1, text="Its port."),
    Key(name="database.user", text="User at the source."),
    Key(name="database.password", kind="PASSWORD", text="The user's password."),
    Key(name="database.dbname", text="The source's database."),
    Key(name="database.sslmode", text="As libpq's sslmode."),
    Key(name="plugin.name", choices=("pgoutput",), text="pgoutput is the only one."),
    Key(
        name="table.include.list",
        kind="LIST",
        text=r"Tables: schema\.table, .* for any text; as capture.tables.",
    ),
    Key(name="table.exclude.list", kind="LIST", text="Tables to leave out, in the same form."),
    Key(
        name="column.exclude.list",
        kind="LIST",
        text=r"Columns to leave out, schema\.table\.column; as capture.drop_columns.",
    ),
    Key(
        name="publication.autocreate.mode",
        choices=("filtered", "disabled"),
        text="disabled: the publication is there, and is left as it is.",
    ),
    Key(
        name="snapshot.mode",
        choices=("initial", "no_data", "never"),
        text="no_data and never copy no table: capture.skip_snapshot.",
    ),
    Key(name="key.converter", text="AvroConverter or JsonConverter; as that of the values."),
    Key(name="value.converter", text="AvroConverter or JsonConverter: capture.output_format."),
    *REGISTRY_KEYS,
    *(_key(setting) for setting in SETTINGS.values()),
)
