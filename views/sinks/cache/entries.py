"""The commands that write entries, by the form of their generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from views.base.cache import CacheForm
from views.sinks.load import Entry


def set_entries(
    pipeline: Any,  # noqa: ANN401 - redis-py has no types there
    form: CacheForm,
    entries: Sequence[Entry],
    *,
    one_slot: bool,
    again: bool = False,
) -> None:
    """Put entries into a pipeline.

    Args:
        pipeline: of a connection.
        form: of their generation.
        entries: at least one.
        one_slot: whether one command may name several keys.
        again: whether entries of these names may be there, of which nothing is to stay.
    """
    named = {form.entry(name): text for name, text in entries}
    if form.value == "hash":
        if again:
            pipeline.unlink(*named)
        for name, text in named.items():
            pipeline.hset(name, mapping=orjson.loads(text))
    elif one_slot:
        pipeline.mset(named)
    else:
        for name, text in named.items():
            pipeline.set(name, text)
