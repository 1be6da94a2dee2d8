"""The remembered state of a stack: its servers and their ports; and their addresses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from changelog.contract.base.errors import StackError

FILE_NAME = "stack.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StackState:
    """Parts that were ever asked for, and a port for each listener."""

    parts: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)


def read_state(directory: Path) -> StackState:
    """Read the state of the stack in `directory`; an empty one if there was none."""
    path = directory / FILE_NAME
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError("another format")
        ports = {str(name): int(port) for name, port in content["ports"].items()}
        return StackState(tuple(map(str, content["parts"])), ports)
    except FileNotFoundError:
        return StackState()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StackError(
            f"{path} cannot be read as the state of a stack",
            hint="remove that file: the data stays, the ports are chosen anew",
        ) from error


def write_state(directory: Path, state: StackState) -> None:
    """Write the state in one step."""
    path = directory / FILE_NAME
    content = {"format": _FORMAT, "parts": list(state.parts), "ports": dict(state.ports)}
    draft = path.with_name(FILE_NAME + ".new")
    draft.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    draft.replace(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The addresses of the servers; None for a server that was not asked for."""

    postgres: str
    brokers: str
    schema_registry: str
    search: str | None = None
    cache: str | None = None

    def to_json(self) -> str:
        """Return one line of JSON with the names of the fields as keys."""
        return json.dumps(asdict(self))
