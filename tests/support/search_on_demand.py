"""A stack whose search server starts when a test first asks where it is.

It is a JVM that takes half a minute of CPU to start, and the processes that run tests of capture
alone never ask.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from changelog.stack.base.state import Endpoints
from changelog.stack.servers.server import Server
from changelog.stack.stack import Stack

SEARCH = "search"


class StackWithSearchOnDemand(Stack):
    """All five servers, of which search is started by whoever reads its address."""

    def endpoints(self) -> Endpoints:
        return _Asked.of(self, super().endpoints())

    def server(self, name: str) -> Server:
        if name == SEARCH:
            self.start_search()
        return super().server(name)

    def start_search(self) -> Endpoints:
        """Start the search server if it has never run; returns the addresses."""
        if SEARCH not in self._with:
            self._with = (*self._with, SEARCH)
            self.up()
        return super().endpoints()


class _Asked(Endpoints):
    """Addresses, of which that of search starts it."""

    @classmethod
    def of(cls, stack: StackWithSearchOnDemand, known: Endpoints) -> _Asked:
        asked = cls(**{field.name: getattr(known, field.name) for field in fields(known)})
        object.__setattr__(asked, "_stack", stack)
        return asked

    def __getattribute__(self, name: str) -> Any:
        stack = object.__getattribute__(self, "__dict__").get("_stack")
        if name == SEARCH and stack is not None:
            return stack.start_search().search
        return object.__getattribute__(self, name)
