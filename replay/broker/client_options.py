"""Convert a Kafka client's settings from librdkafka's names to the ones that Spark's tasks need.

A user gives one set of settings, for confluent-kafka; a task reads with that or with the Java
client. Certificate files are read here and sent as text, since an executor on another machine does
not have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from changelog.contract.base.errors import ConfigurationError

# Settings with the same name in both clients.
_SAME = {"security.protocol", "client.id", "client.rack", "ssl.endpoint.identification.algorithm"}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SASL = {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
# Of the Java client: the setting that takes the PEM text, and the one that says that it is PEM.
_FILES = {
    "ssl.ca.location": ("ssl.truststore.certificates", "ssl.truststore.type"),
    "ssl.certificate.location": ("ssl.keystore.certificate.chain", "ssl.keystore.type"),
    "ssl.key.location": ("ssl.keystore.key", "ssl.keystore.type"),
}
_TEXTS = {
    "ssl.ca.pem": ("ssl.truststore.certificates", "ssl.truststore.type"),
    "ssl.certificate.pem": ("ssl.keystore.certificate.chain", "ssl.keystore.type"),
    "ssl.key.pem": ("ssl.keystore.key", "ssl.keystore.type"),
}
_TEXT_IN_PLACE_OF_FILE = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_SECURITY = ("sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl.")


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the Java client's settings; settings that only tune librdkafka are left out.

    Raises ConfigurationError: a setting of security has no counterpart, or a file is not PEM.
    """
    java = {name: options[name] for name in options if name in _SAME}
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""  # how the Java client spells "none"
    java |= _sasl(options)
    java |= _pem(options, _FILES, _file_text)
    java |= _pem(options, _TEXTS, lambda _, text: text)
    if "ssl.key.password" in options:
        java["ssl.key.password"] = options["ssl.key.password"]
    names = {*_SAME, *_SASL, *_FILES, *_TEXTS, "ssl.key.password"}
    for name in options:
        if name.startswith(_SECURITY) and name not in names:
            raise ConfigurationError(
                f'the Kafka setting "{name}" has no counterpart in the client that Spark uses',
                hint="give certificates as PEM files and use SASL PLAIN or SCRAM",
            )
    return java


def travelling(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for another machine: with texts in place of files.

    Raises ConfigurationError: a file is missing, or is not PEM.
    """
    return {
        _TEXT_IN_PLACE_OF_FILE.get(name, name): (
            _file_text(name, value) if name in _TEXT_IN_PLACE_OF_FILE else value
        )
        for name, value in options.items()
    }


def _sasl(options: Mapping[str, str]) -> dict[str, str]:
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise ConfigurationError(
            f'the SASL mechanism "{mechanism}" is not supported by a replay',
            hint=f"use one of {', '.join(_LOGIN_MODULES)}",
        )
    user, password = (_quoted(options.get(f"sasl.{name}", "")) for name in ("username", "password"))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _pem(
    options: Mapping[str, str],
    names: Mapping[str, tuple[str, str]],
    read: Callable[[str, str], str],
) -> dict[str, str]:
    java = {}
    for name, (content, kind) in names.items():
        if name in options:
            java[content] = read(name, options[name])
            java[kind] = "PEM"
    return java


def _file_text(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f'{name} names "{path}", which cannot be read as PEM: {error}'
        ) from error
