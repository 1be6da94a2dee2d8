"""Creates the sink of a view by the name of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.installed.extras import check_extra
from replay.spark.files import uri_of
from views.base.iceberg import FOLDER
from views.sinks.base import Sink, SinkSettings
from views.sinks.cache.server import CacheClient
from views.sinks.cache.sink import CacheSink
from views.sinks.cache.values import CacheOptions
from views.sinks.delta.options import delta_options
from views.sinks.delta.sink import DeltaSink
from views.sinks.options import read_options
from views.sinks.postgres.options import postgres_options
from views.sinks.postgres.server import PostgresClient
from views.sinks.postgres.sink import PostgresSink
from views.sinks.search.options import search_options
from views.sinks.search.server import SearchClient
from views.sinks.search.sink import SearchSink
from views.sinks.topic.options import TopicOptions
from views.sinks.topic.server import TopicServer
from views.sinks.topic.sink import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("delta", "search", "cache", "postgres", "topic", "iceberg")


def make_sink(
    kind: str,
    *,
    view: str,
    key: Sequence[str],
    settings: SinkSettings,
    spark: SparkSession,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Sink:
    """Return the sink of one view, without a request to its server."""
    patience = settings.retry_seconds, settings.answer_seconds
    match kind:
        case "delta":
            return DeltaSink(
                view=view,
                key=key,
                warehouse=settings.warehouse,
                spark=spark,
                options=delta_options(view, options, key),
            )
        case "search":
            url = _require_url(settings.search_url, kind)
            return SearchSink(
                view=view,
                key=key,
                server=SearchClient(url, *patience),
                options=search_options(view, options),
                left_out_at_most=settings.left_out_at_most,
            )
        case "cache":
            url = _require_url(settings.cache_url, kind)
            return CacheSink(
                view=view,
                key=key,
                server=CacheClient(url, *patience),
                options=read_options(CacheOptions, view, kind, options),
            )
        case "postgres":
            url = _require_url(settings.postgres_url, kind)
            return PostgresSink(
                view=view,
                key=key,
                server=PostgresClient(url, *patience),
                options=postgres_options(view, options),
            )
        case "topic":
            kafka = settings.kafka
            if kafka is None or not kafka.brokers:
                raise _unknown("kafka")
            return TopicSink(
                view=view,
                key=key,
                prefix=settings.topic_prefix,
                server=TopicServer(kafka, settings.registry, *patience),
                options=read_options(TopicOptions, view, kind, options),
            )
        case "iceberg":
            return _iceberg(view, key, settings, spark, options)
        case _:
            raise ConfigurationError(
                f'there is no sink "{kind}"', hint=f"the sinks are {', '.join(KINDS)}"
            )


def _iceberg(
    view: str,
    key: Sequence[str],
    settings: SinkSettings,
    spark: SparkSession,
    options: Mapping[str, Any],
) -> Sink:
    check_extra("iceberg", "a view in Iceberg")
    from views.sinks.iceberg.options import IcebergOptions  # noqa: PLC0415 - an extra
    from views.sinks.iceberg.sink import IcebergSink  # noqa: PLC0415 - likewise

    place = uri_of(settings.warehouse)
    if not settings.iceberg_catalogue and "://" in place:
        raise ConfigurationError(
            "a view goes to Iceberg, and the file of its catalogue cannot be in the warehouse "
            f"{place}",
            hint="give sinks.iceberg.catalogue in changelog.toml the name of a catalogue",
        )
    return IcebergSink(
        view=view,
        key=key,
        catalogue=settings.iceberg_catalogue,
        folder=f"{place}/{FOLDER}",
        namespace=settings.iceberg_namespace,
        spark=spark,
        retry_seconds=settings.retry_seconds,
        options=read_options(IcebergOptions, view, "iceberg", options),
    )


def _require_url(url: str | None, kind: str) -> str:
    if not url:
        raise _unknown(kind)
    return url


def _unknown(kind: str) -> ConfigurationError:
    return ConfigurationError(
        f"a view goes to {kind}, but the settings have no address for it",
        hint=f"give the address of {kind} in changelog.toml",
    )
