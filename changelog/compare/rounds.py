"""`changelog verify --every`: compares again at a period, and tells of each change of the verdict.

A sample takes the next part of the keys in each round, so all keys are compared in turn. A key that
differed counts as differing until a round compares it again and it agrees. A side that is away
makes a round fail; the next one comes at its time.

Of each differing key two moments are kept: the last round that compared it and saw no difference
began at one, the first that saw the difference ended at the other. It came about between the two.
"""

from __future__ import annotations

import logging
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from changelog.capture.inspect.metrics import shown_metrics
from changelog.compare.options import CopyOptions
from changelog.compare.report import Report, key_shown, key_text
from changelog.compare.side import Key, Moment
from changelog.config import resolved
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    RefutedError,
    SinkError,
    VerdictError,
)
from changelog.runtime.edge import one_line, print_json, say_error, stop_on_signals
from changelog.runtime.webhook import post

log = logging.getLogger("changelog.verify")

_PERIOD = re.compile(r"([1-9]\d{0,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LOOK_S = 0.2
_MOST_KEYS = 10_000
"""Differing keys whose moments are kept; of further ones only the number is told."""

Compare = Callable[[int, Callable[[float], None]], Mapping[str, Report]]
"""Compares one or several targets, by name; takes the turn of the sample, and how to wait."""


class _StoppedError(Exception):
    """A round is broken off: the command was told to stop."""


@dataclass(frozen=True, slots=True)
class Since:
    """The moments between which a difference came about."""

    equal: Moment | None  # None: no round has compared the key before
    differs: Moment

    def __str__(self) -> str:
        equal = f"equal at {self.equal}" if self.equal else "not compared before"
        return f"{equal}, differs at {self.differs}"


@dataclass(slots=True)
class Standing:
    """All that the rounds so far say of one target."""

    report: Report | None = None  # the last one
    since: dict[Key, Since] = field(default_factory=dict)
    equal: Moment | None = None  # when the last round began after which no key was differing
    _layout: tuple[int, bool] | None = None
    _judged: list[Moment | None] = field(default_factory=list)  # by rank of a bucket

    def check_columns(self, report: Report) -> None:
        """Check that a round has compared all columns that the ones before it have.

        Raises SinkError: one is gone, or cannot be compared any more; without it what differed
        there would pass for equal.
        """
        before = () if self.report is None else self.report.compared
        lost = [column for column in before if column not in report.compared]
        if lost:
            why = "; ".join(report.not_compared.get(column, "it is gone") for column in lost)
            raise SinkError(
                f"{report.target}: not compared any more: {', '.join(lost)} ({why})",
                hint="start the command again if that is meant",
            )

    def judge(self, report: Report) -> None:
        """Take the report of a round."""
        self.report, plan = report, report.plan
        layout = (plan.buckets.count, plan.buckets.by_value)
        if layout != self._layout:  # the table has grown or shrunk: its keys have other buckets
            self._layout, self._judged = layout, [None] * plan.buckets.count
        decided = {*plan.buckets.compared()} - report.undecided
        refuted = {key: plan.rank_of(key) for key in report.refuted}
        since = {  # made anew: metrics are asked for meanwhile
            key: moments
            for key, moments in self.since.items()
            if key in refuted or plan.rank_of(key) not in decided
        }
        for key, rank in refuted.items():
            if key in since or len(since) < _MOST_KEYS:
                since.setdefault(key, Since(self._judged[rank], report.ended))
            else:
                decided.discard(rank)
        self.since = since
        for rank in decided:
            self._judged[rank] = report.began
        if not (self.since or report.open or report.is_empty_sample):
            self.equal = report.began

    @property
    def oldest(self) -> Since | None:
        """Return the moments of the difference that was seen first; None if there is none."""
        return min(self.since.values(), key=lambda since: since.differs, default=None)

    def lines(self, most: int) -> Iterator[str]:
        """Yield lines on the differing keys for people."""
        assert self.report is not None  # noqa: S101 - asked after a round
        for key, since in [*self.since.items()][:most]:
            yield f"  since: {key_text(key_shown(self.report.plan, key))}: {since}"
        if len(self.since) > most:
            yield f"  since: and {len(self.since) - most:,} more keys of this and earlier rounds"

    def to_json(self, most: int) -> list[dict[str, Any]]:
        """Return the differing keys with their moments as objects of JSON."""
        assert self.report is not None  # noqa: S101 - asked after a round
        return [
            {
                "key": key_shown(self.report.plan, key),
                "equal": since.equal and since.equal.to_json(),
                "differs": since.differs.to_json(),
            }
            for key, since in [*self.since.items()][:most]
        ]


def parse_period(text: str) -> int:
    """Return the seconds of a period; `1h` has 3600.

    Raises ConfigurationError: it is none.
    """
    parts = _PERIOD.fullmatch(text)
    if parts is None:
        raise ConfigurationError(
            f"--every {text!r} is not a period", hint="30s, 10m, 1h or 1d: a number and a unit"
        )
    return int(parts[1]) * _SECONDS[parts[2]]


class Rounds(Collector):
    """Repeated comparisons; collects their metrics."""

    def __init__(self, options: CopyOptions, project: Path, *, as_json: bool) -> None:
        """Take the options.

        Raises ConfigurationError: the period is none, or the webhook is no address.
        """
        self._every_s = parse_period(options.every)
        self._options, self._as_json = options, as_json
        url = options.webhook and resolved(options.webhook, project.resolve(), named_by="--webhook")
        if url and not re.match("https?://[^/]", url):
            raise ConfigurationError("--webhook is no address", hint="https://HOST/PATH")
        self._webhook = url
        self.standings: dict[str, Standing] = {}
        self._outcomes: Counter[str] = Counter()
        self._lost = 0  # tries of the webhook that failed
        self._told: tuple[str, frozenset[str]] = ("equal", frozenset())
        self._seconds = self._ended_s = 0.0
        self._error: ChangelogError | None = VerdictError("stopped before a round has ended")

    def run(self, compare: Compare) -> None:
        """Compare until SIGTERM or SIGINT; raises the last round's error, if it had one."""
        stop = stop_on_signals()
        turn = random.randrange(1 << 31)  # noqa: S311 - of a sample

        def wait(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (remaining := until - time.monotonic()) > 0:
                if stop():
                    raise _StoppedError
                time.sleep(min(remaining, _LOOK_S))

        with self._metrics():
            due = time.monotonic()
            try:
                while not stop():
                    self._round(partial(compare, turn, wait))
                    turn += 1
                    late = time.monotonic() - due
                    due += self._every_s * (late // self._every_s + 1)
                    wait(due - time.monotonic())
            except _StoppedError:
                pass
        if self._error is not None:
            raise self._error

    def _metrics(self) -> AbstractContextManager[object]:
        options = self._options
        return shown_metrics(self, port=options.metrics_port, address=options.metrics_address)

    def _round(self, compare: Callable[[], Mapping[str, Report]]) -> None:
        began = time.monotonic()
        try:
            reports = compare()
            for name, report in reports.items():
                self.standings.setdefault(name, Standing()).check_columns(report)
        except ChangelogError as error:
            if isinstance(error, ConfigurationError) and not self._outcomes:
                raise  # wrong from the start
            self._error, outcome = error, "failed"
            say_error(error)
            if self._as_json:
                print_json({"error": one_line(error), "exit_code": error.exit_code})
        else:
            for name, report in reports.items():
                self.standings[name].judge(report)
            outcome = self._judge()
            self._show(reports)
        self._outcomes[outcome] += 1
        self._seconds, self._ended_s = time.monotonic() - began, time.time()
        self._tell(outcome)

    def _judge(self) -> str:
        """Return the outcome of a round in a word, and keep its error."""
        if differing := self._differing():
            since = [self.standings[name].oldest for name in differing]
            first = min(filter(None, since), key=lambda moments: moments.differs)
            self._error = RefutedError(f"{', '.join(sorted(differing))} differs: {first}")
            return "differs"
        undecided = [name for name, one in self.standings.items() if not _is_decided(one)]
        if undecided:
            self._error = VerdictError(
                f"{', '.join(undecided)} could not be compared: keys kept changing, or no part of "
                "the keys so far has a row",
                hint="take a longer --settle or a larger --sample",
            )
            return "open"
        self._error = None
        return "equal"

    def _differing(self) -> frozenset[str]:
        return frozenset(name for name, standing in self.standings.items() if standing.since)

    def _show(self, reports: Mapping[str, Report]) -> None:
        at, most = datetime.now(UTC).isoformat(timespec="seconds"), self._options.show
        for name, report in reports.items():
            standing = self.standings[name]
            if self._as_json:
                moments = {"began": report.began.to_json(), "ended": report.ended.to_json()}
                about = {"at": at, "name": name, **report.to_json(), **moments}
                print_json({**about, "since": standing.to_json(most)})
                continue
            lines = [f"{at} equal: {name}, {report.source_rows:,} rows in {report.seconds:.1f} s"]
            if standing.since or not report.verified:
                lines = [f"{at} {name}", *report.lines(), *standing.lines(most)]
            print("\n".join(lines), flush=True)

    def _tell(self, outcome: str) -> None:
        """Tell the webhook of a verdict that it has not heard of; an open round is none."""
        verdict = (outcome, self._differing())
        if not self._webhook or outcome == "open" or verdict == self._told:
            return
        try:
            post(self._webhook, self._body(outcome))
        except (ChangelogError, OSError, httpx.HTTPError) as error:
            self._lost += 1
            log.warning(
                'the webhook was not told of the verdict "%s": %s; it will be after the next '
                "round, if that is still the verdict then",
                outcome,
                type(error).__name__ if isinstance(error, httpx.HTTPError) else one_line(error),
            )
        else:
            self._told = verdict

    def _body(self, outcome: str) -> dict[str, Any]:
        """Return the object of the webhook, which has no values of rows."""
        error = self._error
        return {
            "status": outcome,
            "before": self._told[0],
            "exit_code": 0 if error is None else error.exit_code,
            "error": None if error is None else one_line(error),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": socket.gethostname(),
            "targets": [
                _target_json(name, standing, standing.report)
                for name, standing in self.standings.items()
                if standing.report is not None
            ],
        }

    def describe(self) -> Iterable[Metric]:
        """Return nothing: all is told when it is asked for."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return every metric as it is now."""
        rounds = CounterMetricFamily(
            "changelog_verify_rounds", "Rounds by their outcome.", labels=("outcome",)
        )
        for outcome in ("equal", "differs", "open", "failed"):
            rounds.add_metric((outcome,), self._outcomes[outcome])
        yield rounds
        yield CounterMetricFamily(
            "changelog_verify_webhook_failures",
            "Changes of the verdict that the webhook did not take.",
            value=self._lost,
        )
        for name, text, value in (
            ("round_seconds", "Time that the last round took, in seconds.", self._seconds),
            ("round_end_timestamp_seconds", "When the last round ended.", self._ended_s),
        ):
            yield GaugeMetricFamily(f"changelog_verify_{name}", text, value=value)
        families = {
            name: GaugeMetricFamily(f"changelog_verify_{name}", text, labels=("target",))
            for name, text in _OF_A_TARGET.items()
        }
        for target, standing in [*self.standings.items()]:
            for name, number in _values(standing):
                if number is not None:
                    families[name].add_metric((target,), number)
        yield from families.values()


_OF_A_TARGET = {
    "verified": "1: no key is known to differ; 0: one is.",
    "mismatches": "Keys that the last round saw differ; at least so many.",
    "source_rows": "Rows of the source that the last round compared.",
    "target_rows": "Rows of the target that the last round compared.",
    "seconds": "Time that the last comparison took, in seconds.",
    "equal_timestamp_seconds": "When the last round began after which no key was differing.",
    "differs_timestamp_seconds": "When the oldest difference was seen first; absent without one.",
    "differs_after_lsn": "LSN, as a number, at which its key was compared and equal.",
    "differs_lsn": "LSN, as a number, at which the oldest difference was seen first.",
}


def _values(standing: Standing) -> Iterator[tuple[str, float | None]]:
    report, oldest = standing.report, standing.oldest
    if standing.since or standing.equal:
        yield "verified", float(not standing.since)
    if report is not None:
        yield "mismatches", report.mismatches
        yield "source_rows", report.source_rows
        yield "target_rows", report.target_rows
        yield "seconds", report.seconds
    if standing.equal is not None:
        yield "equal_timestamp_seconds", standing.equal.at.timestamp()
    if oldest is not None:
        yield "differs_timestamp_seconds", oldest.differs.at.timestamp()
        yield "differs_after_lsn", oldest.equal and oldest.equal.lsn
        yield "differs_lsn", oldest.differs.lsn


def _is_decided(standing: Standing) -> bool:
    return standing.equal is not None and not (standing.report and standing.report.open)


def _target_json(name: str, standing: Standing, report: Report) -> dict[str, Any]:
    oldest = standing.oldest
    return {
        "name": name,
        "source": report.source,
        "verified": not standing.since if standing.since or standing.equal else None,
        "mismatches": report.mismatches,
        "at_least": report.is_at_least,
        "equal": oldest and oldest.equal and oldest.equal.to_json(),
        "differs": oldest and oldest.differs.to_json(),
    }
