"""Translates expressions to Spark's SQL, each with its type. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from changelog.contract.rows.types import Locale
from views.base.postgres_sql import name_of
from views.postgres.functions import (
    AGGREGATES,
    EPOCH,
    FUNCTIONS,
    INSTEAD,
    LOWER,
    OF_DEFAULTS,
    OF_MOMENTS,
    OF_ORDER,
    OPERATORS,
    PARTS,
    PATTERNS,
    PLAIN,
    SMALL,
    SPECIAL,
    UNITS,
    WINDOWS,
    WRITTEN,
    Form,
)
from views.postgres.literals import elements, is_in, plain_number, text
from views.postgres.patterns import Pattern, pattern_of
from views.postgres.types import (
    BOOL,
    DATE,
    FLOAT4,
    FLOAT8,
    FLOATS,
    INT2,
    INT4,
    INT8,
    INTEGERS,
    KNOWN,
    MOMENTS,
    MOST_DIGITS,
    NUMBERS,
    OF_CODE_POINTS,
    OF_LISTS,
    TEXT,
    TEXTS,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    WIDTHS,
    PgType,
    as_numeric,
    bounded,
    common,
    document_of,
    element_of,
    in_spark,
    list_of,
    numeric,
    widened,
    with_locales,
)
from views.postgres.values import (
    NULL,
    Value,
    as_text,
    check_compared,
    check_sorted,
    condition,
    ctype_of,
    implicit_cast,
    labels_of,
    numeric_of,
    quotient,
    refusal,
    rounded,
    sortable,
)

if TYPE_CHECKING:
    from views.postgres.queries import QueryTranslator
    from views.postgres.scopes import Scope

_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_COMPARISONS = (*_SIGNS, exp.Between, exp.In, exp.Like, exp.ILike, exp.Is, exp.Not)
_OF_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.DPipe)
_DType = exp.DataType.Type
_TYPES = {
    _DType.SMALLINT: INT2,
    _DType.INT: INT4,
    _DType.BIGINT: INT8,
    _DType.FLOAT: FLOAT4,
    _DType.DOUBLE: FLOAT8,
    _DType.TEXT: TEXT,
    _DType.VARCHAR: TEXT,
    _DType.BOOLEAN: BOOL,
    _DType.DATE: DATE,
    _DType.TIMESTAMP: TIMESTAMP,
    _DType.TIMESTAMPTZ: TIMESTAMPTZ,
}
_SPAN = re.compile(r"([+-]?\d+)\s*([a-z]+)")
_MONTHS = {"year": 12, "month": 1}
_SECONDS = ("hour", "minute", "second")
_SPELLED = {"mon": "month", "hr": "hour", "min": "minute", "sec": "second"}
_QUOTED = re.compile(r'"([^"\\]+)"')
"""Letters of a pattern of `to_char` that stand for themselves."""
_PARENTHESES = "put parentheses round the part that is meant to be computed first"
Special = Callable[[exp.Expr, list[exp.Expr]], Value]
"""Translates a function's call with these arguments."""
_LEAST_WHOLE = 10
"""Fewest digits before the decimal point of a numeric that is narrowed."""
_STEPS = (exp.JSONExtractScalar, exp.JSONExtract, exp.JSONBExtractScalar, exp.JSONBExtract)
_SURROGATES = 0xD800, 0xDFFF
_KEY = re.compile("[A-Za-z0-9_ .:/@#+-]+")
"""A name in a path of JSON."""
_NAME_IN_JSON = re.compile("[A-Za-z0-9_-]+")
"""A name in JSON that a query makes."""
_PLAIN_KEY = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""A name that needs no quotes in a path of JSON."""
_ODD_NUMBER = re.compile(r"[+-]\d+|0\d+|\d{10,}")
"""Numbers of elements that count from the end, or are not known to be written so."""
_DIGITS_OF_FLOATS = {"float4": 6, "float8": 15}
_MOST_PLACES = 30
"""Decimal places to which a float is rounded."""


class Expressions:
    """Translates the expressions of one SELECT."""

    def __init__(
        self, scope: Scope, reader: QueryTranslator, windows: Sequence[exp.Expr] = ()
    ) -> None:
        """Translate expressions with the names of a scope; `windows` is its WINDOW clause."""
        self.scope = scope
        self._reader = reader
        self._windows = windows
        self._aggregate = False
        self._locales: frozenset[Locale] = frozenset()  # of what was translated so far
        self.within: list[str] = []
        """SQL of the values that tell the outer query's rows apart; windows are partitioned by
        them."""
        self.plain_columns: list[exp.Column] = []

    # Values

    def value(self, node: exp.Expr) -> Value:
        """Translate an expression.

        Raises:
            ViewError: a part of it has no known equal in Spark's SQL.
        """
        before, self._locales = self._locales, frozenset()
        value = self._translated(node)
        # A text takes those of its parts; one that is made of other values has the database's.
        locales = self._locales | value.kind.locales
        if isinstance(node, exp.Collate):
            locales = value.kind.locales
        elif not locales and value.kind.name in TEXTS:
            locales = self._reader.locales
        self._locales = before | locales
        return replace(value, kind=with_locales(value.kind, locales))

    def _translated(  # noqa: C901, PLR0911, PLR0912 - one for each form
        self, node: exp.Expr
    ) -> Value:
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Column():
                if not self._aggregate:
                    self.plain_columns.append(node)
                return self.scope.column(node)
            case exp.Literal() if node.is_string:
                letters = frozenset() if node.name.isascii() else self._reader.locales
                return Value(text(node.name), with_locales(UNKNOWN, letters), node.name)
            case exp.Literal():
                return self._number(node, node.name)
            case exp.Null():
                return NULL
            case exp.Boolean():
                return Value("true" if node.this else "false", BOOL)
            case exp.Neg():
                return self._negative(node)
            case exp.And() | exp.Or():
                word = "AND" if isinstance(node, exp.And) else "OR"
                sides = (self.condition(node.left), self.condition(node.right))
                return Value(f"({sides[0]} {word} {sides[1]})", BOOL)
            case exp.Not():
                return self._not(node)
            case exp.DPipe():
                return self._joined(node)
            case exp.Pow():
                return self._power(node)
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node, "IN")
            case exp.Is():
                return self._is(node)
            case exp.Like() | exp.ILike() | exp.Escape():
                return self._like(node)
            case exp.RegexpLike() | exp.RegexpILike():
                any_case = isinstance(node, exp.RegexpILike)
                return self._matched(node, [node.this, node.expression], any_case=any_case)
            case exp.Case():
                return self._case(node)
            case exp.Cast():
                return self._cast(node)
            case exp.Extract():
                return self._part(node, node.name, node.expression)
            case exp.Substring():
                parts = [node.args.get(name) for name in ("this", "start", "length")]
                if parts[1] is None:
                    parts[1] = exp.Literal.number(1)
                return self._called(node, "substring", [part for part in parts if part], FUNCTIONS)
            case exp.Trim():
                name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(
                    str(node.args.get("position") or "").upper(), "btrim"
                )
                parts = [node.this, node.args.get("expression")]
                return self._called(node, name, [part for part in parts if part], FUNCTIONS)
            case exp.StrPosition():
                return self._called(node, "strpos", [node.this, node.args["substr"]], FUNCTIONS)
            case exp.AtTimeZone():
                return self._at_zone(node)
            case exp.JSONExtractScalar() | exp.JSONBExtractScalar():
                return self._of_json(node)
            case exp.Collate():
                return self._collated(node)
            case exp.Array():
                return self._list(node, list(node.expressions))
            case exp.Bracket():
                return self._element(node)
            case exp.ArrayContainsAll() | exp.ArrayContainedBy() | exp.ArrayOverlaps():
                return self._of_lists(node)
            case exp.Subquery() | exp.Select() | exp.SetOperation():
                return self._reader.scalar(node, self.scope)
            case exp.Exists():
                return self._reader.exists(node, self.scope)
            case exp.Window() | exp.Filter() | exp.Anonymous() | exp.WithinGroup():
                return self._function(node)
            case exp.Binary() if type(node) in _SIGNS:
                return self._comparison(node, _SIGNS[type(node)])
            case exp.Binary() if type(node) in _ARITHMETIC:
                return self._arithmetic(node, _ARITHMETIC[type(node)])
            case _:
                name = node.sql_name().lower() if isinstance(node, exp.Func) else ""
                raise refusal(node, "it is not known here", INSTEAD.get(name, ""))

    def condition(self, node: exp.Expr) -> str:
        """Translate a condition."""
        return condition(node, self.value(node))

    def _number(self, node: exp.Expr, digits: str) -> Value:
        if digits.isdigit():
            for kind in (INT4, INT8):
                if is_in(int(digits), kind.name):
                    return Value(str(int(digits)), kind, str(int(digits)))
        built = plain_number(digits)
        if built is None:
            raise refusal(node, f"a number of more than {MOST_DIGITS} digits")
        whole = built[1].scale == 0
        number = f"cast({built[0]} AS {in_spark(built[1])})" if whole else built[0]
        return Value(number, built[1], built[0])

    def _negative(self, node: exp.Neg) -> Value:
        self._bound(node, node.this)
        value = self.value(node.this)
        if value.kind.name not in NUMBERS:
            raise refusal(node, f"minus {value.kind} is not known")
        constant = None if value.constant is None else f"-{value.constant}"
        return Value(f"(-{value.text})", value.kind, constant)

    def _not(self, node: exp.Not) -> Value:
        inner = node.this.unnest()
        if isinstance(inner, exp.In):
            return self._in(inner, "NOT IN")
        return Value(f"(NOT {self.condition(node.this)})", BOOL)

    def _bound(self, node: exp.Expr, *sides: exp.Expr) -> None:
        """Refuse adjacent operators that the parser may group differently from PostgreSQL."""
        for side in sides:
            compared = type(node) in _SIGNS or isinstance(node, exp.Between | exp.In | exp.Is)
            if (compared and isinstance(side, _COMPARISONS)) or (
                isinstance(side, exp.Pow) and isinstance(node, exp.Neg | exp.Pow)
            ):
                raise refusal(node, "it is not clear what is computed first", _PARENTHESES)
            if isinstance(node, exp.Pow) and isinstance(side, exp.Neg):
                raise refusal(node, "it is not clear what is computed first", _PARENTHESES)

    # Operators

    def _joined(self, node: exp.DPipe) -> Value:
        sides = [self.value(node.left), self.value(node.right)]
        if any(element_of(side.kind) is not None for side in sides):
            return self._joined_lists(node, *sides)
        if not any(side.kind.name in {*TEXTS, "unknown"} for side in sides):
            kinds = f"{sides[0].kind} || {sides[1].kind}"
            raise refusal(node, f"{kinds} is not known", "cast one of them: …::text")
        parts = [as_text(node, side) for side in sides]
        return Value(f"({parts[0]} || {parts[1]})", TEXT)

    def _joined_lists(self, node: exp.Expr, one: Value, other: Value) -> Value:
        """Translate `||` of two lists, or of one and an element; a null list counts as empty."""
        listed = other if element_of(one.kind) is None else one
        element, texts = _compared_element(node, listed), []
        for side in (one, other):
            # PostgreSQL takes a constant for a list.
            is_list = side.kind.name == "unknown" or element_of(side.kind) is not None
            if is_list and side.kind.name not in {"unknown", listed.kind.name}:
                raise refusal(node, "its sides are of different types", "cast one of them")
            texts.append(
                implicit_cast(node, side, listed.kind)
                if is_list
                else f"array({_list_item(node, side, element)})"
            )
        return Value(f"list_joined({', '.join(texts)})", listed.kind)

    def _power(self, node: exp.Pow) -> Value:
        self._bound(node, node.this, node.expression)
        return self._called(node, "power", [node.this, node.expression], FUNCTIONS)

    def _arithmetic(self, node: exp.Binary, sign: str) -> Value:
        if isinstance(node.right, exp.Interval):
            return self._moved(node, self.value(node.left), node.right, sign)
        if isinstance(node.left, exp.Interval) and sign == "+":
            return self._moved(node, self.value(node.right), node.left, sign)
        one, other = self.value(node.left), self.value(node.right)
        if one.kind.name == "unknown" and other.kind.name in (*NUMBERS, *MOMENTS):
            one = Value(implicit_cast(node, one, other.kind), other.kind, one.constant)
        if other.kind.name == "unknown" and one.kind.name in (*NUMBERS, "date"):
            if one.kind.name == "date" and sign != "-":
                raise refusal(node, "it is not clear whether it is a number", "write it as one")
            other = Value(implicit_cast(node, other, one.kind), one.kind)
        names = {one.kind.name, other.kind.name}
        dated = tuple("int4" if n == "int2" else n for n in (one.kind.name, other.kind.name))
        if (sign, *dated) in OPERATORS:
            kind, form = OPERATORS[sign, *dated]  # type: ignore[index]
            return Value(form.format(one.text, other.text), kind)
        if not names <= {*NUMBERS}:
            why = f"{one.kind} {sign} {other.kind} is not known"
            hint = "cast a side: …::timestamp" if "date" in names else ""
            if sign == "-" and names <= {"date", "timestamp", "timestamptz"}:
                hint = (
                    "write extract(epoch FROM x - y) for its seconds; "
                    "x - y > interval '1 day' is x > y + interval '1 day'"
                )
            raise refusal(node, why, hint)
        if names & {*FLOATS}:
            return self._of_floats(node, one, other, sign)
        if names <= {*INTEGERS}:
            return self._of_integers(one, other, sign)
        return self._of_numerics(node, one, other, sign)

    def _of_floats(self, node: exp.Expr, one: Value, other: Value, sign: str) -> Value:
        if sign == "%":
            raise refusal(node, "PostgreSQL has no % of floats")
        kind = FLOAT4 if {one.kind.name, other.kind.name} == {"float4"} else FLOAT8
        built = f"({implicit_cast(node, one, kind)} {sign} {implicit_cast(node, other, kind)})"
        # Spark divides reals as doubles; the result rounds to the same real.
        return Value(f"cast({built} AS float)" if sign == "/" and kind is FLOAT4 else built, kind)

    def _of_integers(self, one: Value, other: Value, sign: str) -> Value:
        kind = common([one.kind, other.kind])
        assert kind is not None  # noqa: S101 - of integers
        built = f"({one.text} {'div' if sign == '/' else sign} {other.text})"
        if (sign == "/" and kind is not INT8) or kind is INT2:
            built = f"cast({built} AS {in_spark(kind)})"
        return Value(built, kind)

    def _of_numerics(self, node: exp.Expr, one: Value, other: Value, sign: str) -> Value:
        if sign == "/":
            return quotient(node, one, other)
        kind = _result(sign, numeric_of(one), numeric_of(other))
        if kind is None:
            one, other = _narrowed(sign, one, other)
            kind = _result(sign, numeric_of(one), numeric_of(other))
        if kind is None:
            raise refusal(
                node, f"Spark's numerics have at most {MOST_DIGITS} digits, and this may have more",
                "cast the sides to fewer: …::numeric(18, 4)",
            )  # fmt: skip
        return Value(
            f"({one.text} {sign} {other.text})",
            replace(kind, even=one.kind.even and other.kind.even),
        )

    def _comparison(self, node: exp.Binary, sign: str) -> Value:
        self._bound(node, node.left, node.right)
        if (quantifier := _quantifier(node.right)) is not None:
            return self._quantified(node, sign, *quantifier)
        one, other = node.left.unnest(), node.right.unnest()
        if isinstance(one, exp.Tuple) or isinstance(other, exp.Tuple):
            return self._rows(node, one, other, sign)
        return Value(self.compared(node, self.value(one), self.value(other), sign), BOOL)

    def compared(self, node: exp.Expr, one: Value, other: Value, sign: str) -> str:
        """Return the SQL of a comparison of two values."""
        if one.kind.name == other.kind.name == "unknown":
            one = replace(one, kind=TEXT)
        kinds = [one.kind, other.kind]
        names = {kind.name for kind in kinds}
        if sign in {"<", "<=", ">", ">="}:
            check_sorted(node, kinds)
        if "enum" in names and (enum := common(kinds)) is not None:
            return self._of_enums(node, one, other, sign, enum)
        if "unknown" in names:
            kind = kinds[1] if kinds[0].name == "unknown" else kinds[0]
            sides = [side if side.kind is kind else None for side in (one, other)]
            texts = [
                side.text if side is not None else implicit_cast(node, raw, kind)
                for side, raw in zip(sides, (one, other), strict=True)
            ]
            return f"({texts[0]} {sign} {texts[1]})"
        check_compared(node, kinds)
        same = len(names) == 1 or names <= {*NUMBERS} or names <= {*TEXTS}
        if names == {"enum"} or (not same and names != {"date", "timestamp"}):
            hint = "write … AT TIME ZONE 'UTC'" if "timestamptz" in names else "cast one of them"
            raise refusal(node, f"{kinds[0]} is not compared with {kinds[1]}", hint)
        if names <= {*INTEGERS, "numeric"}:
            one, other = self._comparable(node, one, other)
        return f"({one.text} {sign} {other.text})"

    @staticmethod
    def _of_enums(node: exp.Expr, one: Value, other: Value, sign: str, kind: PgType) -> str:
        sides = [Value(implicit_cast(node, side, kind), kind) for side in (one, other)]
        if sign in {"<", "<=", ">", ">="}:
            return f"({sortable(node, sides[0])} {sign} {sortable(node, sides[1])})"
        return f"({sides[0].text} {sign} {sides[1].text})"

    @staticmethod
    def _comparable(node: exp.Expr, one: Value, other: Value) -> tuple[Value, Value]:
        """Return two exact numbers in types that Spark compares without cutting digits."""
        if widened([numeric_of(one), numeric_of(other)]) is None:
            one, other = _narrowed("", one, other)
            if widened([numeric_of(one), numeric_of(other)]) is None:
                hint = "cast them to fewer digits: …::numeric(18, 4)"
                raise refusal(node, "Spark's numerics have too few digits for both", hint)
        return one, other

    def _rows(self, node: exp.Expr, one: exp.Expr, other: exp.Expr, sign: str) -> Value:
        rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [] for row in (one, other)]
        if not rows[0] or len(rows[0]) != len(rows[1]) or "DISTINCT" in sign:
            raise refusal(node, "such rows are not compared", "compare their fields one by one")
        pairs = list(zip(map(self.value, rows[0]), map(self.value, rows[1]), strict=True))
        if sign in {"=", "<>"}:
            parts = [self.compared(node, mine, theirs, sign) for mine, theirs in pairs]
            return Value(f"({(' AND ' if sign == '=' else ' OR ').join(parts)})", BOOL)
        built = ""
        for mine, theirs in reversed(pairs):
            last = self.compared(node, mine, theirs, sign if not built else sign[0])
            equal = self.compared(node, mine, theirs, "=")
            built = f"({last} OR ({equal} AND {built}))" if built else last
        return Value(built, BOOL)

    def _quantified(self, node: exp.Binary, sign: str, quantifier: str, inner: exp.Expr) -> Value:
        """Translate a comparison with ANY or ALL of a list, or of the rows of a subquery."""
        word = {("=", "ANY"): "IN", ("<>", "ALL"): "NOT IN"}.get((sign, quantifier))
        listed = exp.In(this=node.left)
        if isinstance(inner, exp.Query):
            if word is None:
                why = "with a subquery, only = ANY and <> ALL are known"
                raise refusal(node, why, "compare it with min() or max() of the subquery")
            listed.set("query", inner.copy() if inner.parent is None else inner)
        else:
            items = _items(inner)
            if items is None and word is not None:
                return self._in_list(node, self.value(inner), word)
            if items is None:
                why = f"{sign} {quantifier} is known only with a list that is written out"
                raise refusal(node, why, "write = ANY, <> ALL or ANY(ARRAY[…])")
            if not items:
                return Value("false" if quantifier == "ANY" else "true", BOOL)
            if word is None:
                value = self.value(node.left)
                tests = [self.compared(node, value, self.value(item), sign) for item in items]
                joined = (" OR " if quantifier == "ANY" else " AND ").join(tests)
                return Value(f"({joined})", BOOL)
            listed.set("expressions", items)
        listed.parent = node.parent
        return self._in(listed, word)

    def _in_list(self, node: exp.Binary, listed: Value, word: str) -> Value:
        """Return the test whether a list in a column has a value."""
        element, value = _compared_element(node, listed), self.value(node.left)
        built = _as_element(node, value, element)
        if value.kind.name == "bpchar":
            raise refusal(
                node, "a char(n) is not compared with a list of texts here", "cast it: …::text"
            )
        # For an empty list the answer is false, even if the value is null.
        has = f"array_contains({listed.text}, {built})"
        is_in = f"CASE WHEN array_size({listed.text}) = 0 THEN false ELSE {has} END"
        return Value(f"(NOT {is_in})" if word == "NOT IN" else is_in, BOOL)

    def _list(self, node: exp.Expr, items: list[exp.Expr], kind: PgType | None = None) -> Value:
        """Translate a list that is written out; `kind` is the type of its elements."""
        values = [self.value(item) for item in items]
        if kind is None and not values:
            raise refusal(node, "the type of its elements is not known", "write '{}'::integer[]")
        if kind is None:
            kind, _ = self.unified(node, values)
        if kind.name not in KNOWN or kind.name == "bpchar":
            raise refusal(node, f"a list of {kind} is not known", "cast its elements: …::text")
        texts = ", ".join(_as_element(node, value, kind) for value in values)
        if not values:
            return Value(f"cast(array({texts}) AS array<{in_spark(kind)}>)", list_of(kind))
        return Value(f"array({texts})", list_of(kind))

    def _element(self, node: exp.Bracket) -> Value:
        """Translate `l[1]`, which is null of a number that no element has."""
        value, index = self.value(node.this), node.expressions[0]
        element = element_of(value.kind)
        if element is not None and isinstance(index, exp.Slice) and len(node.expressions) == 1:
            return self._slice(node, value, index)
        if element is None or len(node.expressions) > 1 or isinstance(index, exp.Slice):
            hint = "write … -> 'name'" if "json" in value.kind.name else ""
            raise refusal(node, "only an element of a list is known, and no part of one", hint)
        if element.name == "bpchar":
            raise refusal(node, "an element of a list of char(n) is not known")
        number = self.value(index)
        if number.kind.name not in {"int2", "int4"}:
            raise refusal(node, f"the number of an element is {number.kind}", "cast it: …::integer")
        place = f"CASE WHEN {number.text} >= 1 THEN {number.text} - 1 END"
        if number.constant is not None:
            place = str(max(int(number.constant), 0) - 1)
        return Value(f"get({value.text}, {place})", element)

    def _slice(self, node: exp.Bracket, value: Value, part: exp.Slice) -> Value:
        _compared_element(node, value)
        ends = []
        for bound, default in ((part.this, "1"), (part.expression, f"array_size({value.text})")):
            number = None if bound is None else self.value(bound)
            if number is not None and number.kind.name not in {"int2", "int4"}:
                raise refusal(node, f"a bound is {number.kind}", "cast it: …::integer")
            ends.append(default if number is None else number.text)
        return Value(f"list_part({value.text}, {', '.join(ends)})", value.kind)

    def _of_lists(self, node: exp.Binary) -> Value:
        """Translate `@>`, `<@` and `&&` of lists; a null in a list equals nothing."""
        sides = [self.value(node.left), self.value(node.right)]
        kind = sides[sides[0].kind.name == "unknown"].kind
        element = _compared_element(node, Value("", kind))
        if any(side.kind.name not in {"unknown", kind.name} for side in sides):
            raise refusal(node, "its sides are of different types", f"cast one: …::{element}[]")
        texts = [implicit_cast(node, side, kind) for side in sides]
        one, other = texts[::-1] if isinstance(node, exp.ArrayContainedBy) else texts
        if not isinstance(node, exp.ArrayOverlaps):
            return Value(f"has_all({one}, {other})", BOOL)
        overlap = f"arrays_overlap({one}, {other})"  # null if a null may be the same
        both = f"{one} IS NOT NULL AND {other} IS NOT NULL"
        return Value(f"CASE WHEN {both} THEN coalesce({overlap}, false) END", BOOL)

    def _between(self, node: exp.Between) -> Value:
        self._bound(node, node.this, node.args["low"], node.args["high"])
        value, low, high = (self.value(node.args[name]) for name in ("this", "low", "high"))

        def within(first: Value, last: Value) -> str:
            lower = self.compared(node, value, first, ">=")
            return f"({lower} AND {self.compared(node, value, last, '<=')})"

        if node.args.get("symmetric"):
            return Value(f"({within(low, high)} OR {within(high, low)})", BOOL)
        return Value(within(low, high), BOOL)

    def _in(self, node: exp.In, word: str) -> Value:
        self._bound(node, node.this)
        query = node.args.get("query")
        if query is not None:
            return Value(self._reader.is_in(node, word, self), BOOL)
        one = node.this.unnest()
        if isinstance(one, exp.Tuple):
            tests = [self._rows(node, one, other.unnest(), "=").text for other in node.expressions]
            built = f"({' OR '.join(tests)})"
            return Value(f"(NOT {built})" if word == "NOT IN" else built, BOOL)
        value = self.value(one)
        others = [self.value(other) for other in node.expressions]
        others_names = {other.kind.name for other in others if other.kind.name != "unknown"}
        if others_names - {value.kind.name} and not (
            {value.kind.name, *others_names} <= {*INTEGERS, "numeric"}
        ):
            constant = all(other.constant is not None for other in others)
            if value.kind.name != "float8" or not constant:
                raise refusal(
                    node, "IN has values of several types",
                    f"cast them: …::{next(iter(others_names))}",
                )  # fmt: skip
            others = [Value(implicit_cast(node, other, FLOAT8), FLOAT8) for other in others]
        for other in others:
            self.compared(node, value, other, "=")
        kind = next((v.kind for v in (value, *others) if v.kind.name != "unknown"), TEXT)
        texts = [
            implicit_cast(node, v, kind) if v.kind.name == "unknown" else v.text
            for v in (value, *others)
        ]
        return Value(f"({texts[0]} {word} ({', '.join(texts[1:])}))", BOOL)

    def _is(self, node: exp.Is) -> Value:
        value = self.value(node.this)
        no = "NOT " if node.args.get("negate") else ""
        if isinstance(node.expression, exp.Null):
            if value.kind.name == "unknown":
                raise refusal(node, "IS NULL of a constant")
            return Value(f"({value.text} IS {no}NULL)", BOOL)
        if not isinstance(node.expression, exp.Boolean):
            raise refusal(node, "IS is known only with NULL, TRUE, FALSE and UNKNOWN")
        word = "TRUE" if node.expression.this else "FALSE"
        return Value(f"({condition(node.this, value)} IS {no}{word})", BOOL)

    def _like(self, node: exp.Expr) -> Value:
        like = node.this if isinstance(node, exp.Escape) else node
        self._bound(node, like.this, like.expression)
        value, pattern = self.value(like.this), self.value(like.expression)
        if value.kind.name not in {*TEXTS, "unknown"} or pattern.kind.name != "unknown":
            why = "LIKE is known only for a text and a constant pattern"
            raise refusal(node, why, "write the pattern in quotes")
        if isinstance(node, exp.Escape) or "\\" in (pattern.constant or ""):
            why = "a pattern with an escaped character"
            raise refusal(node, why, "write strpos(…, '%') > 0, or left(…, 3) = 'a_b'")
        word = "ILIKE" if isinstance(like, exp.ILike) else "LIKE"
        subject, letters = (implicit_cast(node, side, TEXT) for side in (value, pattern))
        if word == "ILIKE" and ctype_of(node, [value]) == "C" and pattern.constant is not None:
            word, subject = "LIKE", LOWER["C"].format(subject)
            letters = text(pattern.constant.translate(SMALL))
        word = f"NOT {word}" if like.args.get("negate") else word
        return Value(f"({subject} {word} {letters})", BOOL)

    def _matched(self, node: exp.Expr, sides: list[exp.Expr], *, any_case: bool) -> Value:
        self._bound(node, *sides)
        value = self.value(sides[0])
        if value.kind.name not in {*TEXTS, "unknown"}:
            raise refusal(node, f"a regular expression of {value.kind}", "cast it: …::text")
        pattern = self._pattern(node, sides[1], any_case=any_case)
        return Value(f"({implicit_cast(node, value, TEXT)} RLIKE {text(pattern.text)})", BOOL)

    def _pattern(self, node: exp.Expr, side: exp.Expr, *, any_case: bool = False) -> Pattern:
        value = self.value(side)
        constant = value.constant if value.kind.name == "unknown" else None
        pattern = None if constant is None else pattern_of(constant, any_case=any_case)
        if pattern is None:
            raise refusal(node, "a pattern that other engines may match differently", PLAIN)
        return pattern

    def _collated(self, node: exp.Collate) -> Value:
        value, name = self.value(node.this), node.expression.name
        if value.kind.name not in {"text", "unknown"}:
            raise refusal(node, f"COLLATE of {value.kind}", "cast it first: x::text")
        if name not in OF_CODE_POINTS:
            hint = 'write COLLATE "C" for the order of code points'
            raise refusal(node, f"the engines do not have the collation {name}", hint)
        kind = with_locales(TEXT, frozenset({Locale(ctype=OF_CODE_POINTS[name])}))
        return Value(f"cast({implicit_cast(node, value, TEXT)} AS string)", kind)

    def _case(self, node: exp.Case) -> Value:
        subject = None if node.this is None else self.value(node.this)
        tests = []
        for branch in node.args["ifs"]:
            if subject is None:
                tests.append(self.condition(branch.this))
            else:
                tests.append(self.compared(node, subject, self.value(branch.this), "="))
        default = node.args.get("default")
        results = [self.value(branch.args["true"]) for branch in node.args["ifs"]]
        results.append(NULL if default is None else self.value(default))
        kind, texts = self.unified(node, results)
        whens = [f"WHEN {test} THEN {built}" for test, built in zip(tests, texts, strict=False)]
        last = "" if default is None else f" ELSE {texts[-1]}"
        return Value(f"CASE {' '.join(whens)}{last} END", kind)

    def unified(self, node: exp.Expr, values: Sequence[Value]) -> tuple[PgType, list[str]]:
        """Return the type to which PostgreSQL converts several values, and their SQL in that type.

        Raises:
            ViewError: there is none, or Spark has none with enough digits.
        """
        kinds = [
            as_numeric(value.kind, value.constant) if value.kind.name in WIDTHS else value.kind
            for value in values
        ]
        exact = [value.kind for value in values]
        kind = common(kinds if any(k.name == "numeric" for k in exact) else exact)
        if kind is None:
            names = sorted({str(value.kind) for value in values if value.kind.name != "unknown"})
            why = f"{' and '.join(names)} are not converted to one type here"
            kind_to_write = "text" if "text" in names else names[0]
            hint = f"cast one of them: …::{kind_to_write}"
            if {"timestamp", "timestamptz"} <= {*names}:
                hint = "write … AT TIME ZONE 'UTC' of one of them"
            raise refusal(node, why, hint)
        return kind, [implicit_cast(node, value, kind) for value in values]

    # Casts, dates and times

    def _cast(self, node: exp.Cast) -> Value:
        if isinstance(node, exp.TryCast):
            raise refusal(node, "PostgreSQL has no such cast")
        to = node.to
        if to.this is _DType.ARRAY:
            return self._as_list(node)
        value = self.value(node.this)
        sizes = [int(size.name) for size in to.expressions if size.name.isdigit()]
        if to.this is _DType.DECIMAL:
            return self._as_numeric(node, value, sizes)
        kind = _TYPES.get(to.this)
        if kind is None:
            raise refusal(node, f"a cast to {to.sql('postgres').lower()} is not known")
        if kind is TEXT:
            built = as_text(node, value)
            return Value(f"left({built}, {sizes[0]})" if sizes else built, TEXT)
        if sizes:
            raise refusal(node, f"a cast to {to.sql('postgres').lower()} is not known")
        if value.kind.name == "unknown" or kind == value.kind:
            return Value(implicit_cast(node, value, kind), kind)
        converted = self._converted(node, value, kind)
        if converted is None:
            hint = {
                "timestamptz": "write … AT TIME ZONE 'UTC'",
                "numeric": "write round(…)::integer",
            }.get(value.kind.name, "")
            raise refusal(node, f"a cast of {value.kind} to {kind} is not known", hint)
        return Value(converted, kind)

    def _as_list(self, node: exp.Cast) -> Value:
        items, kind = _items(node), _TYPES.get(node.to.expressions[0].this)
        if items is None:
            value = self.value(node.this)
            if kind is None or value.kind != list_of(kind):
                raise refusal(node, "only a list that is written out is cast")
            return value
        if kind is None:
            raise refusal(node, f"a cast to {node.to.sql('postgres').lower()} is not known")
        return self._list(node, items, kind)

    @staticmethod
    def _converted(  # noqa: PLR0911 - one for each type
        node: exp.Expr, value: Value, kind: PgType
    ) -> str | None:
        """Return the SQL of a cast, or None if PostgreSQL's and Spark's may differ."""
        name, to, spark = value.kind.name, kind.name, in_spark(kind)
        plain = f"cast({value.text} AS {spark})"
        if name in INTEGERS:
            return plain if to in NUMBERS or (to == "bool" and name == "int4") else None
        if name == "numeric":
            if to in INTEGERS:
                whole = rounded(node, value, 0).text if value.kind.scale else value.text
                return f"cast({whole} AS {spark})"
            return plain if to in FLOATS else None
        if name in FLOATS:
            if to in INTEGERS:  # rounds halves to even
                return f"cast(rint(cast({value.text} AS double)) AS {spark})"
            return plain if to in FLOATS else None
        if name in TEXTS:
            return plain if to in INTEGERS else None
        if (name, to) in {("bool", "int4"), ("date", "timestamp"), ("timestamp", "date")}:
            return plain
        return None

    def _as_numeric(self, node: exp.Cast, value: Value, sizes: list[int]) -> Value:
        name = value.kind.name
        if name in FLOATS:
            if not sizes:
                why = "its number of digits is not known"
                raise refusal(node, why, "write numeric(18, 4), or round(…::numeric, 4)")
            return _significant(node, value, *sizes)
        if name not in {*INTEGERS, *TEXTS, "numeric", "numeric as text", "unknown"}:
            raise refusal(node, f"a cast of {value.kind} to numeric is not known")
        if not sizes:
            if name == "unknown" and not value.is_null and plain_number(value.constant or ""):
                built = plain_number(value.constant or "")
                assert built is not None  # noqa: S101 - just checked
                return Value(implicit_cast(node, value, built[1]), built[1])
            if name in {*TEXTS, "numeric as text", "unknown"}:
                raise refusal(node, "its number of digits is not known", "write numeric(18, 4)")
            kind = as_numeric(value.kind)
            cast = f"cast({value.text} AS {in_spark(kind)})"
            return Value(cast if name in INTEGERS else value.text, kind)
        precision, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
        if precision > MOST_DIGITS or scale > precision:
            raise refusal(node, f"Spark's numerics have {MOST_DIGITS} digits at most")
        if value.divided:
            value = rounded(node, value, scale)
        elif name == "unknown":
            value = Value(
                implicit_cast(node, value, numeric(precision, scale)), numeric(precision, scale)
            )
        kind = numeric(precision, scale)
        return Value(f"cast({value.text} AS {in_spark(kind)})", kind)

    def _spans(self, node: exp.Interval) -> list[tuple[int, str]]:
        unit = node.args.get("unit")
        written_text = node.this.name if isinstance(node.this, exp.Literal) else ""
        whole = f"{written_text} {unit.name}" if unit is not None else written_text
        whole = whole.strip().lower()
        spans = _SPAN.findall(whole)
        if not spans or _SPAN.sub("", whole).strip():
            raise refusal(node, "such an interval is not known", "write interval '1 month'")
        built = []
        for number, name in spans:
            plain = name.removesuffix("s") if name != "s" else name
            plain = _SPELLED.get(plain, plain)
            if plain not in UNITS or plain == "quarter":
                raise refusal(node, f"{name} is not known", f"known are {', '.join(UNITS[:2])}, …")
            built.append((int(number), plain))
        return built

    def _moved(self, node: exp.Expr, value: Value, interval: exp.Interval, sign: str) -> Value:
        if value.kind.name not in MOMENTS or sign not in {"+", "-"}:
            raise refusal(node, f"{value.kind} {sign} interval is not known")
        spans = self._spans(interval)
        # PostgreSQL adds months first, then days, then seconds; its days have no fixed length.
        months = [span for span in spans if span[1] in _MONTHS]
        if len(months) > 1:
            months = [(sum(number * _MONTHS[unit] for number, unit in months), "month")]
        rest = [span for span in spans if span[1] not in _MONTHS]
        spans = [*months, *sorted(rest, key=lambda span: span[1] in _SECONDS)]
        if value.kind.name == "timestamptz" and any(unit not in _SECONDS for _, unit in spans):
            why = "days and months depend on the time zone of a session"
            raise refusal(node, why, "write … AT TIME ZONE 'UTC' + interval '1 month'")
        built = value.text
        if value.kind.name == "date":
            built = f"cast({built} AS timestamp_ntz)"
        for number, unit in spans:
            built = f"({built} {sign} interval '{number}' {unit})"
        return Value(built, TIMESTAMP if value.kind.name == "date" else value.kind)

    def _part(self, node: exp.Expr, name: str, of: exp.Expr) -> Value:
        unit, inner = name.lower(), of.unnest()
        if unit == "epoch" and isinstance(inner, exp.Sub):
            sides = [self.value(side) for side in (inner.left, inner.right)]
            if (seconds := _seconds_between(node, *sides)) is not None:
                return seconds
        value = self.value(of)
        if unit == "epoch" and value.kind.name in EPOCH:
            kind = numeric(16, 0) if value.kind.name == "date" else numeric(27, 6)
            built = EPOCH[value.kind.name].format(value.text)
            return Value(f"cast({built} AS {in_spark(kind)})", kind)
        if value.kind.name not in {"date", "timestamp"}:
            hint = "write … AT TIME ZONE 'UTC'" if value.kind.name == "timestamptz" else ""
            raise refusal(node, f"a part of {value.kind} is not known", hint)
        if unit not in PARTS or (value.kind.name == "date" and unit in OF_MOMENTS):
            raise refusal(node, f"{unit} is not known", f"known are {', '.join(PARTS)}")
        kind = numeric(8, 6) if unit == "second" else numeric(10, 0)
        return Value(PARTS[unit].format(value.text), kind)

    def _at_zone(self, node: exp.AtTimeZone) -> Value:
        value, zone = self.value(node.this), node.args["zone"]
        if not isinstance(zone, exp.Literal) or zone.name.upper() != "UTC":
            raise refusal(node, "rules of time zones differ between engines", "write 'UTC'")
        match value.kind.name:
            case "timestamp":
                return Value(f"cast({value.text} AS timestamp)", TIMESTAMPTZ)
            case "timestamptz":
                return Value(f"cast({value.text} AS timestamp_ntz)", TIMESTAMP)
            case _:
                raise refusal(node, f"{value.kind} has no time zone", "cast it: …::timestamp")

    def _of_json(self, node: exp.Expr) -> Value:
        paths = [""]
        inner: exp.Expr = node
        while isinstance(inner, _STEPS):
            steps = _steps_of(inner)
            if not steps:
                why = "only names and numbers from 0 are known in a path of JSON, as constants"
                raise refusal(node, why, "write … ->> 'name', … ->> 1 or … #>> '{name,0}'")
            for step in reversed(steps):
                paths = [f"{form}{path}" for path in paths for form in step]
            inner = inner.this.unnest()
        value = self.value(inner)
        if value.kind.name not in {"json", "jsonb"}:
            raise refusal(node, f"{value.kind} has no names")
        if value.kind.name == "jsonb" and paths[0].endswith("[0]") and len(paths) == 1:
            why = "of a single value in jsonb, -> 0 is that value"
            raise refusal(node, why, "write … #>> '{name,0}', which is null then")
        # Spark's get_json_object has the text null for an element that is null.
        names = ("json_element" if path[-2:-1].isdigit() else "get_json_object" for path in paths)
        texts = [
            f"{name}({value.text}, {text('$' + path)})"
            for name, path in zip(names, paths, strict=True)
        ]
        return Value(texts[0] if len(texts) == 1 else f"coalesce({', '.join(texts)})", TEXT)

    # Functions

    def _function(self, node: exp.Expr) -> Value:
        call, window, where = node, None, None
        if isinstance(call, exp.Window):
            window, call = call, call.this
        if isinstance(call, exp.Filter):
            where, call = call.expression.this, call.this
        if isinstance(call, exp.WithinGroup) and window is None:
            return self._percentile(node, call, where)
        if not isinstance(call, exp.Anonymous):
            raise refusal(node, "it is not known here")
        name = call.name.lower()
        if name in OF_ORDER and window is None:
            return self._in_order(node, name, list(call.expressions), where)
        arguments = list(call.expressions)
        if name in AGGREGATES:
            return self._aggregated(node, name, arguments, where, window)
        if window is not None and name in WINDOWS and where is None:
            if name in OF_DEFAULTS and len(arguments) == 3:  # noqa: PLR2004 - value, rows, default
                built = self._with_default(node, name, arguments)
            else:
                built = self._called(node, name, arguments, WINDOWS)
            return replace(built, text=f"{built.text} OVER {self._over(window)}")
        if window is not None or where is not None:
            raise refusal(node, f"{name} over a window or with FILTER is not known here")
        if name in SPECIAL:
            special: Special = getattr(self, f"_fn_{name}")
            return special(node, arguments)
        return self._called(node, name, arguments, FUNCTIONS)

    def _with_default(self, node: exp.Expr, name: str, arguments: Sequence[exp.Expr]) -> Value:
        """Translate lag or lead with a default."""
        number = self._constant(arguments[1])
        if number is None or int(number) < 0:
            raise refusal(node, f"{name} is known only with a constant number of rows")
        values = [self.value(arguments[0]), self.value(arguments[2])]
        kind, texts = self.unified(node, values)
        if kind.name == "numeric":
            texts = [f"cast({built} AS {in_spark(kind)})" for built in texts]
        elif kind.name in INTEGERS:
            texts = [
                built if value.kind == kind else f"cast({built} AS {in_spark(kind)})"
                for built, value in zip(texts, values, strict=True)
            ]
        return Value(f"{name}({texts[0]}, {number}, {texts[1]})", kind)

    def _called(
        self,
        node: exp.Expr,
        name: str,
        arguments: Sequence[exp.Expr],
        table: dict[str, tuple[Form, ...]],
    ) -> Value:
        """Translate a call by a table of functions.

        Raises:
            ViewError: the table has no function with this name and these types.
        """
        if name not in table:
            raise refusal(node, f"function {name} is not known here", INSTEAD.get(name, ""))
        values = [self.value(argument) for argument in arguments]
        for form in table[name]:
            if (texts := self._fitting(node, form, values)) is not None:
                result = form.result
                kind = result if isinstance(result, PgType) else result([v.kind for v in values])
                sql = form.text if isinstance(form.text, str) else form.text[ctype_of(node, values)]
                return Value(sql.replace("{*}", ", ".join(texts)).format(*texts), kind)
        listed = ", ".join(str(value.kind) for value in values)
        raise refusal(node, f"{name}({listed}) is not known here", INSTEAD.get(name, ""))

    def _fitting(self, node: exp.Expr, form: Form, values: list[Value]) -> list[str] | None:
        codes = form.argument_codes.split()
        if codes and codes[-1].endswith("*"):
            codes[-1] = codes[-1][:-1]
            codes += codes[-1:] * (len(values) - len(codes))
        if len(codes) != len(values):
            return None
        texts = [_fits(node, code, value) for code, value in zip(codes, values, strict=True)]
        return None if None in texts else [built for built in texts if built is not None]

    def _aggregated(
        self,
        node: exp.Expr,
        name: str,
        arguments: list[exp.Expr],
        where: exp.Expr | None,
        window: exp.Window | None,
    ) -> Value:
        if self._aggregate:
            raise refusal(node, "an aggregate is inside an aggregate")
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
            check_compared(node, [self.value(argument).kind for argument in arguments])
        if any(isinstance(argument, exp.Order) for argument in arguments):
            raise refusal(node, "an order in an aggregate is not known here")
        self._aggregate = window is None
        try:
            suffix = "" if where is None else f" FILTER (WHERE {self.condition(where)})"
            if window is not None:
                suffix += f" OVER {self._over(window)}"

            def whole(call: str) -> str:
                built = call.replace("(", "(DISTINCT ", 1) if distinct else call
                return built + suffix

            if name == "count" and [type(part) for part in arguments] == [exp.Star]:
                return Value(whole("count(*)"), INT8)
            if name == "avg" and (mean := self._average(node, arguments, whole)) is not None:
                return mean
            if name in {"min", "max"} and len(arguments) == 1:
                value = self.value(arguments[0])
                check_sorted(node, [value.kind])
                if value.kind.name == "enum":
                    return _label(node, value.kind, whole(f"{name}({sortable(node, value)})"))
            value = self._called(node, name, arguments, AGGREGATES)
            built = whole(value.text)
            if name == "sum" and value.kind.precision == MOST_DIGITS:
                # A digit less, so that the proof can compare it with another decimal.
                kind = replace(value.kind, precision=MOST_DIGITS - 1)
                return Value(f"cast({built} AS {in_spark(kind)})", kind)
            return replace(value, text=built)
        finally:
            self._aggregate = False

    def _in_order(
        self, node: exp.Expr, name: str, arguments: list[exp.Expr], where: exp.Expr | None
    ) -> Value:
        """Translate string_agg, array_agg and json_agg."""
        order = arguments[-1] if arguments and isinstance(arguments[-1], exp.Order) else None
        parts = [*arguments[:-1], *([] if order is None else [order.this])]
        distinct = bool(parts) and isinstance(parts[0], exp.Distinct)
        parts = list(parts[0].expressions) if distinct else parts
        between = self.value(parts[1]) if len(parts) == 2 else NULL  # noqa: PLR2004 - and a sign
        has_sign = between.kind.name == "unknown" and between.constant is not None
        if order is None or not (has_sign if name == "string_agg" else len(parts) == 1):
            raise refusal(node, "the order of the values is not determined", INSTEAD[name])
        wheres = [] if where is None else [self.condition(where)]
        value = self._inside(node, parts[0])
        if name == "string_agg" and value.kind.name not in TEXTS:
            raise refusal(node, f"string_agg of {value.kind} is not known", "cast it: …::text")
        if value.kind.name == "bpchar" and name == "array_agg":
            raise refusal(node, "a list of char(n) is not known", "cast it: …::text")
        is_json = name.startswith("json")
        if is_json:
            _check_in_json(node, value.kind)
        if distinct:
            check_compared(node, [value.kind])
        if not is_json and (value.kind.name == "document" or element_of(value.kind) is not None):
            raise refusal(node, "a list of lists is not known")
        kind = TEXT if name == "string_agg" or value.kind.name == "unknown" else value.kind
        built = as_text(node, value) if kind is TEXT else implicit_cast(node, value, kind)
        keys = [self._inside(node, key.this) for key in order.expressions]
        if distinct and [key.text for key in keys] != [value.text]:
            why = "in PostgreSQL, distinct values are ordered by themselves alone"
            raise refusal(node, why, "write the same expression after ORDER BY")
        sorts = ", ".join(self.ordered(key) for key in order.expressions)
        word = "DISTINCT " if distinct else ""
        if name == "string_agg":
            wheres.append(f"({built} IS NOT NULL)")
        suffix = f" FILTER (WHERE {' AND '.join(wheres)})" if wheres else ""
        called = f"array_agg({word}{built} ORDER BY {sorts}){suffix}"
        if name == "array_agg":
            return Value(called, list_of(kind))
        if is_json:
            return Value(called, document_of([("", kind)]))
        # Spark's listagg ends with an error of its own beside a DISTINCT of another value.
        return Value(f"array_join({called}, {between.text})", TEXT)

    def _percentile(self, node: exp.Expr, call: exp.WithinGroup, where: exp.Expr | None) -> Value:
        order, of = call.expression.expressions, call.this
        name = of.name.lower() if isinstance(of, exp.Anonymous) else ""
        part = of.expressions[0] if name == "percentile_cont" and len(of.expressions) == 1 else None
        number = self.value(part).constant if part is not None else None
        if number is None or len(order) != 1 or not 0 <= Decimal(number) <= 1:
            raise refusal(node, "such an aggregate is not known", INSTEAD["percentile_cont"])
        value = self._inside(node, order[0].this)
        if value.kind.name not in {*INTEGERS, "numeric"}:
            why = f"percentile_cont of {value.kind} is not known: it may have infinite values"
            raise refusal(node, why, INSTEAD["percentile_cont"])
        share = 1 - Decimal(number) if order[0].args.get("desc") else Decimal(number)
        suffix = "" if where is None else f" FILTER (WHERE {self.condition(where)})"
        called = f"percentile(cast({value.text} AS double), cast({share:f} AS double))"
        return Value(called + suffix, FLOAT8)

    def _inside(self, node: exp.Expr, argument: exp.Expr) -> Value:
        """Translate an argument of an aggregate."""
        if self._aggregate:
            raise refusal(node, "an aggregate is inside an aggregate")
        self._aggregate = True
        try:
            return self.value(argument)
        finally:
            self._aggregate = False

    def _average(
        self, node: exp.Expr, arguments: list[exp.Expr], whole: Callable[[str], str]
    ) -> Value | None:
        if len(arguments) != 1:
            return None
        value = self.value(arguments[0])
        if value.kind.name not in {*INTEGERS, "numeric"}:
            return None
        inner = numeric_of(value)
        total = self._called(node, "sum", arguments, AGGREGATES)
        count = Value(whole(f"count({value.text})"), INT8)
        return quotient(node, replace(total, text=whole(total.text)), count, whole=inner.whole)

    def _over(self, node: exp.Window) -> str:
        parts = []
        base: exp.Expr = node
        named = node.args.get("alias")
        if named is not None:
            name = name_of(named)
            base = next((w for w in self._windows if name_of(w.this) == name), node)
            if base is node or any(node.args.get(p) for p in ("partition_by", "order", "spec")):
                raise refusal(node, "such a window is not known", "write all of it in OVER (…)")
        listed = [
            *self.within,
            *(self.key(key).text for key in base.args.get("partition_by") or ()),
        ]
        if listed:
            parts.append(f"PARTITION BY {', '.join(listed)}")
        if order := base.args.get("order"):
            parts.append(f"ORDER BY {', '.join(self.ordered(key) for key in order.expressions)}")
        if spec := base.args.get("spec"):
            parts.append(self._frame(spec))
        return f"({' '.join(parts)})"

    def key(self, node: exp.Expr) -> Value:
        """Translate a value by which rows are put together."""
        value = self.value(node)
        check_compared(node, [value.kind])
        return value

    def _frame(self, node: exp.Expr) -> str:
        def end(name: str) -> str:
            bound, side = node.args.get(name), str(node.args.get(f"{name}_side") or "")
            if isinstance(bound, exp.Expr):
                if not (isinstance(bound, exp.Literal) and bound.name.isdigit()):
                    raise refusal(node, "a bound of a frame is not a constant", "write 1 PRECEDING")
                bound = bound.name
            return f"{bound or 'CURRENT ROW'} {side}".strip()

        kind = str(node.args.get("kind")).upper()
        has_number = any(isinstance(node.args.get(n), exp.Expr) for n in ("start", "end"))
        if (
            kind not in {"ROWS", "RANGE"}
            or node.args.get("exclude")
            or (kind == "RANGE" and has_number)
        ):
            raise refusal(node, "such a frame is not known", "write ROWS, or RANGE without numbers")
        return f"{kind} BETWEEN {end('start')} AND {end('end')}"

    def ordered(self, node: exp.Expr, column: Value | None = None) -> str:
        """Translate a part of ORDER BY, with nulls where PostgreSQL sorts them.

        `column`: the column of the result that it names.
        """
        if not isinstance(node, exp.Ordered) or node.args.get("with_fill"):
            raise refusal(node, "such an order is not known")
        built = sortable(node, self.value(node.this) if column is None else column)
        way = "DESC" if node.args.get("desc") else "ASC"
        return f"{built} {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"

    # Functions whose types depend on more than one argument

    def _fn_chr(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        number = self._constant(arguments[0]) if len(arguments) == 1 else None
        if number is None or not _is_letter(int(number)):
            raise refusal(node, "chr is known only for a constant number of a character")
        return Value(text(chr(int(number))), TEXT)

    def _fn_coalesce(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        values = [self.value(argument) for argument in arguments if not _is_empty_json(argument)]
        is_json = any(value.kind.name in {"json", "jsonb", "document"} for value in values)
        if len(values) < len(arguments) and is_json:
            arguments = [part.this if _is_empty_json(part) else part for part in arguments]
        kind, texts = self.unified(node, [self.value(argument) for argument in arguments])
        return Value(f"coalesce({', '.join(texts)})", kind)

    def _fn_array_append(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        """Translate array_append, array_prepend, array_remove and array_position."""
        name = node.name.lower()
        if len(arguments) != 2:  # noqa: PLR2004 - a list and an element
            raise refusal(node, f"{name} takes a list and an element")
        values = [self.value(argument) for argument in arguments]
        listed, value = values[::-1] if name == "array_prepend" else values
        item = _list_item(node, value, _compared_element(node, listed))
        match name:
            case "array_append":
                return Value(f"list_joined({listed.text}, array({item}))", listed.kind)
            case "array_prepend":
                return Value(f"list_joined(array({item}), {listed.text})", listed.kind)
            case "array_remove":
                return Value(f"list_without({listed.text}, {item})", listed.kind)
            case _:
                return Value(f"list_place({listed.text}, {item})", INT4)

    _fn_array_position = _fn_array_prepend = _fn_array_remove = _fn_array_append

    def _fn_array_cat(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        values = [self.value(argument) for argument in arguments]
        is_list = [v.kind.name == "unknown" or element_of(v.kind) is not None for v in values]
        if is_list != [True, True] or {value.kind.name for value in values} == {"unknown"}:
            raise refusal(node, "array_cat takes two lists", "write l || m")
        return self._joined_lists(node, *values)

    def _fn_json_build_object(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        """Translate an object to a struct: in jsonb, shorter names are first."""
        names = [part.name if isinstance(part, exp.Literal) else "" for part in arguments[::2]]
        if len({name.lower() for name in names}) < len(names) or not all(
            map(_NAME_IN_JSON.fullmatch, names)
        ):
            why = "its names are not constants of letters, digits, _ and -, each once"
            raise refusal(node, why, "write json_build_object('a', x, 'b', y)")
        if len(arguments) != 2 * len(names) or not names:
            raise refusal(node, "a name has no value", "write json_build_object('a', x, 'b', y)")
        texts, parts = [], []
        for name, argument in zip(names, arguments[1::2], strict=True):
            value = self.value(argument)
            kind = TEXT if value.kind.name == "unknown" else value.kind
            _check_in_json(argument, kind)
            texts.append(f"{text(name)}, {implicit_cast(node, value, kind)}")
            parts.append((name, kind))
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith("jsonb"):
            order = sorted(range(len(names)), key=lambda place: (len(names[place]), names[place]))
            texts, parts = [texts[place] for place in order], [parts[place] for place in order]
        return Value(f"named_struct({', '.join(texts)})", document_of(parts))

    _fn_jsonb_build_object = _fn_json_build_object

    def _fn_greatest(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        values = [self.value(argument) for argument in arguments]
        kind, texts = self.unified(node, values)
        if len(texts) == 1:
            return Value(texts[0], kind)
        check_sorted(node, [value.kind for value in values])
        name = node.this.lower() if isinstance(node, exp.Anonymous) else "greatest"
        if kind.name == "enum":
            places = ", ".join(sortable(node, Value(text, kind)) for text in texts)
            return _label(node, kind, f"{name}({places})")
        return Value(f"{name}({', '.join(texts)})", kind)

    _fn_least = _fn_greatest

    def _fn_nullif(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        if len(arguments) != 2:  # noqa: PLR2004 - two values
            raise refusal(node, "nullif takes two values")
        one, other = (self.value(argument) for argument in arguments)
        test = self.compared(node, one, other, "=")
        kind = one.kind
        if kind.name == "unknown":
            kind = TEXT if other.kind.name == "unknown" else other.kind
        elif kind.name in {*INTEGERS, "numeric"} and other.kind.name in {"numeric", *FLOATS}:
            # PostgreSQL has no operator for the two types, and converts the first to the second.
            kind = numeric_of(one) if other.kind.name == "numeric" else FLOAT8
        return Value(f"CASE WHEN {test} THEN NULL ELSE {implicit_cast(node, one, kind)} END", kind)

    def _fn_regexp_like(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        flags = "".join(part.name for part in arguments[2:])
        if len(arguments) < 2 or flags not in {"", "i"}:  # noqa: PLR2004 - text and pattern
            raise refusal(
                node, "regexp_like is known only with a text, a pattern, and the flag 'i'"
            )
        return self._matched(node, arguments[:2], any_case=flags == "i")

    def _fn_regexp_replace(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        flags = "".join(part.name for part in arguments[3:])
        if len(arguments) < 3 or {*flags} - {*"gi"} or len(arguments) > 4:  # noqa: PLR2004
            raise refusal(node, "only regexp_replace(x, pattern, text, 'g') is known")
        value, new = self.value(arguments[0]), self.value(arguments[2])
        pattern = self._pattern(node, arguments[1], any_case="i" in flags)
        if not pattern.is_plain:
            raise refusal(
                node, "engines may match different parts of a text with this pattern", PLAIN
            )
        if "g" not in flags and not pattern.is_once:
            raise refusal(node, "without the flag 'g' it replaces only the first match",
                          "write 'g', or a pattern that begins with ^ or ends with $")  # fmt: skip
        if (
            value.kind.name not in TEXTS
            or new.kind.name != "unknown"
            or new.is_null
            or ({*"$\\"} & {*(new.constant or "")})
        ):
            raise refusal(
                node, "it is known only for a text, with a constant replacement without $ and \\"
            )
        return Value(f"regexp_replace({value.text}, {text(pattern.text)}, {new.text})", TEXT)

    def _fn_round(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        places = "0" if len(arguments) == 1 else self._constant(arguments[1])
        cast = arguments[0].unnest()
        if (
            isinstance(cast, exp.Cast)
            and cast.to.this is _DType.DECIMAL
            and not cast.to.expressions
        ):
            value = self.value(cast.this)
            if (
                value.kind.name in FLOATS
                and places is not None
                and 0 <= int(places) <= _MOST_PLACES
            ):
                return _significant(node, value, MOST_DIGITS - 1, int(places))
        value = self.value(arguments[0])
        if value.kind.name in FLOATS:
            if len(arguments) > 1:
                why = "PostgreSQL does not round double precision to a number of places"
                raise refusal(node, why, "write round(x::numeric, 2)")
            return Value(f"rint({implicit_cast(node, value, FLOAT8)})", FLOAT8)
        if value.kind.name not in {*INTEGERS, "numeric"} or places is None:
            raise refusal(node, "round is known only for a numeric, to a constant number of places")
        if len(arguments) == 1 and value.kind.name in INTEGERS:
            return Value(f"cast({value.text} AS double)", FLOAT8)
        if value.kind.name in INTEGERS:
            kind = numeric_of(value)
            value = Value(f"cast({value.text} AS {in_spark(kind)})", kind)
        return rounded(node, value, int(places))

    def _constant(self, node: exp.Expr) -> str | None:
        value = self.value(node)
        return value.constant if value.kind.name in {"int4", "int8"} else None

    def _fn_concat(self, _: exp.Expr, arguments: list[exp.Expr]) -> Value:
        parts = []
        for argument in arguments:
            value = self.value(argument)
            if value.kind.name == "bool":
                whens = f"WHEN {value.text} THEN 't' WHEN NOT {value.text} THEN 'f'"
                parts.append(f"CASE {whens} ELSE '' END")
            elif value.constant is not None and value.kind.name == "unknown":
                parts.append(value.text)
            elif value.kind.name == "bpchar":  # with its blanks
                parts.append(f"coalesce({value.text}, '')")
            else:
                parts.append(f"coalesce({as_text(argument, value)}, '')")
        return Value(f"concat({', '.join(parts)})", TEXT)

    def _fn_grouping(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        if not arguments:
            raise refusal(node, "grouping takes expressions of GROUP BY")
        bits = [
            f"cast(grouping({self.value(part).text}) AS int) * {1 << place}"
            for place, part in enumerate(reversed(arguments))
        ]
        return Value(f"({' + '.join(bits)})", INT4)

    def _fn_date_part(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        if len(arguments) != 2 or not isinstance(arguments[0], exp.Literal):  # noqa: PLR2004
            raise refusal(node, "date_part takes a constant name and a date")
        built = self._part(node, arguments[0].name, arguments[1])
        return Value(f"cast({built.text} AS double)", FLOAT8)

    def _fn_date_trunc(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        unit = arguments[0].name.lower() if isinstance(arguments[0], exp.Literal) else ""
        value = self.value(arguments[1]) if len(arguments) in {2, 3} else NULL
        if len(arguments) == 3:  # noqa: PLR2004 - with a zone
            zone = arguments[2]
            if value.kind.name != "timestamptz" or zone.name.upper() != "UTC" or unit not in UNITS:
                raise refusal(node, "rules of time zones differ between engines", "write 'UTC'")
            within = f"date_trunc('{unit}', cast({value.text} AS timestamp_ntz))"
            return Value(f"cast(cast({within} AS timestamp_ntz) AS timestamp)", TIMESTAMPTZ)
        if unit not in UNITS or value.kind.name != "timestamp":
            why = f"date_trunc of {value.kind} is not known here"
            raise refusal(node, why, INSTEAD["date_trunc"])
        return Value(f"cast(date_trunc('{unit}', {value.text}) AS timestamp_ntz)", TIMESTAMP)

    def _fn_to_char(self, node: exp.Expr, arguments: list[exp.Expr]) -> Value:
        value = self.value(arguments[0])
        last = arguments[-1]
        if value.kind.name not in {"date", "timestamp"} or not isinstance(last, exp.Literal):
            is_zoned = value.kind.name == "timestamptz"
            hint = "write … AT TIME ZONE 'UTC'" if is_zoned else "cast it: …::text"
            raise refusal(node, f"to_char of {value.kind} is not known here", hint)
        patterns = sorted((*PATTERNS, *WRITTEN), key=len, reverse=True)
        parts, built, rest = [], "", last.name
        while rest:
            letters = next((key for key in patterns if rest.startswith(key)), "")
            quoted = _QUOTED.match(rest)
            if letters in WRITTEN or quoted is not None:
                parts += [_formatted(value, built)] if built else []
                parts += [text(quoted[1]) if quoted else WRITTEN[letters].format(value.text)]
                built, rest = "", rest[quoted.end() if quoted else len(letters) :]
                continue
            if not letters and (rest[0].isalnum() or rest[0] in '"\\'):
                raise refusal(
                    node, f"{rest!r} is not known", f"known are {', '.join(patterns[::-1])}"
                )
            built += PATTERNS[letters] if letters else ("''" if rest[0] == "'" else rest[0])
            rest = rest[len(letters) or 1 :]
        parts += [_formatted(value, built)] if built else []
        if not any(value.text in part for part in parts):
            raise refusal(node, "the pattern has no part of a date")
        return Value(parts[0] if len(parts) == 1 else f"({' || '.join(parts)})", TEXT)


def _formatted(value: Value, pattern: str) -> str:
    if not any(map(str.isalnum, pattern)):
        return text(pattern.replace("''", "'"))
    called = f"date_format({value.text}, {text(pattern)})"
    # Spark writes a sign before years of five digits.
    return called if "+" in pattern else f"replace({called}, '+', '')"


def _quantifier(side: exp.Expr) -> tuple[str, exp.Expr] | None:
    """Return ANY or ALL and its list or subquery, or None for another expression.

    The parser reads some of them as functions.
    """
    if isinstance(side, exp.Any | exp.All):
        return type(side).__name__.upper(), side.this.unnest()
    if isinstance(side, exp.Anonymous) and len(side.expressions) == 1:
        word = {"ANY": "ANY", "SOME": "ANY", "ALL": "ALL"}.get(side.name.upper())
        return None if word is None else (word, side.expressions[0].unnest())
    return None


def _items(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the elements of a list that is written out; None for other expressions."""
    if isinstance(node, exp.Cast) and node.to.this is _DType.ARRAY and node.to.expressions:
        (kind,) = node.to.expressions
        items = _items(node.this.unnest())
        if items is None:
            return None
        return [exp.Cast(this=exp.Paren(this=item), to=kind.copy()) for item in items]
    if isinstance(node, exp.Array):
        return list(node.expressions)
    texts = elements(node.name) if isinstance(node, exp.Literal) and node.is_string else None
    if texts is None:
        return None
    return [exp.Null() if part is None else exp.Literal.string(part) for part in texts]


