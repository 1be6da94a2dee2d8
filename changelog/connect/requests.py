"""A request and its answer, independent of HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class RequestError(Exception):
    """A request is refused; has the status code of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request."""

    code: int  # HTTP's status code
    body: Any = None  # None for an empty one
    location: str = ""  # path of a connector that was created, else empty


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request, independent of HTTP."""

    path: Mapping[str, str]  # the variable parts of the path by name
    query: Sequence[tuple[str, str]]
    body: Any  # None for an empty one

    def flag(self, name: str) -> bool:
        """Return a flag of the query, case-insensitive; false if it is missing."""
        return any(key == name and value.lower() == "true" for key, value in self.query)

    def object(self) -> dict[str, Any]:
        """Return the body; raises RequestError if it is not a JSON object."""
        if not isinstance(self.body, dict):
            raise RequestError(400, "the body is not a JSON object")
        return self.body


def text_of(value: object) -> Any:  # noqa: ANN401 - other types are refused later, by their key
    """Return a value of a configuration as text, if it is a boolean or an integer."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def place_of(raw: Any) -> tuple[tuple[str, int], int | None]:  # noqa: ANN401 - any JSON
    """Return a partition and its new offset from a request; None to delete the offset.

    Numbers may be texts. Raises RequestError: the request has another form.
    """
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
