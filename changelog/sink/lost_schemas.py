"""Schemas that records of the log name and the registry does not have any more."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from changelog.contract.base.connection import RegistryConnection

PUT_BACK = (
    "put them back with their ids, or start `changelog capture` with "
    "`--on-incompatible resnapshot`: it copies the tables anew"
)


def lost_schemas(connection: RegistryConnection, topics: Mapping[str, int | None]) -> list[str]:
    """Return the topics whose records cannot be decoded: the registry has lost their schemas.

    Topics are by name, each with the id of its keys' schema, as `Frontier.registered` has them.
    Without an address of the registry nothing is asked.

    Raises LogError: the registry refuses; UnavailableLogError: it does not answer.
    """
    if not topics or not connection.url:
        return []
    from changelog.sink.registry import SchemaRegistry  # noqa: PLC0415 - a third of a start

    with closing(SchemaRegistry(connection)) as registry:
        return registry.lost(topics)
