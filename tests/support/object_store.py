"""An S3-compatible store, as a process of its own that keeps all in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import botocore.session

from changelog.stack.base.ports import LOOPBACK, answers, pick
from tests.support.wait import wait_until

SECRET = "a-secret-that-nobody-tells"
REGION = "eu-central-1"


class ObjectStore:
    """A store that a test may end and start; what it held is gone then."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._port = pick()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables for a process that connects to it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "reader",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def start(self) -> None:
        words = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self._port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdout=log, stderr=log, env={**os.environ, "PYTHONWARNINGS": "ignore"}
            )
        wait_until(lambda: answers(self._port), 60, "the store listens")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def make_bucket(self, name: str) -> None:
        self._client().create_bucket(
            Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION}
        )

    def names(self, bucket: str) -> list[str]:
        pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def _client(self):
        return botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="reader",
            aws_secret_access_key=SECRET,
        )


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """A store that runs while the block does."""
    made = ObjectStore(folder / "store.log")
    made.start()
    try:
        yield made
    finally:
        made.stop()
