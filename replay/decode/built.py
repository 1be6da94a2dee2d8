"""Expressions over a topic's records, built once for its schemas.

An expression is some hundred calls of the JVM, and says nothing of a frame: a run decodes a topic
several times, and a follower does so again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar, cast

from pyspark import SparkContext
from pyspark.sql.utils import is_remote

from changelog.contract.log.form import Form
from replay.decode.schemas import TopicSchemas

T = TypeVar("T")
_KEPT = 512


def built(build: Callable[[TopicSchemas], T], schemas: TopicSchemas) -> T:
    """Return an expression built from schemas; built once in this session's JVM."""
    # Of a Spark Connect server expressions are made here, without any call.
    jvm = None if is_remote() else SparkContext._gateway
    writers = tuple(schemas.writers.items())
    expression = _built(
        jvm, build, schemas.topic, schemas.key_id, writers, schemas.reader_id, schemas.form,
        schemas.key, schemas.choices,
    )  # fmt: skip
    return cast("T", expression)


@lru_cache(_KEPT)
def _built(  # noqa: PLR0917 - the parts of what cannot be hashed
    _jvm: Hashable,
    build: Callable[[TopicSchemas], object],
    topic: str,
    key_id: int | None,
    writers: tuple[tuple[int, str], ...],
    reader_id: int,
    form: Form,
    key: str,
    choices: tuple[tuple[str, str], ...],
) -> object:
    return build(TopicSchemas(topic, key_id, dict(writers), reader_id, form, key, choices))
