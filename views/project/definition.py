"""Definition of a generation: two with the same one differ by the log alone.

The fingerprint tells whether two do; the declaration, kept in the history, tells people how.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Any, Protocol

import pyspark

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from views.project.spec import SqlSource, ViewSpec

_VERSION = 1
"""Grows when this program would make other rows of the same text and the same records."""


class Pinned(Protocol):
    """Rows that are read by certain versions of schemas: a state of a table, or its schemas."""

    @property
    def pin(self) -> SchemaPin | None:
        """Return the versions, or None where they are not known."""
        ...


def definition_of(
    spec: ViewSpec,
    columns: Sequence[tuple[str, str]],
    states: Mapping[TableName, Pinned],
    settings: Mapping[str, str],
) -> str:
    """Return a fingerprint of all that a view's rows depend on besides the records.

    So are the options of its sinks: what serves is not what was asked for when these change.

    `columns`: names and types of its columns. `states`: of its tables; the schema that their rows
    are read as counts. `settings`: of the Spark session; those of its SQL count.
    """
    parts = {
        "version": _VERSION,
        "spark": pyspark.__version__,
        "settings": {name: settings[name] for name in sorted(settings) if ".sql." in name},
        "text": text_of(spec),
        "key": spec.key,
        "columns": columns,
        "schemas": {str(table): _version(states[table]) for table in spec.tables},
    }
    if spec.options:
        parts["options"] = spec.options
    pins = {str(table): states[table].pin for table in spec.tables}
    if choices := {name: pin.choices for name, pin in pins.items() if pin and pin.choices}:
        parts["choices"] = choices
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def declaration_of(spec: ViewSpec, columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return a view as it is declared now, as plain values for the history.

    Options of its sinks are in it where it has any.
    """
    return {
        "text": text_of(spec),
        "key": list(spec.key),
        "columns": [list(column) for column in columns],
        **({"options": dict(spec.options)} if spec.options else {}),
    }


def text_of(spec: ViewSpec) -> str:
    """Return the text of the file that declares a view, with the queries of views that it reads."""
    if isinstance(spec.source, SqlSource):
        return (spec.source.written or spec.source).sql
    return spec.path.read_text(encoding="utf-8")


def changed_declaration(declared: Mapping[str, Any], spec: ViewSpec, *, since: str) -> str:
    """Return the changes of a view's file and options as text; empty if there are none.

    `declared`: what `declaration_of` gave before. `since`: what the older declaration is called.
    """
    before, now = declared.get("options", {}), spec.options
    parts = [changed_text(declared["text"], text_of(spec), since=since, name=spec.path.name)]
    for kind in sorted({*before, *now}):
        texts = (json.dumps(side[kind], indent=2) if kind in side else "" for side in (before, now))
        parts.append(changed_text(*texts, since=since, name=f"{spec.name}.{kind}.json"))
    return "\n".join(part for part in parts if part)


def changed_text(before: str, now: str, *, since: str, name: str) -> str:
    """Return the changes of a view's file as a unified diff; empty if there are none.

    `since`: what the older text is called. `name`: what the newer text is called.
    """
    lines = unified_diff(before.splitlines(), now.splitlines(), since, name, lineterm="", n=3)
    return "\n".join(lines)


def _version(state: Pinned) -> int | None:
    """Return the version of the schema that a state's rows are read as."""
    pin = state.pin
    return None if pin is None else pin.value
