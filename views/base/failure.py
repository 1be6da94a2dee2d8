"""Turn errors of Spark, Kafka or a disk into one line with a remedy."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from changelog.contract.base.errors import (
    ChangelogError,
    UnavailableError,
    UnavailableLogError,
    VerdictError,
    ViewError,
)
from changelog.contract.base.secret import redacted
from replay.base.failures import translate
from views.base.engine_error import engine_error

_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_CAUSE = re.compile(r"^\s*Caused by: [\w.$]+(?:Exception|Error)?:?\s*(.+)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*:\s*")


class RebuildError(ChangelogError):
    """A rebuild failed; what was published before still serves."""


def explained(
    error: Exception, doing: str, sql: str | None = None, moments: Sequence[str] = ()
) -> ChangelogError:
    """Return the error to raise in place of a library's, which stays as its cause.

    `doing`: what was being done, such as `rebuild of view "a"`. `sql`: the query of the view that
    it was done for, where there is one. `moments`: its expressions that compute with dates and
    moments.
    """
    if (translated := translate(error)) is not None:
        return translated
    text = "\n".join(_texts(error))
    if _FULL.search(text):
        return RebuildError(
            f"{doing}: no space left on the disk",
            hint="free space under the warehouse or Spark's scratch folder (TMPDIR), then "
            "run it again; the unfinished generation is removed",
        )
    if isinstance(error, PySparkException | Py4JError):
        failure = engine_error(error, sql, moments)
        return RebuildError(f"{doing}: {failure.text}", hint=failure.hint or "--debug says more")
    return RebuildError(f"{doing}: {type(error).__name__}: {_line(text)}", hint="--debug says more")


def is_of_the_run(error: ChangelogError) -> bool:
    """Tell whether an error concerns the whole run: the log moved, or it or Spark is away."""
    return isinstance(error, VerdictError | UnavailableLogError) or type(error) is UnavailableError


def of_view(error: ChangelogError, name: str) -> ChangelogError:
    """Return the error with the view named in its text."""
    text = str(error.args[0]) if error.args else type(error).__name__
    if f'"{name}"' not in text:
        error.args = (f'view "{name}": {text}', *error.args[1:])
    return error


def analysed(error: Exception, view: str, path: Path, sql: str | None = None) -> ChangelogError:
    """Return the error for a view whose query Spark does not accept, or whose function fails."""
    if isinstance(error, ChangelogError):
        return error
    line = line_in(error, path)
    if line is None:
        failure = engine_error(error, sql)
        return ViewError(
            f'{path.name}: Spark does not accept view "{view}": {failure.text}', hint=failure.hint
        )
    return ViewError(
        f'{path.name}:{line}: view "{view}" fails: {type(error).__name__}: {_line(str(error))}'
    )


def line_in(error: BaseException, path: Path) -> int | None:
    """Return the innermost line of a file that an error came through, or None if it did not."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame.lineno for frame in frames if frame.filename == str(path)), None)


def _texts(error: BaseException) -> Iterator[str]:
    seen: BaseException | None = error
    while seen is not None:
        with suppress(Py4JError, ConnectionError):  # of Java that has ended
            yield str(seen)
        seen = seen.__cause__


def _line(text: str) -> str:
    """Return the innermost cause when there are several, else the first line."""
    causes = _CAUSE.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause = causes[-1] if causes else next(iter(lines), "no message")
    return redacted(_CLASS.sub("", cause))[:500]
