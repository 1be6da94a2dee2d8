"""The views of a project: an explicit name -> file mapping, read from its folder `views`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from changelog.config import Project
from changelog.contract.base.errors import ViewError
from changelog.runtime.setting import WrittenFloat
from views.base.sections import Parameters, Rebuild
from views.project.dbt import Model, read_models
from views.project.python import load_python_view
from views.project.spec import SqlSource, ViewSpec, check_view_name, short_name
from views.project.sql import DIALECTS, dialect_of, parse_sql_view, sql_source

log = logging.getLogger("changelog.views")

FOLDER = "views"
_SUFFIXES = (".sql", ".py")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The files that declare views; a file is read when its view is asked for."""

    root: Path  # the project's folder
    paths: dict[str, Path]  # the file of each view, by name
    # values that views in SQL may name
    parameters: Mapping[str, object] = field(default_factory=dict)
    # views whose files cannot be read, and why
    broken: Mapping[str, ViewError] = field(default_factory=dict)
    # models of dbt, by the names that views read them by: `schema.alias`, and the stored ones by
    # their aliases, as views of their own
    models: Mapping[str, Model] = field(default_factory=dict)
    # files whose names cannot be a view's, and why; a mistake in one keeps back no other view
    misnamed: Mapping[str, ViewError] = field(default_factory=dict)

    @classmethod
    def of(
        cls, root: Path, parameters: Mapping[str, object] | None = None, manifest: str = ""
    ) -> Catalog:
        """Find the views of a project's folder.

        `parameters`: values that views in SQL may name, as TOML has them. `manifest`: that of a dbt
        project whose models are views too.
        """
        folder = root / FOLDER
        models = read_models(root, manifest) if manifest else {}
        if not (folder.is_dir() or models):
            raise ViewError(
                f"{root} holds no folder {FOLDER}",
                hint="name the project with --project DIR, or make one: changelog init DIR",
            )
        paths: dict[str, Path] = {}
        broken: dict[str, ViewError] = {}
        misnamed: dict[str, ViewError] = {}
        for path in sorted(folder.iterdir() if folder.is_dir() else ()):
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
        for model in sorted(models.values(), key=lambda model: model.relation):
            try:
                if not model.is_stored:
                    continue
                name = check_view_name(model.alias)
            except ViewError as error:
                misnamed[f"model {model.alias!r} of dbt"] = error
                continue
            if name in paths:
                reason = f"{paths[name].name} and model {model.relation} of dbt are the same view"
                broken[name] = ViewError(reason, hint="remove one, or give it another alias")
            paths.setdefault(name, model.path)
            models[name] = model
        return cls(root, paths, parameters or {}, broken, models, misnamed)

    @property
    def names(self) -> list[str]:
        """Return the names of the views, and of files that were to be views."""
        return sorted([*self.paths, *self.misnamed])

    def load(self, name: str) -> ViewSpec:
        """Read the declaration of one view.

        Raises ViewError: there is no such view, its file or that of a view that it reads cannot be
        used, or views read each other in a circle.
        """
        if name in self.misnamed:
            raise self.misnamed[name]
        path = self.paths.get(name)
        if path is None:
            raise self._unknown(name)
        spec = self._declared(name, path, ())
        file = self.root / FOLDER / f"{name}.sql" if name in self.models else path
        return replace(spec, options=_sink_options(file, spec.sinks, self.root))

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
        if name in self.models:
            spec = self.models[name].spec(self.models)
        elif path.suffix == ".py":
            return load_python_view(name, path)
        else:
            spec = _sql_view(name, path, self.parameters)
        views = {relation: model.path for relation, model in self.models.items()} | self.paths
        others = named_views(spec, views)
        return with_views(
            spec, {other: self._declared(other, views[other], (*readers, name)) for other in others}
        )

    def load_all(self, names: Iterable[str] | None = None) -> list[ViewSpec]:
        """Read the declarations of the views named, or of all, each once.

        Of all, files whose names cannot be a view's are told and left out.

        Raises ViewError: one is unknown or unusable, or there is none at all.
        """
        chosen = self._chosen(names)
        for name in self.misnamed if names is None else ():
            log.warning("%s is left out: %s", name, self.misnamed[name])
        return [self.load(name) for name in chosen]

    def load_each(
        self, names: Iterable[str] | None = None
    ) -> tuple[list[ViewSpec], dict[str, ViewError]]:
        """Read the declarations; return the usable ones, and the error of each broken one by name.

        Raises ViewError: one is unknown, or there is none at all.
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

    Raises ViewError: there is no folder `views`, or the manifest of dbt cannot be used.
    """
    parameters, manifest = project.section(Parameters).root, project.section(Rebuild).dbt
    return Catalog.of(project.root, parameters, manifest)


