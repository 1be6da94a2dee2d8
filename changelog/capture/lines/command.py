"""The options of `changelog capture --print` and `--into FILE`, as values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import assert_never

from changelog.capture.lines.file import LineFile, Stdout
from changelog.capture.lines.run import LineRun, own_name
from changelog.capture.lines.source import uses_given_slot
from changelog.capture.start.rights import Agreed, nobody_agrees
from changelog.config import Project, every_setting
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.form import Envelope, Output
from changelog.runtime.setting import Given

log = logging.getLogger("changelog.capture")


_OF_TOPICS = frozenset(
    {
        "kafka.brokers",
        "registry.url",
        "capture.topic_prefix",
        "capture.messages",
        "capture.ddl",
        "capture.sequences",
        "capture.partitions",
        "capture.fix_topics",
        "capture.topic",
        "capture.producer",
        "capture.exactly_once",
        "capture.snapshot_workers",
        "capture.failover_slot",
        "capture.heartbeat_table_s",
        "capture.limit_rows",
        "capture.limit_bytes",
        "capture.on_incompatible",
        "capture.on_error",
        "capture.error_limit",
        "postgres.primary",
    }
)
"""Settings of which lines know nothing."""


def check_given(values: Given) -> None:
    """Check that every option of this run applies to lines.

    What the project's file says is said of its topics, and stays unheard.

    Raises ConfigurationError: one is for topics alone; names all of them.
    """
    used = {name for name, value in values.items() if value not in (None, False)}
    named = [
        option.setting.flags[-1].partition("/")[0]
        for option in every_setting()
        if option.name in used & _OF_TOPICS
    ]
    if values.get("capture.output_format") is Output.AVRO:
        named.append("--output-format avro")
    if named:
        raise ConfigurationError(
            f"--print and --into write lines, and not to topics: {', '.join(named)} would have no "
            "effect",
            hint="leave it out",
        )


def check_options(
    settings: Project,
    *,
    into: Path | None,
    prints: bool,
    as_json: bool,
    temporary: bool,
    others: Sequence[str],
) -> None:
    """Check that options do not contradict each other; say which settings lines do not know.

    Raises ConfigurationError: they do.
    """
    pairs = [
        ("--print", "--into", prints and into is not None),
        ("--print", "--json", prints and as_json),
        ("--into", "--temporary-slot", into is not None and temporary),
        *(("--print and --into", other, True) for other in others),
    ]
    for first, second, is_wrong in pairs:
        if is_wrong:
            raise ConfigurationError(f"{first} and {second} contradict each other")
    _check_envelope(settings.capture.envelope, into=into)
    if not uses_given_slot(settings.capture):
        own_name(settings.slot, temporary=temporary)
    if settings.capture.messages or settings.capture.ddl:
        log.warning("not among the lines: messages and schema changes (--messages, --ddl)")


def _check_envelope(envelope: Envelope, *, into: Path | None) -> None:
    match envelope:
        case Envelope.ROW:
            pass  # the default of topics; lines always tell the change
        case Envelope.FLAT:
            if into is not None:
                raise ConfigurationError(
                    "--into and --envelope flat contradict each other",
                    hint="--print --envelope flat >> FILE; a file that is gone on with has marks",
                )
        case Envelope.NESTED | Envelope.LABELLED:
            raise ConfigurationError(
                f"--envelope {envelope.value} is for topics",
                hint="leave it out: a line has schema, table, time, and the row before and after; "
                "--envelope flat writes before_… and after_…",
            )
        case _:
            assert_never(envelope)


@contextmanager
def opened(into: Path | None) -> Iterator[LineFile | Stdout]:
    """Open the file or the standard output for the lines.

    Raises LogError: another capture writes to the file; ChangelogError: it cannot be opened.
    """
    if into is None:
        yield Stdout()
        return
    with closing(LineFile.open(into)) as target:
        yield target


def line_run(
    settings: Project,
    target: LineFile | Stdout,
    *,
    temporary: bool,
    stop: Callable[[], bool],
    agreed: Agreed = nobody_agrees,
) -> LineRun:
    """Return the run that writes to a target."""
    if isinstance(target, Stdout):
        return LineRun(settings, target, None, temporary=temporary, stop=stop, agreed=agreed)
    return LineRun(
        settings,
        target,
        target.look,
        temporary=temporary,
        stop=stop,
        clear=target.clear,
        agreed=agreed,
    )
