"""A first file of cases, for people to fill in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.contract.log.order import with_places
from changelog.contract.rows.choices import ValueChoice
from changelog.contract.rows.relation import TableName
from views.base.config import RebuildSettings
from views.cases.file import path_of
from views.project.spec import ViewSpec, short_name
from views.rebuild.plan.plan import planned, schemas_now

Types = Mapping[TableName, Mapping[str, str]]
"""Of tables the columns and PostgreSQL's names of their types."""


def write_skeleton(spec: ViewSpec, types: Types) -> Path:
    """Write a file of cases with one case and return its path."""
    path = path_of(spec)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(skeleton(spec, types))
    except FileExistsError as error:
        raise ConfigurationError(f"{path} is there already", hint="nothing was written") from error
    except OSError as error:
        raise ChangelogError(f"cannot write {path}: {error.strerror}") from error
    return path


def skeleton(spec: ViewSpec, types: Types) -> str:
    """Return the text of a first file of cases."""
    lines = [f"# Cases of the view {spec.name}: `changelog test {spec.name}` runs them."]
    for table in spec.tables:
        lines += ["", f"[tables.{_key(short_name(table))}]"]
        listed = types.get(table, {})
        lines += [f"{_key(name)} = {_quoted(kind)}" for name, kind in listed.items()]
        if not listed:
            lines.append('# each column and its type in PostgreSQL, such as id = "bigint"')
    lines += ["", "[[case]]", f"name = {_quoted('no rows in, none out')}"]
    for table in spec.tables:
        lines.append(f"tables.{_key(short_name(table))} = [")
        lines.append("    # { column = value, … }: a column that is left out is null")
        lines.append("]")
    lines.append("rows = []  # all rows; `contains` for some, `error` for a part of its text")
    return "\n".join(lines) + "\n"


def types_of_log(spec: ViewSpec, settings: RebuildSettings) -> dict[TableName, dict[str, str]]:
    """Return the columns of a view's tables as the log has them now.

    Raises ChangelogError: the log does not answer, or does not have the tables.
    """
    schemas = schemas_now(planned([spec], settings), settings)
    return {
        table: {
            column.column: "text"
            if table_schemas.chosen.get(column.column) is ValueChoice.TEXT
            else column.type.name
            for column in with_places(table_schemas.logged(table_schemas.reader_id)).columns
        }
        for table, table_schemas in schemas.items()
    }


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
