"""Parts of a query whose types are inferred, for the sentences of a plan. Pure."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from views.base.spark_sql import shown

DType = exp.DataType.Type
ZONED = (DType.TIMESTAMPTZ, DType.TIMESTAMPLTZ)
WITHOUT_ZONE = (DType.TIMESTAMP, DType.TIMESTAMPNTZ, DType.DATE)
_TEXTS = re.compile(r"('(?:[^']|'')*')")


def is_of(node: exp.Expr | None, types: tuple[Any, ...]) -> bool:
    """Tell whether a value has one of some types."""
    return node is not None and node.type is not None and node.type.is_type(*types)


def said(node: exp.Expr) -> str:
    """Return the expression for a sentence: in small letters, but for its texts."""
    parts = _TEXTS.split(shown(node))
    return "".join(part if place % 2 else part.lower() for place, part in enumerate(parts))
