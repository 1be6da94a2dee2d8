"""Names of datasets by OpenLineage's conventions (https://openlineage.io/docs/spec/naming)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from changelog.contract.rows.relation import TableName
from changelog.runtime.lineage.facts import Place

_POSTGRES_PORT, _KAFKA_PORT = "5432", "9092"


def table_place(parts: Mapping[str, str], table: TableName) -> Place:
    """Return the name of a table of PostgreSQL.

    `parts`: of the connection string, as libpq reads it. Of several servers the first one counts;
    a socket is one of this machine.

    >>> table_place({"host": "db,standby", "dbname": "shop"}, TableName("public", "orders"))
    Place(namespace='postgres://db:5432', name='shop.public.orders')
    """
    hosts = parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST", "")
    host = hosts.partition(",")[0]
    ports = parts.get("port") or os.environ.get("PGPORT", "")
    port = ports.partition(",")[0] or _POSTGRES_PORT
    if not host or host.startswith(("/", "@")):
        host = "localhost"
    user = parts.get("user") or os.environ.get("PGUSER", "")
    database = parts.get("dbname") or os.environ.get("PGDATABASE", "") or user
    return Place(f"postgres://{_bare(host)}:{port}", f"{database}.{table.schema}.{table.table}")


def topic_place(brokers: str, topic: str) -> Place:
    """Return the name of a topic; of several brokers the first one counts, as in other programs.

    >>> topic_place("SASL_SSL://a:9093, b:9092", "orders")
    Place(namespace='kafka://a:9093', name='orders')
    """
    first = brokers.partition(",")[0].strip().rpartition("://")[2]
    has_port = ":" in first.rpartition("]")[2]
    return Place(f"kafka://{first}" + ("" if has_port else f":{_KAFKA_PORT}"), topic)


def path_place(uri: str) -> Place:
    """Return the name of a folder, on a disk or in an object store.

    >>> path_place("/srv/warehouse/orders")
    Place(namespace='file', name='/srv/warehouse/orders')
    >>> path_place("s3a://lake/views/orders")
    Place(namespace='s3://lake', name='views/orders')
    """
    if "://" not in uri:
        return Place("file", uri)
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Place("file", parts.path)
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    return Place(f"{scheme}://{parts.netloc}", parts.path.lstrip("/"))


def server_place(scheme: str, url: str, port: int, name: str) -> Place:
    """Return the name of something on a server for which there is no convention.

    >>> server_place("redis", "redis://user:secret@cache/3", 6379, "orders")
    Place(namespace='redis://cache:6379', name='orders')
    """
    parts = urlsplit(url.partition(",")[0])
    return Place(f"{scheme}://{parts.hostname or 'localhost'}:{parts.port or port}", name)


def _bare(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
