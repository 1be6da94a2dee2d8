"""Avro schemas as the verifier follows them: without what their values mean.

Of the verifier alone: what it verifies has a stripper of its own (`changelog.avro.bodies`).
"""

from __future__ import annotations

from typing import Any

import fastavro

_KEPT = {"type", "name", "namespace", "fields", "items", "values", "symbols", "size"}
_TYPES = {"type", "fields", "items", "values"}


def parsed(raw: Any) -> Any:  # noqa: ANN401 - JSON
    """Return fastavro's form of a schema without logical types.

    fastavro's own fail on infinities, on years before 1 and past 9999.
    """
    return fastavro.parse_schema(_without_logic(raw))


def _without_logic(raw: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(raw, list):
        return [_without_logic(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    # An attribute such as `key` or `relation` is ours and holds names, never types.
    kept = {name: value for name, value in raw.items() if name in _KEPT}
    return kept | {name: _without_logic(kept[name]) for name in kept.keys() & _TYPES}
