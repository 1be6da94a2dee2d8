"""Debezium's connector for PostgreSQL: the settings of a capture that writes the same changes.

Which of its keys mean the same here is decided where `changelog serve` takes them
(`changelog.connect.rules`); of the rest `reasons` says why they are not needed or not possible.
"""

from __future__ import annotations

import re

from changelog.connect.rules.capture_keys import CAPTURE_KEYS, SETTINGS
from changelog.connect.rules.captures import capture_given, settings_given
from views.scaffold.moving.account import Account, Outcome
from views.scaffold.moving.connector import Connector
from views.scaffold.moving.project import FILL_IN, NewProject, address
from views.scaffold.moving.reasons import SOURCE
from views.scaffold.moving.source import Tables

_KEYS = frozenset(name for key in CAPTURE_KEYS for name in (key.name, *key.also))
_MASK = re.compile(r"column\.mask\.(hash|with)\..+")
_SCHEMA = re.compile(r"[\w$]+")
_MOST_OF_A_SLOT = 53
_BASE = {
    "name": "moved",
    "connector.class": "changelog.PostgresSource",
    "capture.slot": "moved",
    "postgres.dsn": "postgresql://moved/moved",
}
"""The keys that a configuration of a capture cannot be without."""
_UNWRAP = "ExtractNewRecordState"
_TRANSFORMS = {
    "ByLogicalTableRouter": "a topic is one table; a view with UNION ALL joins several",
    "RegexRouter": "topics have their tables' names",
    "EventRouter": "[capture] messages, or `changelog publish` (docs/loading.md)",
    "Filter": "[capture.where] and a view's WHERE are conditions in SQL",
    "ContentBasedRouter": "a view with WHERE for each topic, under `-- sinks: topic`",
}


def translate(account: Account, project: NewProject, tables: Tables) -> None:  # noqa: ARG001 - as all
    """Put a connector into a project as its capture."""
    connector = Connector.of(account.content, account)
    if connector.path and "name" in account.content:
        account.same(("name",), "the project's folder is its name")
    connector.take("connector.class", text="`changelog capture`")
    prefix = connector.take("database.server.name", text="[capture] topic_prefix")
    if prefix:  # the name of topic.prefix before version 2
        project.set("capture", "topic_prefix", prefix)
    _address(project, connector)
    _slot(project, connector)
    _schemas(project, connector)
    _heartbeat(project, connector)
    _registry(project, connector)
    _transforms(project, connector)
    _masks(project, connector)
    _settings(project, connector)
    if prefix or "topic_prefix" in project.settings["capture"]:
        account.note(
            (
                *connector.path,
                connector.names["database.server.name" if prefix else "topic.prefix"],
            ),
            "topics of the schema public go without it: PREFIX.TABLE. Those of other schemas have "
            "the names of Debezium's: give another prefix while both programs run",
            Outcome.CARRIED,
        )
    if "skipped.operations" not in connector.keys:
        text = "without skipped.operations it leaves out TRUNCATEs; here they are captured"
        account.note((*connector.path, connector.names["connector.class"]), text)
    connector.tell_rest(SOURCE)


def _address(project: NewProject, connector: Connector) -> None:
    carried = "[postgres] dsn"
    parts = {
        name: connector.take(f"database.{name}", text=carried)
        for name in ("hostname", "port", "user", "dbname")
    }
    options = {
        name: connector.take(f"database.{name}", text=carried)
        for name in ("sslmode", "sslrootcert", "sslcert", "sslkey")
        if f"database.{name}" in connector.keys
    }
    secret = "DATABASE_PASSWORD" if "database.password" in connector.keys else ""
    connector.take(
        "database.password",
        text=f"{carried}: the environment's {secret} has it, percent-encoded; no file does",
    )
    if parts["hostname"]:
        dsn = address(
            "postgresql", parts["hostname"], port=parts["port"], user=parts["user"],
            password=secret, path=parts["dbname"], options=options,
        )  # fmt: skip
        project.set("postgres", "dsn", dsn)


def _slot(project: NewProject, connector: Connector) -> None:
    """Give the project a slot of its own, so that both programs can run."""
    slot = f"{connector.keys.get('slot.name', 'debezium')[:_MOST_OF_A_SLOT]}_changelog"
    project.set("capture", "slot", slot)
    connector.take(
        "slot.name", text=f"[capture] slot = {slot}: its own, so that both programs can run a while"
    )
    if connector.keys.get("publication.autocreate.mode") != "disabled":
        connector.take(
            "publication.name", Outcome.SAME,
            f"capture makes one by its slot's name, {slot}, for the tables that it captures",
        )  # fmt: skip
    if connector.keys.get("slot.failover") == "true":
        connector.take("slot.failover", text="[capture] failover_slot (PostgreSQL 17)")
        project.set("capture", "failover_slot", True)


