"""Values of JSON as the schema beside them says: what a number of days or a text of bytes means.

Kafka Connect's JSON converter writes `{"schema", "payload"}`. The schema names the types that JSON
has no form for, Debezium's and Connect's own.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from changelog.avro.decimals import decimal_text
from changelog.avro.jsonforms import bits_text
from changelog.contract.forms.moments import date_text, moment_text, time_text

Schema = Mapping[str, Any]
_DEBEZIUM, _CONNECT = "io.debezium.", "org.apache.kafka.connect.data."


def described(schema: Any, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a value in which numbers of time are ISO 8601, and decimals and bits are texts.

    Raises:
        CorruptRecordError: a value has no such form.
        ValueError, TypeError, KeyError, AttributeError: it does not fit its schema.
    """
    if value is None or not schema:
        return value
    read = _READERS.get(schema.get("name"))
    if read is not None:
        return read(value, schema)
    if isinstance(value, dict) and "fields" in schema:
        fields = {each["field"]: each for each in schema["fields"]}
        return {name: described(fields.get(name), each) for name, each in value.items()}
    if isinstance(value, list):
        return [described(schema.get("items"), each) for each in value]
    return value


def _decimal(value: Any, schema: Schema) -> Any:  # noqa: ANN401 - a number goes as it is
    if type(value) is not str:  # decimal.format is NUMERIC
        return value
    return decimal_text(b64decode(value, validate=True), int(schema["parameters"]["scale"]))


def _digits(value: Any, _: Schema) -> str:  # noqa: ANN401
    return decimal_text(b64decode(value["value"], validate=True), int(value["scale"]))


def _bits(value: Any, schema: Schema) -> str:  # noqa: ANN401
    raw = b64decode(value, validate=True)
    return bits_text(raw, int((schema.get("parameters") or {}).get("length", 1)))


def _time(digits: int) -> Callable[[Any, Schema], str]:
    return lambda value, _: time_text(int(value), digits=digits)


def _moment(digits: int, *, zoned: bool = False) -> Callable[[Any, Schema], str]:
    return lambda value, _: moment_text(int(value), digits=digits, zoned=zoned)


def _date(value: Any, _: Schema) -> str:  # noqa: ANN401
    return date_text(int(value))


_READERS: Mapping[Any, Callable[[Any, Schema], Any]] = {
    f"{_DEBEZIUM}time.Date": _date,
    f"{_DEBEZIUM}time.Time": _time(3),
    f"{_DEBEZIUM}time.MicroTime": _time(6),
    f"{_DEBEZIUM}time.Timestamp": _moment(3),
    f"{_DEBEZIUM}time.MicroTimestamp": _moment(6),
    f"{_DEBEZIUM}time.NanoTimestamp": _moment(9),
    f"{_DEBEZIUM}data.VariableScaleDecimal": _digits,
    f"{_DEBEZIUM}data.Bits": _bits,
    f"{_CONNECT}Date": _date,
    f"{_CONNECT}Time": _time(3),
    f"{_CONNECT}Timestamp": _moment(3, zoned=True),
    f"{_CONNECT}Decimal": _decimal,
}
