"""Reads the settings of a project, once at the edge: command line, environment, file.

A value comes from the command line, else from its environment variable, else from
`changelog.toml`, else it is the default. Which settings exist, the sections declare: those of
capture in `changelog.sections`, those of later packages where the entry-point group
`changelog.settings` says, so that this package imports nothing of theirs. A declaration is written
with `changelog.runtime.setting`; `changelog.reference` lists them all.

`${NAME}` in a text of the file or the command line takes the environment variable NAME and
`${file:PATH}` the first line of a file, so that no secret has to stand there. A connection that is
left out is taken from the embedded servers of the project's own `.stack` folder, when they are up.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError, StackError
from changelog.contract.log.form import Output
from changelog.runtime.installed.joined import Joined, joined
from changelog.runtime.setting import (
    PREFIX,
    DeclaredSetting,
    Given,
    WrittenFloat,
    declared,
    variable_of,
)
from changelog.runtime.stores import check_place
from changelog.sections import (
    CaptureSettings,
    Http,
    Kafka,
    Postgres,
    Registry,
    Sources,
    of_source,
)

log = logging.getLogger("changelog.config")

FILE_NAME = "changelog.toml"
STACK_FOLDER = ".stack"

SOURCE, BROKERS, REGISTRY = "postgres", "brokers", "schema_registry"
"""What a command may need; the names of the embedded servers' endpoints."""

_USUAL = {
    SOURCE: "-d postgresql://localhost",
    BROKERS: "-b localhost:9092",
    REGISTRY: "-r http://localhost:8081",
}
"""Options with the places where most servers are, which some programs take without a word."""

_OURS: Mapping[str, type[BaseModel]] = {
    section.section: section
    for section in (Postgres, Kafka, Registry, CaptureSettings, Http, Sources)
}
_PARTS = {section.section for section in (Postgres, Kafka, Registry, CaptureSettings)}
"""What a project holds under names of its own."""

_SHAPES = {bool: "true or false", int: "a whole number, such as 1000", float: "a number"}
_TYPES: Mapping[Any, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float)}
_HINT = "`changelog init` writes a file with every one"
_REFERENCE = re.compile(r"\$\{(?P<file>file:)?(?P<name>[^}]+)\}")


class Named(Protocol):
    """A section that knows its name in the file."""

    section: ClassVar[str]


