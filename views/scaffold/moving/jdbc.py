"""A JDBC sink's connector: a view of each of its topics' tables, served in PostgreSQL."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from views.scaffold.moving.account import Account, Outcome
from views.scaffold.moving.connector import Connector
from views.scaffold.moving.project import FILL_IN, NewProject, address, table_text, view_text
from views.scaffold.moving.reasons import SINK
from views.scaffold.moving.source import Tables

_SECRET = "TARGET_PASSWORD"  # noqa: S105 - the name of a variable
_PARTS = 2


def translate(account: Account, project: NewProject, tables: Tables) -> None:
    """Put a sink into a project as views."""
    connector = Connector.of(account.content, account)
    if connector.path and "name" in account.content:
        account.same(("name",), "the view's name is its table's")
    connector.take("connector.class", text="views with `-- sinks: postgres`")
    options = _options(connector)
    schema = _address(project, connector)
    names = [
        connector.take(key, text="the name of the table that readers open")
        for key in ("table.name.format", "collection.name.format")
    ]
    form = "".join(names) or "${topic}"
    keys = [
        column.strip()
        for name in ("primary.key.fields", "pk.fields")
        for column in connector.take(name, text="the key of the views").split(",")
        if column.strip()
    ]
    for table, topic in _tables(connector, project, tables).items():
        view = project.view_name(table.partition(".")[2])
        source = tables.get(table)
        key = keys or (source.key if source else [])
        project.views[view] = view_text(key, "postgres", f"SELECT * FROM {table_text(table)}")
        if tables and table not in tables:
            account.note((), f"views/{view}.sql: the source has no table {table}")
        if not key:
            text = f"views/{view}.sql: FILL_IN the key of {table}, or name the source (--postgres)"
            account.note((), text)
        target = _target(form, table, topic)
        where = target if "." in target else f"{schema}.{target}"
        project.options[(view, "postgres")] = {**options, "table": where}
        project.set("capture", "tables", [table])
    if "delete.enabled" not in connector.keys:
        text = "without delete.enabled it keeps deleted rows; here they go from the table"
        account.note((*connector.path, "connector.class"), text)
    connector.tell_rest(SINK)


def _options(connector: Connector) -> dict[str, object]:
    options: dict[str, object] = {}
    mode = connector.keys.get("insert.mode", "insert")
    if mode in {"insert", "upsert"}:
        options["mode"] = mode
        connector.take("insert.mode", text=f"views/NAME.postgres.json: mode = {mode}")
    grows = connector.keys.get("schema.evolution") == "basic"
    if not grows and connector.keys.get("auto.create") != "true":
        options["auto_create"] = False
        for key in ("schema.evolution", "auto.create"):
            connector.take(key, text="views/NAME.postgres.json: auto_create = false")
    return options


def _address(project: NewProject, connector: Connector) -> str:
    """Put the target's address into the settings; returns the schema of its tables."""
    url = connector.keys.get("connection.url", "").removeprefix("jdbc:")
    words = dict(parse_qsl(urlsplit(url).query))
    user = words.pop("user", "")
    has_password = words.pop("password", None) is not None
    for name in ("connection.username", "connection.user"):
        user = connector.take(name, text="[sinks.postgres] url") or user
    if "connection.password" in connector.keys:
        has_password = True
        connector.take(
            "connection.password",
            text=f"[sinks.postgres] url: the environment's {_SECRET} has it, percent-encoded",
        )
    schema = words.pop("currentSchema", "public").partition(",")[0]
    if not url.startswith("postgresql://"):
        if url:
            connector.take(
                "connection.url", Outcome.LEFT, "views are served in PostgreSQL, not in this server"
            )
        return schema
    parts = urlsplit(url)
    options = {name: value for name, value in words.items() if name.startswith("ssl")}
    whole = address(
        "postgresql", parts.hostname or "", port=parts.port or "", user=user,
        password=_SECRET if has_password else "", path=parts.path.strip("/"), options=options,
    )  # fmt: skip
    same = project.set("sinks.postgres", "url", whole)
    dropped = sorted(set(words) - set(options))
    text = f"[sinks.postgres] url{f'; without {chr(44).join(dropped)}' if dropped else ''}"
    if same:
        connector.take("connection.url", text=text)
    else:
        connector.take(
            "connection.url", Outcome.LEFT, "another server: a project has one, make a second"
        )
    return schema


def _tables(connector: Connector, project: NewProject, tables: Tables) -> dict[str, str]:
    """Return the tables with their topics, and say which topics have none."""
    prefix = str(project.settings.setdefault("capture", {}).get("topic_prefix", ""))
    topics = connector.take("topics", text="a view of each topic's table").split(",")
    chosen = {_table_of(topic.strip(), prefix): topic.strip() for topic in topics if topic.strip()}
    pattern = connector.keys.get("topics.regex", "")
    if pattern:
        names = [*tables, *project.settings["capture"].get("tables", [])]
        expression = re.compile(pattern.replace("\\\\", "\\"))
        matching = {
            table: f"{prefix}.{table}".lstrip(".")
            for table in names
            if "*" not in table and expression.fullmatch(f"{prefix}.{table}".lstrip("."))
        }
        if matching:
            connector.take("topics.regex", text=f"a view of each: {', '.join(matching)}")
        else:
            connector.take(
                "topics.regex", Outcome.LEFT,
                "no table is known whose topic it fits: name the source (--postgres), or the "
                "tables in the source's connector (--from, before this file)",
            )  # fmt: skip
        chosen |= matching
    return chosen


def _table_of(topic: str, prefix: str) -> str:
    """Return the table of a topic, `prefix.schema.table` or `prefix.table`.

    >>> _table_of("dbz.sales.orders", "dbz"), _table_of("orders", "")
    ('sales.orders', 'public.orders')
    """
    name = topic.removeprefix(f"{prefix}.") if prefix else topic
    parts = name.split(".")[-_PARTS:]
    return ".".join(["public", *parts] if len(parts) < _PARTS else parts)


def _target(form: str, table: str, topic: str) -> str:
    """Return the name of a target table by a sink's form of names."""
    schema, _, name = table.partition(".")
    words = {
        "${topic}": topic.replace(".", "_"), "${source.table}": name, "${table}": name,
        "${source.schema}": schema,
    }  # fmt: skip
    for word, text in words.items():
        form = form.replace(word, text)
    return form if "$" not in form else FILL_IN
