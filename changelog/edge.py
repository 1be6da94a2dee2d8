"""The edge of every command: logging, errors to one line and an exit code, signals to a flag."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Callable
from types import FrameType

import typer
from rich.console import Console
from rich.logging import RichHandler

from changelog.contract.errors import ChangelogError
from changelog.contract.secret import redacted

log = logging.getLogger("changelog")
_PLAIN_WIDTH = 120  # where there is no terminal to ask

console = Console(stderr=True, width=None if sys.stderr.isatty() else _PLAIN_WIDTH)
"""For people; standard output is kept for results."""


class _Redacting(logging.Filter):
    """Keeps passwords out of every line that is logged, whoever wrote it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage()), None
        return True


def set_up_logging(*, debug: bool = False) -> None:
    """Log to standard error: coloured on a terminal, plain lines elsewhere."""
    handler: logging.Handler
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False, markup=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_Redacting())
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    log.propagate = False


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line to its end; leaves by `SystemExit` with the documented code.

    `--debug` anywhere shows stack traces; `--json` turns an error into a JSON object on standard
    output beside the line on standard error.
    """
    debug = "--debug" in sys.argv
    set_up_logging(debug=debug)
    try:
        app(prog_name=name, standalone_mode=True)
    except ChangelogError as error:
        if debug:
            raise
        report_error(error)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def one_line(error: Exception) -> str:
    """Give an error's text on one line and without secrets."""
    return redacted(" ".join(str(error).split()))


def tell(line: str) -> None:
    """Write one line on standard error as it is, however narrow the terminal is."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def say_error(error: ChangelogError) -> None:
    """Say an error in one line on standard error."""
    tell(f"error: {one_line(error)}")


def report_error(error: ChangelogError) -> None:
    """Say an error in one line on standard error, and as JSON when that was asked for."""
    say_error(error)
    if "--json" in sys.argv:
        print_json({"error": one_line(error), "exit_code": error.exit_code})


def print_json(value: object) -> None:
    """Print one JSON object on one line of standard output."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def stop_on_signals() -> Callable[[], bool]:
    """Turn SIGTERM and SIGINT into a flag; gives the function that asks for it.

    A second signal of the same kind ends the process at once, in the usual way.
    """
    asked: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return lambda: bool(asked)
