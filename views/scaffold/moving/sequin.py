"""Sequin's YAML: databases become sources, and sinks views of their tables.

Sequin delivers messages about changes; a view is a state. Where a sink's target is a state too
(Elasticsearch, strings of Redis), its documents are the rows of a view; a sink of Kafka is the log
itself. Functions are Elixir: the forms that say the same in SQL are carried, and no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from views.scaffold.moving.account import Account, Outcome, Path
from views.scaffold.moving.project import (
    FILL_IN,
    NewProject,
    address,
    identifier,
    literal,
    table_text,
    view_text,
)
from views.scaffold.moving.source import Tables

_VARIABLE = re.compile(r"\$\{(\w+)(?::-[^}]*)?\}", re.ASCII)
_BODY = re.compile(r"def\s+\w+\(\s*\w+,\s*(\w+),[^)]*\)\s*do\s(.*)\bend\s*", re.DOTALL)
_FIELD = re.compile(r'(?:(\w+):|"([^"]+)"\s*=>)\s*record\["([^"]+)"\]')
_TEST = re.compile(r'\(?\s*record\["([^"]+)"\]\s*(==|!=)\s*("[^"#\\]*"|-?\d+|true|false|nil)\s*\)?')
_NO_ACCOUNT = "there are no accounts: whoever reads the project's folder runs it"
_TOP = {
    "account": _NO_ACCOUNT,
    "users": _NO_ACCOUNT,
    "api_tokens": "`changelog serve --token-file` has one (docs/connect.md)",
    "http_endpoints": "`changelog push VIEW --to URL` sends the changes of a view with a topic "
    "(docs/read-a-view.md)",
    "change_retentions": "a view with `-- history: scd2` has a row for each version "
    "(docs/history.md)",
}
_SINK = {
    "enrichment": "join the tables in the view's query",
    "routing": "a view has one name: make a view with WHERE for each",
    "annotations": "write it under `-- description:`",
    "batch_size": "nothing to do: rows go in bulk",
    "message_grouping": "nothing to do: rows are ordered by their key",
    "tables": "nothing to do: rows are ordered by their key",
    "timestamp_format": "docs/read-a-view.md has the shape of each type",
}
_MECHANISMS = {
    "plain": "PLAIN", "scram_sha_256": "SCRAM-SHA-256", "scram_sha_512": "SCRAM-SHA-512",
}  # fmt: skip
_ADDRESSES = {
    "endpoint_url": "[sinks.search] url",
    "index_name": "the view's name, which is the alias",
    "host": "[sinks.cache] url",
    "port": "[sinks.cache] url",
    "database": "[sinks.cache] url",
    "hosts": "[kafka] brokers",
    "tls": "the address, or [kafka] options: security.protocol",
    "username": "the address, or [kafka] options: sasl.username",
    "password": "the environment's CACHE_PASSWORD (percent-encoded) or KAFKA_PASSWORD has it",
    "sasl_mechanism": "[kafka] options: sasl.mechanism",
}
_LOGINS = (
    "the sink logs in by user and password in its URL",
    "[sinks.search] url: the environment's SEARCH_LOGIN is user:password, percent-encoded",
)
_NOT_HERE = {
    "expire_ms": "an entry of a view does not expire",
    "mode": "entries are named VIEW:GENERATION:KEY (docs/read-a-view.md)",
    "topic": "a topic has its table's name, or its view's",
    "compression": '[capture.producer] has "compression.type"',
    "batch_size": "nothing to do: rows go in bulk",
}
_TARGETS = {"elasticsearch": "search", "redis_string": "cache", "kafka": "topic"}
_NO_TARGET = (
    "nothing is delivered there: read the log's topics (docs/records.md), or the changes of a view "
    "from `changelog serve` (docs/page.md); `changelog push` sends them to a webhook "
    "(docs/read-a-view.md)"
)


def translate(account: Account, project: NewProject, tables: Tables) -> None:
    """Put a configuration into a project."""
    content = account.content
    assert isinstance(content, Mapping)  # noqa: S101 - a file of Sequin's is a table
    for key, reason in _TOP.items():
        if key in content:
            account.left((key,), reason)
    for key in set(content) - {*_TOP, "databases", "sinks", "functions", "transforms"}:
        account.left((key,), "Sequin does not read it; its anchors are read where they are used")
    functions = _functions(account, content)
    databases = _databases(account, project, content)
    for number, sink in enumerate(_list(content, "sinks")):
        _Sink(account, project, tables, functions, databases, ("sinks", number), sink).put()


def _list(content: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    items = content.get(key)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _text(value: object) -> str:
    """Return a value with variables as ours are written, `${NAME}`."""
    return _VARIABLE.sub(r"${\1}", str(value))


def _functions(account: Account, content: Mapping[str, Any]) -> dict[str, tuple[Path, Any]]:
    functions: dict[str, tuple[Path, Any]] = {}
    for key in ("functions", "transforms"):
        for number, function in enumerate(_list(content, key)):
            functions[str(function.get("name"))] = ((key, number), function)
    used = {
        str(sink.get(key))
        for sink in _list(content, "sinks")
        for key in ("transform", "filter", "enrichment", "routing")
    }
    for name, (path, _) in functions.items():
        text = "see the sinks that name it" if name in used else "no sink names it"
        account.same(path, text)
    return functions


def _databases(account: Account, project: NewProject, content: Mapping[str, Any]) -> dict[str, str]:
    """Put the databases into the settings; returns the section of each."""
    databases = _list(content, "databases")
    sections: dict[str, str] = {}
    for number, database in enumerate(databases):
        path, name = ("databases", number), str(database.get("name"))
        clean = re.sub(r"\W+", "_", name)
        several = len(databases) > 1
        section = f"sources.{clean}" if several else "capture"
        sections[name] = section
        _database(account, project, database, path, section)
        account.carried((*path, "name"), f"[{section}]")
        if isinstance(primary := database.get("primary"), Mapping):
            _database(account, project, primary, (*path, "primary"), section)
        _slot(account, project, database, path, section)
        for key in ("pool_size", "await_database"):
            if key in database:
                account.left(
                    (*path, key), "nothing to do; [capture] wait_s: how long a start waits"
                )
        if several and project.set("capture", "source", clean):
            account.note(
                ("databases",),
                f"views read the log of one source, [capture] source = {clean}: make a project for "
                "the views of each other database",
            )
    return sections


def _database(
    account: Account, project: NewProject, parts: Mapping[str, Any], path: Path, section: str
) -> None:
    """Put the address of a database into the settings."""
    setting = "primary" if path[-1] == "primary" else "dsn"
    secret = "PRIMARY_PASSWORD" if setting == "primary" else "DATABASE_PASSWORD"
    if section.startswith("sources."):
        secret = f"{section.removeprefix('sources.').upper()}_{secret}"
    where = "postgres" if section == "capture" else section
    dsn = address(
        "postgresql", _text(parts.get("hostname", FILL_IN)), port=_text(parts.get("port", 5432)),
        user=_text(parts.get("username", "postgres")), password=secret,
        path=_text(parts.get("database", "")),
        options={"sslmode": "require"} if parts.get("ssl") else {},
    )  # fmt: skip
    project.set(where, setting, dsn)
    for key in ("hostname", "port", "username", "database", "ssl"):
        if key in parts:
            default = re.search(r"\$\{\w+:-", str(parts[key]))
            hint = ": without the default, so set the variable" if default else ""
            account.carried((*path, key), f"[{where}] {setting}{hint}")
    if "password" in parts:
        text = f"[{where}] {setting}: the environment's {secret} has it, percent-encoded"
        account.carried((*path, "password"), text)


def _slot(
    account: Account, project: NewProject, database: Mapping[str, Any], path: Path, section: str
) -> None:
    """Give the project a slot and a publication of its own, so that Sequin can go on."""
    for key in ("slot", "publication"):
        value = database.get(key)
        inner = isinstance(value, Mapping)
        at = (*path, key, "name") if inner else (*path, f"{key}_name")
        name = value.get("name") if isinstance(value, Mapping) else database.get(f"{key}_name")
        if name is not None and key == "slot":
            own = f"{str(name)[:53]}_changelog"
            project.set(section, "slot", own)
            text = f"[{section}] slot = {own}: its own, so that both programs can run a while"
            account.carried(at, text)
        elif name is not None:
            text = "capture makes one by its slot's name, for the tables that it captures"
            account.same(at, text)
        for name in ("create_if_not_exists", "init_sql", "schemas"):
            if isinstance(value, Mapping) and name in value:
                account.same((*path, key, name), "capture makes what is not there")


@dataclass(slots=True)
class _Sink:
    """Translates one sink."""

    _account: Account
    _project: NewProject
    _tables: Tables
    _functions: Mapping[str, tuple[Path, Any]]
    _databases: Mapping[str, str]  # the section of each
    _path: Path
    _sink: Mapping[str, Any]

    def put(self) -> None:
        """Put the sink's tables and views into the project."""
        account, sink, path = self._account, self._sink, self._path
        name = str(sink.get("name"))
        account.carried((*path, "name"), "the name of its views, or of its tables")
        if "database" in sink:
            section = self._databases.get(str(sink["database"]))
            if section is None:
                account.left((*path, "database"), "the file has no database of this name")
            else:
                account.carried((*path, "database"), f"[{section}]")
        tables = self._chosen()
        section = self._databases.get(str(sink.get("database")), "capture")
        if tables:
            self._project.set(section, "tables", tables)
        self._tell()
        destination = sink.get("destination")
        destination = destination if isinstance(destination, Mapping) else {}
        kind = _TARGETS.get(str(destination.get("type")))
        if kind is None:
            account.left((*path, "destination"), _NO_TARGET)
            for key in ("filter", "transform"):
                if key in sink:
                    account.left((*path, key), "it belongs to what is not delivered")
            return
        self._destination(destination, kind)
        columns, condition = self._function("transform"), self._function("filter")
        if kind == "topic" and not columns and not condition:
            account.carried(
                (*path, "destination", "type"),
                "the log: each table's topic has every change (docs/records.md)",
            )
            return
        text = f"views with `-- sinks: {kind}`"
        text += "" if "transform" in sink else ": of the row, where Sequin sends its whole message"
        account.carried((*path, "destination", "type"), text)
        base = str(destination.get("index_name") or name)
        for table in tables:
            self._view(
                base if len(tables) == 1 else f"{base}_{table}", kind, table, columns, condition
            )
        if not tables:
            account.note(
                (*path, "source"), "no table is named: write a view of each, SELECT * FROM it"
            )

    def _view(
        self, base: str, kind: str, table: str, columns: list[tuple[str, str]], condition: str
    ) -> None:
        name = self._project.view_name(base.replace(".", "_"))
        source = self._tables.get(table)
        key = list(source.key) if source else []
        if "*" in table:
            self._account.note(self._path, f"views/{name}.sql: FILL_IN one table of {table}")
            table = f"public.{FILL_IN}"
        elif not key:
            self._account.note(
                self._path, f"views/{name}.sql: FILL_IN the key of {table}, or name the source "
                "(--postgres)",
            )  # fmt: skip
        fields = [f"{identifier(column)} AS {identifier(name)}" for name, column in columns]
        lost = [column for column in key if column not in {column for _, column in columns}]
        if columns:
            fields += [identifier(column) for column in lost]
            key = [dict((c, n) for n, c in columns).get(column, column) for column in key]  # noqa: C402
        query = f"SELECT {', '.join(fields) or '*'} FROM {table_text(table)}"
        query += f"\nWHERE {condition}" if condition else ""
        self._project.views[name] = view_text(key, kind, query, f"Sequin's sink {base}")

    def _chosen(self) -> list[str]:
        """Return the sink's tables, as names or patterns, and say what became of their keys."""
        sink, account, path = self._sink, self._account, self._path
        source = sink.get("source")
        source = source if isinstance(source, Mapping) else {}
        chosen = [str(name) for name in source.get("include_tables") or []]
        chosen += [f"{schema}.*" for schema in source.get("include_schemas") or []]
        for key, text in (("table", "{}"), ("schema", "{}.*")):  # the form of older versions
            if isinstance(sink.get(key), str):
                chosen.append(text.format(sink[key]))
                account.carried((*path, key), "[capture] tables")
        for key in ("include_tables", "include_schemas"):
            if key in source:
                account.carried((*path, "source", key), "[capture] tables")
        chosen = [name if "." in name else f"public.{name}" for name in chosen]
        excluded = self._excluded(source)
        tables = [table for name in chosen for table in self._spread(name)]
        return [
            table
            for table in tables
            if table not in excluded and f"{table.partition('.')[0]}.*" not in excluded
        ]

    def _excluded(self, source: Mapping[str, Any]) -> list[str]:
        """Return the names and patterns that the sink leaves out, and put them into the settings.

        A sink leaves tables out for itself, `[capture] exclude` for all sinks: of several sinks
        only the tables that are named by the source can be left out.
        """
        excluded: list[str] = []
        for key, ends in (("exclude_tables", ""), ("exclude_schemas", ".*")):
            if key not in source:
                continue
            names = [str(name) for name in source[key]]
            names = [f"{n}{ends}" if ends or "." in n else f"public.{n}" for n in names]
            excluded += names
            path = (*self._path, "source", key)
            if self._tables:
                self._account.carried(path, "[capture] tables: without them")
            elif len(_list(self._account.content, "sinks")) == 1:
                self._project.set("capture", "exclude", names)
                self._account.carried(path, "[capture] exclude")
            else:
                hint = "name the source (--postgres), or put the sink's own tables into [capture]"
                self._account.left(path, f"[capture] exclude is for all sinks: {hint} tables")
        return excluded

    def _spread(self, name: str) -> list[str]:
        if not name.endswith(".*") or not self._tables:
            return [name]
        return [table for table in self._tables if table.startswith(name[:-1])]

    def _tell(self) -> None:
        """Note the outcomes of the keys that every sink has."""
        sink, account, path = self._sink, self._account, self._path
        for key, reason in _SINK.items():
            if sink.get(key) == "none":
                account.same((*path, key), "none")
            elif key in sink:
                account.left((*path, key), reason)
        if "status" in sink:
            is_active = sink["status"] == "active"
            text = "a view runs when `rebuild-view` does" if is_active else "remove its views"
            account.tell((*path, "status"), Outcome.SAME if is_active else Outcome.LEFT, text)
        if isinstance(sink.get("actions"), list):
            is_all = {"insert", "update", "delete"} <= set(map(str, sink["actions"]))
            account.tell(
                (*path, "actions"), Outcome.SAME if is_all else Outcome.LEFT,
                "inserts, updates and deletes all reach a view" if is_all
                else "a view is a state, which every change reaches; `-- history: scd2` keeps rows",
            )  # fmt: skip
        if "initial_backfill" in sink:
            is_whole = sink["initial_backfill"] is True
            account.tell(
                (*path, "initial_backfill"), Outcome.SAME if is_whole else Outcome.LEFT,
                "the first start copies the tables" if is_whole
                else "tables are copied whole; a view's WHERE takes some rows",
            )  # fmt: skip

    def _destination(self, destination: Mapping[str, Any], kind: str) -> None:
        """Put the address of a target into the settings, and note the outcome of each key."""
        section, settings = {"search": _search, "cache": _cache, "topic": _kafka}[kind](destination)
        is_new = all(self._project.set(section, name, text) for name, text in settings.items())
        other = "another server: a project has one of a kind, make a second for this sink"
        has_login = destination.get("auth_type") == "basic"
        for key, text in _ADDRESSES.items():
            if key in destination:
                way = Outcome.CARRIED if is_new else Outcome.LEFT
                self._account.tell(
                    (*self._path, "destination", key), way, text if is_new else other
                )
        for key in ("auth_type", "auth_value"):
            if key in destination:
                way = Outcome.CARRIED if has_login else Outcome.LEFT
                self._account.tell((*self._path, "destination", key), way, _LOGINS[has_login])
        for key, text in _NOT_HERE.items():
            if key in destination:
                self._account.left((*self._path, "destination", key), text)

    def _function(self, key: str) -> Any:  # noqa: ANN401 - columns of a transform, condition of a filter
        """Return the columns or the condition that a function means, empty for all rows."""
        empty: Any = [] if key == "transform" else ""
        name = self._sink.get(key)
        path = (*self._path, key)
        if name is None:
            return empty
        if name == "none":
            self._account.same(path, "none")
            return empty
        _, function = self._functions.get(str(name), ((), {}))
        if (
            key == "transform"
            and function.get("type") == "path"
            and function.get("path") == "record"
        ):
            self._account.carried(path, "a row of the view is the record")
            return empty
        body = _BODY.fullmatch(re.sub(r"(?m)^\s*#.*$", "", str(function.get("code", ""))).strip())
        meant = None
        if body is not None and body[1] == "record":
            meant = _columns(body[2].strip()) if key == "transform" else _condition(body[2].strip())
        if meant is None:
            self._account.left(
                path, "its code is not translated: write it in the query of the sink's views"
            )
            return empty
        self._account.carried(path, "the query of the sink's views")
        return meant


