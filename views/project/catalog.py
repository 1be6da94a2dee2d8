"""The views of a project: an explicit name -> file mapping, read from its folder `views`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from changelog.config import Project
from changelog.contract.base.errors import ViewError
from views.base.sections import Parameters
from views.project.inline import named_views, with_views
from views.project.parameters import with_parameters
from views.project.python import load_python_view
from views.project.sink_options import sink_options
from views.project.spec import ViewSpec, check_view_name
from views.project.sql import parse_sql_view

log = logging.getLogger("changelog.views")

FOLDER = "views"
_SUFFIXES = (".sql", ".py")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The files that declare views; a file is read when its view is asked for.

    Attributes:
        root: the project's folder.
        paths: the file of each view, by name.
        parameters: values that views in SQL may name.
        broken: views whose files cannot be read, and why.
        misnamed: files whose names cannot be a view's, and why; a mistake in one keeps back no
            other view.
    """

    root: Path
    paths: dict[str, Path]
    parameters: Mapping[str, object] = field(default_factory=dict)
    broken: Mapping[str, ViewError] = field(default_factory=dict)
    misnamed: Mapping[str, ViewError] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, parameters: Mapping[str, object] | None = None) -> Catalog:
        """Find the views of a project's folder.

        Args:
            root: the folder.
            parameters: values that views in SQL may name, as TOML has them.

        Raises:
            ViewError: there is no folder `views`.
        """
        folder = root / FOLDER
        if not folder.is_dir():
            raise ViewError(
                f"{root} holds no folder {FOLDER}",
                hint="name the project with --project DIR, or make one: changelog init DIR",
            )
        paths: dict[str, Path] = {}
        broken: dict[str, ViewError] = {}
        misnamed: dict[str, ViewError] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix not in _SUFFIXES or path.name.startswith(("_", ".")):
                continue
            try:
                name = check_view_name(path.stem)
            except ViewError as error:
                misnamed[path.name if path.name.isprintable() else repr(path.name)] = error
                continue
            if name in paths:
                reason = f"{paths[name].name} and {path.name} declare the same view"
                broken[name] = ViewError(reason, hint="remove one, or give it another name")
            elif not path.resolve().is_relative_to(root.resolve()):
                reason = f"{path} leads out of the project"
                broken[name] = ViewError(reason, hint="put the file itself here")
            elif not path.is_file():  # a pipe would be waited for
                broken[name] = ViewError(f"{path.name} is no file")
            paths.setdefault(name, path)
        return cls(root, paths, parameters or {}, broken, misnamed)

    @property
    def names(self) -> list[str]:
        """Return the names of the views, and of files that were to be views."""
        return sorted([*self.paths, *self.misnamed])

    def load(self, name: str) -> ViewSpec:
        """Read the declaration of one view.

        Raises:
            ViewError: there is no such view, its file or that of a view that it reads cannot be
                used, or views read each other in a circle.
        """
        if name in self.misnamed:
            raise self.misnamed[name]
        path = self.paths.get(name)
        if path is None:
            raise self._unknown(name)
        spec = self._declared(name, path, ())
        return replace(spec, options=sink_options(path, spec.sinks, self.root))

    def _declared(self, name: str, path: Path, readers: tuple[str, ...]) -> ViewSpec:
        """Read a view and the views that it reads; `readers` lead from the first one to it."""
        if name in readers:
            circle = (*readers[readers.index(name) :], name)
            raise ViewError(
                f"views read each other in a circle: {' reads '.join(circle)}",
                hint="a view is computed from tables; put what they share in a view of its own",
            )
        if name in self.broken:
            raise self.broken[name]
        if path.suffix == ".py":
            return load_python_view(name, path)
        spec = _sql_view(name, path, self.parameters)
        others = named_views(spec, self.paths)
        return with_views(
            spec,
            {other: self._declared(other, self.paths[other], (*readers, name)) for other in others},
        )

    def load_all(self, names: Iterable[str] | None = None) -> list[ViewSpec]:
        """Read the declarations of the views named, or of all, each once.

        Of all, files whose names cannot be a view's are told and left out.

        Raises:
            ViewError: one is unknown or unusable, or there is none at all.
        """
        chosen = self._chosen(names)
        for name in self.misnamed if names is None else ():
            log.warning("%s is left out: %s", name, self.misnamed[name])
        return [self.load(name) for name in chosen]

    def load_each(
        self, names: Iterable[str] | None = None
    ) -> tuple[list[ViewSpec], dict[str, ViewError]]:
        """Read the declarations; return the usable ones, and the error of each broken one by name.

        Raises:
            ViewError: one is unknown, or there is none at all.
        """
        specs: list[ViewSpec] = []
        unusable = dict(self.misnamed) if names is None else {}
        for name in self._chosen(names):
            try:
                specs.append(self.load(name))
            except ViewError as error:
                unusable[name] = error
        return specs, unusable

    def _chosen(self, names: Iterable[str] | None) -> list[str]:
        chosen = list(dict.fromkeys(self.paths if names is None else names))
        for name in chosen:  # a wrong name is told before any file is read
            if name not in self.paths and name not in self.misnamed:
                raise self._unknown(name)
        if not chosen:
            for error in self.misnamed.values():
                raise error
            raise ViewError(f"{self.root / FOLDER} holds no view", hint="add views/NAME.sql")
        return chosen

    def _unknown(self, name: str) -> ViewError:
        near = get_close_matches(name.lower(), self.paths, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(self.paths)}"
        return ViewError(
            f"the project has no view {name!r}", hint=hint if self.paths else "add views/NAME.sql"
        )


def catalog_of(project: Project) -> Catalog:
    """Return the views of a project, with its parameters.

    Raises:
        ViewError: there is no folder `views`.
    """
    return Catalog.of(project.root, project.section(Parameters).root)


def _sql_view(name: str, path: Path, parameters: Mapping[str, object]) -> ViewSpec:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise ViewError(f"{path.name} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise ViewError(f"{path.name} cannot be read: {error.strerror}") from error
    text, used = with_parameters(path, text, parameters)
    return replace(parse_sql_view(name, path, text), parameters=used)
