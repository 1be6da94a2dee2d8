"""librdkafka in the library: confluent_kafka's own copy, configured by its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from changelog.contract.base.errors import ConfigurationError
from changelog.native.compiled.library import ffi, lib, text

REASON_BYTES = 512
_HINT = "install the version that this package names, or take Python's way: CHANGELOG_NATIVE=python"
_MAJOR = 2
"""Of librdkafka. `src/kafka.h` has its structs and numbers, which are stable in a major version."""


@cache
def load() -> None:
    """Load the client's functions, once in a process.

    Raises ConfigurationError: this copy of the client lacks one, or has other structs.
    """
    missing = lib.kafka_load(cimpl.__file__.encode())
    if missing != ffi.NULL:
        raise ConfigurationError(
            f"confluent-kafka has no {text(missing)}",
            hint=_HINT,
        )
    check_version(lib.kafka_version())
    reason = ffi.new("char[]", REASON_BYTES)
    if not lib.kafka_is_alike(reason, REASON_BYTES):
        raise _refusal(lib.kafka_version(), text(reason))


def check_version(version: int) -> None:
    """Check that the structs of a version of librdkafka are known, before any is made.

    Raises ConfigurationError: it is not.
    """
    if version >> 24 != _MAJOR:
        raise _refusal(version, f"it knows those of version {_MAJOR}")


def _refusal(version: int, why: str) -> ConfigurationError:
    major, minor, revision = version >> 24, version >> 16 & 0xFF, version >> 8 & 0xFF
    return ConfigurationError(
        f"confluent-kafka brings librdkafka {major}.{minor}.{revision}, whose structs may be "
        f"other ones than the compiled part knows: {why}",
        hint=_HINT,
    )


class Settings:
    """A client's settings as C takes them.

    Attributes:
        names, values: arrays of C strings, alive as long as this is.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        texts = {name: _setting(value) for name, value in config.items()}
        self._strings = [
            (ffi.new("char[]", name.encode()), ffi.new("char[]", text.encode()))
            for name, text in texts.items()
        ]
        self.names = ffi.new("char *[]", [name for name, _ in self._strings])
        self.values = ffi.new("char *[]", [value for _, value in self._strings])
        self.count = len(self._strings)  # of both


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def client_error(code: int, reason: str = "") -> KafkaException:
    """Return the exception that confluent_kafka would raise for an error code of librdkafka."""
    return KafkaException(KafkaError(code, reason or text(lib.kafka_error_text(code))))


def opened(make: Callable[..., Any], config: Mapping[str, Any], *more: object) -> Any:  # noqa: ANN401 - C
    """Call a function of the library with a consumer's settings; return its result.

    `make` takes the settings, then `more`, then a buffer for the reason of an error.

    Raises KafkaException: librdkafka does not know a setting.
    """
    load()
    settings = Settings(config)
    reason = ffi.new("char[]", REASON_BYTES)
    raw = make(settings.names, settings.values, settings.count, *more, reason, REASON_BYTES)
    if raw == ffi.NULL:
        raise client_error(KafkaError._INVALID_ARG, text(reason))
    return raw
