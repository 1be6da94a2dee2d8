"""The schemas of a registry, asked for when a record needs them."""

from __future__ import annotations

from changelog.contract.base.connection import RegistryConnection
from changelog.sink.registry import Registry


class Schemas:
    """A registry's schemas, by their ids; one thread at a time uses it."""

    def __init__(self, connection: RegistryConnection | None) -> None:
        """Take the registry's connection, or None without a registry."""
        self._connection = connection if connection and connection.url else None
        self._client: Registry | None = None

    @property
    def is_there(self) -> bool:
        """Tell whether there is a registry."""
        return self._connection is not None

    def schema(self, number: int) -> tuple[str, str]:
        """Return kind and text of the schema of an id.

        Raises LogError: the registry refuses, does not know it, or does not answer.
        """
        if self._client is None:
            assert self._connection is not None  # noqa: S101 - nobody asks where there is none
            self._client = Registry(self._connection)
        return self._client.schema(number)

    def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            self._client.close()
