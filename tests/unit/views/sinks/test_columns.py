"""Which columns each sink holds, told before a server is asked."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import SinkError
from views.sinks.base import SinkSettings
from views.sinks.make import KINDS, make_sink

SETTINGS = SinkSettings(
    warehouse="/nowhere",
    search_url="http://127.0.0.1:1",
    cache_url="redis://127.0.0.1:1/0",
    postgres_url="postgresql://127.0.0.1:1/x",
    kafka=KafkaConnection(brokers="127.0.0.1:1"),
)
HELD = {
    "word": KINDS,
    "Mixed": KINDS,
    "größe": ("delta", "search", "cache", "postgres", "iceberg"),
    "sp ace": ("search", "cache", "postgres", "iceberg"),
    "x;y": ("search", "cache", "postgres", "iceberg"),
    "a.b": ("delta", "cache", "postgres"),
    "..": ("delta", "cache", "postgres"),
    "sum(x)": ("search", "cache", "postgres", "iceberg"),
    "_id": ("delta", "cache", "postgres", "topic", "iceberg"),
    "xmin": ("delta", "search", "cache", "topic", "iceberg"),
    "x" * 64: ("delta", "search", "cache", "topic", "iceberg"),
    "ü" * 32: ("delta", "search", "cache", "iceberg"),
    "": (),
    "__gone": (),
    "__Key": (),
    "ID": (),
}


@pytest.mark.parametrize("name", HELD)
def test_a_sink_refuses_the_names_that_it_does_not_hold_and_no_other(name: str) -> None:
    schema = StructType([StructField("id", IntegerType()), StructField(name, StringType())])
    spark: Any = None
    for kind in KINDS:
        sink = make_sink(kind, view="v", key=["id"], settings=SETTINGS, spark=spark)
        if kind in HELD[name]:
            sink.check(schema)
        else:
            with pytest.raises(SinkError, match="column") as raised:
                sink.check(schema)
            assert raised.value.hint
