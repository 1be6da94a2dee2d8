"""Options of a view's search index: `views/NAME.search.json`.

An option adds to the mapping derived from a view's columns, or replaces parts of it. None may
change the document's source, which is stored and served, or keep a document out of the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from changelog.contract.base.errors import ConfigurationError, SinkError
from views.sinks.options import Options, read_options

_OURS = {
    "blocks": "belongs to the sink, which seals an index with it",
    "translog": "belongs to the sink while an index is loaded",
    "default_pipeline": "would change documents",
    "final_pipeline": "would change documents",
    "mode": "could reconstruct documents instead of storing them",
    "derived_source": "reconstructs documents instead of storing them",
    "mapping.source": "reconstructs documents instead of storing them",
    "mapping.synthetic_source_keep": "reconstructs documents instead of storing them",
}
"""Settings that an author cannot give, and why."""


class SearchOptions(Options):
    """Options of one view."""

    # of each generation's index, as in the server's own API: `analysis`, `number_of_shards`,
    # `number_of_replicas`, `refresh_interval`, …
    settings: dict[str, Any] = Field(default_factory=dict)
    # `properties`, each merged over the field of the view's column
    mappings: dict[str, Any] = Field(default_factory=dict)
    # the column of a key of several columns by whose text documents are routed to shards
    routing: str | None = None

    def routed_by(self, view: str, key: Sequence[str]) -> int | None:
        """Return the place of `routing` in a key."""
        if self.routing is None:
            return None
        if self.routing not in key or len(key) == 1:
            raise ConfigurationError(
                f'{view}.search.json: routing: "{self.routing}" is not one of several columns of '
                f"the key ({', '.join(key)})",
                hint="all versions of a document must be in one shard, so only the key can route "
                "it; a key of one column needs no routing",
            )
        return key.index(self.routing)

    def properties(self) -> dict[str, Any]:
        """Return the fields that the author describes."""
        properties: dict[str, Any] = self.mappings.get("properties", {})
        return properties


def search_options(view: str, options: Mapping[str, Any]) -> SearchOptions:
    """Return the options of a view.

    Raises ConfigurationError: one is not known, or would change what is served.
    """
    parsed = read_options(SearchOptions, view, "search", options)
    for name in flat(parsed.settings):
        for ours, reason in _OURS.items():
            if name == ours or name.startswith(f"{ours}."):
                raise _refused(view, f'the setting "{name}"', reason)
    for name in parsed.mappings:
        if name != "properties":
            raise _refused(
                view,
                f'"{name}" of the mappings',
                "could hide a document or a part of one from its readers",
            )
    if not isinstance(parsed.properties(), dict):
        raise _refused(view, '"properties" of the mappings', "is no object")
    return parsed


def flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested settings by their full names, without `index.`."""
    whole_names: dict[str, Any] = {}
    for name, value in settings.items():
        whole = f"{path}{name}"
        if isinstance(value, Mapping):
            whole_names.update(flat(value, f"{whole}."))
        else:
            whole_names[whole.removeprefix("index.")] = value
    return whole_names


def merged_over(
    derived: Mapping[str, Any], described: Mapping[str, Any], view: str
) -> dict[str, Any]:
    """Return the fields of a mapping, with the author's fields merged over the derived ones.

    A field's own `properties` are merged in the same way. A field of another type keeps nothing of
    the derived one, because parameters of one type are errors in another.
    """
    for path, field in _unknown(derived, described):
        if not isinstance(field, Mapping):
            raise SinkError(f'{view}.search.json: the field "{path}" is no object')
        raise SinkError(
            f'{view}.search.json: there is no column for the field "{path}"',
            hint="a mapping describes columns of the view; see how it spells them",
        )
    return {name: _field(field, described.get(name, {}), view) for name, field in derived.items()}


def _unknown(derived: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, field in described.items():
        if name not in derived or not isinstance(field, Mapping):
            yield name, field


def _field(derived: Mapping[str, Any], described: Mapping[str, Any], view: str) -> dict[str, Any]:
    if not described:
        return dict(derived)
    kind, inner = described.get("type", derived["type"]), derived.get("properties")
    base = dict(derived) if kind == derived["type"] else {"type": kind}
    merged = {**base, **described}
    if inner is not None and kind in {"object", "nested"}:
        merged["properties"] = merged_over(inner, described.get("properties", {}), view)
    return merged


def _refused(view: str, part: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{view}.search.json: {part} {why}",
        hint="remove it; docs/serving.md lists the possible options",
    )
