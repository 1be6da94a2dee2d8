"""librdkafka in the compiled library: found in confluent_kafka's copy, set up by its settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from changelog.contract.base.errors import ConfigurationError
from changelog.native.compiled.library import ffi, lib

SAID_BYTES = 512


@cache
def load() -> None:
    """Find the client's functions, once a process.

    Raises:
        ConfigurationError: this copy of the client lacks one.
    """
    missing = lib.kafka_load(cimpl.__file__.encode())
    if missing != ffi.NULL:
        raise ConfigurationError(
            f"confluent-kafka has no {ffi.string(missing).decode()}",
            hint="install the version that this package names",
        )


class Settings:
    """A client's settings as C takes them.

    Attributes:
        names, values: arrays of C strings, alive as long as this is.
        count: of both.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        texts = {name: _text(value) for name, value in config.items()}
        self._strings = [
            (ffi.new("char[]", name.encode()), ffi.new("char[]", text.encode()))
            for name, text in texts.items()
        ]
        self.names = ffi.new("char *[]", [name for name, _ in self._strings])
        self.values = ffi.new("char *[]", [value for _, value in self._strings])
        self.count = len(self._strings)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def client_error(code: int, said: str = "") -> KafkaException:
    """Return the exception that confluent_kafka would raise for a code of librdkafka's."""
    return KafkaException(KafkaError(code, said or ffi.string(lib.kafka_error_text(code)).decode()))
