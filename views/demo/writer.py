"""A seeded writer: inserts, updates, deletes and key changes in small transactions."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from typing import Any

from changelog.source.connect.connect import connect

_INSERT = """
    INSERT INTO flights (flight_id, year, month, day, dep_time, sched_dep_time, dep_delay, arr_time,
        sched_arr_time, arr_delay, carrier, flight, tailnum, origin, dest, air_time, distance,
        hour, minute, time_hour)
    SELECT (SELECT max(flight_id) + 1 FROM flights), year, month, day, NULL, sched_dep_time, NULL,
        NULL, sched_arr_time, NULL, carrier, flight, tailnum, origin, dest, NULL, distance, hour,
        minute, time_hour FROM flights WHERE flight_id = %(id)s"""
_UPDATE = """
    UPDATE flights SET dep_delay = %(delay)s, arr_delay = %(delay)s + 3 WHERE flight_id = %(id)s"""
_DELETE = "DELETE FROM flights WHERE flight_id = %(id)s"
_MOVE = """
    UPDATE flights SET flight_id = (SELECT max(flight_id) + 1 FROM flights)
    WHERE flight_id = %(id)s"""
_RENAME = "UPDATE airlines SET name = name || '.' WHERE carrier = 'UA'"
_REPAINT = "UPDATE planes SET seats = seats + 1 WHERE tailnum = 'N14228'"

_CHOICES = (
    ("insert", _INSERT, 25),
    ("update", _UPDATE, 50),
    ("delete", _DELETE, 12),
    ("key change", _MOVE, 11),
    ("airline", _RENAME, 1),
    ("plane", _REPAINT, 1),
)


def write_changes(dsn: str, *, transactions: int, seed: int) -> Counter[str]:
    """Run the seeded transactions one after the other; returns the rows changed by kind."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable demo, no secret
    weights = [weight for _, _, weight in _CHOICES]
    done: Counter[str] = Counter()
    with closing(connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT max(flight_id) FROM flights")
        highest = int(cursor.fetchall()[0][0])
        for _ in range(transactions):
            for name, statement, _ in chance.choices(_CHOICES, weights, k=chance.randint(1, 5)):
                values: dict[str, Any] = {
                    "id": chance.randint(1, highest),
                    "delay": chance.randint(-20, 180),
                }
                cursor.execute(statement, values)
                done[name] += cursor.rowcount
            connection.commit()
    return done
