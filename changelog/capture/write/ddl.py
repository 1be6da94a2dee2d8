"""Schema changes of captured tables on a topic of their own.

One record for each command: the object's name is the key, and the value is a JSON document that
names the captured tables which it concerns. The topic is a history: records of one object do not
replace each other, and none expires. It has one partition, so that the commands stand in the order
of their commits, and each record has the position at which the change took place among the rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

from changelog.capture.write.messages import MessageLog
from changelog.contract.base.errors import ProtocolError
from changelog.contract.rows.relation import TableName
from changelog.source.stream.assemble import Began, Emitted
from changelog.source.tables.ddl import SchemaChange

log = logging.getLogger("changelog.capture")

KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of the topic when it is made."""


class DdlWriter:
    """Writes the schema changes of one epoch."""

    def __init__(self, messages: MessageLog, tables: Mapping[int, TableName]) -> None:
        """Start after the records on the log.

        Args:
            messages: takes the records.
            tables: the captured tables by their object ids.
        """
        self._messages = messages
        self._tables = tables

    def write(self, message: Emitted, began: Began) -> int:
        """Write the schema change of a trigger; returns how many records were not on the log yet.

        Raises:
            LogError: the broker refused an earlier record.
        """
        try:
            change = SchemaChange.parse(message.content)
        except ProtocolError as error:
            # Whoever may connect may write such a message: it must not stop the rows.
            log.warning("%s; left out", error)
            return 0
        captured = [self._tables[oid] for oid in change.tables if oid in self._tables]
        if not captured:
            return 0
        key = change.identity.encode("utf-8")
        return self._messages.write(key, _document(change, captured), message, began)


def _document(change: SchemaChange, tables: Sequence[TableName]) -> bytes:
    return json.dumps(
        {
            "command": change.tag,
            "object_type": change.kind,
            "object": change.identity,
            "tables": [list(table) for table in tables],
            "query": change.query,
            "query_withheld": change.query is None,
            "user": change.user,
            "role": change.role,
        },
        ensure_ascii=False,
    ).encode("utf-8")
