"""The address of one sealed generation of a view, for a reader that knows no sink's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from changelog.contract.base.secret import redacted

_UNSHOWN = {"options", "left_out"}


GENERATIONS = "/_generations/"
"""Lies in Delta between the path of a view's table and the name of a generation's."""


@dataclass(frozen=True, slots=True)
class Address:
    """The place of one generation, published or not.

    | sink | location |
    |---|---|
    | delta | `path`: URI of a Delta table |
    | search | `url`: the server, `index`: the index |
    | cache | `url`: the server, `prefix`: what each entry's key starts with |
    | postgres | `url`: the server, `table`: schema and table, `columns`: JSON of other names |
    | iceberg | `catalogue`: its name, or `folder`: of a file of SQLite; `table`, `snapshot` |
    | topic | `brokers`, `topic`, `value`: `avro` or `json` |
    | memory | `path`: a file of JSON lines, each `{"id": …, "row": {…}}` |

    A cache's has a `suffix` too where keys end with one, and a `value` where an entry is no JSON
    document: `hash` or `string`. A search index has a `routing`, a column of the key, where
    documents are put to shards by it, and says what it has `left_out`: JSON of the id and the key,
    itself a JSON object, of each row that its server refuses. A topic has a `registry` too, and
    `options` of its clients in JSON.
    """

    sink: str  # which kind of sink it is
    # what a reader needs. A `url`, or `options`, may hold a password, so it is not in `repr`
    location: Mapping[str, str] = field(repr=False)

    def as_read(self) -> Address:
        """Return the place that readers open while the generation serves.

        Of Delta that is the view's own table: its log has the generation's files, and whatever
        somebody else has committed there.
        """
        table, folder, _ = self.location.get("path", "").rpartition(GENERATIONS)
        return Address(self.sink, {**self.location, "path": table}) if folder else self

    def __str__(self) -> str:
        """Return the place without any password."""
        parts = ", ".join(f"{name}={text}" for name, text in self.shown().items())
        return f"{self.sink}({parts})"

    def as_json(self) -> dict[str, Any]:
        """Return a value for JSON; it holds the password of a `url`, so it is not for logs."""
        return {"sink": self.sink, "location": dict(self.location)}

    def shown(self) -> dict[str, str]:
        """Return the location without any password, for people and scripts."""
        return {
            name: redacted(text) for name, text in self.location.items() if name not in _UNSHOWN
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Address:
        """Read what `as_json` gave."""
        return cls(value["sink"], dict(value["location"]))
