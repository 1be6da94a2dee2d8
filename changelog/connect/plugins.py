"""Answers about the worker itself: connector plugins and log levels."""

from __future__ import annotations

import logging
from typing import Any

from changelog.connect.requests import ApiRequest, HttpAnswer, RequestError
from changelog.connect.rules.kinds import KINDS, class_of, definitions, kind_of, validation

VERSION = "4.0.0"  # of Kafka Connect's interface: clients choose features by it

_LEVELS = {"TRACE": "DEBUG", "DEBUG": "DEBUG", "INFO": "INFO", "WARN": "WARNING", "ERROR": "ERROR",
           "FATAL": "CRITICAL", "OFF": "CRITICAL"}  # fmt: skip


class Plugins:
    """Answers that do not need the state that workers share."""

    def plugins(self, _: ApiRequest) -> HttpAnswer:
        """List the classes of connectors."""
        return HttpAnswer(
            200,
            [
                {"class": name, "type": kind.type, "version": VERSION}
                for kind in KINDS
                for name in kind.classes
            ],
        )

    def plugin_config(self, request: ApiRequest) -> HttpAnswer:
        """Return the definitions of a class's configuration keys."""
        return HttpAnswer(200, definitions(kind_of({"connector.class": _plugin(request)})))

    def validate(self, request: ApiRequest) -> HttpAnswer:
        """Return the fields of a configuration, each with its errors."""
        return HttpAnswer(200, validation(_plugin(request), request.object()))

    def loggers(self, _: ApiRequest) -> HttpAnswer:
        """List the loggers: there is only the root."""
        return HttpAnswer(200, {"root": _level()})

    def logger(self, request: ApiRequest) -> HttpAnswer:
        """Return a logger's level."""
        if request.path["logger"] != "root":
            raise RequestError(404, f"Logger {request.path['logger']} not found.")
        return HttpAnswer(200, _level())

    def set_logger(self, request: ApiRequest) -> HttpAnswer:
        """Set the log level of this worker."""
        self.logger(request)
        level = str(request.object().get("level", "")).upper()
        if level not in _LEVELS:
            raise RequestError(404, "invalid log level")
        logging.getLogger("changelog").setLevel(_LEVELS[level])
        is_cluster = any(parameter == ("scope", "cluster") for parameter in request.query)
        return HttpAnswer(204) if is_cluster else HttpAnswer(200, ["root"])


def _plugin(request: ApiRequest) -> str:
    plugin = class_of(request.path["plugin"])
    if plugin is None:
        raise RequestError(404, f"Unknown plugin {request.path['plugin']}")
    return plugin


def _level() -> dict[str, Any]:
    names = {"WARNING": "WARN", "CRITICAL": "FATAL"}
    level = logging.getLevelName(logging.getLogger("changelog").getEffectiveLevel())
    return {"level": names.get(level, level), "last_modified": None}
