"""Judges what readers of the Delta views see, against what the source held at its frontier."""

import hashlib
import re
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from benchmarks.mart import TABLES as MART_TABLES
from tests.soak.expected import states, ticks_before
from tests.soak.source import ACCOUNTS, DEPOSIT, LANES, MART_LANE, connect
from views.generations.history import GenerationHistory

TOTALS = "totals"
_FOLDER = re.compile(r"_generations/(\d+)/")
_SHOWN = 3


@dataclass(frozen=True)
class Served:
    """A generation that readers see: its number, its LSN as text, its rows."""

    generation: int
    lsn: str
    rows: list[dict]


class Judge:
    """Compares each generation that it meets once; counts, and keeps what is wrong."""

    def __init__(self, dsn, warehouse, views):
        self._dsn, self._warehouse, self._views = dsn, warehouse, views
        self._seen = set()
        self._ticks = {}
        self.judged = self.rows = 0
        self.wrong: list[str] = []

    def look(self, extra=()):
        """Judge what serves now and was not judged before; the source must answer."""
        with closing(connect(self._dsn)) as source, source.cursor() as cursor:
            for view in (*self._views, *extra):
                served = self.served(view)
                if served is not None and (view, served.generation) not in self._seen:
                    self._judge(cursor, view, served)
                    self._seen.add((view, served.generation))
                    self.judged += 1
                    self.rows += len(served.rows)

    def served(self, view):
        """Return what readers of a view see, None when nothing was published yet."""
        try:
            table = DeltaTable(f"{self._warehouse}/{view}")
        except TableNotFoundError:
            return None
        numbers = {int(found[1]) for path in table.file_uris() if (found := _FOLDER.search(path))}
        history = GenerationHistory(str(self._warehouse)).rows([view])
        if not numbers:  # no row, no file
            published = [row.generation for row in history if row.state == "published"]
            if not published:
                return None
            numbers = {published[-1]}
        assert len(numbers) == 1, f"{view} serves files of the generations {sorted(numbers)}"
        (number,) = numbers
        lsn = next(row.lsn for row in history if row.generation == number and row.lsn)
        return Served(number, lsn, table.to_pyarrow_table().to_pylist())

    def _judge(self, cursor, view, served):
        if view == TOTALS:
            wrong = _wrong_totals(served.rows)
        else:
            wrong = "; ".join(
                found for lane in _lanes(view) if (found := self._lane(cursor, view, served, lane))
            )
        if wrong:
            self.wrong.append(f"{view} generation {served.generation} at {served.lsn}: {wrong}")

    def _lane(self, cursor, view, served, lane):
        """Compare the rows of a lane with each of the states that it may have had."""
        rows = [row for row in served.rows if row.get("lane", lane) == lane]
        place = served.lsn, lane
        possible = self._ticks.setdefault(place, ticks_before(cursor, lane, served.lsn))
        wrong = {
            tick: min((differing(each, rows) for each in states(cursor, view, lane, tick)), key=len)
            for tick in possible
        }
        fitting = [tick for tick in possible if not wrong[tick]]
        self._ticks[place] = fitting or possible
        tick = min(possible, key=lambda each: len(wrong[each]))
        return f"lane {lane}, clock {tick}: {shown(wrong[tick])}" if wrong[tick] else ""


def lsn_on_record(warehouse, view, generation):
    """Return the LSN of a generation in the history; None before it is on record."""
    history = GenerationHistory(str(warehouse)).rows([view])
    return next((row.lsn for row in history if row.generation == generation and row.lsn), None)


def _lanes(view):
    if view in MART_TABLES:
        return [MART_LANE]
    _, _, lane = view.partition("_")
    return [int(lane[0])] if lane else LANES


def _wrong_totals(rows):
    total, accounts = sum(row["total"] for row in rows), sum(row["accounts"] for row in rows)
    right = total == DEPOSIT * ACCOUNTS * len(LANES) and accounts == ACCOUNTS * len(LANES)
    return "" if right else f"{total} on {accounts} accounts"


def compared(wanted, found):
    """Say how rows of the source and other ones differ; nothing when they are equal."""
    return shown(differing({key_of(row): plain(row) for row in wanted}, found))


def differing(wanted, rows):
    """Return (key, wanted, found) of each row that differs, also of a key that stands twice."""
    found: dict[str, dict] = {}
    twice = []
    for row in rows:
        key = key_of(row)
        if key in found:
            twice.append((f"{key} twice", found[key], plain(row)))
        found[key] = plain(row)
    return twice + [
        (key, wanted.get(key), found.get(key))
        for key in sorted({*wanted, *found})
        if wanted.get(key) != found.get(key)
    ]


def shown(wrong):
    """Say the first differences, of each row only the columns that differ."""
    if not wrong:
        return ""
    lines = []
    for key, wanted, found in wrong[:_SHOWN]:
        if wanted is None or found is None:
            lines.append(f"key {key}: {'too many' if wanted is None else 'missing'}")
        else:
            names = [
                name for name in {*wanted, *found} if wanted.get(name, "-") != found.get(name, "-")
            ]
            both = [f"{n}: {wanted.get(n, '-')} is {found.get(n, '-')}" for n in sorted(names)]
            lines.append(f"key {key}: {', '.join(both)}")
    return f"{len(wrong)} rows differ, such as {'; '.join(lines)}"


def key_of(row):
    if "id" in row:
        return str(row["id"])
    if "order_id" in row:
        return f"{row['order_id']}-{row['no']}"
    return f"{row['lane']}-{row.get('account', '')}"


def plain(row: dict) -> dict:
    """Return a row in the form in which it is compared: numbers as such, large texts as digests."""
    values: dict = {
        name: Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in row.items()
    }
    for name, value in values.items():
        if isinstance(value, date) and not isinstance(value, datetime):
            values[name] = value.isoformat()  # as JSON has it
    if values.get("doc") is not None:
        values["doc"] = hashlib.md5(values["doc"].encode()).hexdigest()  # noqa: S324 - a digest
    return values
