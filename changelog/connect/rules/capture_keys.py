"""The keys of a capture: the settings of `changelog.toml` by name, and Debezium's keys.

Of Debezium's keys only those are known that mean the same here; the rest are refused.
"""

from __future__ import annotations

from changelog.connect.rules.keys import MOST_TASKS, REGISTRY_KEYS, Key
from changelog.runtime.setting import DeclaredSetting, declared
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
    """
    batch.num.messages batch.size client.id client.rack compression.codec compression.level
    compression.type connections.max.idle.ms linger.ms max.in.flight
    max.in.flight.requests.per.connection message.max.bytes message.send.max.retries
    metadata.max.age.ms queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    sticky.partitioning.linger.ms topic.metadata.refresh.interval.ms transaction.timeout.ms
    """.split()  # noqa: SIM905
)
"""Settings of the producers that may be given by REST: sizes and times.

The brokers, and credentials for them, are chosen by whoever starts the worker.
"""
PRODUCER_ALLOWED_TEXT = "only sizes and times, such as linger.ms, batch.size, compression.type"
_KINDS = {bool: "BOOLEAN", list: "LIST"}
SETTINGS = {setting.name: setting for setting in declared(CaptureSettings, CaptureSettings.section)}


def _key(setting: DeclaredSetting) -> Key:
    kind = "PASSWORD" if setting.setting.secret else _KINDS.get(setting.shape, "STRING")
    return Key(
        setting.name,
        setting.setting.help,
        also=_ALSO.get(setting.name, ()),
        kind=kind,
        required=setting.name == "capture.slot",
    )


CAPTURE_KEYS = (
    Key("name", "Name of the connector, unique among all.", required=True),
    Key(
        "connector.class",
        "changelog.PostgresSource; or Debezium's class, whose values are changes "
        "(capture.envelope nested).",
        required=True,
        choices=tuple(name.lower() for name in CAPTURE_CLASSES),
    ),
    Key("tasks.max", "A capture has one task.", kind="INT", default="1", least=1, most=MOST_TASKS),
    Key("postgres.dsn", "The source: a libpq URI or key=value string.", kind="PASSWORD"),
    Key("database.hostname", "The source's host, where postgres.dsn is not given."),
    Key("database.port", "The source's port.", kind="INT", least=1),
    Key("database.user", "User at the source."),
    Key("database.password", "The user's password.", kind="PASSWORD"),
    Key("database.dbname", "The source's database."),
    Key("database.sslmode", "libpq's sslmode."),
    Key("plugin.name", "Only pgoutput.", choices=("pgoutput",)),
    Key(
        "table.include.list",
        r"Tables to capture: schema\.table, with .* for any text; the same as capture.tables.",
        kind="LIST",
    ),
    Key("table.exclude.list", "Tables to leave out, in the same form.", kind="LIST"),
    Key(
        "column.exclude.list",
        r"Columns to leave out: schema\.table\.column; the same as capture.drop_columns.",
        kind="LIST",
    ),
    Key(
        "publication.autocreate.mode",
        "With disabled the publication has to exist, and is not changed.",
        choices=("filtered", "disabled"),
    ),
    Key(
        "snapshot.mode",
        "With no_data or never no table is copied: capture.skip_snapshot.",
        choices=("initial", "no_data", "never"),
    ),
    Key("key.converter", "AvroConverter or JsonConverter, the same as value.converter."),
    Key("value.converter", "AvroConverter or JsonConverter: capture.output_format."),
    *REGISTRY_KEYS,
    *(_key(setting) for setting in SETTINGS.values()),
)
