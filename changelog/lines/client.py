"""Settings of the client as `-X` and a file of kcat's (`-F`) give them, checked by name. Pure.

What the command sets for itself is refused with what says it here: librdkafka takes the last of two
settings without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.properties import PRODUCER_KEPT, parse_properties

_SERVERS = {
    **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), "-b HOST:PORT,… names them"),
    "schema.registry.url": "-r URL names it",
}
_STORED = "--group NAME or -G NAME stores the place behind what was shown"
_READER = {
    **_SERVERS,
    **dict.fromkeys(("enable.auto.commit", "auto.commit.enable"), _STORED),
    "enable.auto.offset.store": _STORED,
    "auto.offset.reset": "--from says where a read begins; with -G it is taken",
    "enable.partition.eof": "-e ends at the end",
}
_WRITER = {**PRODUCER_KEPT, **_SERVERS}
_SAME = {
    "enable.partition.eof": {"true"},
    "enable.auto.commit": {"false"},
    "auto.commit.enable": {"false"},
    "enable.auto.offset.store": {"false"},
    "enable.idempotence": {"true"},
    "acks": {"all", "-1"},
    "request.required.acks": {"all", "-1"},
    "partitioner": {"murmur2_random"},
    "message.timeout.ms": {"0"},
    "delivery.timeout.ms": {"0"},
}
"""Values of settings that are kept which say what holds anyway."""

_BEGIN_TOPIC = "topic."
_GLOBAL = ("topic.metadata.", "topic.blacklist", "topic.propagation.")
"""Settings whose own names begin so."""


def given_settings(properties: list[str] | None, file: str | None) -> dict[str, str]:
    """Return the settings of `-X` and, before them, of a file as kcat's `-F` reads it.

    Raises ConfigurationError: a text has no form of theirs, or the file cannot be read.
    """
    texts = properties or []
    if "dump" in texts:
        raise ConfigurationError(
            "-X dump would print passwords", hint="-X list prints each property with its default"
        )
    from_file = dict(_lines(Path(file))) if file and file not in {"-", "none"} else {}
    return _plain(from_file) | _plain(parse_properties(texts, "-X") or {})


def _plain(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties by the names that the client takes, also the properties of topics."""
    return {
        name if name.startswith(_GLOBAL) else name.removeprefix(_BEGIN_TOPIC): value
        for name, value in properties.items()
    }


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"-F: {file} cannot be read: {error}") from error
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.replace(r"\:", ":").replace(r"\=", "=").partition("=")
        if not equals or not name:
            raise ConfigurationError(f"-F: {file}, line {number} is no name=value")
        if name.strip() == "sasl.jaas.config":
            raise ConfigurationError(
                f"-F: {file}, line {number} is a setting of Java's clients",
                hint="sasl.username=… and sasl.password=… say the same",
            )
        yield name.strip(), value.strip()


def check_reader(settings: Mapping[str, str]) -> None:
    """Check that settings leave a read what it relies on.

    Raises ConfigurationError: one does not; says what to write in its place.
    """
    _check(settings, _READER)


def check_writer(settings: Mapping[str, str]) -> None:
    """Check that settings leave a write what it promises.

    Raises ConfigurationError: one does not.
    """
    _check(settings, _WRITER)


def _check(settings: Mapping[str, str], kept: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if name in kept and value not in _SAME.get(name, ()):
            raise ConfigurationError(f"-X cannot set {name}", hint=kept[name])


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Read a header as kcat's `-H` does: `name=value`, or `name` for a null.

    Raises ConfigurationError: it has no name.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise ConfigurationError("-H takes name=value, or name for a null")
    return name, value.encode() if equals else None
