"""TPC-H in small: its tables with char(n) as its specification has them, rows from a seed, queries.

https://www.tpc.org/tpch/ describes both; left out are columns that no query here reads.
"""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

TABLES = {
    "region": "r_regionkey int primary key, r_name char(25)",
    "nation": "n_nationkey int primary key, n_name char(25), n_regionkey int",
    "supplier": "s_suppkey int primary key, s_name char(25), s_nationkey int, s_phone char(15)",
    "part": "p_partkey int primary key, p_name varchar(55), p_mfgr char(25), p_brand char(10),"
    " p_type varchar(25), p_size int, p_container char(10)",
    "partsupp": "ps_partkey int, ps_suppkey int, ps_supplycost numeric(15,2),"
    " primary key (ps_partkey, ps_suppkey)",
    "customer": "c_custkey int primary key, c_name varchar(25), c_nationkey int, c_phone char(15),"
    " c_acctbal numeric(15,2), c_mktsegment char(10)",
    "orders": "o_orderkey int primary key, o_custkey int, o_orderstatus char(1),"
    " o_totalprice numeric(15,2), o_orderdate date, o_orderpriority char(15)",
    "lineitem": "l_orderkey int, l_linenumber int, l_partkey int, l_suppkey int,"
    " l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_discount numeric(15,2),"
    " l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date,"
    " l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10),"
    " primary key (l_orderkey, l_linenumber)",
}
DDL = "\n".join(f"CREATE TABLE {name} ({columns});" for name, columns in TABLES.items())
NATIONS = ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA")
REGIONS = ("AMERICA", "ASIA", "EUROPE")
_DAY = date(1993, 1, 1)


def fill(cursor, seed=7, orders=300):
    """Put rows into the tables."""
    random = Random(seed)  # noqa: S311 - no secret
    for key, name in enumerate(REGIONS):
        _insert(cursor, "region", (key, name))
    for key, name in enumerate(NATIONS):
        _insert(cursor, "nation", (key, name, key % 3))
    for key in range(1, 21):
        phone = f"{10 + key % 25}-{key:03d}-555"
        _insert(cursor, "supplier", (key, f"Supplier#{key}", key % 5, phone))
    for key in range(1, 41):
        size, kind = random.randint(1, 15), random.choice(("BRASS", "TIN"))
        brand, box = random.choice(("Brand#12", "Brand#23")), random.choice(("SM BOX", "MED BAG"))
        name = random.choice(("forest green", "navy", "lime"))
        _insert(cursor, "part", (key, name, f"Maker#{key % 3}", brand, f"LARGE {kind}", size, box))
        for supplier in random.sample(range(1, 21), 3):
            _insert(cursor, "partsupp", (key, supplier, random.randint(100, 99999) / 100))
    for key in range(1, 61):
        phone = f"{random.choice((13, 17, 31, 40))}-{key:03d}"
        segment, money = random.choice(("BUILDING", "MACHINERY")), random.randint(-500, 9999)
        _insert(cursor, "customer", (key, f"Customer#{key}", key % 5, phone, money, segment))
    for key in range(1, orders + 1):
        day = _DAY + timedelta(random.randint(0, 1500))
        urgent = random.choice(("1-URGENT", "2-HIGH", "5-LOW"))
        status = random.choice("FOP")
        total = random.randint(1, 99999)
        _insert(cursor, "orders", (key, random.randint(1, 50), status, total, day, urgent))
        for line in range(1, random.randint(2, 5)):
            sent = day + timedelta(random.randint(1, 90))
            dates = (sent, sent + timedelta(random.randint(-20, 20)), sent + timedelta(9))
            price, off = random.randint(100, 99999) / 100, random.choice((0, 0.05, 0.1))
            keys = (key, line, random.randint(1, 40), random.randint(1, 20))
            flags = (random.randint(1, 50), price, off, random.choice("RAN"), random.choice("OF"))
            way = (random.choice(("DELIVER IN PERSON", "NONE")), random.choice(("AIR", "MAIL")))
            _insert(cursor, "lineitem", (*keys, *flags, *dates, *way))


def _insert(cursor, table, row):
    marks = ", ".join(["%s"] * len(row))
    cursor.execute(f"INSERT INTO {table} VALUES ({marks})", row)


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
