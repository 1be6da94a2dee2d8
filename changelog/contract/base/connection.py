"""Connections to the log's servers: values made at the edge and passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from changelog.contract.base.secret import redacted

_ANSWER_S = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """Brokers and how to speak to them."""

    brokers: str  # `host:port` pairs, separated by commas
    # further client settings by librdkafka's names (`security.protocol`, `sasl.mechanism`,
    # `sasl.username`, `sasl.password`, `ssl.ca.location`, …)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def client_config(self, **more: str | float | bool) -> dict[str, str | int | float | bool]:
        """Return the settings of a confluent-kafka client; `more` uses `_` for `.`.

        It keeps still: else librdkafka notes each failed connection on standard error.
        """
        extra = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.brokers, "log_level": 0, **self.options, **extra}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConnection:
    """A schema registry with Confluent's interface."""

    url: str = field(repr=False)  # its base, without a slash at the end; it may hold a password
    # further settings by confluent-kafka's names (`basic.auth.user.info`, `ssl.ca.location`, …)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def client_config(self) -> dict[str, str | int]:
        """Return the settings of confluent-kafka's `SchemaRegistryClient`.

        Without one of its own it would wait for ever for a registry that stands still.
        """
        return {"url": self.url, "timeout": _ANSWER_S, **self.options}

    def __str__(self) -> str:
        """Return the address without its password."""
        return redacted(self.url)
