"""Models of dbt as views: its manifest and the SQL that `dbt compile` has written into it.

The fields are those of dbt's manifest, `https://schemas.getdbt.com/dbt/manifest/v12.json`. A model
that dbt stores (a table, an increment, a materialised view) is a view under its alias; one that dbt
computes when it is read stands inside of those that read it. What neither is (a source, a seed, a
snapshot) is a table of the source database.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlglot import exp

from changelog.contract.base.errors import ViewError
from views.base.postgres_sql import name_of
from views.project.spec import DEFAULT_SINKS, ViewSpec, check_declared
from views.project.sql import Header, declared_view, parsed_query

_STORED = frozenset({"table", "incremental", "materialized_view"})
_OURS = "changelog"  # the member of a model's `meta` with what dbt has no word for
_MEMBERS = frozenset({"key", "sinks"})
_PATH = Path("target", "manifest.json")


@dataclass(frozen=True, slots=True)
class Model:
    """A model, as the manifest has it."""

    node: Mapping[str, Any] = field(repr=False)
    folder: Path  # of the dbt project
    # keys that the primary entity of a semantic model or, without one, dbt's tests say it has
    keys: tuple[tuple[str, ...], ...] = ()

    @property
    def relation(self) -> str:
        """Return the name by which views read it: none that a table in `public` has."""
        return f"{self.node['schema']}.{self.node['alias']}"

    @property
    def alias(self) -> str:
        """Return the name of its table, which is also the view's."""
        return str(self.node["alias"])

    @property
    def path(self) -> Path:
        """Return the file of its compiled SQL, which places in errors are of."""
        return self.folder / str(
            self.node.get("compiled_path") or self.node.get("original_file_path") or self.alias
        )

    @property
    def is_stored(self) -> bool:
        """Tell whether it is a view of its own."""
        return self.node["config"].get("materialized") in _STORED or bool(self._ours())

    def spec(self, models: Mapping[str, Model]) -> ViewSpec:
        """Read its declaration; other models that it reads are named by their relations.

        Raises ViewError: it has no key, is not in SQL or not compiled, or its SQL cannot be used.
        """
        sinks = self._ours().get("sinks", list(DEFAULT_SINKS))
        header = Header(
            dialect="postgres",
            key=self._key() if self.is_stored else (),
            sinks=check_declared("sinks", _texts(sinks), self.path),
            description=" ".join(str(self.node.get("description", "")).split()),
        )
        return declared_view(self.alias, self.path, self._text(models), header)

    def _ours(self) -> Mapping[str, Any]:
        config = self.node["config"]
        ours = (config.get("meta") or self.node.get("meta") or {}).get(_OURS, {})
        if not isinstance(ours, dict) or not _MEMBERS.issuperset(ours):
            raise ViewError(
                f"model {self.alias!r} of dbt has meta.{_OURS} = {json.dumps(ours)}",
                hint=f"its members are {' and '.join(sorted(_MEMBERS))}",
            )
        return ours

    def _key(self) -> tuple[str, ...]:
        config = self.node["config"]
        for key in (self._ours().get("key"), config.get("unique_key"), self._primary_key()):
            if key:
                return check_declared("key", _texts(key), self.path)
        if len(self.keys) == 1:
            return self.keys[0]
        several = " and ".join(f"({', '.join(columns)})" for columns in self.keys)
        raise ViewError(
            f"model {self.alias!r} of dbt does not say what its key is"
            + (f": its tests have {several} unique" if several else ""),
            hint='give it one: config(unique_key="id"), a primary key in its contract, the '
            "primary entity of a semantic model, or the tests unique and not_null of a column",
        )

    def _primary_key(self) -> list[str]:
        for constraint in self.node.get("constraints", []):
            if constraint.get("type") == "primary_key":
                return list(constraint.get("columns") or [])
        return [
            name
            for name, column in self.node.get("columns", {}).items()
            if any(one.get("type") == "primary_key" for one in column.get("constraints", []))
        ]

    def _text(self, models: Mapping[str, Model]) -> str:
        """Return the compiled SQL with names as views have them: no database, no schema of dbt."""
        text = self.node.get("compiled_code")
        if self.node.get("language", "sql") != "sql":
            raise ViewError(
                f"model {self.alias!r} of dbt is in {self.node['language']}",
                hint="a model in SQL can be a view; a view in Python is views/NAME.py",
            )
        if not text:
            raise ViewError(
                f"model {self.alias!r} of dbt is not compiled: the manifest has no SQL of it",
                hint="`dbt compile`, then again",
            )
        text = str(text)
        tables = parsed_query(self.path, text, "postgres").find_all(exp.Table)
        cuts = [cut for table in tables for cut in self._named(table, models)]
        for start, end, new in sorted(cuts, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _named(
        self, table: exp.Table, models: Mapping[str, Model]
    ) -> Iterator[tuple[int, int, str]]:
        """Yield the place of a table's name in the text, and the name by which views read it."""
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        if len(parts) < 2:  # noqa: PLR2004 - schema and table
            return
        schema, name = (name_of(part) for part in parts[-2:])
        relation = f"{schema}.{name}"
        start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
        if relation == self.relation:
            raise ViewError(
                f"{self.path.name} reads its own table: it was compiled as an increment",
                hint="`dbt compile --full-refresh`, then again: the log gives the whole",
            )
        if relation in models:
            alias = "" if table.alias else f" AS {_quoted(name)}"
            yield start, end, _quoted(relation) + alias
        else:
            yield start, end, f"{_quoted(schema)}.{_quoted(name)}"


def read_models(root: Path, manifest: str) -> dict[str, Model]:
    """Return the models of a manifest by their relations, `schema.alias`.

    `manifest`: its path, or a dbt project's folder; under `root` unless it is absolute.

    Raises ViewError: the file cannot be read, is no manifest, or of another database.
    """
    path = root / manifest
    path = path / _PATH if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        nodes, adapter = content["nodes"], content["metadata"]["adapter_type"]
        entities = dict(_entities(content.get("semantic_models", {})))
    except OSError as error:
        raise ViewError(
            f"{path} cannot be read: {error.strerror}", hint="`dbt compile` writes it"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ViewError(
            f"{path} is no manifest of dbt: {error!r}", hint="target/manifest.json of its project"
        ) from error
    if adapter != "postgres":
        raise ViewError(
            f"{path}: its project is for {adapter}, whose SQL is not PostgreSQL's",
            hint="a project with the adapter dbt-postgres, on the database that is captured",
        )
    keys = {**_tested(nodes), **{model: [key] for model, key in entities.items()}}
    folder = path.parent.parent if path.parent.name == _PATH.parent.name else path.parent
    models = (
        Model(node, folder, tuple(keys.get(identifier, ())))
        for identifier, node in nodes.items()
        if node["resource_type"] == "model" and node["config"].get("enabled", True)
    )
    return {model.relation: model for model in models if not _is_ephemeral(model)}


def _is_ephemeral(model: Model) -> bool:
    """Tell whether dbt itself has put its SQL into what reads it."""
    return bool(model.node["config"].get("materialized") == "ephemeral")


def _entities(semantic_models: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield models whose rows are told apart by the primary entity of a semantic model."""
    for semantic in semantic_models.values():
        for entity in semantic["entities"]:
            if entity["type"] == "primary":
                column = entity.get("expr") or entity["name"]
                yield from ((model, (column,)) for model in semantic["depends_on"]["nodes"])


def _tested(nodes: Mapping[str, Any]) -> dict[str, list[tuple[str, ...]]]:
    """Return the columns of each model that its tests say are unique and not null."""
    unique: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    present: dict[str, set[str]] = defaultdict(set)
    for node in nodes.values():
        test = node.get("test_metadata")
        if not test or node["config"].get("where"):  # a test of some rows says nothing of all
            continue
        model, arguments = str(node.get("attached_node")), test.get("kwargs", {})
        columns = arguments.get("combination_of_columns") or [arguments.get("column_name")]
        if test["name"] in {"unique", "unique_combination_of_columns"}:
            unique[model].append(tuple(columns))
        elif test["name"] == "not_null":
            present[model].update(columns)
    return {
        model: [columns for columns in keys if present[model].issuperset(columns)]
        for model, keys in unique.items()
    }


def _texts(value: object) -> list[str]:
    return [str(part) for part in value] if isinstance(value, list) else [str(value)]


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("postgres")