def _compared_element(node: exp.Expr, listed: Value) -> PgType:
    """Return the type of the elements of a list that are compared with other values."""
    element = element_of(listed.kind)
    if element is None or element.name not in OF_LISTS:
        why = f"elements of {listed.kind} are not compared here, only integers and texts"
        raise refusal(node, why, "write … ->> 'name' = 'x'" if "json" in listed.kind.name else "")
    return element


def _as_element(node: exp.Expr, value: Value, kind: PgType) -> str:
    """Return the SQL of a value as an element of a list."""
    built = implicit_cast(node, value, kind)
    if kind.name == "numeric" or (kind.name in INTEGERS and value.kind != kind):
        return f"cast({built} AS {in_spark(kind)})"
    return built


def _list_item(node: exp.Expr, value: Value, kind: PgType) -> str:
    """Return the SQL of a value that becomes or is sought as an element of a list."""
    if value.kind.name == "bpchar":
        raise refusal(node, "a char(n) is no element of a list of texts here", "cast it: …::text")
    return _as_element(node, value, kind)


def _significant(node: exp.Expr, value: Value, precision: int, scale: int = 0) -> Value:
    """Return a float as a numeric: PostgreSQL goes by the first digits of its text."""
    if precision > MOST_DIGITS or scale > precision:
        raise refusal(node, f"Spark's numerics have {MOST_DIGITS} digits at most")
    digits = _DIGITS_OF_FLOATS[value.kind.name]
    called = f"significant({value.text}, {digits}, {precision}, {scale})"
    return Value(called, numeric(precision, scale))


