"""The page as an addition to `changelog serve`, loaded by the entry points `changelog.serve`."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Scope

from changelog.connect.http.additions import AdditionPlace
from changelog.connect.http.guard import PER_SECOND
from changelog.connect.http.rights import Rights
from changelog.sections import Http
from views.page.access import Access
from views.page.answers import ROOT, PageAnswers
from views.page.changes import reader_of

_CHANGES = re.compile("/views/[^/]+/changes/?")
_LINKABLE = re.compile(rf"{ROOT}(?:/sign-in|/views/[^/]+|/assets/[^/]+)?/?")


class Page:
    """The page of one worker."""

    def __init__(self, place: AdditionPlace) -> None:
        self._access = Access.of(place.admission, is_tls=place.is_tls, sessions=place.sessions)
        self._rights = Rights(place.settings.section(Http), place.admission)
        self._answers = PageAnswers(place.folder, self._access, self._rights)
        self._app = self._answers.app()

    @property
    def app(self) -> ASGIApp:
        """Return the application."""
        return self._app

    def takes(self, path: str) -> bool:
        """Return whether a path belongs to the page."""
        return path == ROOT or path.startswith((f"{ROOT}/", "/views/"))

    def admits(self, scope: Scope) -> bool:
        """Return whether a request may see the page, or carries a token for changes of views."""
        request = Request(scope)
        return self._access.lets_in(request) or reader_of(self._rights, request) is not None

    def is_for_links(self, path: str, query: bytes) -> bool:
        """Return whether links of other sites may lead to a path.

        They may lead to the line and to views, but not to the origin of a row, which starts a
        process.
        """
        return not query and _LINKABLE.fullmatch(path) is not None

    def is_for_pages(self, scope: Scope) -> bool:
        """Return whether a page of another site may send a request: for changes, by a token."""
        request = Request(scope)
        reader = reader_of(self._rights, request)
        is_listed = reader is not None and request.headers.get("origin", "") in reader.origins
        return is_listed and _CHANGES.fullmatch(scope["path"]) is not None

    @property
    def per_second(self) -> float:
        """Return the number of requests with credentials that are answered in a second."""
        return PER_SECOND

    def end(self) -> None:
        """End the open streams."""
        self._answers.end()


def page(place: AdditionPlace) -> Page:
    """Return the page of a worker."""
    return Page(place)
