"""Workers that take records by HTTP, and how clients of the REST proxy ask them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.connect_workers import running

OWN, PHONE = "own-token-canary-0123", "phone-token-canary-0123"
DEADLINE_S = 60
FORM = "application/vnd.kafka.{}.v2+json"


def make(kafka, name, partitions=2, **config):
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)


@contextmanager
def worker(endpoints, group, topics, *words, **env) -> Iterator[tuple[str, Any, list[str]]]:
    tokens = {"phone": {"token": PHONE, "topics": topics}}
    settings = {
        "CHANGELOG_HTTP_TOKENS": json.dumps(tokens),
        "CHANGELOG_HTTP_TOPICS": "*",
        "CHANGELOG_SERVE_TOKEN": OWN,
    }
    with running(endpoints, group, *words, env={**os.environ, **settings, **env}) as started:
        yield started


class Client:
    """Sends requests as clients of the proxy do."""

    def __init__(self, url, token=OWN):
        self.url, self.token = url, token

    def post(self, path, *sent, form="json", request_id="", headers=None, **members):
        ids = {"Idempotency-Key": request_id} if request_id else {}
        credentials = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = httpx.post(
            f"{self.url}/topics/{path}",
            content=json.dumps({"records": sent, **members}),
            headers={"Content-Type": FORM.format(form), **credentials, **ids, **(headers or {})},
            timeout=DEADLINE_S,
        )
        assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"
        return answer

    def send(self, path, body, request_id=""):
        """Send documents in the digits that they have."""
        ids = {"Idempotency-Key": request_id} if request_id else {}
        headers = {"Content-Type": FORM.format("json"), "Authorization": f"Bearer {self.token}"}
        url = f"{self.url}/topics/{path}"
        return httpx.post(url, content=body, headers={**headers, **ids}, timeout=DEADLINE_S)

    def refused(self, path, *sent, **options):
        answer = self.post(path, *sent, **options)
        document = answer.json()
        assert answer.status_code == int(str(document["error_code"])[:3])
        return document["error_code"]