def _steps_of(step: exp.Expr) -> list[list[str]]:
    """Return the steps of a path of JSON, each in the forms that it may have in Spark's.

    Empty if it has something else than names and numbers. In a list of `#>>`, a number is one of a
    list's elements, or an object's name.
    """
    by = step.args["expression"]
    if isinstance(by, exp.JSONPath):
        key = by.expressions[-1]
        if isinstance(key, exp.JSONPathSubscript):
            return [[f"[{key.this}]"]]
        names = [str(key.this)]
    else:
        names = [item.name for item in _items(by) or () if isinstance(item, exp.Literal)]
    steps = []
    for name in names:
        odd = not isinstance(by, exp.JSONPath) and _ODD_NUMBER.fullmatch(name)
        if not _KEY.fullmatch(name) or odd:
            return []
        form = f".{name}" if _PLAIN_KEY.fullmatch(name) else f"['{name}']"
        is_number = not isinstance(by, exp.JSONPath) and name.isdecimal()
        steps.append([f"[{name}]", form] if is_number else [form])
    return steps


def _is_empty_json(node: exp.Expr) -> bool:
    """Tell whether an expression is `'[]'::json`, or of jsonb."""
    return (
        isinstance(node, exp.Cast)
        and node.to.this in {_DType.JSON, _DType.JSONB}
        and isinstance(node.this, exp.Literal)
        and node.this.name.strip() == "[]"
    )


def _check_in_json(node: exp.Expr, kind: PgType) -> None:
    """Refuse a value whose JSON is not what its column shows."""
    element = element_of(kind)
    scalars = (
        *INTEGERS,
        "numeric",
        *TEXTS,
        "bool",
        "date",
        "timestamp",
        "enum",
        "uuid",
        "document",
    )
    if (kind if element is None else element).name not in {*scalars, "unknown"}:
        hint = "write it as a column of its own"
        if kind.name in FLOATS:
            hint = "NaN is a text in JSON: write (…)::numeric(18, 6)"
        raise refusal(node, f"{kind} in JSON is not known here", hint)


def _label(node: exp.Expr, kind: PgType, place: str) -> Value:
    """Return the label of an enum with this number."""
    return Value(f"get({labels_of(node, kind)}, {place} - 1)", kind)


def _is_letter(number: int) -> bool:
    return 0 < number <= sys.maxunicode and not _SURROGATES[0] <= number <= _SURROGATES[1]


def _result(sign: str, one: PgType, other: PgType) -> PgType | None:
    """Return the type of a sum, product or remainder in Spark, or None if it cuts digits."""
    whole, scale = max(one.whole, other.whole), max(one.scale, other.scale)
    match sign:
        case "*":
            return bounded(one.precision + other.precision + 1, one.scale + other.scale)
        case "%":
            return bounded(min(one.whole, other.whole) + scale, scale)
        case _:
            return bounded(whole + scale + 1, scale)


def _narrowed(sign: str, one: Value, other: Value) -> tuple[Value, Value]:
    """Return two numerics, the wider one cast to the digits that fit into the result.

    A value that does not fit is an error; types of sums have far more digits than their values.
    """
    sides = [one, other]
    kinds = [numeric_of(side) for side in sides]
    wide = int(kinds[1].whole > kinds[0].whole)
    scale = max(kind.scale for kind in kinds)
    narrow = kinds[1 - wide].precision
    whole = MOST_DIGITS - (sign != "") - (narrow + kinds[wide].scale if sign == "*" else scale)
    if sign == "%" or whole < max(_LEAST_WHOLE, 0 if sign == "*" else kinds[1 - wide].whole):
        return one, other
    kind = replace(numeric(whole + kinds[wide].scale, kinds[wide].scale), even=kinds[wide].even)
    sides[wide] = Value(f"cast({sides[wide].text} AS {in_spark(kind)})", kind)
    return sides[0], sides[1]


_MOMENTS_BETWEEN = {
    frozenset({"timestamptz"}): TIMESTAMPTZ,
    frozenset({"timestamp"}): TIMESTAMP,
    frozenset({"timestamp", "date"}): TIMESTAMP,
}
"""The type in which moments of these types are subtracted; dates alone give a number of days."""


