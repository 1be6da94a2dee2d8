"""Reads a file of another program, and tells which program's it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.installed.extras import check_extra
from views.scaffold.moving.connector import Connector

Program = Literal["pgsync", "debezium", "jdbc", "sequin"]
_SOURCE = "postgresql.PostgresConnector"
_SINK = "JdbcSinkConnector"
_KNOWN = (
    "known are pgsync's schema.json, a connector of Debezium's for PostgreSQL or a JDBC sink's "
    "(JSON or properties), and Sequin's YAML: docs/moving.md"
)


@dataclass(frozen=True, slots=True)
class Given:
    """A file that was read."""

    name: str
    program: Program
    content: Any  # as JSON has it


def read(path: Path) -> Given:
    """Read a file.

    Raises ConfigurationError: it cannot be read or parsed, or is of no program that is known.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text: {error.reason}") from error
    content = _parsed(path, text)
    return Given(path.name, _program(path, content), content)


def _parsed(path: Path, text: str) -> Any:  # noqa: ANN401 - JSON
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text, object_pairs_hook=_each_once)
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"{path}:{error.lineno}: invalid JSON: {error.msg} (column {error.colno})"
            ) from error
        except ValueError as error:
            raise ConfigurationError(f"{path}: invalid JSON: {error}") from error
    if path.suffix == ".properties":
        return _properties(path, text)
    check_extra("moving", "reading YAML")
    import yaml  # noqa: PLC0415 - of an extra

    try:
        content = yaml.safe_load(text)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        reason = getattr(error, "problem", None) or "it cannot be read"
        raise ConfigurationError(f"{place}: invalid YAML: {reason}") from error
    if root is not None:
        _require_once(path, root)
    return json.loads(json.dumps(content, default=str))  # keys are texts, dates too


def _keys(node: Any, seen: set[int]) -> Iterator[list[Any]]:  # noqa: ANN401 - a node of YAML
    """Yield the nodes of the keys of each mapping in a document, which may have aliases."""
    if id(node) in seen or not isinstance(node.value, list):
        return
    seen.add(id(node))
    is_mapping = node.id == "mapping"
    if is_mapping:
        yield [key for key, _ in node.value]
    for part in node.value:
        yield from _keys(part[1] if is_mapping else part, seen)


def _require_once(path: Path, root: Any) -> None:  # noqa: ANN401 - a node of YAML
    """Require that no key stands twice in a mapping: the parser would take the last one."""
    for keys in _keys(root, set()):
        names = [str(key.value) for key in keys]
        for place, name in enumerate(names):
            if name in names[:place] and name != "<<":
                line = keys[place].start_mark.line + 1
                raise ConfigurationError(f'{path}:{line}: invalid YAML: "{name}" stands twice')


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f'"{twice[0]}" stands twice in one object')
    return dict(pairs)


def _properties(path: Path, text: str) -> dict[str, str]:
    content: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith(("#", "!")):
            continue
        name, equals, value = bare.partition("=")
        if not equals:
            raise ConfigurationError(f"{path}:{number}: not a property: no = in it")
        if name.strip() in content:
            raise ConfigurationError(f"{path}:{number}: {name.strip()} stands twice")
        content[name.strip()] = value.strip()
    return content


def _program(path: Path, content: Any) -> Program:  # noqa: ANN401 - JSON
    parts = content if isinstance(content, list) else [content]
    if not isinstance(content, str) and parts and all(isinstance(part, Mapping) for part in parts):
        if all("nodes" in part for part in parts):
            return "pgsync"
        config = Connector.of(content).keys
        name = config.get("connector.class", "")
        if name.endswith(_SINK):
            return "jdbc"
        if name.endswith(_SOURCE):
            return "debezium"
        if name:
            raise ConfigurationError(f"{path}: the connector {name} is not known here", hint=_KNOWN)
        if isinstance(content, Mapping) and {"databases", "sinks"} & set(content):
            return "sequin"
    raise ConfigurationError(f"{path} is no configuration that is known here", hint=_KNOWN)
