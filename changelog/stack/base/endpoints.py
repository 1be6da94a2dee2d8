"""The addresses of a running stack."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The addresses of the servers; None for a server that was not asked for."""

    postgres: str
    brokers: str
    schema_registry: str
    search: str | None = None
    cache: str | None = None

    def to_json(self) -> str:
        """Return one line of JSON with the names of the fields as keys."""
        return json.dumps(asdict(self))
