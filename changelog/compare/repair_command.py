"""`changelog verify --target --repair`: prints the plan of a repair and its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from changelog.compare.compare import CompareRequest, compare
from changelog.compare.options import CopyOptions
from changelog.compare.postgres import PostgresSide
from changelog.compare.repair import Repair, RepairPlan
from changelog.compare.report import Report
from changelog.compare.side import Key, Side
from changelog.contract.base.errors import SinkError
from changelog.runtime.edge import print_json, stop_on_signals, tell


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """The last comparison of a repair, and what was written before it."""

    report: Report
    hint: str  # about keys that still differ
    counts: Mapping[str, int] | None  # keys by outcome; None without --yes, which writes nothing


def repair_copy(
    source: PostgresSide,
    target: Side,
    request: CompareRequest,
    options: CopyOptions,
    *,
    as_json: bool,
) -> RepairOutcome:
    """Print what a repair would do, and do it if `--yes` is given.

    Raises ConfigurationError: the copy cannot be repaired, or not so much of it; SourceError,
    SinkError: a side cannot be read or written, or a signal stopped it.
    """
    if not request.settle_s:
        tell("--settle 0: changes that the copy's writer has yet to bring count as differences")
    before = compare(source, target, request, tell=tell)
    if not as_json:
        print("\n".join(before.lines()))
    repair = Repair(source, target, before, max_deletes=options.max_deletes)
    planned = repair.plan(before.refuted)
    result: dict[str, Any] = {"before": before.to_json(), "planned": planned.to_json()}
    if planned.refusal:
        result["not_allowed"] = planned.refusal
    if not as_json:
        print("\n".join(planned.lines(before.plan, options.show)), flush=True)
    if not (options.yes and planned.actions):
        if as_json:
            print_json(result)
        obstacle = next(iter(planned.unplanned.values()), "") if not planned.actions else ""
        hint = planned.refusal or obstacle or "--yes writes the rows of the plan"
        return RepairOutcome(before, hint, repair.counts() if options.yes else None)
    after: Report | None = None
    try:
        after = _written(repair, planned, before, request, options, as_json=as_json)
    finally:
        if as_json:
            compared = {} if after is None else {"after": after.to_json()}
            print_json({**result, **repair.to_json(), **compared})
        else:
            print("\n".join(repair.lines(options.show, before_error=after is None)), flush=True)
    return RepairOutcome(after, repair.hint(after.refuted), repair.counts())


def _written(
    repair: Repair,
    planned: RepairPlan,
    report: Report,
    request: CompareRequest,
    options: CopyOptions,
    *,
    as_json: bool,
) -> Report:
    """Write the rows and compare again, until no more keys are found to differ."""
    stop = stop_on_signals()

    def sleep(seconds: float) -> None:
        time.sleep(0 if stop() else seconds)
        if stop():
            raise SinkError("the repair was stopped by a signal", hint="run it again")

    seen: set[Key] = set()
    while planned.actions:
        repair.carry_out(planned, stop)
        seen |= {*report.refuted}
        began = repair.source.moment()
        report = compare(repair.source, repair.target, request, began=began, tell=tell, sleep=sleep)
        if not as_json:
            print("\n".join(["after the repair:", *report.lines()]))
        # More buckets may differ than one comparison looks at; no key is repaired twice.
        planned = repair.plan([key for key in report.refuted if key not in seen])
        if planned.actions and not as_json:
            print("\n".join(planned.lines(report.plan, options.show)), flush=True)
    return report