def _search(destination: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    scheme, mark, rest = _text(destination.get("endpoint_url", FILL_IN)).partition("://")
    login = "${SEARCH_LOGIN}@" if destination.get("auth_type") == "basic" else ""
    return "sinks.search", {"url": f"{scheme}{mark}{login}{rest}"}


def _cache(destination: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    url = address(
        "rediss" if destination.get("tls") is True else "redis",
        _text(destination.get("host", FILL_IN)),
        port=_text(destination.get("port", 6379)),
        user=_text(destination.get("username", "")),
        password="CACHE_PASSWORD" if "password" in destination else "",
        path=_text(destination.get("database", 0)),
    )
    return "sinks.cache", {"url": url}


def _kafka(destination: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    settings: dict[str, Any] = {"brokers": _text(destination.get("hosts", FILL_IN))}
    wire = "SSL" if destination.get("tls") is True else "PLAINTEXT"
    if "username" in destination:
        settings["options"] = {
            "security.protocol": f"SASL_{wire}",
            "sasl.mechanism": _MECHANISMS.get(str(destination.get("sasl_mechanism")), "PLAIN"),
            "sasl.username": _text(destination["username"]),
            "sasl.password": "${KAFKA_PASSWORD}",
        }
    elif wire == "SSL":
        settings["options"] = {"security.protocol": wire}
    return "kafka", settings


def _columns(code: str) -> list[tuple[str, str]] | None:
    """Return names and columns of a map, an empty list for the record itself.

    >>> _columns('%{id: record["product_id"]}')
    [('id', 'product_id')]
    """
    if code == "record":
        return []
    if not (code.startswith("%{") and code.endswith("}")):
        return None
    parts = [part.strip() for part in code[2:-1].strip().rstrip(",").split(",")]
    fields = [_FIELD.fullmatch(part) for part in parts]
    return [(f[1] or f[2], f[3]) for f in fields if f] if all(fields) else None


def _condition(code: str) -> str | None:
    """Return a condition in SQL that holds where the code is true.

    >>> _condition('record["kind"] == "VIP" and record["gone"] != true')
    "kind = 'VIP' AND gone IS DISTINCT FROM true"
    """
    code = code.replace("&&", " and ")
    tests = [_TEST.fullmatch(part.strip()) for part in re.split(r"\band\b", code)]
    if not all(tests):
        return None
    return " AND ".join(_test(test) for test in tests if test)


def _test(test: re.Match[str]) -> str:
    column, operator, value = identifier(test[1]), test[2], test[3]
    if value == "nil":
        return f"{column} IS {'NOT ' if operator == '!=' else ''}NULL"
    text = literal(value[1:-1]) if value.startswith('"') else value
    return f"{column} {'=' if operator == '==' else 'IS DISTINCT FROM'} {text}"
