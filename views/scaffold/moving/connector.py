"""A connector's configuration: of Kafka Connect, Debezium Server, or a file of properties."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from views.scaffold.moving.account import Account, Outcome


@dataclass(frozen=True, slots=True)
class Reason:
    """An outcome of keys that translate into no setting."""

    keys: str  # an expression of whole keys
    outcome: Outcome
    text: str
    values: str = ".*"  # an expression of the values of which it is so


_SERVER = re.compile(r"debezium\.(?:source\.|(?=transforms))")
"""The beginning of a connector's keys in Debezium Server's properties."""


@dataclass(slots=True)
class Connector:
    """A configuration, of which keys are taken one after another."""

    path: tuple[str, ...]  # where it is in the file
    names: dict[str, str]  # its keys as the file has them
    keys: dict[str, str]
    account: Account | None = None

    @classmethod
    def of(cls, content: Any, account: Account | None = None) -> Self:  # noqa: ANN401 - JSON
        """Return the configuration of a file, in the form {"name", "config"} or as it is."""
        if not isinstance(content, Mapping):
            return cls((), {}, {})
        inner = content.get("config")
        path, config = (("config",), inner) if isinstance(inner, Mapping) else ((), content)
        is_server = "debezium.source.connector.class" in config
        texts = {
            _SERVER.sub("", name, count=1) if is_server else name: (name, value)
            for name, value in config.items()
            if not isinstance(value, Mapping | list)
        }
        return cls(
            path,
            {key: name for key, (name, _) in texts.items()},
            {
                key: str(value).lower() if isinstance(value, bool) else str(value)
                for key, (_, value) in texts.items()
            },
            account,
        )

    def take(self, key: str, outcome: Outcome = Outcome.CARRIED, text: str = "") -> str:
        """Remove a key and return its value, empty without one; with a text its outcome is told."""
        value = self.keys.pop(key, None)
        if value is not None and text:
            self.tell(key, outcome, text)
        return value or ""

    def tell(self, key: str, outcome: Outcome, text: str) -> None:
        """Note the outcome of a key."""
        assert self.account is not None  # noqa: S101 - a translator has one
        self.account.tell((*self.path, self.names[key]), outcome, text)

    def tell_rest(self, reasons: Sequence[Reason]) -> None:
        """Note the outcomes of all keys that are still there, as far as they are known."""
        for key in list(self.keys):
            self.tell_reason(reasons, key)

    def tell_reason(self, reasons: Sequence[Reason], key: str, alias: str = "") -> bool:
        """Note the outcome of a key by the first reason that fits it, or `alias`; True if any."""
        value = self.keys[key]
        for reason in reasons:
            if re.fullmatch(reason.keys, alias or key) and re.fullmatch(reason.values, value):
                self.take(key, reason.outcome, reason.text)
                return True
        return False
