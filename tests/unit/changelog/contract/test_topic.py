"""Topic names, required settings, partitions."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from changelog.config import every_setting
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.partition import murmur2, partition_of
from changelog.contract.log.topic import TopicSettings, frontier_topic, topic_name, topic_names
from changelog.contract.rows.relation import TableName
from changelog.source.tables.filter import TableFilter


@pytest.mark.parametrize(
    ("table", "prefix", "topic"),
    [
        (("public", "flights"), "", "flights"),
        (("sales", "orders"), "", "sales.orders"),
        (("sales", "orders"), "shop", "shop.sales.orders"),
        (("public", "Bestellung (alt)"), "", "Bestellung__alt_"),
        (("public", "é"), "shop", "shop._"),
        (("public", "."), "", "_"),
        (("public", ".."), "", "__"),
    ],
)
def test_a_topic_is_named_after_its_table(table: tuple[str, str], prefix: str, topic: str) -> None:
    assert topic_name(TableName(*table), prefix) == topic


def test_a_name_that_kafka_cannot_hold_is_refused() -> None:
    assert len(topic_name(TableName("public", "t" * 249))) == 249
    with pytest.raises(ConfigurationError, match="250 characters"):
        topic_name(TableName("public", "t" * 250))


def test_all_tables_that_would_share_topics_are_told_at_once_with_what_leaves_them_out() -> None:
    names = ("_frontier", 'a.b"', "a_b_", "a,b", "a?b")
    tables = [TableName("public", each) for each in names]
    tables += [TableName("x", "y"), TableName("x_y", "z"), TableName("x", "y_z")]
    with pytest.raises(ConfigurationError) as caught:
        topic_names(tables)
    said = str(caught.value)
    assert 'table public._frontier and the frontier would share the topic "_frontier"' in said
    assert 'table public."a.b""" and table public.a_b_ would share the topic "a.b_"' in said
    assert 'table public.a,b and table public.a?b would share the topic "a_b"' in said
    assert 'table x.y_z and table x_y.z would share the topic "x.y_z"' in said
    (option, value) = shlex.split(said.partition("such as by ")[2].partition(", or rename")[0])
    assert option == "--exclude"
    setting = next(each for each in every_setting() if each.name == "capture.exclude")
    wanted = TableFilter(exclude=setting.from_option([value]))  # type: ignore[arg-type]
    assert topic_names([each for each in tables if wanted.wants(each)]).keys() == {
        TableName("public", "a,b"),
        TableName("public", 'a.b"'),
        TableName("x", "y"),
        TableName("x", "y_z"),
    }


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TableName("public", "orders"), '"public.orders"'),
        (TableName("public", "a b"), '"public.a b"'),
        (TableName("public", "a.b"), 'public."a.b"'),
        (TableName("public", 'a"'), 'public."a"""'),
    ],
)
def test_a_table_is_said_in_one_pair_of_quotes(table: TableName, said: str) -> None:
    assert table.said == said


@pytest.mark.parametrize("prefix", ["", "shop"])
def test_a_table_may_not_take_the_topic_of_the_frontiers(prefix: str) -> None:
    assert frontier_topic(prefix) == topic_name(TableName("public", "_frontier"), prefix)
    with pytest.raises(ConfigurationError, match="the frontier"):
        topic_names([TableName("public", "_frontier")], prefix)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("cleanup.policy", "compact,delete", "cleanup.policy is compact,delete"),
        ("cleanup.policy", "delete", "cleanup.policy is delete"),
        ("message.timestamp.type", "CreateTime", "message.timestamp.type is CreateTime"),
        ("min.compaction.lag.ms", "0", "min.compaction.lag.ms is 0"),
        ("min.compaction.lag.ms", "", "min.compaction.lag.ms is not set"),
        ("delete.retention.ms", "1000", "delete.retention.ms is 1000"),
        ("max.compaction.lag.ms", "1", "max.compaction.lag.ms is 1"),
    ],
)
def test_a_setting_that_loses_rows_is_named(name: str, value: str, found: str) -> None:
    wanted = TopicSettings()
    differences = wanted.differences({**wanted.to_config(), name: value})
    assert len(differences) == 1
    assert differences[0].startswith(found)


def test_the_required_settings_are_their_own_proof() -> None:
    wanted = TopicSettings()
    config = wanted.to_config()
    assert config["cleanup.policy"] == "compact"
    assert config["message.timestamp.type"] == "LogAppendTime"
    assert int(config["min.compaction.lag.ms"]) == 6 * 3600 * 1000
    assert int(config["delete.retention.ms"]) == 7 * 24 * 3600 * 1000
    assert wanted.differences(config) == []
    assert wanted.differences({**config, "max.compaction.lag.ms": str(2**63 - 1)}) == []


def test_room_for_larger_records_than_asked_for_is_no_difference() -> None:
    wanted = TopicSettings(max_message_bytes=5_000_000)
    config = wanted.to_config()
    assert wanted.differences({**config, "max.message.bytes": "9000000"}) == []
    assert wanted.differences({**config, "max.message.bytes": "1048588"}) == [
        "max.message.bytes is 1048588, must be 5000000"
    ]
    assert "max.message.bytes" not in TopicSettings().to_config()
    assert replace(wanted, compacted=False).to_config()["max.message.bytes"] == "5000000"


# From the tests of Apache Kafka's Java client (UtilsTest.testMurmur2).
@pytest.mark.parametrize(
    ("key", "java"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
        ("", 275646681),
    ],
)
def test_the_partitioner_hashes_as_the_java_client_does(key: str, java: int) -> None:
    assert murmur2(key.encode()) == java % 2**32
    assert partition_of(key.encode(), 7) == (java & 0x7FFFFFFF) % 7


def test_connections_keep_their_options_out_of_sight() -> None:
    kafka = KafkaConnection(brokers="b:9092", options={"sasl.password": "canary"})
    registry = RegistryConnection(
        url="http://ann:canary@r:8081", options={"basic.auth.user.info": "ann:canary"}
    )
    assert "canary" not in repr(kafka)
    assert "canary" not in str(registry)
    assert kafka.client_config(group_id="g") == {
        "bootstrap.servers": "b:9092",
        "log_level": 0,
        "sasl.password": "canary",
        "group.id": "g",
    }
    assert registry.client_config()["url"] == "http://ann:canary@r:8081"


def test_two_tables_of_one_topic_are_told_apart_by_their_names():
    tables = [TableName("a.b", "c"), TableName("a", "b.c")]
    with pytest.raises(ConfigurationError) as raised:
        topic_names(tables)
    assert 'a."b.c"' in str(raised.value)
    assert '"a.b".c' in str(raised.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("t", TableName("public", "t")),
        (" s . t ", TableName("s", "t")),
        ('"a.b"', TableName("public", "a.b")),
        ('s."a.b"', TableName("s", "a.b")),
        ('"S ""x"".y".t', TableName('S "x".y', "t")),
        ('a"b', TableName("public", 'a"b')),
        ("", None),
        ("a.", None),
        ("a.b.c", None),
        ('""', None),
    ],
)
def test_a_name_is_read_as_it_is_written(text, name):
    assert TableName.parse(text) == name
    if name is not None:
        assert TableName.parse(str(name)) == name
