"""The edge of every command: logging, errors to one line and an exit code, signals to a flag.

With `--log-format json` everything that is said on standard error is one JSON object a line, for
programs that collect logs; what people see on a terminal (colours, bars) is then left out.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import typer

from changelog.contract.base.errors import ChangelogError
from changelog.contract.base.secret import redacted
from changelog.runtime.imports import find_ours_first
from changelog.runtime.installed.extras import MissingExtraError, missing_extra
from changelog.runtime.telemetry import traced

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger("changelog")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class LogFormat(Enum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class _Redacting(logging.Filter):
    """Keeps passwords out of every line that is logged, whoever wrote it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage()), None
        return True


class _TextFormatter(logging.Formatter):
    """Lines for people; a trace is redacted as the message is."""

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802 - logging's own
        return redacted(super().formatException(ei))


class _OnTerminal(logging.Handler):
    """Coloured lines; what draws them is loaded with the first: most commands say nothing."""

    @cached_property
    def _drawn(self) -> logging.Handler:
        from rich.logging import RichHandler  # noqa: PLC0415 - a tenth of a start

        from changelog.runtime.terminal import console  # noqa: PLC0415 - likewise

        handler = RichHandler(console=console, show_path=False, markup=False)
        handler.setFormatter(_TextFormatter("%(message)s"))
        return handler

    def emit(self, record: logging.LogRecord) -> None:
        """Draw a record's line."""
        self._drawn.emit(record)


def _is_terminal() -> bool:
    """Return whether standard error is a terminal, without making a console."""
    return sys.stderr.isatty() or bool(os.environ.get("FORCE_COLOR"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and further fields.

    A record that concerns a table or a place in the WAL carries it by `extra=`, as text. Each
    value is redacted before it is quoted: afterwards a secret's end would be hard to see.
    """

    _EXTRA = ("table", "topic", "lsn")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        for name in self._EXTRA:
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = redacted(str(value))
        if record.exc_info:
            fields["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False)


def set_up_logging(*, debug: bool = False, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Log to standard error: coloured on a terminal, plain lines elsewhere, or JSON lines.

    A crash in a library of C tells there, too, what Python was doing: else it ends without a word.
    """
    if not faulthandler.is_enabled():
        faulthandler.enable(2)
    handler: logging.Handler
    if log_format is LogFormat.JSON:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
    elif _is_terminal():
        handler = _OnTerminal()
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(_TextFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_Redacting())
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    log.propagate = False


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line to its end; leaves by `SystemExit` with the documented code.

    `--debug` anywhere shows stack traces; `--json` turns an error into a JSON object on standard
    output beside the line on standard error. `--log-format json`, of commands that have it, makes
    JSON of all the lines on standard error.
    """
    find_ours_first()
    # Pydantic would read the entry points of every distribution that there is.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    debug = "--debug" in sys.argv
    set_up_logging(debug=debug, log_format=_asked_format(sys.argv))
    try:
        try:
            with traced(name):
                app(prog_name=name, standalone_mode=True)
        finally:
            _flush_output()
    except ChangelogError as error:
        report_error(error, trace=debug)
        raise SystemExit(error.exit_code) from None
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if not isinstance(missing, MissingExtraError):
            raise
        missing.__cause__ = error
        report_error(missing, trace=debug)
        raise SystemExit(missing.exit_code) from None
    except KeyboardInterrupt:
        tell("interrupted")
        raise SystemExit(130) from None
    except OSError as error:
        if error.errno not in _FULL:
            raise
        drop_output(sys.stdout)
        where = f'"{error.filename}"' if error.filename else "standard output or a file"
        refusal = ChangelogError(f"{where} cannot be written: {error.strerror}")
        refusal.__cause__ = error
        report_error(refusal, trace=debug)
        raise SystemExit(refusal.exit_code) from None


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has what it wanted
        drop_output(sys.stdout)


def _asked_format(words: list[str]) -> LogFormat:
    """Find `--log-format`: lines are written before and after typer has read the options."""
    text = " ".join(words)
    is_json = "--log-format json" in text or "--log-format=json" in text
    return LogFormat.JSON if is_json else LogFormat.TEXT


def logs_json() -> bool:
    """Tell whether standard error is for JSON lines alone."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in log.handlers)


def bar_console(*, as_json: bool = False) -> Console:
    """Return the console of progress bars; it shows nothing when the output is JSON."""
    from rich.console import Console  # noqa: PLC0415 - a tenth of a start

    from changelog.runtime.terminal import console  # noqa: PLC0415 - likewise

    return Console(stderr=True, force_terminal=False) if as_json or logs_json() else console


def one_line(error: Exception) -> str:
    """Return an error's text on one line and without secrets."""
    return redacted(" ".join(str(error).split()))


def tell(line: str) -> None:
    """Write one line on standard error as it is, however narrow the terminal is."""
    if logs_json():
        log.info("%s", line)
    else:
        from changelog.runtime.terminal import console  # noqa: PLC0415 - a tenth of a start

        try:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        except OSError:  # nobody is left who could be told
            drop_output(sys.stderr)


def say_error(error: ChangelogError, *, trace: bool = False) -> None:
    """Print an error in one line on standard error, after its stack trace if asked for."""
    if logs_json():
        log.error("%s", one_line(error), exc_info=error if trace else None)
        return
    if trace:
        tell(redacted("".join(traceback.format_exception(error))).rstrip())
    tell(f"error: {one_line(error)}")


def report_error(error: ChangelogError, *, trace: bool = False) -> None:
    """Print an error on standard error, and as JSON on standard output if asked for."""
    say_error(error, trace=trace)
    if "--json" in sys.argv:
        with suppress(ChangelogError):  # one error is enough, and it is said
            print_json({"error": one_line(error), "exit_code": error.exit_code})


def print_json(value: object) -> None:
    """Print one JSON object on one line of standard output, whether somebody reads it or not.

    Raises ChangelogError: it cannot be written: a disk is full.
    """
    try:
        print(json.dumps(value, ensure_ascii=False), flush=True)
    except OSError as error:
        drop_output(sys.stdout)
        if not isinstance(error, BrokenPipeError):  # `| head` has what it wanted
            raise ChangelogError(
                f"standard output cannot be written: {error.strerror}",
                hint="what the command has done stands; only its result is not told",
            ) from None


def drop_output(stream: TextIO) -> None:
    """Redirect a stream to /dev/null and discard its buffer.

    Else Python would try it once more at the end, and end with 120.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def stop_on_signals() -> Callable[[], bool]:
    """Turn SIGTERM and SIGINT into a flag; returns the function that asks for it.

    A second signal of the same kind ends the process at once, in the usual way.
    """
    signals: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return lambda: bool(signals)
