"""Options of a view's topic: `views/NAME.topic.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from views.sinks.options import Options
from views.sinks.shape import check_shape, holds_float

Value = Literal["avro", "json"]
Records = Literal["keyed", "unkeyed"]
FOR_EVER = -1


class TopicOptions(Options):
    """Options of one view."""

    value: Value = "avro"  # how keys and values are written: Avro under the registry, or JSON
    # whether readers get the newest row of each key, in a compacted topic, or each new row once,
    # without a key, in a topic that deletes only by age
    records: Records = "keyed"
    # how long records without a key are kept; -1 for ever
    retention_ms: int = Field(default=FOR_EVER, ge=FOR_EVER)

    @model_validator(mode="after")
    def _is_whole(self) -> TopicOptions:
        if self.records == "keyed" and self.retention_ms != FOR_EVER:
            raise ValueError('retention_ms is for "records": "unkeyed"')
        return self


def check_topic_shape(schema: StructType, key: tuple[str, ...]) -> None:
    """Refuse columns that records cannot hold, and keys with several encodings of one value."""
    check_shape(schema, key)
    for name in key:
        if holds_float(schema[name].dataType):
            raise SinkError(
                f'the float "{name}" cannot be in the key of a topic: -0.0 and 0.0 are one key '
                "and two records",
                hint="cast it to a decimal",
            )
