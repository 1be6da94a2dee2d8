"""For applications that read views: `wait` for an own write, and `Cache`.

`Cache` reads a view in a cache, and stays right while generations come and go. Rows go out as they
are stored; `docs/serving.md` has the same protocol for other languages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from redis.cluster import RedisCluster

from changelog.runtime.cache_servers import connect
from views.base.cache import CacheForm, form_key, pointer
from views.verify.values.jsonform import identifier
from views.verify.values.types import Type, parse_type

if TYPE_CHECKING:
    from views.generations.reached import Reached

Key = Any
"""The value of a key of one column, or a tuple of values of a key of several."""


def wait(
    view: str,
    lsn: str = "now",
    *,
    project: str | Path = ".",
    sink: str | None = None,
    source: str | None = None,
    timeout: float = 30.0,
) -> Reached:
    """Wait until readers of a view see all that was committed before an LSN.

    Args:
        view: the view's name.
        lsn: taken after the commit, by `SELECT pg_current_wal_insert_lsn()` at the source; `now`
            asks the source itself.
        project: the project's folder.
        sink: the one that is read, such as `cache`; all of the view's when left out.
        source: the name of the source whose log the view is of, where the project has several.
        timeout: the longest wait, in seconds; 0 looks once.

    Raises:
        NotReachedError: it takes longer, or nobody is there to bring it to readers.
        ChangelogError: another reason, such as an LSN of another server; the message says which.
    """
    # Not to be loaded by who only reads a cache.
    from views.generations.reached import awaited  # noqa: PLC0415

    settings = {"capture.source": source}
    return awaited(Path(project), settings, view, lsn, sink=sink, timeout_s=timeout)


class Cache:
    """The rows of one view; opens connections, so it is made once and may be shared by threads.

    Args:
        view: the view's name.
        url: the server, `redis://…`, or one of a cluster, `redis+cluster://…`.
    """

    def __init__(self, view: str, *, url: str) -> None:
        self._view = view
        self._client: Any = connect(url, decode_responses=True)
        self._form: tuple[str, CacheForm] | None = None

    def get(self, key: Key) -> Any:  # noqa: ANN401 - by the view's options
        """Return the row under a key, None when the view has none; see `get_many`."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Key]) -> list[Any]:
        """Return the rows under some keys, in their order, all of one generation.

        Returns:
            For each key a dict of the JSON document, a dict of texts (`"value": "hash"`, nulls
            left out), a text (`"value": "string"`), or None when the view has no such row.

        Raises ValueError: a key is none of this view; redis.RedisError: the cache does not answer.
        """
        while True:
            number = self._client.get(pointer(self._view))
            if number is None:
                return [None] * len(keys)
            form = self._form_of(number)
            rows = self._read(form, [form.entry(identity(form, key)) for key in keys])
            # What is missing is missing in the view, unless its generation was removed meanwhile.
            if None not in rows or self._client.get(pointer(self._view)) == number:
                return rows

    def _form_of(self, number: str) -> CacheForm:
        cached = self._form
        if cached is not None and cached[0] == number:
            return cached[1]
        text = self._client.get(form_key(self._view, number))
        if text is None:  # written by a version without forms, or removed meanwhile
            return CacheForm.of(self._view, int(number))
        self._form = (number, CacheForm.parse(text))
        return self._form[1]

    def _read(self, form: CacheForm, names: Sequence[str]) -> list[Any]:
        # A follower changes several rows in one step: on one server they are read in one, too.
        whole = len(names) > 1 and not isinstance(self._client, RedisCluster)
        pipeline = self._client.pipeline(transaction=whole)
        for name in names:
            pipeline.hgetall(name) if form.value == "hash" else pipeline.get(name)
        stored = pipeline.execute()
        match form.value:
            case "hash":
                return [row or None for row in stored]
            case "string":
                return list(stored)
            case _:
                return [None if text is None else json.loads(text) for text in stored]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def identity(form: CacheForm, key: Key) -> str:
    """Return the id of the row under a key, by the types of the view's key.

    Raises ValueError: the key has other columns, or a value that its column cannot have.
    """
    if not form.key:
        if isinstance(key, (str, int)) and not isinstance(key, bool):
            return str(key)
        raise ValueError("the types of this view's key are not known; rebuild the view")
    values = [key] if len(form.key) == 1 else key
    if not isinstance(values, (list, tuple)) or len(values) != len(form.key):
        names = ", ".join(name for name, _ in form.key)
        raise ValueError(f"the key has {len(form.key)} columns ({names}), got {key!r}")
    kinds = [(name, parse_type(kind)) for name, kind in form.key]
    row = {name: _json(value, kind) for (name, kind), value in zip(kinds, values, strict=True)}
    return identifier(row, kinds)


def _json(value: Any, kind: Type) -> Any:  # noqa: ANN401, PLR0911 - one for each type
    """Return a value in the JSON form of its column's type."""
    match kind.name, value:
        case "boolean", bool():
            return value
        case (("tinyint" | "smallint" | "int" | "bigint"), int()) if not isinstance(value, bool):
            return value
        case (("float" | "double"), float()):
            return value if value - value == 0 else _SPECIAL[str(value)]
        case "decimal", (Decimal() | int()) if not isinstance(value, bool):
            return _decimal(Decimal(value), kind)
        case "binary", bytes():
            return base64.b64encode(value).decode()
        case "timestamp", datetime() if value.tzinfo is not None:
            moment = value.astimezone(UTC).replace(tzinfo=None)
            return f"{moment.isoformat(timespec='microseconds')}Z"
        case "timestamp_ntz", datetime() if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        case "date", date() if not isinstance(value, datetime):
            return value.isoformat()
        case (("string" | "date" | "timestamp" | "timestamp_ntz"), str()):
            return value
        case "array", (list() | tuple()):
            return [_json(item, kind.fields[0][1]) for item in value]
        case _:
            raise ValueError(f"{value!r} is not a {kind.name}")


_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _decimal(value: Decimal, kind: Type) -> str:
    exact = value.quantize(Decimal(1).scaleb(-kind.scale))
    if exact != value:
        raise ValueError(f"{value} has more than {kind.scale} decimals")
    return f"{exact + 0:f}"
