"""Reads a JSON topic as a stranger would: confluent-kafka, the json module, a dictionary."""

import json
from base64 import b64decode
from decimal import Decimal

from changelog.contract.base.headers import decode_headers
from changelog.contract.log.topic import schema_topic


def parsed(raw):
    """Parse a document so that no digit is lost; None for a tombstone."""
    return None if raw is None else json.loads(raw, parse_float=Decimal)


class Documents:
    """The documents of a capture's topics, up to its last frontier."""

    def __init__(self, capture):
        self._capture = capture

    def records(self, table):
        """Return key, value and headers of each record before the frontier's ends."""
        topic, frontier = f"{self._capture.prefix}.{table}", self._capture.frontier()
        return [
            (message.key(), parsed(message.value()), decode_headers(message.headers()))
            for message in self._capture.reader.messages(topic, frontier.ends[topic])
        ]

    def rows(self, table):
        """Fold to the live rows by key, a tuple of its values."""
        since = self._capture.frontier().since.get(f"{self._capture.prefix}.{table}")
        folded: dict[bytes, tuple] = {}
        for key, value, headers in self.records(table):
            dead = since is not None and headers.position < since
            if not dead and (key not in folded or headers.position >= folded[key][0]):
                folded[key] = (headers.position, value)
        return {
            tuple(parsed(key).values()): value
            for key, (_, value) in folded.items()
            if value is not None
        }

    def schemas(self):
        topic = schema_topic(self._capture.prefix)
        messages = self._capture.reader.messages(topic, [1_000_000])
        return {
            message.key().decode().rpartition("#")[0]: json.loads(message.value())
            for message in messages
        }


def as_parameter(kind, value):
    """Return what PostgreSQL is to cast to `kind`, by the table of the forms."""
    if isinstance(value, list):
        return [as_parameter(kind.removesuffix("[]"), item) for item in value]
    if kind == "bytea" and isinstance(value, str):
        return "\\x" + b64decode(value, validate=True).hex()
    return value if value is None or isinstance(value, str) else str(value)
