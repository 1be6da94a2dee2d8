"""The kinds of connectors: their classes and keys, and validation and masking for all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from changelog.connect.rules.capture_keys import CAPTURE_CLASSES, CAPTURE_KEYS
from changelog.connect.rules.captures import capture_given
from changelog.connect.rules.keys import GROUP, MASK, Key, ParsedConfig, class_named
from changelog.connect.rules.rebuilds import REBUILD_CLASS, REBUILD_KEYS, rebuild_given
from changelog.connect.rules.settings import sink_given
from changelog.connect.rules.sink_keys import SINK_CLASSES, SINK_KEYS
from changelog.contract.base.errors import ConfigurationError

_SECRET_WORDS = ("password", "secret", "token")


@dataclass(frozen=True, slots=True)
class ConnectorKind:
    """A kind of connectors: sinks, captures or rebuilds."""

    type: str  # `sink` or `source`, for clients
    classes: tuple[str, ...]  # values of `connector.class`; the first is our own
    keys: tuple[Key, ...]
    parse: Callable[[Mapping[str, Any]], ParsedConfig]  # parses a configuration, with its errors
    spreads: bool = False  # whether it has as many tasks as `tasks.max`; otherwise it has one


SINK = ConnectorKind("sink", SINK_CLASSES, SINK_KEYS, sink_given, spreads=True)
CAPTURE = ConnectorKind("source", CAPTURE_CLASSES, CAPTURE_KEYS, capture_given)
REBUILD = ConnectorKind("sink", (REBUILD_CLASS,), REBUILD_KEYS, rebuild_given)
KINDS = (SINK, CAPTURE, REBUILD)
_BY_NAME = {name: key for kind in KINDS for key in kind.keys for name in (key.name, *key.also)}


def class_of(name: str) -> str | None:
    """Return the class with a plugin's full or short name, or None if it is unknown."""
    return class_named(name, [name for kind in KINDS for name in kind.classes])


def kind_of(config: Mapping[str, Any]) -> ConnectorKind:
    """Return the kind of a configuration; a sink if its class is missing or unknown."""
    plugin = class_of(str(config.get("connector.class", "")))
    return next((kind for kind in KINDS if plugin in kind.classes), SINK)


def problems(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the errors of a configuration by key; empty if there are none."""
    return kind_of(config).parse(config).errors


def is_secret(name: str) -> bool:
    """Return whether the value of a key is a secret; an unknown key is judged by its name."""
    key = _BY_NAME.get(name)
    return key.kind == "PASSWORD" if key else any(word in name.lower() for word in _SECRET_WORDS)


def masked(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration with its secrets masked.

    An address is only masked if it holds a password.

    >>> masked({"connection.password": "x", "connection.url": "postgresql://db/app"})
    {'connection.password': '********', 'connection.url': 'postgresql://db/app'}
    """
    return {name: _shown(name, value) for name, value in config.items()}


def _shown(name: str, value: str) -> str:
    if name in {"connection.url", "connector.url"} or name.endswith("schema.registry.url"):
        return value if "@" not in value and "password" not in value.lower() else MASK
    return MASK if value and is_secret(name) else value


def unmasked(config: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    """Return a configuration with the stored secrets in place of its masks.

    Raises ConfigurationError: there is no stored secret for a mask, or an address, user or TLS
    setting changes while a secret is masked: a password must not go to a server that it was not
    given for.
    """
    masks = [name for name, value in config.items() if value == MASK]
    moved = [
        name
        for name in sorted(config.keys() | kept.keys())
        if _is_part_of_address(name) and config.get(name, "") not in {MASK, kept.get(name, "")}
    ]
    for name in masks:
        if not kept.get(name) or moved:
            reason = f"{moved[0]} changes" if moved else "no value is stored for it"
            raise ConfigurationError(
                f"{name} is masked, and {reason}", hint="give the secret itself"
            )
    return {name: kept[name] if name in masks else value for name, value in config.items()}


def _is_part_of_address(name: str) -> bool:
    is_address = name.startswith(("database.", "connection.")) or name.endswith(".url")
    is_address |= name == "connector.user"
    return is_address and not name.endswith(".password")


def definitions(kind: ConnectorKind) -> list[dict[str, Any]]:
    """Return the answer of `GET /connector-plugins/{plugin}/config`."""
    return [key.definition(order) for order, key in enumerate(kind.keys, 1)]


def validation(plugin: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of `PUT /connector-plugins/{plugin}/config/validate`."""
    kind = kind_of({"connector.class": plugin})
    errors_of = kind.parse(config).errors
    texts = {name: value for name, value in config.items() if isinstance(value, str)}
    values, known_names, configs = masked(texts), set[str](), []
    for order, key in enumerate(kind.keys, 1):
        names = (key.name, *key.also)
        known_names |= {*names}
        errors = [reason for name in names for reason in errors_of.get(name, ())]
        value = next((values[name] for name in names if name in values), key.default)
        configs.append(_validated(key.definition(order), value, errors, key.choices))
    for name in sorted(errors_of.keys() - known_names):
        unknown = Key(name, "")
        configs.append(_validated(unknown.definition(len(configs) + 1), None, errors_of[name], ()))
    return {
        "name": plugin,
        "error_count": sum(len(field["value"]["errors"]) for field in configs),
        "groups": [GROUP],
        "configs": configs,
    }


def _validated(
    definition: dict[str, Any], value: str | None, errors: list[str], choices: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "definition": definition,
        "value": {
            "name": definition["name"],
            "value": value,
            "recommended_values": list(choices),
            "errors": errors,
            "visible": True,
        },
    }
