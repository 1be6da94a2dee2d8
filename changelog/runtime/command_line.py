"""Options of a command, made of the settings that it takes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from changelog.runtime.setting import DeclaredSetting, Given, Section, by_subject, declared


class Chosen:
    """The settings of a section that a command has options for."""

    def __init__(self, section: type[Section], *keys: str) -> None:
        """Choose all settings of a section that have an option, or only the named ones."""
        self.settings = [
            setting
            for setting in declared(section, section.section)
            if setting.setting.flags and (not keys or setting.name.partition(".")[2] in keys)
        ]


def takes(*chosen: Chosen) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Equip a command with the options of settings, in place of its parameter of the type `Given`.

    A parameter whose type is a dataclass is unfolded as well: its fields are options of that
    command alone, and its class variable `subjects` says under which titles help lists them, as
    that of a section does.
    """
    settings = [setting for part in chosen for setting in part.settings]

    def wrapped(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        taken = signature.parameters.values()
        parameters = [parameter for own in taken for parameter in _options(own, settings)]

        def run(**values: Any) -> None:  # noqa: ANN401 - as typer gives them
            command(**{own.name: _value(own, settings, values) for own in taken})

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__module__, run.__qualname__ = command.__module__, command.__qualname__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return wrapped


def _options(
    taken: inspect.Parameter, settings: Sequence[DeclaredSetting]
) -> list[inspect.Parameter]:
    """Return the parameters that typer reads in place of one of the command."""
    if taken.annotation == Given:
        return [_parameter(setting) for setting in settings]
    if is_dataclass(taken.annotation):
        return list(_unfolded(taken.annotation))
    return [taken.replace(kind=inspect.Parameter.KEYWORD_ONLY)]


def _value(
    taken: inspect.Parameter, settings: Sequence[DeclaredSetting], values: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - of any type
    """Return the value of a command's parameter, from the values that typer parsed."""
    kind: Any = taken.annotation
    if kind == Given:
        return {setting.name: setting.from_option(values[_name(setting)]) for setting in settings}
    if is_dataclass(kind):
        return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[operator]
    return values[taken.name]


def _name(declared: DeclaredSetting) -> str:
    return declared.name.replace(".", "_")


def _unfolded(kind: Any) -> Iterator[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    subject = by_subject(names, getattr(kind, "subjects", {}))
    for field in fields(kind):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=_under(subject[field.name], hints[field.name]),
        )


def _under(subject: str, hint: Any) -> Any:  # noqa: ANN401 - an annotation
    """Return an option's annotation with the title that help lists it under."""
    if get_origin(hint) is not Annotated or not subject:
        return hint
    kind, *notes = get_args(hint)
    titled = [copy.copy(note) if isinstance(note, OptionInfo) else note for note in notes]
    for note in titled:
        if isinstance(note, OptionInfo) and note.rich_help_panel is None:
            note.rich_help_panel = subject
    return Annotated[kind, *titled]


def _parameter(declared: DeclaredSetting) -> inspect.Parameter:
    """Return the option as a parameter that typer reads."""
    kind = list[str] if declared.shape in {list, dict} else declared.shape
    least = declared.bounds.get("ge")
    if declared.setting.seconds:
        kind, least = float, None if least is None else least / 1000
    option = typer.Option(
        *declared.setting.flags,
        help=declared.setting.help,
        min=least,
        rich_help_panel=declared.subject or None,
    )
    return inspect.Parameter(
        _name(declared),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )
