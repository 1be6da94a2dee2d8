"""Two tables of DuckDB, row by row: a full outer join on the key.

Null equals null and NaN equals NaN; zeros differ by their sign, unless the view groups, since then
either may represent the group. A float that the view computes may differ in its last digits, since
sums of floats depend on their order: such columns are equal within a relative 1e-9, and the report
names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import xor
from types import MappingProxyType
from typing import Any

import duckdb

from changelog.contract.base.errors import ViewError
from views.verify.compare.report import Mismatch
from views.verify.processes.scratch import first_row, row_count
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN
from views.verify.values.types import Type, literal, quoted

RELATIVE_TOLERANCE = 1e-9
"""Of floats that a view computes: their sums depend on the order of the rows."""
_RANGES = 16
"""Ranges of served keys in a certificate, each with a hash of its rows."""
Columns = Sequence[tuple[str, Type]]


class Equality(Enum):
    """The rule by which two floats are equal."""

    EXACT = "exact"
    """Bit for bit, all NaNs being one."""
    ZEROS = "zeros"
    """The same, 0.0 and -0.0 being one too."""
    NEAR = "near"
    """Within a relative tolerance."""


def equal(left: str, right: str, kind: Type, how: Equality = Equality.EXACT) -> str:
    """Return the SQL condition under which two values of a type are the same; never null."""
    same = f"({left} IS NOT DISTINCT FROM {right})"
    if not kind.holds_float:
        return same
    both = f"({left} IS NOT NULL AND {right} IS NOT NULL)"
    none = f"({left} IS NULL AND {right} IS NULL)"
    match kind.name:
        case "float" | "double":
            return _equal_floats(left, right, same, how)
        case "struct":
            fields = [
                equal(f"({left}).{quoted(n)}", f"({right}).{quoted(n)}", field, how)
                for n, field in kind.fields
            ]
            return f"({none} OR ({both} AND {' AND '.join(fields)}))"
        case "array":
            inner = equal("z[1]", "z[2]", kind.fields[0][1], how)
            zipped = f"list_transform(list_zip({left}, {right}), lambda z: {inner})"
            whole = f"len({left}) = len({right}) AND list_bool_and(list_concat([true], {zipped}))"
            return f"({none} OR ({both} AND {whole}))"
        case _:
            return same


def _equal_floats(left: str, right: str, same: str, how: Equality) -> str:
    if how is Equality.ZEROS:
        return same
    if how is Equality.EXACT:
        return f"({same} AND coalesce(signbit({left}) = signbit({right}) OR isnan({left}), true))"
    near = f"abs({left} - {right}) <= {RELATIVE_TOLERANCE} * greatest(abs({left}), abs({right}))"
    finite = f"isfinite({left}) AND isfinite({right})"
    return f"({same} OR coalesce({finite} AND {near}, false))"


def shown(value: str, kind: Type) -> str:
    """Return the SQL of a value's text for people."""
    if kind.name == "map":
        return f"CAST(list_sort(map_entries({value})) AS VARCHAR)"
    return f"CAST({value} AS VARCHAR)"


def _row_hash(columns: Columns) -> str:
    texts = [shown(quoted(name), kind) for name, kind in columns]
    parts = ", ".join(f"strlen({text}), ':', {text}" for text in texts)
    return f"md5_number(concat({parts}))"


def _hex(number: int) -> str:
    return f"{number:032x}"


def rows_hash(database: duckdb.DuckDBPyConnection, table: str, columns: Columns) -> str:
    """Return the hash of all rows of a table, by the rule of `ranges`, in any order."""
    query = f"SELECT coalesce(bit_xor({_row_hash(columns)}), 0) FROM {quoted(table)}"
    (number,) = first_row(database, query) or (0,)
    return _hex(number)


def hash_of_ranges(ranges: Sequence[Mapping[str, Any]]) -> str:
    """Return the hash of all rows from the hashes of the ranges."""
    return _hex(reduce(xor, (int(part["hash"], 16) for part in ranges), 0))


def equalities(columns: Columns, floats: Mapping[str, Equality]) -> list[str]:
    """Return for each column the SQL condition under which rows `e` and `s` are the same in it."""
    return [
        equal(f"e.{quoted(name)}", f"s.{quoted(name)}", kind, floats.get(name, Equality.EXACT))
        if kind.name != "map"
        else f"({shown(f'e.{quoted(name)}', kind)} IS NOT DISTINCT FROM "
        f"{shown(f's.{quoted(name)}', kind)})"
        for name, kind in columns
    ]


def are_equal(
    database: duckdb.DuckDBPyConnection,
    expected: str,
    served: str,
    count: int,
    *,
    columns: Columns,
    key: Sequence[str],
    floats: Mapping[str, Equality],
) -> bool:
    """Tell whether two queries give the same rows, in one statement; see `Comparison` for others.

    Every row has a partner, there are as many pairs as served rows, and no served key occurs twice:
    so no expected key does, and no row of either side is without its equal.

    `count`: of the served rows.
    """
    on = " AND ".join(f"e.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(name)}" for name in key)
    same = " AND ".join(
        [
            "e.__is_there AND s.__is_there",
            *(f"s.{quoted(name)} IS NOT NULL" for name in key),
            *equalities(columns, floats),
        ]
    )
    keys = ", ".join(f"s.{quoted(name)}" for name in key)
    pairs, distinct, is_same = first_row(
        database,
        f"WITH e AS (SELECT *, true AS __is_there FROM ({expected})), "
        f"s AS (SELECT *, true AS __is_there FROM ({served})) "
        f"SELECT count(*), count(DISTINCT row({keys})), bool_and(coalesce({same}, false)) "
        f"FROM e FULL OUTER JOIN s ON {on}",
    ) or (-1, -1, None)
    return pairs == distinct == count and (is_same or not count)


_NO_COPIES = "SELECT CAST(NULL AS BIGINT) AS __row WHERE false"


