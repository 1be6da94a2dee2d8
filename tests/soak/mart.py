"""The mart of `benchmarks.mart` in the storm: its writer, and the judge of its six followed views.

What a view shows is compared with the answer of PostgreSQL's own query over the tables as they were
at the LSN that the view says: the triggers of the source have kept every row.
"""

import re
from contextlib import closing

import httpx
import orjson
import redis

from benchmarks import mart
from benchmarks.shown import Served, answer, differing, in_order, lacking
from changelog.runtime.tls_trust import authorities
from tests.soak.expected import ticks_before
from tests.soak.served import lsn_on_record
from tests.soak.shown_table import shown_by
from tests.soak.source import CLOCKS_AT_FIRST, CLOSING, MART_LANE, TRIGGERS, connect
from tests.soak.writers import Changes

ORDERS = 300
MOST_AHEAD = 3
"""So often in a row an index may show rows of a later LSN than it says: it says so last."""
_LEAST_WEIGHT = 0.005
_MOST_ROWS = 20
_WRITTEN = {"truncate": 0.002, "add_column": 0.003, "drop_column": 0.002}
STATE = """
{table} AS MATERIALIZED (
    SELECT told.* FROM (
        SELECT DISTINCT ON (key) op, content FROM audit.changes
        WHERE tbl = '{table}' AND lane = {lane} AND tick <= {tick} AND key IS NOT NULL
        AND seq > COALESCE(
            (SELECT max(seq) FROM audit.changes
             WHERE tbl = '{table}' AND lane = {lane} AND tick <= {tick} AND op = 't'), 0)
        ORDER BY key, seq DESC
    ) AS kept CROSS JOIN LATERAL jsonb_populate_record(NULL::public.{table}, content) AS told
    WHERE op <> 'd'
)"""
CACHED = """
local number = redis.call('GET', ARGV[1] .. ':current')
if not number then return {} end
local place = redis.call('GET', ARGV[1] .. ':position:' .. number)
local rows = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':' .. number .. ':*')) do
    rows[#rows + 1] = redis.call('GET', key)
end
return {number, place or '', rows}
"""
"""Number, position and rows of what a cache serves, all of one moment."""