SectionT = TypeVar("SectionT", bound=Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project's settings, complete."""

    root: Path  # the project's folder
    # connection string of the source; holds a password, so no part of `repr`
    postgres: str = field(repr=False)
    kafka: KafkaConnection  # the brokers
    registry: RegistryConnection  # the schema registry
    capture: CaptureSettings  # what to capture and how
    # the sections of later packages that somebody gave, by name
    later: Mapping[str, BaseModel] = field(default_factory=dict, repr=False)
    # that of its primary, where the source is a standby; empty where nobody named it
    primary: str = field(default="", repr=False)

    def section(self, kind: type[SectionT]) -> SectionT:
        """Return the section that a later package declares; its defaults where nobody gave it."""
        return _of(kind, self.later)

    def embedded(self, name: str) -> str | None:
        """Return the address of an embedded server, or None if there is none."""
        return _Endpoints(self.root, ()).find(name)

    def under(self, place: str) -> str:
        """Return a path of the settings, which is one of the project's folder, or a URI.

        Raises ConfigurationError: the URI is of no store that there is, or has an odd path.
        """
        check_place(place)
        return place if "://" in place else str((self.root / place).resolve())

    @property
    def slot(self) -> str:
        """Return the slot's name."""
        return self.capture.slot

    @property
    def transactional_id(self) -> str:
        """Return the name under which capture writes transactions; empty when it does not."""
        return self.name_of_transactions if self.capture.exactly_once else ""

    @property
    def name_of_transactions(self) -> str:
        """Return the name that a capture of this slot has where it writes transactions."""
        return ".".join(filter(None, ["changelog", self.topic_prefix, self.slot]))

    @property
    def topic_prefix(self) -> str:
        """Return the prefix of the topics."""
        return self.capture.topic_prefix


def load_project(
    directory: Path,
    *,
    overrides: Given | None = None,
    needs: Collection[str] = (SOURCE, BROKERS, REGISTRY),
    one_source: bool = True,
) -> Project:
    """Read the settings of the project in `directory`.

    Args:
        directory: holds `changelog.toml`; without that file all is at its default.
        overrides: values of the command line by dotted name (`capture.slot`); None is skipped.
        needs: which connections have to be known; the others are empty when nobody named them.
            A rebuild works from the log alone.
        one_source: whether one of several sources has to be named, because its log is meant. A
            command on topics that are named to it works without one.

    Raises ConfigurationError: the file does not parse, there is an unknown or malformed setting,
    the file names a missing environment variable or file, or a connection is neither given nor
    embedded.
    """
    root = directory.resolve()
    raw = _read(root / FILE_NAME)
    given_values = {name: value for name, value in (overrides or {}).items() if value is not None}
    _take_source(raw, given_values, must=bool(needs) and one_source)
    variables = _take_variables(raw, given_values)
    for name, value in given_values.items():
        _set(raw, name, _plain(_resolved(value, root, "the command line")))
    parts = [  # a setting of names may have others from the file
        part
        for name, value in given_values.items()
        for part in ([f"{name}.{key}" for key in value] if isinstance(value, dict) else [name])
    ]
    sections = validated(_resolved(raw, root, FILE_NAME), {*variables} - {*given_values}, parts)
    postgres, kafka = _of(Postgres, sections), _of(Kafka, sections)
    registry, capture = _of(Registry, sections), _of(CaptureSettings, sections)
    if capture.output_format is Output.JSON:
        needs = {*needs} - {REGISTRY}  # documents have no schema id
    embedded = _Endpoints(root, needs)
    return Project(
        root=root,
        postgres=postgres.dsn or embedded.need(SOURCE, "postgres.dsn"),
        kafka=KafkaConnection(
            brokers=kafka.brokers or embedded.need(BROKERS, "kafka.brokers"),
            options=kafka.options,
        ),
        registry=RegistryConnection(
            url=(registry.url or embedded.need(REGISTRY, "registry.url")).rstrip("/"),
            options=registry.options,
        ),
        capture=capture,
        later={name: settings for name, settings in sections.items() if name not in _PARTS},
        primary=postgres.primary,
    )


def source_names(directory: Path) -> tuple[str, ...]:
    """Return the names of the project's sources, `[sources.NAME]`; none where it has one alone.

    Raises ConfigurationError: the file does not parse.
    """
    return tuple(_sources(_read(directory.resolve() / FILE_NAME)))


def _sources(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    sources = raw.get(Sources.section, {})
    is_whole = isinstance(sources, dict) and all(
        isinstance(source, dict) for source in sources.values()
    )
    return sources if is_whole else {}  # what else it is, is told later


def _take_source(raw: dict[str, Any], given_values: Given, *, must: bool) -> None:
    """Put the file's settings of the named source over its settings of all sources.

    Raises ConfigurationError: there is none of the name; or none is named, though one `must` be.
    """
    for source_setting in declared(Sources, Sources.section):
        if text := os.environ.get(source_setting.variable):
            _set(raw, source_setting.name, _plain(source_setting.from_variable(text)))
    key, sources = "capture.source", _sources(raw)
    name = given_values.get(key) or os.environ.get(variable_of(key)) or _get(raw, key)
    if not name and len(sources) == 1:
        (name,) = sources
    if name and name not in sources:
        names = ", ".join(sources) or "no section [sources.NAME]"
        raise ConfigurationError(f'there is no source "{name}"', hint=f"the project has {names}")
    if not name:
        if sources and must:
            raise ConfigurationError(
                f"which of the sources: {', '.join(sources)}?",
                hint=f"say --source, {variable_of(key)} or `source` under [capture]; "
                "`changelog capture --all-sources` takes all",
            )
        return
    prefix = str(_get(raw, "capture.topic_prefix") or "")
    for setting, value in of_source(str(name), sources[str(name)], prefix).items():
        _set(raw, setting, value)


def _of(kind: type[SectionT], sections: Mapping[str, object]) -> SectionT:
    there = sections.get(kind.section)
    return there if isinstance(there, kind) else kind()


@cache
def _later() -> Mapping[str, Joined]:
    return {entry.name: entry for entry in joined("changelog.settings")}


def every_section() -> dict[str, type[BaseModel]]:
    """Return the class of each section by its name in the file, also of later packages."""
    return {**_OURS, **{name: entry.load() for name, entry in _later().items()}}


def every_setting() -> Iterator[DeclaredSetting]:
    """Return all settings that there are."""
    for name, model in every_section().items():
        yield from declared(model, name)


def validated(
    raw: Mapping[str, Any],
    from_variables: Collection[str] = (),
    from_options: Collection[str] = (),
) -> dict[str, BaseModel]:
    """Return the sections that `raw` has, by name; no server is asked anything.

    Args:
        raw: as the file has them.
        from_variables: settings that the environment gave.
        from_options: settings, and parts of settings, that the command line gave.

    Raises ConfigurationError: there is an unknown or malformed setting; its value is not shown.
    """
    models = _OURS if raw.keys() <= _OURS.keys() else every_section()
    sections = {}
    for name, model in models.items():
        if name not in raw:
            continue
        _check_types(name, model, raw, from_variables, from_options)
        try:
            sections[name] = model.model_validate(raw[name])
        except ValidationError as error:
            raise _explained(error, name, from_variables, from_options) from None
    for name in raw:
        if name not in models:
            raise _unknown(name)
    return sections


def _check_types(
    section: str,
    model: type[BaseModel],
    raw: Mapping[str, Any],
    from_variables: Collection[str],
    from_options: Collection[str],
) -> None:
    """Check that no value is of a type that pydantic would turn into the setting's: true into 1."""
    for setting in declared(model, section):
        value = _get(raw, setting.name)
        taken = _TYPES.get(setting.shape)
        if taken is None or value is None or isinstance(value, str | dict | list):
            continue  # a variable is a text
        if not isinstance(value, taken) or isinstance(value, bool) != (setting.shape is bool):
            where = _origin(setting.name, from_variables, from_options)
            raise ConfigurationError(
                f"{where}: {setting.name}: should be {_SHAPES[setting.shape]}", hint=_HINT
            )


def _origin(place: str, from_variables: Collection[str], from_options: Collection[str]) -> str:
    """Return the option, the variable or the file from which a setting is, or a part of it."""

    def holds(setting: str) -> bool:
        return f"{place}.".startswith(f"{setting}.")

    if any(map(holds, from_options)):
        flags = [setting.setting.flags for setting in every_setting() if holds(setting.name)]
        return next((names[-1] for names in flags if names), FILE_NAME)
    return next((variable_of(name) for name in from_variables if holds(name)), FILE_NAME)


def _explained(
    error: ValidationError,
    section: str,
    from_variables: Collection[str],
    from_options: Collection[str],
) -> ConfigurationError:
    """Return the first error of a section, in the user's words."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = ".".join([section, *(str(part) for part in first["loc"])])
    where = _origin(name, from_variables, from_options)
    if first["type"] == "extra_forbidden":
        return _unknown(name, where)
    message = first["msg"].lower().replace("valid tuple", "valid list")
    return ConfigurationError(f"{where}: {name}: {message}", hint=_HINT)


def _unknown(name: str, where: str = FILE_NAME) -> ConfigurationError:
    names = [*every_section(), *(setting.name for setting in every_setting())]
    parts = {
        setting_name.rpartition(".")[0] for setting_name in names if setting_name.count(".") > 1
    }
    meant = closest(name, [*names, *parts])
    return ConfigurationError(
        f"{where}: {name}: there is no such setting",
        hint=f"did you mean {meant}?" if meant else _HINT,
    )


def closest(name: str, names: Collection[str]) -> str | None:
    """Return the setting that is meant by a name that none has, None where none is near.

    First one of the same section, then one of that name in another section.

    >>> closest("capture.tabels", ["capture.slot", "capture.tables", "logs.tables"])
    'capture.tables'
    >>> closest("postgres.slot", ["capture.slot", "postgres.dsn"])
    'capture.slot'
    """
    section, _, last = name.rpartition(".")
    siblings = {
        candidate.rpartition(".")[2]: candidate
        for candidate in names
        if _section(candidate) == section
    }
    others = {candidate.rpartition(".")[2]: candidate for candidate in names}
    for nearest in (siblings, others):
        near = get_close_matches(last, nearest, n=1, cutoff=0.7)
        if near:
            return nearest[near[0]]
    return None


def _section(name: str) -> str:
    return name.rpartition(".")[0]


def _take_variables(raw: dict[str, Any], given_values: Given) -> set[str]:
    """Put the environment's settings into `raw`; return their names.

    An empty variable says nothing, as in a file of a container's environment.
    """
    variables = {name for name, text in os.environ.items() if name.startswith(PREFIX) and text}
    if not variables:
        return set()
    settings = {setting.variable: setting for setting in every_setting()}
    for variable in sorted(variables & settings.keys()):
        setting = settings[variable]
        if setting.name not in given_values or setting.shape is dict:
            _set(raw, setting.name, _plain(setting.from_variable(os.environ[variable])))
    for setting in settings.values():
        if setting.setting.also in variables and not _get(raw, setting.name):
            _set(raw, setting.name, _Plain(os.environ[setting.setting.also]))
            variables.discard(setting.setting.also)
    for variable in sorted(variables - settings.keys()):
        near = get_close_matches(variable, settings, n=1, cutoff=0.9)
        if near:
            log.warning("%s is no setting: did you mean %s?", variable, near[0])
    return {settings[variable].name for variable in variables & settings.keys()}


class _Endpoints:
    """The project's embedded servers, looked up only when a setting is left out."""

    def __init__(self, root: Path, needs: Collection[str]) -> None:
        self._needs = needs
        self._directory = root / STACK_FOLDER
        self._why: dict[str, StackError] = {}

    def find(self, name: str) -> str | None:
        if not self._directory.is_dir():
            return None
        # Here, since a quarter of a command's start would go into servers that few have.
        from changelog.stack.stack import Stack  # noqa: PLC0415

        try:
            return Stack(self._directory).endpoint(name)
        except StackError as error:
            self._why[name] = error
            log.debug("%s", error)
            return None

    def need(self, name: str, setting: str) -> str:
        text = self.find(name)
        if text is None and name not in self._needs:
            return ""
        if text is None and (why := self._why.get(name)) is not None:
            raise ConfigurationError(
                f"{setting} is not set, and {why.args[0]}",
                hint=f"{why.hint}, or set it in {FILE_NAME} or on the command line",
            )
        if text is None:
            raise ConfigurationError(
                f"{setting} is not set and no embedded servers run in {self._directory}",
                hint=f"set it in {FILE_NAME} or on the command line (on this machine mostly "
                f"{_USUAL[name]}), or run `changelog stack up`",
            )
        return text


def _read(path: Path) -> dict[str, Any]:
    if not os.path.isdir(path.parent):  # noqa: PTH112 - a path's own raises where it may not look
        raise ConfigurationError(
            f"{path.parent} is not a folder", hint="`changelog init DIR` makes a project"
        )
    text = _text(path) if os.path.lexists(path) else ""
    try:
        return tomllib.loads(text, parse_float=WrittenFloat)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error


def _text(path: Path) -> str:
    if os.path.isdir(path):  # noqa: PTH112 - as above
        raise ConfigurationError(f"{path} is a folder", hint="a file has to be there")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{path} is no UTF-8 text", hint="save it in the encoding UTF-8"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None


def _get(raw: Mapping[str, Any], name: str) -> object:
    value: Any = raw
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _set(raw: dict[str, Any], name: str, value: object) -> None:
    *sections, last = name.split(".")
    for section in sections:
        inner: object = raw.setdefault(section, {})
        if not isinstance(inner, dict):
            return  # the file has a value in place of the section, which is told later
        raw = inner
    if isinstance(value, dict) and isinstance(raw.get(last), dict):
        raw[last] = {**raw[last], **value}  # single settings of a section, such as `-C`
    else:
        raw[last] = value


class _Plain(str):
    """A text that holds no reference: a variable's value is what it says."""

    __slots__ = ()


def _plain(value: object) -> object:
    match value:
        case str():
            return _Plain(value)
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def _resolved(value: Any, root: Path, named_by: str) -> Any:  # noqa: ANN401 - TOML is any nesting of values
    match value:
        case _Plain():
            return str(value)
        case str():
            return resolved(value, root, named_by=named_by)
        case dict():
            return {name: _resolved(item, root, named_by) for name, item in value.items()}
        case list():
            return [_resolved(item, root, named_by) for item in value]
        case _:
            return value


def resolved(text: str, root: Path, *, named_by: str) -> str:
    """Return a text with the values of its `${NAME}` and `${file:PATH}`.

    `named_by` is the option or file that the text is from, for messages.

    Raises ConfigurationError: there is no such variable or file.
    """
    return _REFERENCE.sub(_reader(root, named_by), text)


def _reader(root: Path, named_by: str) -> Callable[[re.Match[str]], str]:
    def read(match: re.Match[str]) -> str:
        name = match["name"]
        if match["file"]:
            path = root / name
            if not os.path.lexists(path):
                raise ConfigurationError(f"{named_by} names the file {path}, which is missing")
            return _text(path).partition("\n")[0].strip()
        if name not in os.environ:
            raise ConfigurationError(
                f"{named_by} names the environment variable {name}, which is not set",
                hint=f"export {name}=…",
            )
        return os.environ[name]

    return read
