"""Messages of `pg_logical_emit_message`, and schema changes, to topics of their own.

Messages of the application are an outbox without a table.

One record for each message: its prefix is the key and its content is the value, byte for byte. The
topic is a log, not a table: records of one prefix do not replace each other, so it is not
compacted, and the brokers' retention applies. It is made with one partition, on which records stand
in the order of commits. Other programs that have given it more partitions still find the records of
one prefix on one partition, in their order.

A message outside of a transaction is sent at its own place in the WAL, and counts as done even when
the transaction around it is rolled back. Its position is the last byte of its own WAL record: no
commit record begins there, so that it sorts among the transactions as it was written.

A schema change is a message of a trigger of ours. There is one record for each command: the
object's name is the key, and the value is a JSON document that names the captured tables which it
concerns. The topic is a history: records of one object do not replace each other, and none expires.
It has one partition, so that the commands stand in the order of their commits, and each record has
the position at which the change took place among the rows.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from changelog.capture.write.writer import RecordSink
from changelog.capture.write.written import Written
from changelog.contract.base.errors import ProtocolError
from changelog.contract.base.headers import TRANSACTIONAL, Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.pattern import expression
from changelog.contract.base.position import Position
from changelog.contract.log.partition import partition_of
from changelog.contract.rows.relation import TableName
from changelog.source.stream.assemble import Began, Emitted
from changelog.source.stream.message import is_own
from changelog.source.tables.ddl import SchemaChange

log = logging.getLogger("changelog.capture")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLog:
    """A topic of messages, in one epoch."""

    log: RecordSink
    topic: str
    epoch: int
    written: Written
    clock: Callable[[], float] = time.time

    def write(self, key: bytes, value: bytes, message: Emitted, began: Began) -> int:
        """Write the record of a message; returns 1, or 0 when it stands on the log already.

        The header `ts` is the commit time. A message outside of a transaction has no time in the
        WAL; there it is when the message was read.

        Raises LogError: the broker refused an earlier record.
        """
        partition = partition_of(key, self.written.partitions.get(self.topic, 1))
        position = self._position(message, began)
        last = self.written.last(self.topic, partition)
        if last is not None and position <= last:
            return 0
        ts_us = began.ts_us if message.transactional else int(self.clock() * 1_000_000)
        headers = encode_headers(position, Op.MESSAGE, ts_us)
        headers.append((TRANSACTIONAL, b"t" if message.transactional else b"f"))
        self.log.produce(self.topic, key, value, headers, partition)
        return 1

    def _position(self, message: Emitted, began: Began) -> Position:
        if message.transactional:
            return Position(self.epoch, began.commit_lsn, message.sequence)
        return Position(self.epoch, Lsn(message.lsn - 1), 0)


class MessageWriter:
    """Writes the messages of the application, and never the messages of this program."""

    def __init__(self, messages: MessageLog, prefixes: Iterable[str]) -> None:
        """Prepare to write.

        No message is wanted without a pattern of its prefix.
        """
        self._messages = messages
        self._patterns = [re.compile(expression(text), re.DOTALL) for text in prefixes]
        self._has_warned = False

    def write(self, message: Emitted, began: Began) -> int:
        """Write a message if it is wanted; else as `MessageLog.write`."""
        if is_own(message.prefix) or not self._wants(message.prefix):
            return 0
        key = message.prefix.encode("utf-8")
        return self._messages.write(key, message.content, message, began)

    def _wants(self, prefix: str) -> bool:
        if any(pattern.fullmatch(prefix) for pattern in self._patterns):
            return True
        if not self._has_warned:
            self._has_warned = True
            log.info('not captured: messages, such as of the prefix "%s" (--messages)', prefix)
        return False


KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of the topic when it is made."""


class DdlWriter:
    """Writes the schema changes of one epoch."""

    def __init__(self, messages: MessageLog, tables: Mapping[int, TableName]) -> None:
        """Start after the records on the log."""
        self._messages = messages
        self._tables = tables

    def write(self, message: Emitted, began: Began) -> int:
        """Write the schema change of a trigger; returns how many records were not on the log yet.

        Raises LogError: the broker refused an earlier record.
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