def _sql_view(name: str, path: Path, parameters: Mapping[str, object]) -> ViewSpec:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise ViewError(f"{path.name} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise ViewError(f"{path.name} cannot be read: {error.strerror}") from error
    text, used = with_parameters(path, text, parameters, dialect_of(path, text))
    return replace(parse_sql_view(name, path, text), parameters=used)


# A place that names another view reads that view's query, not what serves of it. So a view is
# still a function of tables of the log at one frontier: nothing has to be built first, and its
# proof stands on the log alone. Spark is given the other view's rows as a frame under a name, as
# it is given a table's. What reads SQL alone (the verifier, `--explain`, a definition's
# fingerprint) is given one query, in which the other view's stands in brackets where it is
# named.
# The brackets must not change what a name means: inside of them, a WITH clause of the outer
# query is visible. So the tables of the whole are compared with those of the parts.
def with_views(spec: ViewSpec, views: Mapping[str, ViewSpec]) -> ViewSpec:
    """Return a SQL view with the other views that it names.

    `spec`: as its file declares it, where each name is taken for a table's. `views`: those that it
    names, with the views that they name in turn.

    Raises ViewError: one is in Python, or reads a table that a WITH clause around it hides.
    """
    source = spec.source
    if not isinstance(source, SqlSource) or not views:
        return spec
    for name, view in views.items():
        if spec.history or view.history:
            raise ViewError(
                f'{spec.path.name} reads view "{name}", and '
                + ("is a history" if spec.history else "that is a history"),
                hint="a history reads a captured table, and other views do not read it: query it "
                "where it is served",
            )
    sources = {name: _source_of(spec, view) for name, view in views.items()}
    whole = replace(source, views=sources)
    whole = replace(whole, inlined=_inlined(whole))
    _check_names(spec, whole)
    parameters = {n: text for view in views.values() for n, text in view.parameters.items()}
    return replace(
        spec,
        source=whole,
        tables=tuple(dict.fromkeys(whole.tables())),
        parameters={**spec.parameters, **parameters},
    )


def named_views(spec: ViewSpec, views: Mapping[str, object]) -> list[str]:
    """Return the names of the other views that a SQL view names, each once.

    A view that names itself means the table of its name.
    """
    if not isinstance(spec.source, SqlSource):
        return []
    bare = [
        reference.table.table for reference in spec.source.references if not reference.qualified
    ]
    return [name for name in dict.fromkeys(bare) if name in views and name != spec.name]


_LANGUAGES = {"spark": "Spark's SQL", "postgres": "PostgreSQL's SQL"}


def _source_of(spec: ViewSpec, view: ViewSpec) -> SqlSource:
    if isinstance(view.source, SqlSource):
        assert isinstance(spec.source, SqlSource)  # noqa: S101 - one in Python names no view
        if view.source.dialect != spec.source.dialect:
            raise ViewError(
                f"{spec.path.name} is in {_LANGUAGES[spec.source.dialect]}, and reads view "
                f'"{view.name}", which is in {_LANGUAGES[view.source.dialect]}',
                hint="write both in one language: a header `-- dialect: postgres` in both or none",
            )
        return view.source
    raise ViewError(
        f'{spec.path.name} reads view "{view.name}", which is a function in Python',
        hint="SQL can read tables and views in SQL, which can be proved",
    )


def _inlined(source: SqlSource) -> str:
    text = source.text
    for place in reversed(source.references):
        view = source.view_at(place)
        if view is None:
            continue
        alias = ""
        if place.alias is not None:
            name = exp.to_identifier(place.alias, quoted=True)
            alias = f" AS {name.sql(DIALECTS[source.dialect])}"
        text = f"{text[: place.start]}(\n{_body(view)}\n){alias}{text[place.end :]}"
    return text


def _body(source: SqlSource) -> str:
    """Return a query without the comments around it and without its semicolon."""
    text = source.sql
    tokens = [
        token
        for token in sqlglot.tokenize(text, read=DIALECTS[source.dialect])
        if token.token_type is not TokenType.SEMICOLON
    ]
    return text[tokens[0].start : tokens[-1].end + 1]


def _check_names(spec: ViewSpec, source: SqlSource) -> None:
    """Require that each name means in the whole what it means in its own file."""
    meant = list(source.tables())
    whole = sql_source(spec.path, source.inlined, source.dialect)
    tables = [reference.table for reference in whole.references]
    if tables != meant:
        hidden = [short_name(table) for table in meant if table not in tables] or ["a table"]
        raise ViewError(
            f"{spec.path.name} reads views, {', '.join(source.all_views())}, and has a WITH "
            f"clause by the name of what they read: {', '.join(hidden)}",
            hint="give the WITH clause another name",
        )


# A value takes its place in the text as a literal of the view's SQL, before anything else reads the
# text. So both engines, the fingerprint of a definition and `--plan` have it without knowing of
# it.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_SECTION = "[parameters] of changelog.toml"


def with_parameters(
    path: Path, text: str, values: Mapping[str, object], dialect: str = "spark"
) -> tuple[str, dict[str, str]]:
    """Put values in the places of a query that name them.

    `values`: by name, as TOML has them.

    Returns:
        The text with literals, and the literals by the names of the parameters.
    """
    try:
        tokens = sqlglot.tokenize(text, read=DIALECTS[dialect])
    except TokenError:
        return text, {}  # the parser says where
    used: dict[str, str] = {}
    cuts = []
    for colon, name in pairwise(tokens):
        start, end = colon.start, name.end + 1
        is_one = colon.token_type is TokenType.COLON and name.start == colon.end + 1
        if not is_one or _NAME.fullmatch(text[name.start : end]) is None:
            continue
        place = f"{path.name}:{text.count(chr(10), 0, start) + 1}"
        if start and (text[start - 1].isalnum() or text[start - 1] in "_`'\")]:"):
            raise ViewError(
                f"{place}: {text[start:end]} stands directly behind something else",
                hint="write a space before a parameter; a field of a struct is s.field",
            )
        used[name.text] = _literal(place, name.text, values, dialect)
        cuts.append((start, end, used[name.text]))
    for start, end, literal in reversed(cuts):
        text = text[:start] + literal + text[end:]
    return text, used


def _literal(place: str, name: str, values: Mapping[str, object], dialect: str) -> str:
    if name not in values:
        near = get_close_matches(name, values, n=1)
        raise ViewError(
            f'{place}: parameter "{name}" has no value',
            hint=(f"did you mean :{near[0]}? " if near else "") + f"give it one in {_SECTION}",
        )
    literal = literal_of(values[name], dialect)
    if literal is None:
        raise ViewError(
            f'{place}: the value of parameter "{name}" has no exact form in SQL',
            hint=f"in {_SECTION} write a text, a number, true or false, a date, or a moment with "
            "or without a zone",
        )
    return literal


def literal_of(  # noqa: PLR0911 - one for each type
    value: object, dialect: str = "spark"
) -> str | None:
    r"""Return the SQL literal of a TOML value, or None if there is none.

    >>> literal_of("it's"), literal_of(-3), literal_of(True)
    ("'it\\'s'", '(-3)', 'TRUE')
    """
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return _number(value)
        case str() if "\0" not in value:
            return exp.Literal.string(value).sql(dialect)
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            if dialect == "postgres":
                word, zone = ("TIMESTAMPTZ", "+00") if value.tzinfo else ("TIMESTAMP", "")
                return f"{word} '{moment.isoformat(' ')}{zone}'"
            word = "TIMESTAMP" if value.tzinfo else "TIMESTAMP_NTZ"
            return f"{word} '{moment.isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return None


def _number(value: float) -> str | None:
    """Return a number by the characters in which it is written; a sign stands in brackets.

    `- -3` without them would begin a comment.
    """
    written = value.text if isinstance(value, WrittenFloat) else repr(value)
    text = written.replace("_", "").removeprefix("+")
    if _NUMBER.fullmatch(text) is None:
        return None
    return f"({text})" if text.startswith("-") else text


# For example `views/routes.search.json`. What may stand in it is each sink's to say.
_SUFFIX = ".json"


def _sink_options(path: Path, sinks: Sequence[str], root: Path) -> dict[str, Mapping[str, Any]]:
    """Read the options of a view's sinks; a sink without a file is not in the answer.

    `path`: the file that declares the view. `root`: folder of the project, which no file may lead
    out of.
    """
    options: dict[str, Mapping[str, Any]] = {}
    for file in sorted(path.parent.glob(f"{path.stem}.*{_SUFFIX}")):
        kind = file.name.removeprefix(f"{path.stem}.").removesuffix(_SUFFIX)
        if kind not in sinks:
            raise ViewError(
                f'{file.name} is for the sink "{kind}", where view "{path.stem}" is not served',
                hint=f"it is served in {', '.join(sinks)}; add the sink to the view or remove it",
            )
        if not file.resolve().is_relative_to(root.resolve()):
            raise ViewError(f"{file} leads out of the project", hint="put the file itself here")
        options[kind] = _object(file)
    return options


def _object(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_each_once)
    except OSError as error:
        raise ViewError(f"{path.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ViewError(f"{path.name} cannot be used: {error}") from error
    if not isinstance(value, dict):
        raise ViewError(f"{path.name} holds no JSON object", hint='write {"option": value, …}')
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" stands twice in one object')
    return members
