"""Lists all declared settings as text: `docs/configuration.md`, `--config-help`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel

from changelog.config import every_section
from changelog.runtime.setting import DeclaredSetting, Section, declared

_HEAD = """# Settings

A setting is given on the command line, in the environment, or in `changelog.toml`; the first of
these that says it counts. What nobody says has the default. `changelog init` writes a file with
all sections; an unknown key in it is an error, which names the nearest one.

- In the file `${NAME}` takes the environment variable NAME, and `${file:PATH}` the first line of a
  file, so that no secret has to stand there.
- A variable is read as it stands, without such references; an empty one says nothing. Several
  texts are separated by commas. Where the type is a table it holds a JSON object, such as
  `CHANGELOG_CAPTURE_PRODUCER='{"linger.ms": "20"}'`.
- On the command line `-C name=value` adds one entry to a table, and so does a variable. Of two
  that name the same entry the command line's counts, then the variable's.
- Options are those of the commands that read the section: of `changelog capture` and, as far as
  they say which log it is, of its neighbours; of `rebuild-view`. `--help` lists them.
- A secret is never printed: not in help, errors or dumps.

This page is written by `make pages` from the declarations that the programs go by.
"""


def page() -> str:
    """Return the text of `docs/configuration.md`."""
    lines = [_HEAD]
    for name, model in every_section().items():
        lines += [f"## [{name}]", "", (model.__doc__ or "").strip(), ""]
        for setting in declared(model, name):
            lines += _entry(setting)
            lines += _parts(setting)
        lines.append("")
    return "\n".join(lines)


def settings_text(sections: Iterable[type[Section]]) -> str:
    """Return the settings of some sections for a terminal, each as on the page."""
    lines = []
    for model in sections:
        lines += [f"[{model.section}]  {(model.__doc__ or '').strip()}", ""]
        for setting in declared(model, model.section):
            head, *more = _entry(setting)
            entry = [head.removeprefix("- "), *more]
            lines += [line.replace("**`", "").replace("`**", ":").rstrip() for line in entry]
        lines.append("")
    return "\n".join(lines)


def _entry(setting: DeclaredSetting) -> Iterator[str]:
    yield f"- **`{setting.name}`** {_kind(setting)}{_default(setting)}. {setting.setting.help}"
    flags = [f"`{flag}`" for flag in setting.setting.flags]
    named = [
        f"`{setting.variable}`",
        *([f"`{setting.setting.also}`"] if setting.setting.also else []),
    ]
    yield f"  {', '.join([*flags, named[0]])}" + (
        f"; where nobody says it, `{setting.setting.also}`" if setting.setting.also else ""
    )


def _parts(setting: DeclaredSetting) -> Iterator[str]:
    """Return the keys of a table's entries, where these are declared too."""
    inner = get_args(setting.kind)[-1] if get_args(setting.kind) else None
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        for part in declared(inner, f"{setting.name}.NAME"):
            yield f"  - **`{part.name}`** {_kind(part)}{_default(part)}. {part.setting.help}"


_KINDS: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    list: "list of texts",
    dict: "table",
}


def _kind(setting: DeclaredSetting) -> str:
    shape = setting.shape
    if isinstance(shape, type) and issubclass(shape, Enum):
        return _one_of(member.value for member in shape)
    choices = [choice for choice in get_args(setting.kind) if isinstance(choice, str)]
    if choices:
        return _one_of(choices)
    bounds = {"ge": "at least", "gt": "above"}
    least = "".join(f", {bounds[name]} {value}" for name, value in setting.bounds.items())
    return f"{_KINDS[shape]}{least}"


def _one_of(values: Any) -> str:  # noqa: ANN401 - texts
    return " or ".join(f"`{json.dumps(value)}`" for value in values)


def _default(setting: DeclaredSetting) -> str:
    if setting.required:
        return "; required"
    if setting.setting.secret or setting.default in ("", None, {}):
        return ""
    return f"; default `{shown(setting.default)}`"


def shown(value: object) -> str:
    """Return a default as the file says it.

    >>> shown(("public.*",))
    '["public.*"]'
    """
    if isinstance(value, Enum):
        value = value.value
    return json.dumps(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    print(page(), end="")
