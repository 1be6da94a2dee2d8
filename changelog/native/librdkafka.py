"""The producer: librdkafka's without an object a record, or confluent-kafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.records import PARTITION_UA, Texts
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.producer import ProducerHandle
else:
    from changelog.native.plain.producer import ProducerHandle

__all__ = ["PARTITION_UA", "ProducerHandle", "Texts"]
