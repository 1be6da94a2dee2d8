"""Options of a view's search index: `views/NAME.search.json`.

An option adds to what a view's columns say or takes its place, but none may change what is stored
and served, the document's source, or keep a document out of the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from changelog.contract.base.errors import ConfigurationError, SinkError
from views.sinks.options import Options, read_options

_OURS = {
    "blocks": "belongs to the sink, which seals an index by it",
    "translog": "belongs to the sink while an index is loaded",
    "default_pipeline": "would change documents",
    "final_pipeline": "would change documents",
    "mode": "could make documents anew in place of keeping them",
    "derived_source": "makes documents anew in place of keeping them",
    "mapping.source": "makes documents anew in place of keeping them",
    "mapping.synthetic_source_keep": "makes documents anew in place of keeping them",
}


class SearchOptions(Options):
    """Options of one view."""

    # of each generation's index, as in the server's own API: `analysis`, `number_of_shards`,
    # `number_of_replicas`, `refresh_interval`, …
    settings: dict[str, Any] = Field(default_factory=dict)
    # `properties`, each laid over what the view's column says
    mappings: dict[str, Any] = Field(default_factory=dict)
    # the column of the key, of several, by whose text documents are put to shards
    routing: str | None = None

    def routed_by(self, view: str, key: Sequence[str]) -> int | None:
        """Return the place of `routing` in a key."""
        if self.routing is None:
            return None
        if self.routing not in key or len(key) == 1:
            raise ConfigurationError(
                f'{view}.search.json: routing: "{self.routing}" is not one of several columns of '
                f"the key ({', '.join(key)})",
                hint="only the key says where a document lies, in all its versions; a key of one "
                "column needs no routing",
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
                "could keep a document or a part of one from its readers",
            )
    if not isinstance(parsed.properties(), dict):
        raise _refused(view, '"properties" of the mappings', "is no object")
    return parsed


def flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return settings by their whole names, without `index.`, objects taken apart."""
    whole_names: dict[str, Any] = {}
    for name, value in settings.items():
        whole = f"{path}{name}"
        if isinstance(value, Mapping):
            whole_names.update(flat(value, f"{whole}."))
        else:
            whole_names[whole.removeprefix("index.")] = value
    return whole_names


def laid_over(
    derived: Mapping[str, Any], described: Mapping[str, Any], view: str
) -> dict[str, Any]:
    """Return the fields of a mapping, with the author's fields in place of ours.

    A field's own `properties` are laid over in turn; a field of another type keeps nothing of
    what its column says, as the parameters of one type are errors in another.
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
        merged["properties"] = laid_over(inner, described.get("properties", {}), view)
    return merged


def _refused(view: str, part: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{view}.search.json: {part} {why}", hint="remove it; docs/serving.md says what may stand"
    )