def _seconds_between(node: exp.Expr, one: Value, other: Value) -> Value | None:
    """Return the seconds from a moment to a later one, or None for values of other types."""
    names = frozenset({one.kind.name, other.kind.name})
    as_moments = _MOMENTS_BETWEEN.get(names)
    if as_moments is None:
        return None
    form = EPOCH[as_moments.name]
    parts = [form.format(implicit_cast(node, side, as_moments)) for side in (one, other)]
    kind = numeric(27, 6)
    return Value(f"cast({parts[0]} - {parts[1]} AS {in_spark(kind)})", kind)


def _fits(node: exp.Expr, code: str, value: Value) -> str | None:  # noqa: C901, PLR0911, PLR0912
    """Return the SQL of a value as an argument with this code; None if it does not fit."""
    name, unknown = value.kind.name, value.kind.name == "unknown"
    match code:
        case "any":
            return value.text if not unknown else implicit_cast(node, value, TEXT)
        case "int":
            return value.text if name in INTEGERS else None
        case "int4" | "int8":
            wide = INTEGERS[: INTEGERS.index(code) + 1]
            return value.text if name in wide else None
        case "num":
            return value.text if name in {*INTEGERS, "numeric"} else None
        case "double":
            if unknown or name in {*INTEGERS, *FLOATS}:
                return implicit_cast(node, value, FLOAT8)
            return None
        case "text":
            return implicit_cast(node, value, TEXT) if name in {*TEXTS, "unknown"} else None
        case "shown":
            if name == "bpchar":  # with its blanks
                return value.text
            return None if name == "bool" else as_text(node, value)
        case "count" | "place":
            number = value.constant if name == "int4" else None
            ok = number is not None and int(number) >= (code == "place")
            return value.text if ok else None
        case "list":
            return value.text if name.endswith("[]") else None
        case "ints" | "texts":
            names = {"text[]"} if code == "texts" else {"int2[]", "int4[]", "int8[]"}
            return value.text if name in names else None
        case "first":
            return "1" if value.constant == "1" and name == "int4" else None
        case "before" | "drop":
            number = value.constant if name == "int4" else None
            if number is None or int(number) >= (code == "before"):
                return None
            return str(1 - int(number))
        case "varying":
            return implicit_cast(node, value, TEXT) if name in {"text", "unknown"} else None
        case "sign":
            return value.text if unknown and value.constant else None
        case "letters":
            return value.text if unknown and not value.is_null else None
        case _:
            if unknown:
                return implicit_cast(node, value, PgType(code))
            return value.text if name == code else None