class Comparison:
    """Compares the tables `expected` and `served` of one database.

    `database`: has both tables; `served` has the columns of `views.verify.served.served` beside the
    view's. `expected`: name of the table of expected rows. `served`: name of the table of served
    rows. `key`: names of its key's columns. `floats`: how floats of a column are compared; exactly
    if it is not named. `share`: part of the keys that are compared value by value; 1.0 for all.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        *,
        expected: str,
        served: str,
        columns: Columns,
        key: Sequence[str],
        floats: Mapping[str, Equality] = MappingProxyType({}),
        share: float = 1.0,
    ) -> None:
        self._database = database
        self._expected = expected
        self._served = served
        self._columns = columns
        self._key = key
        self._floats = floats
        self._share = share

    def run(self) -> tuple[int, int]:
        """Find all mismatches and write them to the table `mismatches`.

        Returns:
            Their number, and how many rows are expected.

        Raises ViewError: two expected rows share a key, or one has a null in it.
        """
        expected = self._expected_rows()
        self._find(_NO_COPIES)
        if self._has_copies(expected):
            self._find(self._copies())
        return row_count(self._database, "mismatches"), expected

    def _find(self, copies: str) -> None:
        """Write all mismatches; `copies` is the query for served rows whose key came before."""
        on = " AND ".join(
            f"e.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(name)}" for name in self._key
        )
        keys = ", ".join(
            f"coalesce(e.{quoted(name)}, s.{quoted(name)}) AS k{place}"
            for place, name in enumerate(self._key)
        )
        self._database.execute(
            f"""
            CREATE OR REPLACE TABLE mismatches AS
            WITH e AS (SELECT *, true AS __is_there FROM {quoted(self._expected)} {self._where()}),
                 s AS (SELECT *, rowid AS __row FROM {quoted(self._served)} {self._where()}),
                 copies AS ({copies})
            SELECT {keys}, e.__is_there AS is_expected, s.__row AS s_row, s.{FAULT_COLUMN} AS fault,
                CASE WHEN s.__row IS NULL THEN 'missing'
                     WHEN e.__is_there IS NULL OR c.__row IS NOT NULL THEN 'extra'
                     ELSE 'different' END AS kind
            FROM e FULL OUTER JOIN s ON {on} LEFT JOIN copies c ON c.__row = s.__row
            WHERE e.__is_there IS NULL OR s.__row IS NULL OR c.__row IS NOT NULL
                OR fault IS NOT NULL OR NOT ({" AND ".join(self._equalities())})
            """
        )

    def _has_copies(self, expected: int) -> bool:
        """Tell whether a key is served twice, by the counts of the join.

        Each served row is in it once, and no two expected rows share a key: so as many served rows
        have a partner as expected rows have one, unless an expected row has several.
        """
        served = f"(SELECT count(*) FROM {quoted(self._served)} {self._where()})"
        expected_count = str(expected)
        if self._share < 1.0:
            expected_count = f"(SELECT count(*) FROM {quoted(self._expected)} {self._where()})"
        counts = first_row(
            self._database,
            f"SELECT {served} - count(*) FILTER (is_expected IS NULL), "
            f"{expected_count} - count(*) FILTER (s_row IS NULL) FROM mismatches",
        )
        return counts is not None and counts[0] > counts[1]

    def _copies(self) -> str:
        # Only row ids go through the window: whole rows would all be held in memory.
        return f"""
            SELECT __row FROM (
                SELECT rowid AS __row,
                    row_number() OVER (PARTITION BY {self._keys()} ORDER BY rowid) AS copy
                FROM {quoted(self._served)} {self._where()}
            ) WHERE copy > 1
            """

    def counts(self) -> dict[str, int]:
        """Return the number of mismatches of each kind; call `run` first."""
        rows = self._database.execute("SELECT kind, count(*) FROM mismatches GROUP BY kind")
        return dict(rows.fetchall())

    def columns_that_differ(self) -> dict[str, int]:
        """Return for each column the number of rows that both sides have and that differ in it."""
        same = " AND ".join(f"e.{quoted(name)} = m.k{n}" for n, name in enumerate(self._key))
        differ = ", ".join(
            f"count(*) FILTER (NOT {equality})"
            for equality in equalities(self._columns, self._floats)
        )
        counts = first_row(
            self._database,
            f"""
            SELECT {differ} FROM mismatches m JOIN {quoted(self._expected)} e ON {same}
            JOIN {quoted(self._served)} s ON s.rowid = m.s_row WHERE m.kind = 'different'
            """,
        )
        counted = zip((name for name, _ in self._columns), counts or (), strict=False)
        return {name: count for name, count in counted if count}

    def differences(self, limit: int, kind: str | None = None) -> list[Mismatch]:
        """Return the first mismatches in the order of their keys; `run` found them.

        `limit`: so many rows at most.
        """
        condition = f"WHERE m.kind = {literal(kind)}" if kind is not None else ""
        texts = []
        for alias in ("e", "s"):
            items = ", ".join(shown(f"{alias}.{quoted(n)}", kind) for n, kind in self._columns)
            texts.append(f"[{items}]")
        same = " AND ".join(f"e.{quoted(name)} = m.k{n}" for n, name in enumerate(self._key))
        order = ", ".join(f"m.k{place}" for place in range(len(self._key)))
        rows = self._database.execute(
            f"""
            SELECT m.kind, m.fault, [{", ".join(self._equalities())}], s.{ID_COLUMN},
                {texts[0]}, {texts[1]}
            FROM mismatches m
            LEFT JOIN {quoted(self._expected)} e ON m.is_expected AND {same}
            LEFT JOIN {quoted(self._served)} s ON s.rowid = m.s_row
            {condition}
            ORDER BY {order}, s.{ID_COLUMN} LIMIT {limit}
            """
        ).fetchall()
        return [difference for row in rows for difference in self._mismatch(row)]

    def ranges(self) -> list[dict[str, object]]:
        """Return first key, last key, number and hash of the rows of each range of served keys.

        The hash is the exclusive or of the MD5 of each row: of each column the length of its text
        in bytes, a colon and the text; of a null the colon alone.
        """
        keys = ", ".join(shown(quoted(n), kind) for n, kind in self._columns if n in self._key)
        rows = self._database.execute(
            f"""
            WITH hashed AS (
                SELECT {self._keys()}, {_row_hash(self._columns)} AS __hash
                FROM {quoted(self._served)}
            ), placed AS (
                SELECT *, ntile({_RANGES}) OVER (ORDER BY {self._keys()}) AS __part,
                    row_number() OVER (ORDER BY {self._keys()}) AS __place
                FROM hashed
            )
            SELECT __part, arg_min([{keys}], __place), arg_max([{keys}], __place), count(*),
                bit_xor(__hash)
            FROM placed GROUP BY __part ORDER BY __part
            """
        ).fetchall()
        return [
            {"first": first, "last": last, "rows": count, "hash": _hex(hash_)}
            for _, first, last, count, hash_ in rows
        ]

    def _mismatch(
        self,
        row: tuple[Any, ...],
    ) -> list[Mismatch]:
        kind, fault, same, id_, expected, served = row
        names = [name for name, _ in self._columns]
        values = served if kind == "extra" else expected
        key = {n: str(v) for n, v in zip(names, values, strict=True) if n in self._key}
        if fault is not None and kind == "extra" and id_ is not None:
            key = {"id": id_}
        if fault is not None or kind != "different":
            parts = [
                _row_text(names, values) if present else None
                for values, present in ((expected, kind != "extra"), (served, kind != "missing"))
            ]
            return [Mismatch(key, kind, None, parts[0], fault or parts[1])]
        return [
            Mismatch(key, kind, name, expected[place], served[place])
            for place, name in enumerate(names)
            if not same[place]
        ]

    def _equalities(self) -> list[str]:
        return equalities(self._columns, self._floats)

    def _keys(self) -> str:
        return ", ".join(quoted(name) for name in self._key)

    def _where(self) -> str:
        if self._share >= 1.0:
            return ""
        return f"WHERE hash({self._keys()}) % 1000000 < {round(self._share * 1_000_000)}"

    def _expected_rows(self) -> int:
        """Return the number of expected rows; require that their keys are unique and not null."""
        nulls = " OR ".join(f"{quoted(name)} IS NULL" for name in self._key)
        keys = (
            f"SELECT {self._keys()}, count(*) AS __rows, {nulls} AS __has_null "
            f"FROM {quoted(self._expected)} GROUP BY {self._keys()}"
        )
        totals = "sum(__rows), coalesce(max(__rows) > 1 OR bool_or(__has_null), false)"
        rows, is_odd = first_row(self._database, f"SELECT {totals} FROM ({keys})") or (0, False)
        if not is_odd:
            return int(rows or 0)
        odd = f"FROM ({keys}) WHERE __rows > 1 OR __has_null ORDER BY {self._keys()} LIMIT 1"
        *values, count, _ = first_row(self._database, odd) or ()
        key = ", ".join(f"{n}={v}" for n, v in zip(self._key, values, strict=True))
        fault = "is in two rows" if count > 1 else "has a null"
        raise ViewError(f"the key {key} of the view {fault}", hint="declare a key that is unique")


def _row_text(names: Sequence[str], values: Sequence[str | None]) -> str:
    parts = (f"{n}={'null' if v is None else v}" for n, v in zip(names, values, strict=True))
    return ", ".join(parts)
