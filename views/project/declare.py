"""How a Python view declares itself: `from views import view`.

```python
from views import view

@view(key=["carrier"], sinks=["delta"], tables=["flights", "sales.orders"])
def busiest(flights, orders):
    '''One line for `rebuild-view --list`.'''
    return flights.groupBy("carrier").count()
```

The decorator only marks the function; `views.project.python` reads the mark. The function is given
one DataFrame per table, by parameter name; a function whose only parameter is called `tables`
gets a dict of table name -> DataFrame instead. With `columns={"flights": ["id", "carrier"]}` a
table has these columns alone, and only these count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
MARK = "__view__"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Arguments of the decorator, checked when the file is loaded."""

    key: tuple[Any, ...]
    sinks: tuple[Any, ...] | None
    tables: tuple[Any, ...] | None
    columns: Mapping[Any, Any]


def view(
    *,
    key: str | Sequence[str],
    sinks: str | Sequence[str] | None = None,
    tables: str | Sequence[str] | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
) -> Callable[[Function], Function]:
    """Declare that a function is the view of its file.

    Args:
        key: the view's key columns.
        sinks: where it is served; `delta` when left out.
        tables: what it reads, as `table` or `schema.table`; the parameters' names when left out.
        columns: by table what it reads of it; all columns of a table that is not there.
    """
    read = {table: _names(listed) for table, listed in (columns or {}).items()}
    declaration = Declaration(_names(key) or (), _names(sinks), _names(tables), read)

    def mark(function: Function) -> Function:
        setattr(function, MARK, declaration)
        return function

    return mark


def _names(names: str | Sequence[str] | None) -> tuple[Any, ...] | None:
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)
