"""A request and its answer, apart from HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class RequestError(Exception):
    """A request that cannot be answered as asked, with the code of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Code, body (None for an empty one) and place of what was made."""

    code: int
    body: Any = None
    location: str = ""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request: parts of its path by name, its query, and its body, None for an empty one."""

    path: Mapping[str, str]
    query: Sequence[tuple[str, str]]
    body: Any

    def flag(self, name: str) -> bool:
        """Return a flag of the query, in any letters; false where it is missing."""
        return any(key == name and value.lower() == "true" for key, value in self.query)

    def object(self) -> dict[str, Any]:
        """Return the body; raises RequestError if it is no object."""
        if not isinstance(self.body, dict):
            raise RequestError(400, "the body is no JSON object")
        return self.body


def text_of(value: object) -> Any:  # noqa: ANN401 - what is no value is refused by its key
    """Return a value of a configuration as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def place_of(raw: Any) -> tuple[tuple[str, int], int | None]:  # noqa: ANN401 - any JSON
    """Return a partition and its place; numbers may be texts, and null forgets a place."""
    try:
        partition, offset = raw["partition"], raw["offset"]
        topic, number = partition["kafka_topic"], int(partition["kafka_partition"])
        place = None if offset is None else int(offset["kafka_offset"])
    except (TypeError, KeyError, ValueError):
        topic, number, place = None, -1, None
    if not isinstance(topic, str) or number < 0 or (place is not None and place < 0):
        raise RequestError(
            400, "an offset is {partition: {kafka_topic, kafka_partition}, offset: {kafka_offset}}"
        )
    return (topic, number), place