def make_mart(dsn):
    """Make the tables, and what the triggers would have kept of their first rows."""
    mart.make(dsn, ORDERS)
    with closing(connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL soak.tick_{MART_LANE} = '1'")
        cursor.execute(CLOCKS_AT_FIRST, ([MART_LANE],))
        for table in mart.TABLES:
            cursor.execute(TRIGGERS.format(name=table, lane=MART_LANE))
            cursor.execute(
                "INSERT INTO audit.changes (lane, tick, tbl, op, key, content) SELECT"
                f" {MART_LANE}, 1, '{table}', 'u', audit.key(to_jsonb(t)), to_jsonb(t)"
                f" FROM {table} AS t"
            )
        cursor.execute(CLOSING, ([MART_LANE],))


class MartWriter(Changes):
    """The application of the mart, in transactions of one kind each, and what alters its tables."""

    def __init__(self, dsn, seed, stop, *, rate, frontiers):
        named = {"rate": rate, "frontiers": frontiers}
        super().__init__("mart's writer", dsn, MART_LANE, "orders", seed, stop, **named)
        self._mart = mart.Writer(dsn, ORDERS, 0)
        self._weights = {
            **{name: max(share, _LEAST_WEIGHT) for name, (_, share) in self._mart.kinds.items()},
            **_WRITTEN,
        }

    def kinds(self):
        return self._weights

    def changes(self, kind, cursor):
        if kind in _WRITTEN:
            return bool(getattr(self, f"_{kind}")(cursor))
        before = self._mart.changes
        self._mart.kinds[kind][0](cursor, self._random.randrange(1, _MOST_ROWS))
        return self._mart.changes > before

    def _truncate(self, cursor):
        """Empty the lines, and give some of the orders new ones."""
        cursor.execute("TRUNCATE lines")
        cursor.execute(
            "INSERT INTO lines SELECT id, no, 1 + id %% 30, 1 + id %% 50, no, id %% 977, 0.05, 'N',"
            " 'again' FROM orders, generate_series(1, %s) AS no WHERE id < %s AND id %% 3 <> %s",
            (mart.LINES, mart.PROBE, self._random.randrange(3)),
        )
        return True


class MartJudge:
    """Compares what readers of each of the six views see with PostgreSQL's answer at its LSN.

    A table and a cache show rows and LSN of one moment. An index says its LSN behind its rows, so
    it may be ahead: it is wrong if it differs from what it says at several LSNs in a row, or still
    at the end.
    """

    def __init__(self, source, endpoints, target, warehouse):
        self._source, self._target, self._warehouse = source, target, warehouse
        self._served = Served(endpoints, target)
        self._search, self._cache = endpoints.search, endpoints.cache
        self._seen = set()
        self._ahead: dict[str, dict[str, str]] = {}
        self.judged: dict[str, int] = dict.fromkeys(mart.VIEWS, 0)
        self.rows = 0
        self.wrong: list[str] = []

    def look(self, view):
        """Judge what a view shows now, unless this LSN was judged."""
        try:
            shows = self._shows(view)
        except (httpx.HTTPError, redis.RedisError, KeyError):
            return  # its server is away, or it serves nothing yet
        if shows is None:
            return
        generation, place, rows = shows
        lsn = place or lsn_on_record(self._warehouse, view, generation)
        if lsn is None or (view, generation, lsn) in self._seen:
            return
        if wrong := self._differences(view, lsn, rows):
            self._differs(view, generation, lsn, wrong)
            return
        self._ahead.pop(view, None)
        self._seen.add((view, generation, lsn))
        self.judged[view] += 1
        self.rows += len(rows)

    def end(self):
        """Judge all views at rest, beside the tables as they are too: no index may be ahead."""
        for view in mart.VIEWS:
            self.look(view)
        for view, ahead in self._ahead.items():
            self.wrong.append(f"{view} at the end: {ahead}")
        self._ahead.clear()
        for view, told in differing(self._source, self._served).items():
            self.wrong.append(f"{view} at the end: {told}")

    def _differs(self, view, generation, lsn, wrong):
        if mart.SHOWN[view][0] != "search":
            self._seen.add((view, generation, lsn))
            self.wrong.append(f"{view} at {lsn}: {wrong}")
            return
        told = self._ahead.setdefault(view, {})
        told[lsn] = wrong
        if len(told) == MOST_AHEAD:
            self.wrong.append(f"{view}: {told}")
            del self._ahead[view]

    def _shows(self, view):
        """Return generation, LSN if it has gone forward, and rows of a view; None before."""
        kind, text = mart.SHOWN[view]
        columns = text.split()
        if kind == "postgres":
            with closing(connect(self._target)) as served:
                shows = shown_by(served, view)
            found = shows
        else:
            found = self._indexed(view) if kind == "search" else self._cached(view)
        if not found:
            return None
        generation, place, rows = found
        return generation, place, [in_order(row, columns) for row in rows]

    def _indexed(self, view):
        with httpx.Client(base_url=self._search, verify=authorities(), timeout=60) as client:
            (index,) = client.get(f"/_alias/{view}").raise_for_status().json()
            meta = client.get(f"/{index}/_mapping").raise_for_status().json()[index]
            number = meta["mappings"]["_meta"]["changelog"]["id"]
            document = client.get(f"/{view}-positions/_doc/{number}").json()
        place = document.get("_source", {}).get("position")
        rows = list(self._served.documents(index))
        return int(index.rpartition("-")[2]), place and place.split(":")[1], rows

    def _cached(self, view):
        with closing(redis.Redis.from_url(self._cache)) as client:
            found = client.eval(CACHED, 0, view)
        if not found:
            return None
        number, place, texts = found
        rows = [orjson.loads(text) for text in texts]
        return int(number), place.decode().split(":")[1] if place else None, rows

    def _differences(self, view, lsn, rows):
        """Return the differences from the nearest state of the source; empty if they equal one."""
        with closing(connect(self._source)) as source, source.cursor() as cursor:
            told = []
            for tick in ticks_before(cursor, MART_LANE, lsn):
                wanted = answer(self._source, at(view, tick))
                missing, extra = lacking(wanted, rows), lacking(rows, wanted)
                if not missing and not extra:
                    return ""
                told.append(
                    f"clock {tick}: {len(missing)} rows are missing, such as {missing[:2]},"
                    f" {len(extra)} are too many, such as {extra[:2]}"
                )
            return "; ".join(told)


def at(view, tick):
    """Return the query of a view's rows as they were at a clock of its lane."""
    query = mart.ANSWERS[view]
    tables = [table for table in mart.TABLES if re.search(rf"\b{table}\b", query)]
    states = (STATE.format(table=table, lane=MART_LANE, tick=tick) for table in tables)
    return f"WITH {','.join(states)}\n{query}"
