"""The project that translators fill: settings, views, options of their sinks; and its files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from views.project.spec import VIEW_NAME

FILL_IN = "FILL_IN"
"""A name that no table has: a view that holds it is refused until somebody has filled it in."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*\}", re.ASCII)
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check
    collate collation column concurrently constraint create cross current_catalog current_date
    current_role current_schema current_time current_timestamp current_user default deferrable desc
    distinct do else end except false fetch for foreign freeze from full grant group having ilike in
    initially inner intersect into is isnull join lateral leading left like limit localtime
    localtimestamp natural not notnull null offset on only or order outer overlaps placing primary
    references returning right select session_user similar some symmetric system_user table
    tablesample then to trailing true union unique user using variadic verbose when where window
    with
    """.split()  # noqa: SIM905
)
"""PostgreSQL's words that cannot be names without quotes."""


@dataclass(slots=True)
class NewProject:
    """A project that is not written yet."""

    # by section; a section of a section has a dot in its name
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)  # texts of files, by the view's name
    # options of sinks, by view and kind
    options: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def set(self, section: str, key: str, value: object) -> bool:
        """Set a setting; a list is added to. Returns whether no other value was there."""
        settings = self.settings.setdefault(section, {})
        if isinstance(value, list):
            settings[key] = list(dict.fromkeys([*settings.get(key, []), *value]))
            return True
        return bool(settings.setdefault(key, value) == value)

    def view_name(self, name: str) -> str:
        """Return a name that a view can have and none has yet."""
        clean = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "view"
        clean = (clean if clean[0].isalpha() else f"v_{clean}")[:60]
        assert VIEW_NAME.fullmatch(clean)  # noqa: S101 - by the line above
        names = (clean, *(f"{clean}_{n}" for n in range(2, 100)))
        return next(name for name in names if name not in self.views)

    def files(self) -> dict[str, str]:
        """Return the texts of the files, by their paths."""
        files = {"changelog.toml": self._toml()}
        files |= {f"views/{name}.sql": text for name, text in self.views.items()}
        for (name, kind), options in self.options.items():
            text = json.dumps(options, indent=2, ensure_ascii=False)
            files[f"views/{name}.{kind}.json"] = f"{text}\n"
        return files

    def _toml(self) -> str:
        lines = ["# Translated; moved.txt says of each key what became of it.", ""]
        for section, settings in self.settings.items():
            lines.append(f"[{section}]")
            lines += [f"{_key(name)} = {_toml(value)}" for name, value in settings.items()]
            lines.append("")
        return "\n".join(lines)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def address(
    scheme: str,
    host: str,
    *,
    port: object = "",
    user: str = "",
    password: str = "",
    path: str = "",
    options: Mapping[str, str] | None = None,
) -> str:
    """Return a URI; `password` is the name of the environment variable that holds it."""
    login = f"{_part(user)}{f':${{{password}}}' if password else ''}@" if user or password else ""
    place = f"{_part(host)}:{port}" if port else _part(host)
    words = "&".join(f"{name}={_part(value)}" for name, value in (options or {}).items())
    return f"{scheme}://{login}{place}/{_part(path)}{f'?{words}' if words else ''}"


def _part(text: str) -> str:
    """Escape a part of an address; variables of the environment stay as they are."""
    parts = _VARIABLE.split(text)
    names = [*_VARIABLE.findall(text), ""]
    return "".join(quote(part, safe="") + name for part, name in zip(parts, names, strict=True))


def identifier(name: str) -> str:
    """Return a name as PostgreSQL's SQL has it.

    >>> identifier("id"), identifier("user"), identifier('a"b')
    ('id', '"user"', '"a""b"')
    """
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def literal(text: str) -> str:
    """Return a text as PostgreSQL's SQL has it."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def table_text(table: str) -> str:
    """Return `schema.table` as a view writes it: with its schema it is no view of that name."""
    schema, _, name = table.partition(".")
    return f"{identifier(schema)}.{identifier(name)}"


def view_text(key: list[str], sink: str, query: str, description: str = "") -> str:
    """Return a view's file."""
    columns = [f'"{name}"' if "," in name else name for name in key] or [FILL_IN]
    header = f"-- key: {', '.join(columns)}\n-- sinks: {sink}\n-- dialect: postgres\n"
    return f"{header}{f'-- description: {description}{chr(10)}' if description else ''}{query}\n"
