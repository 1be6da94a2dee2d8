"""A rebuild's configuration: the project and views, the schedule, and options of the rebuild."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from changelog.connect.rules.keys import MOST_TASKS, Key, ParsedConfig
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.cron import CronSchedule

REBUILD_CLASS = "changelog.Rebuild"
REBUILD_KEYS = (
    Key("name", "Name of the connector, unique among all.", required=True),
    Key("connector.class", "changelog.Rebuild.", required=True, choices=(REBUILD_CLASS.lower(),)),
    Key("tasks.max", "A rebuild has one task.", kind="INT", default="1", least=1, most=MOST_TASKS),
    Key(
        "project",
        "Folder of the project, relative to the workers' --projects.",
        required=True,
    ),
    Key("views", "Views to rebuild; * for all.", kind="LIST", required=True),
    Key(
        "schedule",
        "once, or the five fields of cron, in UTC, such as 30 2 * * 1-5.",
        default="once",
    ),
    Key(
        "verify",
        "The option --verify of rebuild-view.",
        choices=("full", "changed", "sample", "none"),
    ),
    Key("from", "The option --from of rebuild-view.", choices=("start", "checkpoint")),
    Key("refresh", "The option --refresh of rebuild-view.", kind="BOOLEAN"),
)
_ONCE, _ALL = "once", "*"
_VIEW = re.compile(r"[A-Za-z_]\w*")
_FOLDER = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildJob:
    """The settings of a rebuild that a worker runs."""

    name: str  # the connector's
    project: str  # its folder, relative to the folder of all projects
    words: tuple[str, ...]  # arguments of `rebuild-view`, without the project
    cron: str  # the schedule, in UTC; empty to run once


def rebuild_given(config: Mapping[str, Any]) -> ParsedConfig:
    """Parse a rebuild's configuration and collect its errors."""
    parsed = ParsedConfig(REBUILD_KEYS, config, "rebuild")
    if parsed.errors:
        return parsed
    if not _FOLDER.fullmatch(parsed.text("project")):
        parsed.fail("project", "project must be a folder in that of --projects, without ..")
    views = parsed.list("views")
    if views != (_ALL,) and not all(_VIEW.fullmatch(view) for view in views):
        parsed.fail("views", "views must be names, or * for all")
    if parsed.text("schedule").lower() != _ONCE:
        try:
            CronSchedule(parsed.text("schedule"), zone="UTC")
        except ConfigurationError:
            parsed.fail(
                "schedule", "schedule must be once, or five fields of cron, such as 30 2 * * 1-5"
            )
    return parsed


def parse_rebuild(config: Mapping[str, Any]) -> RebuildJob:
    """Return the settings of a rebuild from its configuration.

    Raises ConfigurationError: the configuration has errors; the message names the keys.
    """
    parsed = rebuild_given(config)
    parsed.check("Rebuild")
    views, schedule = parsed.list("views"), parsed.text("schedule").lower()
    words = ["--all"] if views == (_ALL,) else list(views)
    for name in ("verify", "from"):
        if parsed.text(name):
            words += [f"--{name}", parsed.text(name).lower()]
    if parsed.flag("refresh"):
        words.append("--refresh")
    return RebuildJob(
        name=parsed.text("name"),
        project=parsed.text("project"),
        words=tuple(words),
        cron="" if schedule == _ONCE else schedule,
    )