def _schemas(project: NewProject, connector: Connector) -> None:
    for key, setting, tables in (
        ("schema.include.list", "tables", "table.include.list"),
        ("schema.exclude.list", "exclude", ""),
    ):
        schemas = [name.strip() for name in connector.keys.get(key, "").split(",") if name.strip()]
        if not schemas:
            continue
        if tables in connector.keys:
            connector.take(key, Outcome.SAME, f"{tables} names the schemas too")
        elif all(_SCHEMA.fullmatch(name) for name in schemas):
            project.set("capture", setting, [f"{name}.*" for name in schemas])
            connector.take(key, text=f"[capture] {setting}")
        else:
            project.set("capture", setting, [f"{FILL_IN}.*"])
            connector.take(key, Outcome.LEFT, f"expressions: write patterns in [capture] {setting}")


def _heartbeat(project: NewProject, connector: Connector) -> None:
    every = connector.keys.get("heartbeat.interval.ms", "")
    connector.take(
        "heartbeat.interval.ms", Outcome.SAME,
        "frontiers go on, and PostgreSQL is answered, while the tables are quiet",
    )  # fmt: skip
    if connector.take(
        "heartbeat.action.query",
        text="[capture] heartbeat_table_s: a row of changelog.heartbeat is written",
    ):
        seconds = int(every) / 1000 if every.isdecimal() else 0.0
        project.set("capture", "heartbeat_table_s", seconds or 10.0)


def _registry(project: NewProject, connector: Connector) -> None:
    for key in list(connector.keys):
        if key.endswith("schema.registry.url"):
            if project.set("registry", "url", connector.keys[key]):
                connector.take(key, text="[registry] url")
            else:
                connector.take(key, Outcome.LEFT, "there is one registry, named before")
        elif key.endswith("basic.auth.user.info"):
            project.set("registry", "options", {"basic.auth.user.info": "${REGISTRY_LOGIN}"})
            connector.take(key, text="[registry] options: the environment's REGISTRY_LOGIN has it")


def _transforms(project: NewProject, connector: Connector) -> None:
    names = [name.strip() for name in connector.keys.get("transforms", "").split(",")]
    unwraps = False
    for name in filter(None, names):
        kind = connector.keys.get(f"transforms.{name}.type", "").rpartition(".")[2]
        if kind == _UNWRAP:
            unwraps = True
            connector.take(f"transforms.{name}.type", text="[capture] envelope = row")
        else:
            text = _TRANSFORMS.get(kind, "records go as they are; change them in a view's query")
            connector.take(f"transforms.{name}.type", Outcome.LEFT, text)
        for key in [key for key in connector.keys if key.startswith(f"transforms.{name}.")]:
            alias = f"unwrap.{key.removeprefix(f'transforms.{name}.')}"
            if kind != _UNWRAP:
                connector.take(key, Outcome.LEFT, f"it belongs to {kind or 'a transform'}")
            else:
                connector.tell_reason(SOURCE, key, alias)
    outcome = Outcome.CARRIED if unwraps else Outcome.LEFT
    connector.take("transforms", outcome, f"see the type of each: {', '.join(names)}")
    project.set("capture", "envelope", "row" if unwraps else "nested")


def _masks(project: NewProject, connector: Connector) -> None:
    masks: dict[str, str] = {}
    for key in list(connector.keys):
        if match := _MASK.fullmatch(key):
            way = "hash" if match[1] == "hash" else "redact"
            columns = connector.take(key, text=f"[capture.mask] {way}: other values than before")
            masks |= {column.strip().replace("\\.", "."): way for column in columns.split(",")}
    if masks:
        project.set("capture", "mask", masks)


def _settings(project: NewProject, connector: Connector) -> None:
    """Put the keys that `changelog serve` takes as well into `[capture]`."""
    for key in [
        key for key, value in connector.keys.items() if key in _KEYS - set(_BASE) and value
    ]:
        parsed = capture_given({**_BASE, key: connector.keys[key]})
        if parsed.errors:
            if not connector.tell_reason(SOURCE, key):
                reasons = [reason for texts in parsed.errors.values() for reason in texts]
                connector.take(key, Outcome.LEFT, "; ".join(reasons))
            continue
        names = []
        for name, text in settings_given(parsed).items():
            if name not in {"capture.slot", "capture.wait_s"}:
                names.append(name.removeprefix("capture."))
                shape = SETTINGS[name].shape
                value = SETTINGS[name].from_variable(text)
                value = text == "true" if shape is bool else int(text) if shape is int else value
                project.set("capture", names[-1], value)
        if names:
            more = ": without rows no view can be rebuilt" if "skip_snapshot" in names else ""
            connector.take(key, text=f"[capture] {', '.join(names)}{more}")
        else:
            connector.take(key, Outcome.SAME, "it is so without a setting")
