"""A configuration to what a sink does, and to each thing that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from changelog.connect.rules.keys import BY_NAME, CLASSES, KEYS, MASK, SINK_CLASS, Key, masked
from changelog.contract.base.errors import ConfigurationError

_TYPE = re.compile(r"[A-Za-z][\w ]*(?:\(\d+(?:,\s*\d+)?\))?[\w ]*(?:\[\])?")
_TOPIC = re.compile(r"[\w.-]{1,249}", re.ASCII)
_URL = re.compile(r"(?:jdbc:)?(?P<url>postgres(?:ql)?://.+)", re.ASCII)
_LIMIT = 2**31 - 1
_MOST_NAME = 200


class PkMode(Enum):
    """Where a record has the key of its row."""

    NONE = "none"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """What a sink does.

    Attributes:
        url, user, password: of the database; empty where not given.
        table: its name, in which `${topic}` stands for the topic's.
        columns: fields that are written; empty for all.
        types: of `columns`, for a table that is made; empty where none may be.
        deletes: whether deletes delete; None where they are errors, False where they are left out.
        error_limit: bad records that are left out; 0 for none, None for any number.
    """

    name: str
    topics: tuple[str, ...]
    tasks_max: int
    url: str = field(repr=False)
    user: str
    password: str = field(repr=False)
    table: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    keys: tuple[str, ...]
    pk_mode: PkMode
    upsert: bool
    deletes: bool | None
    batch_size: int
    create: bool
    latest: bool
    error_limit: int | None
    dead_letters: str


class _Given:
    """The values by their first names, and what is wrong with them."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.values: dict[str, str] = {}
        self.errors: dict[str, list[str]] = {}
        for name, value in config.items():
            self._take(name, value)
        for key in KEYS:
            if key.required and not self.values.get(key.name):
                self.fail(key.name, f"{key.name} is required and has no value")

    def _take(self, name: str, value: object) -> None:
        key = BY_NAME.get(name)
        if not isinstance(value, str):
            self.fail(name, f"the value of {name} is no text")
        elif key is None:
            self.fail(name, f"{name} is no key of this sink")
        elif self.values.get(key.name, value) != value:
            self.fail(name, f"{name} and {key.name} are the same and have different values")
        else:
            self.values[key.name] = value
            self._check(key, name, value)

    def _check(self, key: Key, name: str, value: str) -> None:
        if key.choices and value.lower() not in key.choices:
            self.fail(name, f"{name} is one of {', '.join(key.choices)}")
        if key.kind == "BOOLEAN" and value.lower() not in {"true", "false"}:
            self.fail(name, f"{name} is true or false")
        if key.kind == "INT" and not (
            re.fullmatch(r"\d{1,10}", value, re.ASCII) and key.least <= int(value) <= _LIMIT
        ):
            self.fail(name, f"{name} is a whole number, {key.least} at least")

    def fail(self, name: str, reason: str) -> None:
        self.errors.setdefault(name, []).append(reason)

    def text(self, name: str) -> str:
        return self.values.get(name, BY_NAME[name].default or "")

    def number(self, name: str) -> int:
        return int(self.text(name))

    def list(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in split(self.text(name)) if part.strip())

    def flag(self, name: str) -> bool | None:
        said = self.text(name).lower()
        return None if not said else said == "true"


def split(text: str) -> list[str]:
    """Split at commas, but not inside brackets, as in `numeric(10,2)`."""
    return re.split(r",(?![^()]*\))", text)


