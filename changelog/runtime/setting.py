"""The form in which a setting is declared: its option, variable, default and help in one place.

A section of `changelog.toml` is a model, and a setting is a field of it that carries a `Setting`:

    partitions: Annotated[int, Field(ge=1), Setting("Partitions of a new topic.", "--partitions")]

From that follow the key `capture.partitions`, the variable `CHANGELOG_CAPTURE_PARTITIONS`, the
option of every command that `takes` the section, and the entry of `docs/configuration.md`. Help
lists options by subject: `subjects` of the section has the titles.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    RootModel,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.properties import parse_properties

PREFIX = "CHANGELOG_"  # what the variables of settings begin with


def variable_of(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable_of("capture.slot")
    'CHANGELOG_CAPTURE_SLOT'
    """
    return PREFIX + name.replace(".", "_").upper()


Given = Mapping[str, object]  # the value on the command line by dotted name, or None if it has none

_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A comma with an even number of double quotes after it."""


def variables_of(settings: Given) -> dict[str, str]:
    """Return the environment variables that pass these settings to another command.

    >>> variables_of({"capture.tables": ["a", "b"], "capture.slot": None, "spark.cores": 2})
    {'CHANGELOG_CAPTURE_TABLES': 'a,b', 'CHANGELOG_SPARK_CORES': '2'}
    """
    return {
        variable_of(name): _text(value) for name, value in settings.items() if value is not None
    }


def _text(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(value) if isinstance(value, list) else str(value)


class WrittenFloat(float):
    """A number with a point or an exponent that keeps the characters in which it is written."""

    def __new__(cls, text: str) -> Self:
        """Read the number."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


class Setting:
    """The declaration of a setting, in addition to its type, bounds and default."""

    def __init__(
        self,
        help_text: str,
        *flags: str,
        secret: bool = False,
        seconds: bool = False,
        also: str = "",
        alone: str = "",
        filled: bool = False,
    ) -> None:
        """Take the help and the spellings of the option; without one there is no option.

        Args:
            help_text: one or two sentences; for the command line and the page.
            flags: as typer takes them, `--ddl/--no-ddl`.
            secret: its value is never shown, and no default of it either.
            seconds: the option is in seconds, the key in milliseconds.
            also: a further variable, which is asked last.
            alone: the name that a value has which is given without one, where there are names.
            filled: an empty option is a mistake, such as a shell's variable that is not set.
        """
        self.help, self.flags, self.secret = help_text, flags, secret
        self.seconds, self.also, self.alone, self.filled = seconds, also, alone, filled


class Section(BaseModel):
    """A section of `changelog.toml`; its class variable `section` is the name there.

    `subjects` has the titles under which help lists the options, each by the first key below it.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        defer_build=True,  # a command reads few sections, and has to know all
    )
    section: ClassVar[str] = ""
    subjects: ClassVar[Mapping[str, str]] = {}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        secret = _secret(type(self))
        return (pair for pair in super().__repr_args__() if pair[0] not in secret)

    @model_serializer(mode="wrap")
    def _without_secrets(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        secret = _secret(type(self))
        return {name: "***" if name in secret else value for name, value in handler(self).items()}


def _secret(model: type[BaseModel]) -> set[str]:
    secrets = {setting.name: setting.setting.secret for setting in declared(model, "")}
    return {name for name, secret in secrets.items() if secret}


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """A setting with its section."""

    name: str  # its key with its section, `capture.slot`
    setting: Setting = field(repr=False)  # what its declaration says
    kind: Any  # the type of its value
    bounds: Mapping[str, float]  # its bounds, as pydantic has them: `ge`, `gt`
    default: Any  # its value where nobody says another; None where that is left open
    required: bool  # it has no default
    # the title under which help lists its option; empty for that of all the others
    subject: str = ""

    @property
    def variable(self) -> str:
        """Return the name of its environment variable."""
        return variable_of(self.name)

    @property
    def shape(self) -> Any:  # noqa: ANN401 - any type
        """Return the kind of value: `list`, `dict`, or a simple type."""
        origin = get_origin(self.kind)
        if origin in {Union, UnionType}:
            return next(inner for inner in get_args(self.kind) if inner is not type(None))
        if origin is tuple:
            return list
        return str if origin is Literal else origin or self.kind

    def from_variable(self, text: str) -> object:
        """Return the value that a variable gives; its type is checked with the file's.

        Raises ConfigurationError: it should be JSON, and is not; the text is not shown.
        """
        if self.shape is list:
            return _split([text])
        if self.shape is not dict:
            return text
        try:
            value = json.loads(text, parse_float=WrittenFloat)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConfigurationError(
                f"{self.variable} is no JSON object", hint='it looks like {"name": "value"}'
            )
        return value

    def from_option(self, value: Any) -> object:  # noqa: ANN401 - as typer gives it
        """Return the value that the option gives, None where it was not given.

        Raises ConfigurationError: it should be `name=value`, and is not; or it is empty.
        """
        if self.setting.filled and value == "":
            option = self.setting.flags[-1]
            raise ConfigurationError(f"{option} is empty", hint="leave it out for its default")
        if self.shape is dict:
            alone = self.setting.alone
            named = [
                f"{alone}={text}" if alone and "=" not in text else text for text in value or ()
            ]
            return parse_properties(named, self.setting.flags[0])
        if self.shape is list:
            return _split(value) if value else None
        if self.setting.seconds and value is not None:
            if not math.isfinite(value):
                raise ConfigurationError(f"{self.setting.flags[-1]} is no finite number")
            return round(value * 1000)
        return value


def _split(texts: list[str]) -> list[str]:
    """Take `--tables a,b --tables c` as three patterns; a comma in double quotes ends none."""
    return [part.strip() for text in texts for part in _COMMA.split(text)]


def declared(model: type[BaseModel], section: str) -> Iterator[DeclaredSetting]:
    """Yield the settings of a section and its nested sections, in order."""
    start = f"{section}." if section else ""
    subject = by_subject(model.model_fields, getattr(model, "subjects", {}))
    for key, member in model.model_fields.items():
        kind = member.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from declared(kind, start + key)
            continue
        (setting,) = (entry for entry in member.metadata if isinstance(entry, Setting))
        bounds = {
            name: getattr(bound, name)
            for bound in member.metadata
            for name in ("ge", "gt")
            if hasattr(bound, name)
        }
        name = section if issubclass(model, RootModel) else start + key
        default = None if member.is_required() else member.get_default(call_default_factory=True)
        yield DeclaredSetting(
            name, setting, kind, bounds, default, member.is_required(), subject[key]
        )


def by_subject(names: Collection[str], subjects: Mapping[str, str]) -> dict[str, str]:
    """Return the title over each name; the titles come by the first name below them.

    >>> by_subject(["all", "keep", "lock"], {"keep": "Generations"})
    {'all': '', 'keep': 'Generations', 'lock': 'Generations'}

    Raises ValueError: a title has a name that is not there.
    """
    if unknown := subjects.keys() - set(names):
        raise ValueError(f"subjects of names that are not there: {unknown}")
    titles, subject = {}, ""
    for name in names:
        titles[name] = subject = subjects.get(name, subject)
    return titles
