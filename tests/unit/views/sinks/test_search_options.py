"""What may stand in `views/NAME.search.json`."""

from __future__ import annotations

from typing import Any

import pytest

from changelog.contract.base.errors import ConfigurationError, SinkError
from views.sinks.search.options import flat, merged_over, search_options
from views.sinks.search.server import routing_of

NESTED = {"mapping": {"source": {"mode": "synthetic"}}}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"setting": {}}, "there is no such option"),
        ({"settings": []}, "valid dictionary"),
        ({"mappings": {"_source": {"enabled": False}}}, '"_source" of the mappings'),
        ({"mappings": {"dynamic": "strict"}}, '"dynamic" of the mappings'),
        ({"mappings": {"_routing": {"required": True}}}, '"_routing" of the mappings'),
        ({"mappings": {"properties": []}}, "is no object"),
        ({"settings": {"index": {"blocks.write": False}}}, "seals an index"),
        ({"settings": {"index.blocks": {"read": True}}}, "seals an index"),
        ({"settings": {"default_pipeline": "x"}}, "would change documents"),
        ({"settings": {"index": NESTED}}, "reconstructs documents"),
        ({"settings": {"derived_source.enabled": True}}, "reconstructs documents"),
    ],
)
def test_what_could_change_documents_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"v.search.json.*{reason}"):
        search_options("v", options)


def test_settings_are_the_same_however_they_are_nested() -> None:
    wanted = {"number_of_shards": 2, "analysis.analyzer.a.type": "keyword"}
    analysis = {"analyzer": {"a": {"type": "keyword"}}}
    assert flat({"index": {"number_of_shards": 2, "analysis": analysis}}) == wanted
    assert flat({"index.number_of_shards": 2, "analysis": analysis}) == wanted


def test_routing_is_a_column_of_a_key_of_several() -> None:
    asked = search_options("v", {"routing": "b"})
    assert asked.routed_by("v", ("a", "b")) == 1
    assert search_options("v", {}).routed_by("v", ("a",)) is None
    for key in (("b",), ("a", "c")):
        with pytest.raises(ConfigurationError, match=r"v\.search\.json: routing"):
            asked.routed_by("v", key)


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ('["a",10000000000000000000]', ["a", "10000000000000000000"]),
        ('[true,"NaN",1.0E7]', ["true", "NaN", "1.0E7"]),
    ],
)
def test_a_routing_is_the_text_of_the_key(key: str, texts: list[str]) -> None:
    assert [routing_of(key, place) for place in range(len(texts))] == texts


DERIVED: dict[str, Any] = {
    "a": {"type": "text", "fields": {"keyword": {"type": "keyword"}}},
    "o": {"type": "object", "properties": {"n": {"type": "integer", "ignore_malformed": True}}},
}


def test_fields_are_merged_over_those_of_the_columns() -> None:
    assert merged_over(DERIVED, {}, "v") == DERIVED
    asked = {"a": {"analyzer": "x"}, "o": {"properties": {"n": {"type": "keyword"}}}}
    assert merged_over(DERIVED, asked, "v") == {
        "a": {**DERIVED["a"], "analyzer": "x"},
        "o": {"type": "object", "properties": {"n": {"type": "keyword"}}},
    }
    assert merged_over(DERIVED, {"o": {"type": "flat_object"}}, "v")["o"] == {"type": "flat_object"}


@pytest.mark.parametrize("asked", [{"b": {}}, {"o": {"properties": {"m": {}}}}, {"a": "text"}])
def test_a_field_that_no_column_has_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(SinkError, match=r"v\.search\.json"):
        merged_over(DERIVED, asked, "v")
