"""A constant beside a type is written as PostgreSQL writes a value of it, or refused."""

from __future__ import annotations

from contextlib import closing
from itertools import product

import psycopg2
import pytest

from changelog.contract.rows.types import TypType, column_type
from views.meaning.types import carried_form, meaning_of

pytestmark = [pytest.mark.services]
TIMES = [
    f"{time}{zone}"
    for time, zone in product(
        ("12:00", "9:5", "9:05:07.120", "24:00", "24:00:01", "23:59:60", "0:0:0.0000001", "noon"),
        ("", "+00", "-00", "+02", "-05:30", "+02:00", "+15:59", "+16", "Z", "+2"),
    )
]
NUMBERS, DAYS = ("", "1", "-3", "2", "2147483647", "9223372036854775807", "x"), (
    *("", "2024-02-28", "2024-02-29", "0001-01-01", "9999-12-31", "infinity", "20240301"),
)  # fmt: skip
VALUES = {
    "time": TIMES,
    "timetz": TIMES,
    "int4range": [f"{a}{b},{c}{d}" for a, b, c, d in product("[(", NUMBERS, NUMBERS, "])")],
    "daterange": [f"{a}{b},{c}{d}" for a, b, c, d in product("[(", DAYS, DAYS, "])")],
    "pg_lsn": ["0/0", "0016/b374d848", "16/B374D848", "123456789/0", "g/1", "1"],
    "inet": ["10.0.0.1", "10.0.0.1/32", "10.0.0.1/8", "::1", "2001:DB8::1", "::ffff:10.0.0.1"],
    "cidr": ["10.0.0.0/8", "10.0.0.1", "10/8", "2001:DB8::/32"],
    "uuid": ["{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "x"],
    "macaddr": ["08:00:2b:01:02:03", "08-00-2B-01-02-03", "08002b010203"],
    "xid": ["42", "007"],
}
VALUES["int8range"] = VALUES["int4range"]


def test_a_constant_is_written_as_postgresql_writes_it(database):
    taken = 0
    with closing(psycopg2.connect(database)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        for name, texts in VALUES.items():
            form = TypType.RANGE if name.endswith("range") else TypType.BASE
            cursor.execute(f"SELECT format_type('{name}'::regtype, NULL)")
            ((formatted,),) = cursor.fetchall()
            meaning = meaning_of(column_type(name, formatted, form=form))
            assert meaning is not None
            for text in texts:
                ours = carried_form(meaning, text)
                if ours is None:
                    continue
                try:
                    cursor.execute(f"SELECT (%s::{name})::text", (text,))
                except psycopg2.Error as error:
                    pytest.fail(f"{name} {text}: {ours}, and PostgreSQL refuses it: {error}")
                ((theirs,),) = cursor.fetchall()
                if name == "inet":
                    theirs = theirs.removesuffix("/32").removesuffix("/128")
                assert ours == theirs, f"{name} {text}"
                taken += 1
    assert taken > 100
