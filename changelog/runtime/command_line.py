"""Options of a command, made of the settings that it takes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from changelog.runtime.setting import Declared, Given, Section, by_subject, declared


class Chosen:
    """The settings of a section that a command has options for."""

    def __init__(self, section: type[Section], *keys: str) -> None:
        """Choose all settings of a section that have an option, or only the named ones."""
        self.settings = [
            each
            for each in declared(section, section.section)
            if each.setting.flags and (not keys or each.name.partition(".")[2] in keys)
        ]


def takes(*chosen: Chosen) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Equip a command with the options of settings, in place of its parameter of the type `Given`.

    A parameter whose type is a dataclass is unfolded as well: its fields are options of that
    command alone, and its class variable `subjects` says under which titles help lists them, as
    that of a section does.
    """
    settings = [each for part in chosen for each in part.settings]

    def wrapped(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        taken = signature.parameters.values()
        parameters = [made for each in taken for made in _options(each, settings)]

        def run(**values: Any) -> None:  # noqa: ANN401 - as typer gives them
            command(**{each.name: _value(each, settings, values) for each in taken})

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__module__, run.__qualname__ = command.__module__, command.__qualname__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return wrapped


def _options(taken: inspect.Parameter, settings: Sequence[Declared]) -> list[inspect.Parameter]:
    """Return the parameters that typer reads in place of one of the command."""
    if taken.annotation == Given:
        return [_parameter(each) for each in settings]
    if is_dataclass(taken.annotation):
        return list(_unfolded(taken.annotation))
    return [taken.replace(kind=inspect.Parameter.KEYWORD_ONLY)]


def _value(
    taken: inspect.Parameter, settings: Sequence[Declared], values: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - of any type
    """Return the value of a command's parameter, from the values that typer parsed."""
    kind: Any = taken.annotation
    if kind == Given:
        return {each.name: each.from_option(values[_name(each)]) for each in settings}
    if is_dataclass(kind):
        return kind(**{each.name: values[each.name] for each in fields(kind)})  # type: ignore[operator]
    return values[taken.name]


def _name(declared: Declared) -> str:
    return declared.name.replace(".", "_")


def _unfolded(kind: Any) -> Iterator[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    names = [each.name for each in fields(kind)]
    subject = by_subject(names, getattr(kind, "subjects", {}))
    for each in fields(kind):
        yield inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=_under(subject[each.name], hints[each.name]),
        )


def _under(subject: str, hint: Any) -> Any:  # noqa: ANN401 - an annotation
    """Return an option's annotation with the title that help lists it under."""
    if get_origin(hint) is not Annotated or not subject:
        return hint
    kind, *said = get_args(hint)
    titled = [copy.copy(each) if isinstance(each, OptionInfo) else each for each in said]
    for each in titled:
        if isinstance(each, OptionInfo) and each.rich_help_panel is None:
            each.rich_help_panel = subject
    return Annotated[kind, *titled]


def _parameter(declared: Declared) -> inspect.Parameter:
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
