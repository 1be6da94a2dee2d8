"""pgsync's schema.json: each index becomes a view, the same nested document, in search.

A node that is one object becomes a LEFT JOIN and `json_build_object`; a list becomes a subquery
with `json_agg`, or inside of another list a joined subquery with groups. The columns that join two
tables and the keys of tables are in the source and not in the file: without a source their places
hold FILL_IN, which no table has, so that the view is refused until somebody fills it in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any

from views.scaffold.moving.account import Account, Outcome, Path
from views.scaffold.moving.project import (
    FILL_IN,
    NewProject,
    identifier,
    literal,
    table_text,
    view_text,
)
from views.scaffold.moving.source import SourceTable, Tables

_STEP = "    "
_SHORT = 70
_STEPS = re.compile(r"(->>|->|#>>|#>)")
_TEXTS = ("text", "character varying", "character", "name", "citext")
_WHOLE = ("smallint", "integer", "bigint")
_ROUNDED = ("real", "double precision", "numeric")
_NO_PLACE = {
    "plugins": "Python that changes documents: write it in the view's SQL, or the view in Python "
    "(docs/design.md); a proof needs to know how a document comes about",
    "pipeline": "an ingest pipeline changes documents behind the proof: write it in the view's SQL",
    "routing": "documents are routed by their id; views/NAME.search.json has `routing` for one of "
    "several columns of the key (docs/serving.md)",
}
_TRANSFORMS = ("rename", "replace", "concat", "mapping")


@dataclass(slots=True)
class _From:
    """The FROM clause of a query while it is built, and the columns of the document so far."""

    joins: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # aliases that are taken
    in_list: bool = False  # inside of json_agg, where no subquery can stand

    def alias(self, name: str) -> str:
        names = (name, *(f"{name}_{n}" for n in range(2, 1000)))
        alias = next(name for name in names if name not in self.names)
        self.names.add(alias)
        return alias


@dataclass(slots=True)
class _Place:
    """A node of the file, and where it stands in the query."""

    node: Mapping[str, Any]
    path: Path
    alias: str = ""
    is_root: bool = False

    @property
    def table(self) -> str:
        return f"{self.node.get('schema', 'public')}.{self.node['table']}"

    @property
    def label(self) -> str:
        return str(self.node.get("label", self.node["table"]))

    @property
    def transform(self) -> Mapping[str, Any]:
        transform = self.node.get("transform")
        return transform if isinstance(transform, Mapping) else {}

    def dot(self, column: str) -> str:
        name = column if column == FILL_IN else identifier(column)
        return f"{identifier(self.alias)}.{name}"


Fields = list[tuple[str, str]]
"""Names and expressions of a document."""


def translate(account: Account, project: NewProject, tables: Tables) -> None:
    """Put the indexes of a schema.json into a project."""
    documents = account.content if isinstance(account.content, list) else [account.content]
    database = documents[0].get("database")
    for place, document in enumerate(documents):
        path: Path = (place,) if isinstance(account.content, list) else ()
        if document.get("database") != database:
            account.left(
                path, f"another database than {database}: make a second project from this part"
            )
            continue
        if not _is_node(document["nodes"]):
            account.left((*path, "nodes"), "it is no node with a table")
            continue
        _index(account, project, tables, document, path)


def _is_node(node: object) -> bool:
    return isinstance(node, Mapping) and isinstance(node.get("table"), str)


def _index(
    account: Account, project: NewProject, tables: Tables, document: Mapping[str, Any], path: Path
) -> None:
    account.carried((*path, "database"), "[postgres] dsn: the environment's DATABASE has it whole")
    index = str(document.get("index") or document.get("database"))
    name = project.view_name(index)
    if "index" in document:
        other = "" if name == index else f", which cannot be {index!r}"
        account.carried((*path, "index"), f"views/{name}.sql: the alias is the view's name{other}")
    for key, reason in _NO_PLACE.items():
        if key in document:
            account.left((*path, key), reason)
    maker = _Document(account, tables)
    root = _Place(document["nodes"], (*path, "nodes"), is_root=True)
    project.views[name] = maker.view(root, f"pgsync's index {index}")
    project.set("capture", "tables", list(dict.fromkeys(maker.captured)))
    options: dict[str, Any] = {}
    if setting := document.get("setting"):
        options["settings"] = setting
        account.carried((*path, "setting"), f"views/{name}.search.json: settings")
    if properties := _mapping(account, document, path, maker):
        options["mappings"] = {"properties": properties}
    if options:
        project.options[(name, "search")] = options


def _mapping(
    account: Account, document: Mapping[str, Any], path: Path, maker: _Document
) -> dict[str, Any]:
    """Return the mapping of the fields that a document has."""
    properties = maker.properties
    described: list[tuple[Path, Any]] = [((*path, "mapping"), document.get("mapping"))]
    mappings = document.get("mappings")
    if isinstance(mappings, Mapping):
        described.append(((*path, "mappings", "properties"), mappings.get("properties")))
    for at, fields in described:
        for column, kind in fields.items() if isinstance(fields, Mapping) else ():
            if maker.names is not None and column not in maker.names:
                account.left((*at, column), "documents have no such field")
            else:
                properties.setdefault(column, {}).update(kind)
                account.carried((*at, column), "views/NAME.search.json: mappings")
    return properties


class _Document:
    """Makes the query of one index."""

    def __init__(self, account: Account, tables: Tables) -> None:
        self._account, self._tables = account, tables
        self.captured: list[str] = []
        self.properties: dict[str, Any] = {}
        self.names: set[str] | None = set()  # of the document's fields; None: not all are known

    def view(self, root: _Place, description: str) -> str:
        """Return the view's file."""
        source = _From()
        root.alias = source.alias(str(root.node["table"]))
        fields = self._fields(root, source, self.properties)
        key = self._key(root)
        shown = {expression: name for name, expression in fields}
        for column in key:
            if root.dot(column) not in shown and (self.names is not None or column == FILL_IN):
                fields.append((column, root.dot(column)))
                shown[root.dot(column)] = column
                text = f"its key {column} is a field of the document here"
                if column == FILL_IN:
                    text = f"FILL_IN the key of {root.table}: only the source knows it (--postgres)"
                outcome = Outcome.LEFT if column == FILL_IN else Outcome.CARRIED
                self._account.note((*root.path, "table"), text, outcome)
        if self.names is not None:
            self.names = {name for name, _ in fields}
        lines = [
            expression if name == "*" else f"{expression} AS {identifier(name)}"
            for name, expression in fields
        ]
        query = "\n".join(
            ["SELECT", indent(",\n".join(lines), _STEP), f"FROM {self._from(root)}", *source.joins]
        )
        names = [shown.get(root.dot(column), column) for column in key]
        return view_text([] if FILL_IN in names else names, "search", query, description)

    def _from(self, place: _Place) -> str:
        text, alias = table_text(place.table), identifier(place.alias)
        return text if place.alias == place.node["table"] else f"{text} AS {alias}"

    def _source(self, table: str) -> SourceTable:
        self.captured.append(table)
        return self._tables.get(table, SourceTable())

    def _key(self, place: _Place) -> list[str]:
        declared = place.node.get("primary_key")
        table = self._tables.get(place.table)
        return list(declared or (table.key if table else []) or [FILL_IN])

    def _fields(self, place: _Place, source: _From, properties: dict[str, Any]) -> Fields:
        """Return the fields of a node's object; what it joins goes to the FROM clause."""
        self._tell(place)
        renames = place.transform.get("rename")
        renamed = dict(renames) if isinstance(renames, Mapping) else {}
        fields: Fields = []
        for name, column, expression in self._columns(place):
            replaced = self._replaced(place, column, expression)
            fields.append((str(renamed.pop(name, name)), replaced))
        for child in self._children(place):
            inner: dict[str, Any] = {}
            expression = self._child(place, child, source, inner)
            label = str(renamed.pop(child.label, child.label))
            fields.append((label, expression))
            if inner:
                properties.setdefault(label, {})["properties"] = inner
        for name in renames if isinstance(renames, Mapping) else ():
            path = (*place.path, "transform", "rename", name)
            if name in renamed:
                self._account.left(path, "the node has no such column")
            else:
                self._account.carried(path, "the field's name")
        fields += self._concat(place, fields)
        self._described(place, fields, properties)
        return fields

    def _tell(self, place: _Place) -> None:
        """Note the outcomes of the keys that every node has."""
        path, account, node = place.path, self._account, place.node
        table = self._source(place.table)
        if self._tables and not table.types:
            hint = "pgsync reads a view there: write its query in its place"
            account.left((*path, "table"), f"the source has no table {place.table}; {hint}")
        else:
            account.carried((*path, "table"), f"[capture] tables: {place.table}")
        for key, text in {
            "schema": "the table's name",
            "label": "the field's name",
            "columns": "the query's columns",
            "primary_key": "the view's key" if place.is_root else "the order of the list",
        }.items():
            if node.get(key):
                account.carried((*path, key), text)
            elif key in node:
                account.same((*path, key), "empty")
        if "base_tables" in node:
            account.left(
                (*path, "base_tables"),
                "capture reads tables: write the database view's query in place of its name",
            )
        if node.get("children") == []:
            account.same((*path, "children"), "empty")
        if "move" in place.transform:
            account.left((*path, "transform", "move"), "pgsync 7 does not apply it either")

    def _children(self, place: _Place) -> Iterator[_Place]:
        children = place.node.get("children")
        for number, child in enumerate(children if isinstance(children, list) else []):
            path = (*place.path, "children", number)
            if _is_node(child) and isinstance(child.get("relationship"), Mapping):
                yield _Place(child, path)
            else:
                self._account.left(path, "it is no node with a table and a relationship")

    def _columns(self, place: _Place) -> Iterator[tuple[str, str, str]]:
        """Yield name, column and expression of each column."""
        types = self._tables.get(place.table, SourceTable()).types
        columns = [column for column in place.node.get("columns") or [] if isinstance(column, str)]
        if not columns and not types:
            if place.is_root:
                self.names = None
                yield "*", "", f"{identifier(place.alias)}.*"
            else:
                self._account.note(
                    place.path, "all columns, which only the source knows: FILL_IN them"
                )
                yield FILL_IN, "", place.dot(FILL_IN)
        for column in columns or list(types):
            base, *steps = _STEPS.split(column)
            names = [step.strip("{}") for step in steps[1::2]]
            if steps:
                names = [part for name in names for part in name.split(",")]
                label = "_".join([base, *(step.strip("{}") for step in steps[1::2])])
                expression = f"{place.dot(base)} #>> {literal('{' + ','.join(names) + '}')}"
                self._account.carried(
                    (*place.path, "columns", place.node["columns"].index(column)),
                    f"{label}: the element as a text, where pgsync has JSON; a proof ends with an "
                    "error where it is an object, a list or a number with a fraction: take it out",
                )
                yield label, "", expression
            else:
                yield column, column, self._value(place, column, types.get(column, ""))

    def _value(self, place: _Place, column: str, kind: str) -> str:
        """Return a column as a document can hold it."""
        text, path = place.dot(column), (*place.path, "columns")
        if kind in {"json", "jsonb"}:
            self._account.carried(path, f"{column}: {kind} is a text in the document")
            return text if place.is_root else f"{text}::text"
        if place.is_root:
            return text
        if kind in _ROUNDED:
            self._account.left(
                path,
                f"{column}: {kind} has no exact place in a nested document and is rounded to six "
                "places here; make it a column of its own, or a numeric(p, s) at the source",
            )
            return f"{text}::numeric(18, 6)"
        if kind == "timestamp with time zone":
            self._account.carried(path, f"{column}: in UTC, without its offset")
            return f"{text} AT TIME ZONE 'UTC'"
        return text

    def _replaced(self, place: _Place, column: str, expression: str) -> str:
        rules = place.transform.get("replace")
        rules = rules.get(column) if isinstance(rules, Mapping) and column else None
        path = (*place.path, "transform", "replace", column)
        if not isinstance(rules, Mapping):
            return expression
        kind = self._tables.get(place.table, SourceTable()).types.get(column, "text")
        if kind not in _TEXTS:
            self._account.same(path, f"pgsync replaces in texts, and {column} is {kind}")
            return expression
        self._account.carried(path, "replace() in the query")
        for old, new in rules.items():
            expression = f"replace({expression}, {literal(old)}, {literal(str(new))})"
        return expression

    def _concat(self, place: _Place, fields: Fields) -> Fields:
        """Return the fields that concat makes; a part that is empty, 0 or false is left out."""
        rules = place.transform.get("concat")
        path = (*place.path, "transform", "concat")
        types = self._tables.get(place.table, SourceTable()).types
        renames = place.transform.get("rename")
        old = {new: name for name, new in renames.items()} if isinstance(renames, Mapping) else {}
        concats: Fields = []
        for number, rule in enumerate(rules if isinstance(rules, list) else [rules]):
            at = (*path, number) if isinstance(rules, list) else path
            if not isinstance(rule, Mapping) or not {"columns", "destination"} <= set(rule):
                continue
            parts, unknown = [], []
            for name in rule["columns"]:
                expression = dict(fields + concats).get(name)
                kind = types.get(old.get(name, name), "")
                if expression is None:
                    parts.append(literal(str(name)))
                elif kind in _WHOLE:
                    parts.append(f"CASE WHEN {expression} <> 0 THEN {expression}::text END")
                elif kind == "boolean":
                    parts.append(f"CASE WHEN {expression} THEN 'True' END")
                elif kind in _TEXTS or not kind:
                    parts.append(f"nullif({expression}, '')")
                else:
                    unknown.append(f"{name} ({kind})")
            if unknown:
                self._account.left(
                    at, f"the text of {', '.join(unknown)} is Python's: write it in the query"
                )
                continue
            delimiter = literal(str(rule.get("delimiter", "")))
            concats.append(
                (str(rule["destination"]), f"concat_ws({delimiter}, {', '.join(parts)})")
            )
            self._account.carried(at, "concat_ws() in the query")
        return concats

    def _described(self, place: _Place, fields: Fields, properties: dict[str, Any]) -> None:
        mapping = place.transform.get("mapping")
        names = {name for name, _ in fields}
        is_object = place.is_root or place.node["relationship"].get("variant") != "scalar"
        for name, kind in mapping.items() if isinstance(mapping, Mapping) else ():
            path = (*place.path, "transform", "mapping", name)
            if is_object and (name in names or "*" in names) and isinstance(kind, Mapping):
                properties.setdefault(name, {}).update(kind)
                self._account.carried(path, "views/NAME.search.json: mappings")
            else:
                self._account.left(path, "documents have no such field")

    def _child(
        self, parent: _Place, child: _Place, source: _From, properties: dict[str, Any]
    ) -> str:
        """Return the expression of a child's field."""
        relationship, path = child.node["relationship"], (*child.path, "relationship")
        for key in ("type", "variant"):
            if key in relationship:
                self._account.carried((*path, key), "the form of the field")
        through = self._through(child)
        links = self._links(parent, child, through)
        if through is None and relationship.get("type") == "one_to_one":
            child.alias = source.alias(child.label)
            condition = " AND ".join(f"{child.dot(own)} = {parent.dot(up)}" for up, own in links[0])
            source.joins.append(f"LEFT JOIN {self._from(child)} ON {condition}")
            value = self._object(child, source, properties)
            if relationship.get("variant") == "scalar":
                return value
            return f"CASE WHEN {child.dot(links[0][0][1])} IS NOT NULL THEN {value} END"
        return self._list(parent, child, source, properties, (through, *links))

    def _object(self, place: _Place, source: _From, properties: dict[str, Any]) -> str:
        fields = self._fields(place, source, properties)
        relationship = place.node["relationship"]
        if relationship.get("variant") == "scalar":
            if len(fields) > 1:
                self._account.left((*place.path, "columns"), "a scalar is its first column alone")
            return fields[0][1]
        is_one = relationship.get("through_tables") and relationship.get("type") == "one_to_one"
        if is_one and len(fields) > 1 and not place.node.get("children"):
            text = "here pgsync's documents have the first one alone"
            self._account.note((*place.path, "columns"), text)
            fields = fields[:1]
        pairs = [f"{literal(name)}, {expression}" for name, expression in fields]
        return _call("json_build_object", pairs)

    def _list(
        self,
        parent: _Place,
        child: _Place,
        source: _From,
        properties: dict[str, Any],
        linked: tuple[Any, ...],
    ) -> str:
        """Return a subquery that makes a list, or the column of one that is joined."""
        through, up, down = linked
        inner = _From(names=set(source.names), in_list=True)
        child.alias = inner.alias(child.label)
        first, joined = child, ""
        if through is not None:
            first = _Place({"table": through[1], "schema": through[0]}, child.path)
            first.alias = inner.alias(through[1])
            on = " AND ".join(f"{child.dot(own)} = {first.dot(other)}" for own, other in down)
            joined = f" JOIN {self._from(child)} ON {on}"
        value = self._object(child, inner, properties)
        order = ", ".join(child.dot(column) for column in self._key(child))
        body = "\n".join([f"FROM {self._from(first)}{joined}", *inner.joins])
        items = _call("json_agg", [f"{value} ORDER BY {order}"])
        if not source.in_list:
            where = " AND ".join(f"{first.dot(own)} = {parent.dot(above)}" for above, own in up)
            return f"({_lines(f'SELECT {items}', body, f'WHERE {where}')})"
        alias = source.alias(f"{child.label}_of")
        columns = [first.dot(own) for _, own in up]
        named = ", ".join(f"{column} AS k{n}" for n, column in enumerate(columns))
        on = " AND ".join(
            f"{identifier(alias)}.k{n} = {parent.dot(above)}" for n, (above, _) in enumerate(up)
        )
        groups = f"GROUP BY {', '.join(columns)}"
        query = _lines(f"SELECT {named}, {items} AS items", body, groups)
        source.joins.append(f"LEFT JOIN ({query}) AS {identifier(alias)} ON {on}")
        return f"{identifier(alias)}.items"

    def _through(self, child: _Place) -> tuple[str, str] | None:
        names = child.node["relationship"].get("through_tables")
        if not names:
            return None
        schema, _, name = str(names[0]).rpartition(".")
        schema = schema or str(child.node.get("schema", "public"))
        path = (*child.path, "relationship", "through_tables")
        self._source(f"{schema}.{name}")
        self._account.carried((*path, 0), f"[capture] tables: {schema}.{name}")
        for number in range(1, len(names)):
            self._account.left((*path, number), "pgsync takes one table here")
        return schema, name

    def _links(
        self, parent: _Place, child: _Place, through: tuple[str, str] | None
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return the pairs of columns that join a parent with the list, and its child with it."""
        path = (*child.path, "relationship", "foreign_key")
        named = child.node["relationship"].get("foreign_key")
        if isinstance(named, Mapping) and through is None:
            above, own = _columns_of(named.get("parent")), _columns_of(named.get("child"))
            if above and len(above) == len(own):
                self._account.carried(path, "the condition of the join")
                return list(zip(above, own, strict=True)), []
        if named is not None:
            self._account.left(path, "write the condition of the join in the query")
        if through is None:
            return self._pairs(child, parent.table, child.table), []
        middle = ".".join(through)
        down = [(own, other) for other, own in self._pairs(child, middle, child.table)]
        return self._pairs(child, parent.table, middle), down

    def _pairs(self, child: _Place, table: str, other: str) -> list[tuple[str, str]]:
        """Return the columns of two tables that a foreign key joins, in either direction."""
        ways = [
            list(zip(key.others, key.columns, strict=True))
            for key in self._tables.get(other, SourceTable()).references
            if key.table == table
        ]
        if table != other:
            ways += [
                list(zip(key.columns, key.others, strict=True))
                for key in self._tables.get(table, SourceTable()).references
                if key.table == other
            ]
        elif ways:
            ways.append(ways[0])  # which of both rows refers to the other one the file does not say
        if len(ways) == 1:
            return ways[0]
        reason = f"{len(ways)} foreign keys" if ways else "no foreign key"
        if not self._tables:
            reason = "only the source knows the columns: name it with --postgres"
        self._account.note(
            (*child.path, "relationship"),
            f"FILL_IN the columns that join {table} and {other} ({reason})",
        )
        return [(FILL_IN, FILL_IN)]


def _call(name: str, arguments: list[str]) -> str:
    """Return a call, on one line if it is short."""
    text = ", ".join(arguments)
    if len(text) <= _SHORT and "\n" not in text:
        return f"{name}({text})"
    return f"{name}({_lines(*[f'{argument},' for argument in arguments[:-1]], arguments[-1])})"


def _lines(*parts: str) -> str:
    return "\n" + indent("\n".join(parts), _STEP) + "\n"


def _columns_of(side: object) -> list[str]:
    if isinstance(side, Mapping):
        side = [column for columns in side.values() for column in columns]
    return [str(column) for column in side] if isinstance(side, list) else []
