"""Names of what sinks serve: the same for all generations, and asked of no server."""

from __future__ import annotations

from psycopg2.extensions import parse_dsn

from changelog.runtime.lineage.facts import Place
from changelog.runtime.lineage.places import path_place, server_place, table_place, topic_place
from replay.spark.files import uri_of
from views.base.iceberg import FOLDER
from views.project.spec import ViewSpec
from views.sinks.base import SinkSettings
from views.sinks.postgres.options import postgres_options

_SEARCH_PORT, _CACHE_PORT = 9200, 6379


def served_places(spec: ViewSpec, settings: SinkSettings) -> dict[str, Place]:
    """Return the name of what readers of a view open, by sink.

    Raises ConfigurationError: options of the view cannot be used.
    """
    return {kind: _place(kind, spec, settings) for kind in spec.sinks}


def _place(kind: str, spec: ViewSpec, settings: SinkSettings) -> Place:
    place, view = Place(kind, spec.name), spec.name
    match kind:
        case "delta":
            place = path_place(f"{uri_of(settings.warehouse)}/{view}")
        case "search":
            place = server_place("opensearch", settings.search_url or "", _SEARCH_PORT, view)
        case "cache":
            place = server_place("redis", settings.cache_url or "", _CACHE_PORT, view)
        case "postgres":
            target = postgres_options(view, spec.options.get(kind, {})).target(view)
            place = table_place(parse_dsn(settings.postgres_url or ""), target)
        case "topic":
            brokers = settings.kafka.brokers if settings.kafka is not None else ""
            place = topic_place(brokers, f"{settings.topic_prefix}.{view}")
        case "iceberg":
            place = _iceberg(spec, settings)
        case _:
            pass
    return place


def _iceberg(spec: ViewSpec, settings: SinkSettings) -> Place:
    chosen = spec.options.get("iceberg", {}).get("table")
    table = str(chosen or f"{settings.iceberg_namespace}.{spec.name}")
    if settings.iceberg_catalogue:
        return Place(f"iceberg://{settings.iceberg_catalogue}", table)
    return path_place(f"{uri_of(settings.warehouse)}/{FOLDER}/{table.replace('.', '/')}")
