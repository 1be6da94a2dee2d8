"""TPC-H in small: its tables with char(n) as its specification has them, rows from a seed, queries.

https://www.tpc.org/tpch/ describes both.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from random import Random

OFFICIAL = Path(__file__).parents[1] / "fixtures" / "tpch.sql"
_NAMED = re.compile(r"^-- (q\d\d): (.*)$", re.MULTILINE)

TABLES = {
    "region": "r_regionkey int primary key, r_name char(25), r_comment varchar(152)",
    "nation": "n_nationkey int primary key, n_name char(25), n_regionkey int,"
    " n_comment varchar(152)",
    "supplier": "s_suppkey int primary key, s_name char(25), s_address varchar(40),"
    " s_nationkey int, s_phone char(15), s_acctbal numeric(15,2), s_comment varchar(101)",
    "part": "p_partkey int primary key, p_name varchar(55), p_mfgr char(25), p_brand char(10),"
    " p_type varchar(25), p_size int, p_container char(10), p_retailprice numeric(15,2),"
    " p_comment varchar(23)",
    "partsupp": "ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost numeric(15,2),"
    " ps_comment varchar(199), primary key (ps_partkey, ps_suppkey)",
    "customer": "c_custkey int primary key, c_name varchar(25), c_address varchar(40),"
    " c_nationkey int, c_phone char(15), c_acctbal numeric(15,2), c_mktsegment char(10),"
    " c_comment varchar(117)",
    "orders": "o_orderkey bigint primary key, o_custkey int, o_orderstatus char(1),"
    " o_totalprice numeric(15,2), o_orderdate date, o_orderpriority char(15), o_clerk char(15),"
    " o_shippriority int, o_comment varchar(79)",
    "lineitem": "l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int,"
    " l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_discount numeric(15,2),"
    " l_tax numeric(15,2), l_returnflag char(1), l_linestatus char(1), l_shipdate date,"
    " l_commitdate date, l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10),"
    " l_comment varchar(44), primary key (l_orderkey, l_linenumber)",
}
DDL = "\n".join(f"CREATE TABLE {name} ({columns});" for name, columns in TABLES.items())
NATIONS = {"FRANCE": 2, "GERMANY": 2, "BRAZIL": 0, "CANADA": 0, "SAUDI ARABIA": 1}
"""Of each nation the key of its region; the specification has Saudi Arabia in one of its own."""
REGIONS = ("AMERICA", "ASIA", "EUROPE")
KINDS = ("LARGE BRASS", "SMALL TIN", "PROMO BRUSHED STEEL", "ECONOMY ANODIZED STEEL")
BOXES = ("SM BOX", "MED BAG", "MED BOX", "LG CASE")
_DAY = date(1993, 1, 1)


def fill(cursor, seed=7, orders=700):
    """Put rows into the tables."""
    random = Random(seed)  # noqa: S311 - no secret
    pick = random.choice
    for key, name in enumerate(REGIONS):
        _insert(cursor, "region", [(key, name, "")])
    _insert(cursor, "nation", [(k, n, NATIONS[n], None) for k, n in enumerate(NATIONS)])
    for key in range(1, 21):
        phone, word = f"{10 + key % 25}-{key:03d}-555", pick(("", "Customer slow Complaints"))
        money = random.randint(-999, 9999)
        seller = (key, f"Supplier#{key}", f"Street {key}", key % 5, phone, money, word)
        _insert(cursor, "supplier", [seller])
    offers = []
    for key in range(1, 61):
        size = pick((1, 2, 3, 4, 5, 9, 14, 15, 23))
        brand = pick(("Brand#12", "Brand#23", "Brand#34", "Brand#45"))
        name = pick(("forest green", "navy", "lime"))
        part = (f"Maker#{key % 3}", brand, pick(KINDS), size, pick(BOXES), 900 + key, "")
        _insert(cursor, "part", [(key, name, *part)])
        for supplier in random.sample(range(1, 21), 4):
            cost = random.randint(100, 99999) / 100
            _insert(cursor, "partsupp", [(key, supplier, random.randint(1, 99), cost, "")])
            offers.append((key, supplier))
    for key in range(1, 101):
        phone = f"{pick((13, 17, 31, 40))}-{key:03d}"
        segment, money = pick(("BUILDING", "MACHINERY")), random.randint(-500, 9999)
        buyer = (key, f"Customer#{key}", f"Road {key}", key % 5, phone, money, segment, "")
        _insert(cursor, "customer", [buyer])
    for key in range(1, orders + 1):
        day = _DAY + timedelta(random.randint(0, 1500))
        order = (random.randint(1, 70), pick("FOP"), random.randint(1, 99999), day)
        urgent, note = pick(("1-URGENT", "2-HIGH", "5-LOW")), pick(("", "special late requests"))
        _insert(cursor, "orders", [(key, *order, urgent, "Clerk", 0, note)])
        lines = []
        for line in range(1, random.randint(2, 9)):
            sent = day + timedelta(random.randint(1, 90))
            dates = (sent, sent + timedelta(random.randint(-20, 20)), sent + timedelta(9))
            price, off = random.randint(100, 99999) / 100, pick((0, 0.05, 0.06, 0.1))
            flags = (random.randint(1, 50), price, off, pick((0, 0.08)), pick("RAN"), pick("OF"))
            way = (pick(("DELIVER IN PERSON", "NONE")), pick(("AIR", "MAIL")), "")
            lines.append((key, *pick(offers), line, *flags, *dates, *way))
        _insert(cursor, "lineitem", lines)


def _insert(cursor, table, rows):
    for row in rows:
        marks = ", ".join(["%s"] * len(row))
        cursor.execute(f"INSERT INTO {table} VALUES ({marks})", row)


OPEN_ORDERS = {"q02": "s_suppkey", "q03": "l_orderkey", "q10": "c_custkey", "q18": "o_orderkey"}
"""Queries of which the specification leaves open which rows are the first, and a column to add."""


def official() -> dict[str, tuple[str, str]]:
    """Return the 22 queries as the specification has them, each with the key of its view."""
    parts = _NAMED.split(OFFICIAL.read_text("utf-8"))
    return {
        name: (key, query.strip().removesuffix(";"))
        for name, key, query in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


_NET = "l_extendedprice * (1 - l_discount)"
QUERIES = {
    "q01": "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, count(*) AS lines"
    " FROM lineitem WHERE l_shipdate <= DATE '1996-09-02' GROUP BY l_returnflag, l_linestatus",
    "q02": "SELECT s_suppkey, p_partkey, s_name, n_name, p_mfgr, s_phone FROM part"
    " JOIN partsupp ON p_partkey = ps_partkey JOIN supplier ON s_suppkey = ps_suppkey"
    " JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey"
    " WHERE p_type LIKE '%BRASS' AND r_name = 'EUROPE' AND ps_supplycost = (SELECT"
    " min(ps_supplycost) FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey"
    " JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey"
    " WHERE p_partkey = ps_partkey AND r_name = 'EUROPE')",
    "q03": f"SELECT l_orderkey, o_orderdate, sum({_NET}) AS revenue FROM customer"
    " JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey"
    " WHERE c_mktsegment = 'BUILDING' GROUP BY l_orderkey, o_orderdate",
    "q04": "SELECT o_orderpriority, count(*) AS orders FROM orders WHERE EXISTS (SELECT 1 FROM"
    " lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)"
    " GROUP BY o_orderpriority",
    "q05": f"SELECT n_name, sum({_NET}) AS revenue FROM customer"
    " JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey"
    " JOIN supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey"
    " JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey"
    " WHERE r_name = 'ASIA' GROUP BY n_name",
    "q07": f"SELECT seller, buyer, sum(volume) AS revenue FROM (SELECT n1.n_name AS seller,"
    f" n2.n_name AS buyer, {_NET} AS volume FROM supplier JOIN lineitem ON s_suppkey = l_suppkey"
    " JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey"
    " JOIN nation n1 ON s_nationkey = n1.n_nationkey JOIN nation n2 ON c_nationkey ="
    " n2.n_nationkey WHERE n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY' OR n1.n_name ="
    " 'GERMANY' AND n2.n_name = 'FRANCE') q GROUP BY seller, buyer",
    "q08": "SELECT year, sum(CASE WHEN country = 'BRAZIL' THEN volume ELSE 0 END) AS own,"
    f" sum(volume) AS total FROM (SELECT year(o_orderdate) AS year, {_NET} AS volume,"
    " n_name AS country FROM lineitem JOIN orders ON o_orderkey = l_orderkey"
    " JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey) q"
    " GROUP BY year",
    "q10": f"SELECT c_custkey, c_phone, n_name, sum({_NET}) AS revenue FROM customer"
    " JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey"
    " JOIN nation ON c_nationkey = n_nationkey WHERE l_returnflag = 'R'"
    " GROUP BY c_custkey, c_phone, n_name",
    "q12": "SELECT l_shipmode, sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority ="
    " '2-HIGH' THEN 1 ELSE 0 END) AS high, sum(CASE WHEN o_orderpriority <> '1-URGENT' AND"
    " o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low FROM orders JOIN lineitem"
    " ON o_orderkey = l_orderkey WHERE l_shipmode IN ('MAIL', 'SHIP') GROUP BY l_shipmode",
    "q16": "SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers FROM partsupp"
    " JOIN part ON p_partkey = ps_partkey WHERE p_brand <> 'Brand#23'"
    " GROUP BY p_brand, p_type, p_size",
    "q17": "SELECT p_brand, sum(l_extendedprice) AS price FROM lineitem JOIN part"
    " ON p_partkey = l_partkey WHERE p_brand = 'Brand#23' AND p_container = 'MED BAG'"
    " GROUP BY p_brand",
    "q19": f"SELECT l_shipmode, sum({_NET}) AS revenue FROM lineitem JOIN part"
    " ON p_partkey = l_partkey WHERE p_brand = 'Brand#12' AND p_container IN ('SM BOX', 'SM PKG')"
    " AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON'"
    " GROUP BY l_shipmode",
    "q20": "SELECT s_suppkey, s_name FROM supplier JOIN nation ON s_nationkey = n_nationkey"
    " WHERE n_name = 'CANADA' AND s_suppkey IN (SELECT ps_suppkey FROM partsupp JOIN part"
    " ON p_partkey = ps_partkey WHERE p_name LIKE 'forest%')",
    "q21": "SELECT s_name, count(*) AS waiting FROM supplier JOIN lineitem ON s_suppkey ="
    " l_suppkey JOIN orders ON o_orderkey = l_orderkey WHERE o_orderstatus = 'F' AND"
    " l_receiptdate > l_commitdate GROUP BY s_name",
    "q22": "SELECT code, count(*) AS customers, sum(c_acctbal) AS balance FROM (SELECT"
    " substring(c_phone, 1, 2) AS code, c_acctbal FROM customer WHERE substring(c_phone, 1, 2)"
    " IN ('13', '31') AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)) q"
    " GROUP BY code",
}
"""Those whose answer hangs on a char(n), with what they ask of other columns cut short."""
