"""The page as an addition to `changelog serve`; mounted by the entry points `changelog.serve`."""

from __future__ import annotations

from starlette.types import ASGIApp

from changelog.connect.http.additions import Place
from views.page.access import Access
from views.page.answers import ROOT, Answers


class Page:
    """The page of one worker."""

    def __init__(self, place: Place) -> None:
        self._answers = Answers(place.folder, Access.of(place.admission, is_tls=place.is_tls))
        self._app = self._answers.app()

    @property
    def app(self) -> ASGIApp:
        """Return the application."""
        return self._app

    def takes(self, path: str) -> bool:
        """Tell whether a path is one of the page's."""
        return path == ROOT or path.startswith((f"{ROOT}/", "/views/"))

    def end(self) -> None:
        """End the streams."""
        self._answers.end()


def page(place: Place) -> Page:
    """Return the page of a worker."""
    return Page(place)
