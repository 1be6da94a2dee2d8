"""Addresses of targets, `kind:place`, and tables named in a connection string. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from changelog.contract.base.errors import ConfigurationError

KINDS = {
    "postgres": "postgres:postgresql://user@host/database/schema.table",
    "parquet": "'parquet:/data/orders/*.parquet'",
    "duckdb": "duckdb:shop.duckdb/orders",
    "delta": "delta:/data/orders",
    "iceberg": "iceberg:CATALOG/shop.orders",
    "search": "search:http://host:9200/orders",
    "topic": "topic:shop.public.orders",
    "cache": "'cache:redis://host:6379/0/orders:*'",
}
"""The kinds of targets, each with an example."""

_URI = re.compile(r"(postgres(?:ql)?://[^/?]*/[^/?]*)/([^?]*)(\?.*)?")
_WORDS = re.compile(r"(.*\bdbname=[^\s/]+)/(\S+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TargetAddress:
    """A target's kind and place."""

    kind: str
    place: str


def parse_target(text: str) -> TargetAddress:
    """Return the kind and place of a target.

    Raises ConfigurationError: its kind is unknown; the text may hold a password, so it is not
    quoted.

    >>> parse_target("parquet:/data/*.parquet")
    Address(kind='parquet', place='/data/*.parquet')
    """
    if text.startswith(("postgresql://", "postgres://")):
        return TargetAddress("postgres", text)
    kind, colon, place = text.partition(":")
    if kind not in KINDS or not colon or not place:
        raise ConfigurationError(
            "--target is none of the kinds of copies that can be compared",
            hint="; ".join(KINDS.values()),
        )
    return TargetAddress(kind, place)


def is_dsn(text: str) -> bool:
    """Return whether a text is a connection string, not the name of a source."""
    return "://" in text or "=" in text


def split_table(dsn: str) -> tuple[str, str]:
    """Split the table off a connection string; the table is empty if the string names none.

    >>> split_table("postgresql://me@db:5432/shop/public.orders?sslmode=require")
    ('postgresql://me@db:5432/shop?sslmode=require', 'public.orders')
    >>> split_table("host=/run/postgresql dbname=shop/orders")
    ('host=/run/postgresql dbname=shop', 'orders')
    """
    if uri := _URI.fullmatch(dsn):
        return uri[1] + (uri[3] or ""), uri[2]
    if words := _WORDS.fullmatch(dsn):
        return words[1], words[2]
    return dsn, ""
