"""Values of JSON read by the schema that comes with them: days, moments, decimals and bytes.

Kafka Connect's JSON converter writes `{"schema", "payload"}`. The schema names the types that JSON
has no form for, Debezium's and Connect's own.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from changelog.avro.decimals import decimal_text
from changelog.avro.jsonforms import DIGITS, LOG_FORM
from changelog.connect.rules.records.avro import RENAMED

Schema = Mapping[str, Any]
_CONNECT = "org.apache.kafka.connect.data."


def described(schema: Any, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a value in which numbers of time are ISO 8601, and decimals and bits are texts.

    Raises:
        CorruptRecordError: a value has no such form.
        ValueError, TypeError, KeyError, AttributeError: it does not fit its schema.
    """
    if value is None or not schema:
        return value
    kind = _TYPES.get(schema.get("name"))
    if kind is not None:
        return _written(kind, value, schema)
    if isinstance(value, dict) and "fields" in schema:
        fields = {field["field"]: field for field in schema["fields"]}
        return {name: described(fields.get(name), item) for name, item in value.items()}
    if isinstance(value, list):
        return [described(schema.get("items"), item) for item in value]
    return value


def _written(kind: tuple[str, str], value: Any, schema: Schema) -> Any:  # noqa: ANN401
    """Return the text of a value whose type in Avro is known."""
    plain, logical = kind
    if logical == DIGITS:
        return decimal_text(b64decode(value["value"], validate=True), int(value["scale"]))
    if plain != "bytes":
        return LOG_FORM.writers[kind](int(value), {})
    if logical == "decimal" and type(value) is not str:  # decimal.format is NUMERIC
        return value
    raw = b64decode(value, validate=True)
    return LOG_FORM.writers[kind](raw, schema.get("parameters") or {})


_TYPES: Mapping[Any, tuple[str, str]] = {
    **RENAMED,
    f"{_CONNECT}Date": ("int", "date"),
    f"{_CONNECT}Time": ("int", "time-millis"),
    f"{_CONNECT}Timestamp": ("long", "timestamp-millis"),
    f"{_CONNECT}Decimal": ("bytes", "decimal"),
}
