"""Facts about a published generation, as a certificate states them."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from changelog.contract.log.frontier import Frontier
from changelog.contract.log.joined import beside
from replay.result.state import States
from views.base.address import Address
from views.certificates.statement import Ranges, sink_entry
from views.project.definition import text_of
from views.project.spec import ViewSpec
from views.verify.compare.report import VerifyReport

_ENGINES = ("changelog-store", "pyspark", "duckdb", "deltalake", "sqlglot")


def facts_of(
    *,
    spec: ViewSpec,
    generation: int,
    run: str,
    fingerprint: str,
    columns: Sequence[tuple[str, str]],
    origin: str,
    states: States,
    reports: Mapping[str, VerifyReport],
    sinks: Mapping[str, tuple[Address, Ranges]],
) -> dict[str, Any]:
    """Return the predicate of a certificate, but for its place in the chain.

    `fingerprint`: of all that the rows depend on besides the log. `columns`: names and types.
    `origin`: what the rows were made of. `states`: what was read. `reports`: the proofs. `sinks`:
    where each has the rows, and their digests.
    """
    text = text_of(spec)
    cut, deadline = states.cut, states.cut.verdict.deadline_ms
    topics = {table: topic for table in spec.tables if (topic := cut.topics.get(table))}
    entries = [
        sink_entry(sink, address.shown(), ranges) for sink, (address, ranges) in sinks.items()
    ]
    return {
        "view": spec.name,
        "generation": generation,
        "run": run,
        "published": datetime.now(UTC).isoformat(),
        "definition": {
            "text": text,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "fingerprint": fingerprint,
            "key": list(spec.key),
            "columns": [{"name": name, "type": kind} for name, kind in columns],
        },
        "origin": origin,
        "frontiers": [
            _frontier(frontier, own) for frontier, own in _frontiers(states, topics.values())
        ],
        "topics": [_topic(states, str(table), topic) for table, topic in topics.items()],
        "verdict": {
            "kind": cut.verdict.kind.value,
            "deadline": None if deadline is None else _moment(deadline * 1000),
        },
        "engines": {
            "python": platform.python_version(),
            **{name: version(name) for name in _ENGINES},
        },
        "rows": max((entry["rows"] for entry in entries), default=0),
        "sinks": entries,
        "verification": [_proof(name, report) for name, report in reports.items()],
    }


def _frontiers(states: States, topics: Iterable[str]) -> list[tuple[Frontier, list[str]]]:
    """Return the frontiers that were read to, each with its topics; none of logs of others."""
    frontier, listed = states.frontier, list(topics)
    others = beside(frontier, listed)
    elsewhere = {topic for _, own in others for topic in own}
    return [(frontier, [topic for topic in listed if topic not in elsewhere]), *others]


def _frontier(frontier: Frontier, topics: Sequence[str]) -> dict[str, Any]:
    return {
        "system_id": frontier.system_id,
        "cluster_id": frontier.cluster_id,
        "slot": frontier.slot,
        "epoch": frontier.epoch,
        "lsn": str(frontier.lsn),
        "time": _moment(frontier.ts_us),
        "topics": list(topics),
    }


def _topic(states: States, table: str, topic: str) -> dict[str, Any]:
    cut, pin = states.cut, states.pins.get(topic)
    starts, ends = cut.start_offsets(topic), states.frontier.ends.get(topic, ())
    return {
        "topic": topic,
        "id": states.frontier.topic_ids.get(topic),
        "table": table,
        "offsets": [
            {"partition": partition, "start": start, "end": end}
            for partition, (start, end) in enumerate(zip(starts, ends, strict=False))
        ],
        "schemas": None if pin is None else {"key": pin.key, "value": pin.value},
    }


def _proof(name: str, report: VerifyReport) -> dict[str, Any]:
    return {
        "sink": name,
        "by": "duckdb",
        "verified": report.verified,
        "mode": report.certificate.get("mode"),
        "share": report.certificate.get("share"),
        "rows_expected": report.rows_expected,
        "rows_served": report.rows_served,
        "mismatches": report.mismatches,
        "notes": list(report.notes),
    }


def _moment(us: int) -> str:
    seconds, micros = divmod(us, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros).isoformat()
