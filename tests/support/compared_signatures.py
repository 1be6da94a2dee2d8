"""The signatures of the expressions that tests compare, and the file that has them.

`python -m tests.support.compared_signatures` writes it anew.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from changelog.contract.rows.relation import TableName
from tests.support.hostile_rows import COLUMNS, PROVED, expressions, query_of
from views.verify.sql.signatures import UNKNOWN, signatures
from views.verify.sql.sqltypes import Types
from views.verify.sql.translate import qualified
from views.verify.values.names import folded, reading_name
from views.verify.values.types import parse_type

TABLE = TableName("public", "t")
TYPES = {TABLE: {name: parse_type(kind) for name, (kind, _) in COLUMNS.items()}}
FILE = Path(__file__).parents[2] / "views/verify/sql/compared.txt"


def signatures_of(line: str) -> set[str]:
    """Return what a line of `tests/fixtures/expressions.txt` compares."""
    kinds = {folded(name): kind for name, kind in TYPES[TABLE].items()}
    types = {reading_name(TABLE): kinds}
    query = qualified(query_of(line), TYPES, types)
    return {each for _, each in signatures(query, Types(query, types))}


@cache
def compared() -> frozenset[str]:
    """Return what all lines compare whose answers are alike in Spark and in the verifier."""
    lines = [line for section in PROVED for line in expressions(section)]
    found = (each for line in lines for each in signatures_of(line))
    return frozenset(each for each in found if UNKNOWN not in each)


def text() -> str:
    return "".join(f"{each}\n" for each in sorted(compared()))


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
