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
    """Sessions of people that were ended before their time."""

    def end(self, name: str, until: int) -> None:
        """End a session, which would last until a time in seconds; raises ChangelogError."""
        ...

    def has_ended(self, name: str) -> bool:
        """Tell whether a session was ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionPlace:
    """Where an addition stands."""

    folder: Path  # of the project, as the command was given it
    settings: Project  # of the project
    admission: Admission  # who may ask; an addition answers everybody, and asks this itself
    is_tls: bool  # whether it is served by HTTPS
    sessions: Sessions  # those that were ended, of all workers


class Addition(Protocol):
    """An application for some paths."""

    @property
    def app(self) -> ASGIApp:
        """Return the application."""
        ...

    def takes(self, path: str) -> bool:
        """Tell whether a path is one of its own."""
        ...

    def admits(self, scope: Scope) -> bool:
        """Tell whether a request comes from somebody who may ask."""
        ...

    def is_for_links(self, path: str, query: bytes) -> bool:
        """Tell whether a link of another site may lead there: nothing is begun by a look at it."""
        ...

    def end(self) -> None:
        """Stop all work that goes on between requests."""
        ...


def additions(place: AdditionPlace) -> list[Addition]:
    """Return the routes and pages that later packages add."""
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
