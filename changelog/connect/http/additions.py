"""Handlers that other packages add by the entry points `changelog.serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starlette.types import ASGIApp, Scope

from changelog.config import Project
from changelog.connect.http.admission import Admission
from changelog.runtime.edge import tell
from changelog.runtime.installed.extras import MissingExtraError, missing_extra
from changelog.runtime.installed.joined import Joined, joined

GROUP = "changelog.serve"


class Sessions(Protocol):
    """The record of sessions that people ended by signing out."""

    def end(self, name: str, until: int) -> None:
        """End a session that would last until `until`, in seconds; raises ChangelogError."""
        ...

    def has_ended(self, name: str) -> bool:
        """Return whether a session was ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionPlace:
    """The project and server that an addition belongs to."""

    folder: Path  # the project's folder, as the command line has it
    settings: Project  # the project's settings
    group: str  # the name of the workers that share the tasks
    admission: Admission  # credentials; an addition gets all requests, and checks them itself
    is_tls: bool  # whether the server speaks HTTPS
    sessions: Sessions  # sessions that were ended, on all workers


class Addition(Protocol):
    """An application of another package that answers some paths."""

    @property
    def app(self) -> ASGIApp:
        """Return the application."""
        ...

    def takes(self, path: str) -> bool:
        """Return whether a path belongs to the addition."""
        ...

    def admits(self, scope: Scope) -> bool:
        """Return whether a request carries credentials."""
        ...

    def is_for_links(self, path: str, query: bytes) -> bool:
        """Return whether links of other sites may lead there, because a GET changes nothing."""
        ...

    def is_for_pages(self, scope: Scope) -> bool:
        """Return whether a page of another site may send a request, by a right of its own."""
        ...

    @property
    def per_second(self) -> float:
        """Return the number of requests with credentials that are answered in a second."""
        ...

    def end(self) -> None:
        """End the open streams, since the server is about to stop."""
        ...


def additions(place: AdditionPlace) -> list[Addition]:
    """Load the additions of the installed packages."""
    return [make(place) for name in joined(GROUP) if (make := _loaded(name)) is not None]


def _loaded(entry: Joined) -> Callable[[AdditionPlace], Addition] | None:
    """Import the factory of an addition; print a line and return None if its extra is missing."""
    try:
        addition: Callable[[AdditionPlace], Addition] = entry.load()
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if not isinstance(missing, MissingExtraError):
            raise
        tell(f"/{entry.name} is not served: {missing}")
        return None
    return addition
