"""Copies of the table of `tests.support.copies` as JSON documents, hashes and records."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.runtime.cache_servers import connect
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.state import Endpoints
from tests.support.copies import Values


def json_value(value: Any) -> str:  # noqa: PLR0911 - one for each type
    """Return a value's JSON, with all digits of a decimal."""
    match value:
        case Decimal():
            return f"{value:f}"
        case float() if not math.isfinite(value):
            return json.dumps(str(value).replace("nan", "NaN").replace("inf", "Infinity"))
        case bytes():
            return json.dumps(b64encode(value).decode())
        case datetime():
            text = value.isoformat().removesuffix("+00:00")
            return json.dumps(text + ("Z" if value.tzinfo else ""))
        case date() | time():
            return json.dumps(value.isoformat())
        case UUID():
            return json.dumps(str(value))
        case _:
            return json.dumps(value, ensure_ascii=False)


def document(row: Values) -> str:
    """Return a row's JSON document."""
    members = (f"{json.dumps(name)}:{json_value(value)}" for name, value in row.items())
    return f"{{{','.join(members)}}}"


def hash_of(row: Values) -> dict[str, str]:
    """Return a row as texts by field, without nulls."""
    texts = {}
    for name, value in row.items():
        if value is not None:
            text = json_value(value)
            read = json.loads(text)
            texts[name] = read if isinstance(read, str) else text
    return texts


class CacheCopy:
    """Entries of JSON."""

    has_duplicate = False
    key_by_id = False

    def __init__(self, endpoints: Endpoints, name: str, url: str = "") -> None:
        self.name, url = name, url or str(endpoints.cache)
        self.client: Any = connect(url)
        self.target = f"cache:{url}/{name}:*"

    def fill(self, rows: list[Values]) -> None:
        self.clear()
        for row in rows:
            self.put(f"{self.name}:{row['id']}", row)

    def put(self, name: str, row: Values) -> None:
        self.client.set(name, document(row))

    def clear(self) -> None:
        for name in self.client.scan_iter(f"{self.name}:*"):
            self.client.delete(name)

    def close(self) -> None:
        self.clear()
        self.client.close()


class HashCopy(CacheCopy):
    """Hashes; a null has no field."""

    def put(self, name: str, row: Values) -> None:
        self.client.hset(name, mapping=hash_of(row))


class KeylessCacheCopy(CacheCopy):
    """Entries of JSON without the key, which stands in their names."""

    def put(self, name: str, row: Values) -> None:
        self.client.set(name, document({n: v for n, v in row.items() if n != "id"}))


class TopicCopy:
    """A topic of Debezium's envelope in JSON, with deletes and tombstones."""

    has_duplicate = False

    def __init__(self, endpoints: Endpoints, name: str) -> None:
        self.name, self.brokers = name, endpoints.brokers
        self.target = f"topic:{name}"
        self._ids: set[int] = set()
        admin = AdminClient({"bootstrap.servers": self.brokers})
        settings = {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
        admin.create_topics([NewTopic(name, 2, 1, config=settings)])[name].result()

    def fill(self, rows: list[Values]) -> None:
        records: list[tuple[int, str | None]] = []
        for gone in self._ids - {row["id"] for row in rows}:
            records += self.deleted(gone)
        records += [(row["id"], self.value(row)) for row in rows]
        self._ids = {row["id"] for row in rows}
        self.send(records)

    def send(self, records: list[tuple[int, str | None]]) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "enable.idempotence": True})
        for id_, value in records:
            producer.produce(self.name, value, json.dumps({"id": id_}))
        assert producer.flush(30) == 0

    def value(self, row: Values) -> str:
        return f'{{"before":null,"after":{document(row)},"source":{{"lsn":1}},"op":"u","ts_ms":1}}'

    def deleted(self, id_: int) -> list[tuple[int, str | None]]:
        return [(id_, f'{{"before":{{"id":{id_}}},"after":null,"op":"d","ts_ms":1}}'), (id_, None)]

    def close(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.delete_topics([self.name])[self.name].result()


class RowTopicCopy(TopicCopy):
    """A topic of rows in JSON, with tombstones."""

    def value(self, row: Values) -> str:
        return document(row)

    def deleted(self, id_: int) -> list[tuple[int, str | None]]:
        return [(id_, None)]


class SearchCopy:
    """An index of documents whose ids are the key."""

    has_duplicate = True

    def __init__(self, endpoints: Endpoints, name: str) -> None:
        self.name, self.url = name, str(endpoints.search)
        self.target = f"search:{self.url}/{name}"
        self.client = httpx.Client(base_url=self.url, verify=authorities(), timeout=60)

    def fill(self, rows: list[Values]) -> None:
        self.client.delete(f"/{self.name}")
        mapping = {"mappings": {"dynamic": False}}
        self.client.put(f"/{self.name}", json=mapping).raise_for_status()
        lines, taken = [], set()
        for number, row in enumerate(rows):
            name = self.id(row) if row["id"] not in taken else f"again-{number}"
            taken.add(row["id"])
            lines.append(json.dumps({"index": {"_id": name}}) + "\n" + self.source(row) + "\n")
        if lines:
            self.bulk("".join(lines))

    def bulk(self, lines: str) -> None:
        answer = self.client.post(
            f"/{self.name}/_bulk?refresh=true",
            content=lines.encode(),
            headers={"content-type": "application/x-ndjson"},
        )
        assert not answer.raise_for_status().json()["errors"], answer.text[:2_000]

    def id(self, row: Values) -> str:
        return str(row["id"])

    def source(self, row: Values) -> str:
        return document(row)

    def close(self) -> None:
        self.client.delete(f"/{self.name}")
        self.client.close()


class OddIdSearchCopy(SearchCopy):
    """An index of documents whose ids tell nothing of the key."""

    def id(self, row: Values) -> str:
        return f"doc-{row['id'] * 7}"


class KeylessSearchCopy(SearchCopy):
    """An index of documents without the key, which is their id."""

    has_duplicate = False

    def source(self, row: Values) -> str:
        return document({n: v for n, v in row.items() if n != "id"})


DocumentCopy = CacheCopy | TopicCopy | SearchCopy
DOCUMENT_KINDS: Mapping[str, Callable[[Endpoints, str], DocumentCopy]] = {
    "cache": CacheCopy,
    "cache-hash": HashCopy,
    "cache-keyless": KeylessCacheCopy,
    "topic-debezium": TopicCopy,
    "topic-rows": RowTopicCopy,
}
SEARCH_KINDS: Mapping[str, Callable[[Endpoints, str], DocumentCopy]] = {
    "search": SearchCopy,
    "search-odd-ids": OddIdSearchCopy,
    "search-keyless": KeylessSearchCopy,
}