def problems(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what is wrong with a configuration, by key; empty where nothing is."""
    given = _Given(config)
    if not given.errors:
        _check_together(given)
    return given.errors


def parse_settings(config: Mapping[str, Any]) -> SinkSettings:
    """Return what a configuration asks for.

    Raises:
        ConfigurationError: something is wrong with it; names each key and why, and no value.
    """
    given = _Given(config)
    if not given.errors:
        _check_together(given)
    if given.errors:
        said = "; ".join(reason for reasons in given.errors.values() for reason in reasons)
        raise ConfigurationError(
            f"the configuration cannot be used: {said}",
            hint="PUT /connector-plugins/PostgresSink/config/validate tells what is wrong",
        )
    upsert = given.text("writeMode").lower() == "upsert"
    deletes = given.flag("delete.enabled")
    found = _URL.fullmatch(given.text("connection.url"))
    assert found is not None  # noqa: S101 - checked together
    return SinkSettings(
        name=given.text("name"),
        topics=given.list("topics"),
        tasks_max=given.number("tasks.max"),
        url=found["url"],
        user=given.text("connection.user"),
        password=given.text("connection.password"),
        table=given.text("target.tablename"),
        columns=given.list("col.names"),
        types=given.list("col.types"),
        keys=given.list("pk.fields"),
        pk_mode=_pk_mode(given),
        upsert=upsert,
        deletes=True if upsert and deletes is None else deletes,
        batch_size=given.number("batch.size"),
        create=given.flag("auto.create") is True,
        latest=given.text("auto.offset.reset").lower() == "latest",
        error_limit=_error_limit(given),
        dead_letters=given.text("errors.deadletterqueue.topic.name"),
    )


def _pk_mode(given: _Given) -> PkMode:
    said = given.text("pk.mode").lower()
    return PkMode(said or ("record_value" if given.list("pk.fields") else "none"))


def _error_limit(given: _Given) -> int | None:
    if given.text("errors.tolerance").lower() == "none":
        return 0
    return given.number("errorLimit") if given.text("errorLimit") else None


def _check_together(given: _Given) -> None:
    """Find what single values do not show."""
    _check_names(given)
    keys, mode, columns = given.list("pk.fields"), _pk_mode(given), given.list("col.names")
    if (mode is PkMode.NONE) == bool(keys):
        given.fail("pk.fields", "pk.fields and pk.mode belong together: give both or none")
    if given.text("writeMode").lower() == "upsert":
        if mode is PkMode.NONE:
            given.fail("pk.fields", "upsert needs pk.fields")
    elif given.flag("delete.enabled"):
        given.fail("delete.enabled", "delete.enabled needs writeMode upsert")
    if columns and set(keys) - set(columns):
        given.fail("col.names", "col.names leaves out columns of pk.fields")
    types = given.list("col.types")
    if types and len(types) != len(columns):
        given.fail("col.types", "col.types has one type for each of col.names")
    if given.flag("auto.create") and not types:
        given.fail("auto.create", "auto.create needs col.names and col.types")
    if any(not _TYPE.fullmatch(each) for each in types):
        given.fail("col.types", "a type is its name, as numeric(10,2) or text[]")
    for name in ("errors.deadletterqueue.topic.name", "errorLimit"):
        if given.text(name) and given.text("errors.tolerance").lower() != "all":
            given.fail(name, f"{name} needs errors.tolerance all")


def _check_names(given: _Given) -> None:
    name = given.text("name")
    if len(name) > _MOST_NAME or not name.isprintable() or "/" in name or name != name.strip():
        given.fail("name", "name has printable characters without a slash, 200 at most")
    dead = given.text("errors.deadletterqueue.topic.name")
    for key, topics in (
        ("topics", given.list("topics")),
        ("errors.deadletterqueue.topic.name", (dead,) if dead else ()),
    ):
        if any(not _TOPIC.fullmatch(each) for each in topics):
            given.fail(key, f"{key} holds a name that no topic can have")
    if dead in given.list("topics"):
        given.fail("topics", "topics holds the topic of dead letters")
    if not _URL.fullmatch(given.text("connection.url")):
        given.fail(
            "connection.url", "connection.url begins with postgresql:// or jdbc:postgresql://"
        )
    for each in ("key.converter", "value.converter"):
        said = given.text(each)
        if said and said.rpartition(".")[2] not in {"JsonConverter", "StringConverter"}:
            given.fail(each, f"{each} is JsonConverter or StringConverter")


def validation(plugin: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of `PUT /connector-plugins/{plugin}/config/validate`."""
    found = problems(config)
    texts = {name: value for name, value in config.items() if isinstance(value, str)}
    shown = masked(texts)
    configs = []
    for order, key in enumerate(KEYS, 1):
        names = (key.name, *key.also)
        errors = [reason for name in names for reason in found.get(name, ())]
        value = next((shown[name] for name in names if name in shown), key.default)
        configs.append(_validated(key.definition(order), value, errors, key.choices))
    for name in sorted(found.keys() - BY_NAME.keys()):
        unknown = Key(name=name, text="")
        configs.append(_validated(unknown.definition(len(configs) + 1), None, found[name], ()))
    return {
        "name": plugin,
        "error_count": sum(len(each["value"]["errors"]) for each in configs),
        "groups": ["Sink"],
        "configs": configs,
    }


def _validated(
    definition: dict[str, Any], value: str | None, errors: list[str], choices: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "definition": definition,
        "value": {
            "name": definition["name"],
            "value": value,
            "recommended_values": list(choices),
            "errors": errors,
            "visible": True,
        },
    }


def unmasked(given: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    """Return a configuration with the kept secrets where it has masks.

    Raises:
        ConfigurationError: a mask stands for nothing, or the address or the user changes beside a
            mask: a password goes to no server that it was not given for.
    """
    masks = [name for name, value in given.items() if value == MASK]
    moved = [
        each
        for each in ("connection.url", "connection.user", "connection.username")
        if given.get(each, "") not in {MASK, kept.get(each, "")}
    ]
    for name in masks:
        if not kept.get(name) or moved:
            raise ConfigurationError(
                f"{name} is masked, and " + (f"{moved[0]} changes" if moved else "none is kept"),
                hint="give the secret itself",
            )
    return {name: kept[name] if name in masks else value for name, value in given.items()}


def plugin_class(name: str) -> str | None:
    """Return the class that a plugin's name or short name means; None for an unknown one."""
    known = {each: each for each in CLASSES}
    known |= {each.rpartition(".")[2]: each for each in reversed(CLASSES)}
    known["PostgresSink"] = SINK_CLASS
    return known.get(name)
