"""Addresses of targets, `kind:place`, and of tables in a connection string. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from changelog.contract.base.errors import ConfigurationError

KINDS = {
    "postgres": "postgres:postgresql://user@host/database/schema.table",
    "parquet": "'parquet:/data/orders/*.parquet'",
    "duckdb": "duckdb:shop.duckdb/orders",
}
"""The kinds of targets, each with an example."""

_URI = re.compile(r"(postgres(?:ql)?://[^/?]*/[^/?]*)/([^?]*)(\?.*)?")
_WORDS = re.compile(r"(.*\bdbname=[^\s/]+)/(\S+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """A target's kind and place."""

    kind: str
    place: str


def parse_target(text: str) -> Address:
    """Return the parts of a target.

    Raises ConfigurationError: it is none of the kinds that are known; nothing of it is quoted.

    >>> parse_target("parquet:/data/*.parquet")
    Address(kind='parquet', place='/data/*.parquet')
    """
    if text.startswith(("postgresql://", "postgres://")):
        return Address("postgres", text)
    kind, colon, place = text.partition(":")
    if kind not in KINDS or not colon or not place:
        raise ConfigurationError(
            "--target names no copy that can be compared", hint="; ".join(KINDS.values())
        )
    return Address(kind, place)


def is_dsn(text: str) -> bool:
    """Tell whether a text is a connection string, and no name of a source."""
    return "://" in text or "=" in text


def split_table(dsn: str) -> tuple[str, str]:
    """Return a connection string, and the table after its database, empty if there is none.

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
