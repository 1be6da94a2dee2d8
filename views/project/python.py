"""Python views: `views/NAME.py`, one function that `views.project.declare.view` marks.

Loading such a file runs it: a project's views are code of its owner, like its tests.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from views.base.failure import line_in
from views.project.declare import MARK, Declaration
from views.project.spec import (
    DEFAULT_SINKS,
    PythonSource,
    Transform,
    ViewSpec,
    check_declared,
    parse_table,
    short_name,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALL_TABLES = "tables"


def load_python_view(name: str, path: Path) -> ViewSpec:
    """Run the file of a Python view and read its declaration."""
    module = _module(name, path)
    marked = [
        value
        for value in vars(module).values()
        if callable(value) and isinstance(getattr(value, MARK, None), Declaration)
    ]
    if len(set(map(id, marked))) != 1:
        raise ViewError(
            f"{path.name} marks {len(marked)} functions as views",
            hint="write `from views import view` and put `@view(key=[…])` on one function",
        )
    return _spec(name, path, marked[0])


def python_frame(source: PythonSource, states: Mapping[TableName, DataFrame]) -> DataFrame:
    """Return the rows of a Python view as a DataFrame."""
    frame = source.transform(states)
    if not hasattr(frame, "schema") or not hasattr(frame, "write"):
        raise ViewError(
            f"a Python view returned {type(frame).__name__}", hint="return one Spark DataFrame"
        )
    return frame


def _module(name: str, path: Path) -> ModuleType:
    full_name = f"views_of_the_project.{name}"
    module_spec = importlib.util.spec_from_file_location(full_name, path)
    if module_spec is None or module_spec.loader is None:
        raise ViewError(f"{path.name} cannot be loaded as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[full_name] = module  # dataclasses and pickle look the module up by its name
    try:
        module_spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ViewError(f"{path.name}:{error.lineno}:{error.offset}: {error.msg}") from error
    except Exception as error:
        place = f"{path.name}:{line_in(error, path) or '?'}"
        text = f"{place}: the file fails: {type(error).__name__}: {error}"
        raise ViewError(text.splitlines()[0]) from error
    return module


def _spec(name: str, path: Path, function: Callable[..., Any]) -> ViewSpec:
    declaration: Declaration = getattr(function, MARK)
    parameters = tuple(inspect.signature(function).parameters)
    as_dict = parameters == (_ALL_TABLES,)
    if as_dict and declaration.tables is None:
        raise ViewError(
            f"{path.name} takes a dict of tables and does not say which",
            hint='write @view(…, tables=["a", "b"])',
        )
    listed = declaration.tables if declaration.tables is not None else parameters
    tables = tuple(parse_table(text) for text in check_declared("tables", listed, path))
    description = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    return ViewSpec(
        name=name,
        path=path,
        tables=tables,
        key=check_declared("key", declaration.key, path),
        sinks=check_declared("sinks", declaration.sinks or DEFAULT_SINKS, path),
        source=PythonSource(
            _by_dict(function) if as_dict else _by_name(path, function, parameters, tables)
        ),
        description=description,
        columns=_columns(path, declaration, tables),
    )


def _columns(
    path: Path, declaration: Declaration, tables: tuple[TableName, ...]
) -> dict[TableName, tuple[str, ...]]:
    columns = {}
    for text, listed in declaration.columns.items():
        table = parse_table(text)
        if table not in tables:
            raise ViewError(
                f'{path.name} declares columns of "{text}", which is none of its tables',
                hint=f"its tables are {', '.join(map(short_name, tables))}",
            )
        columns[table] = check_declared(f"columns of {text}", listed, path)
    return columns


def _by_dict(function: Callable[..., Any]) -> Transform:
    def transform(states: Mapping[TableName, DataFrame]) -> DataFrame:
        frame: DataFrame = function({short_name(name): state for name, state in states.items()})
        return frame

    return transform


def _by_name(
    path: Path,
    function: Callable[..., Any],
    parameters: tuple[str, ...],
    tables: tuple[TableName, ...],
) -> Transform:
    """Return each table to the parameter of its name; refuse a file where these differ."""
    by_parameter = {table.table: table for table in tables}
    if len(by_parameter) != len(tables) or set(by_parameter) != set(parameters):
        raise ViewError(
            f"{path.name}: the function takes ({', '.join(parameters)}), its tables are "
            + ", ".join(map(short_name, tables)),
            hint="name a parameter after each table, or take one parameter called `tables`",
        )

    def transform(states: Mapping[TableName, DataFrame]) -> DataFrame:
        frame: DataFrame = function(**{name: states[t] for name, t in by_parameter.items()})
        return frame

    return transform
