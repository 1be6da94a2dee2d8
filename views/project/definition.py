"""What a generation was made by: two with the same definition differ by the log alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import pyspark

from changelog.contract.rows.relation import TableName
from replay.result.state import ReplayedState
from views.project.spec import ViewSpec

_VERSION = 1
"""Grows when this program would make other rows of the same text and the same records."""


def definition_of(
    spec: ViewSpec,
    columns: Sequence[tuple[str, str]],
    states: Mapping[TableName, ReplayedState],
    settings: Mapping[str, str],
) -> str:
    """Return a fingerprint of all that a view's rows depend on besides the records.

    Args:
        spec: the view.
        columns: names and types of its columns.
        states: of its tables; the schema that their rows are read as counts.
        settings: of the Spark session; those of its SQL count.
    """
    parts = {
        "version": _VERSION,
        "spark": pyspark.__version__,
        "settings": {name: settings[name] for name in sorted(settings) if ".sql." in name},
        "text": spec.path.read_text(encoding="utf-8"),
        "key": spec.key,
        "columns": columns,
        "schemas": {str(table): _version(states[table]) for table in spec.tables},
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _version(state: ReplayedState) -> int | None:
    """Return the version of the schema that a state's rows are read as."""
    return None if state.pin is None else state.pin.value
