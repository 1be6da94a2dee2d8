"""Views computed by DataFusion from a few records: what Spark makes of the same records.

What is not known to mean the same is refused when a query is read, and Spark computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812

from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.contract.rows.types import column_type
from replay.decode.decode import decode
from replay.decode.schemas import TopicSchemas
from tests.support.builders import INTEGERS, TEXT, decimal_type, make_relation
from tests.support.matrix import first
from views.project.spec import SqlSource
from views.project.sql import parse_sql_view, sql_frame
from views.rebuild.local import logs
from views.rebuild.local.by_spark import BySpark
from views.rebuild.local.engine import LocalQuery
from views.rebuild.local.rows import RecordColumns
from views.rebuild.local.table import RowRecord, record_table
from views.rebuild.plan.dialect import UnknownValueError

pytestmark = pytest.mark.spark

ORDERS, LINES = TableName("public", "orders"), TableName("public", "lines")
RELATIONS = {
    ORDERS: make_relation(
        {
            "id": column_type("int8", "bigint"),
            "Customer": column_type("int4", "integer"),
            "status": TEXT,
            "amount": decimal_type(12, 2),
            "score": column_type("float8", "double precision"),
            "placed": column_type("timestamptz", "timestamp with time zone"),
            "clock": column_type("timestamp", "timestamp without time zone"),
            "day": column_type("date", "date"),
            "paid": column_type("bool", "boolean"),
            "raw": column_type("bytea", "bytea"),
            "counts": INTEGERS,
        },
        name=ORDERS,
    ),
    LINES: make_relation(
        {
            "id": column_type("int4", "integer"),
            "order_id": column_type("int8", "bigint"),
            "sku": TEXT,
            "quantity": column_type("int2", "smallint"),
        },
        name=LINES,
    ),
}
SCHEMAS = {
    table: TopicSchemas(table.table, 1, {2: value_schema(each)}, 2, key=key_schema(each))
    for table, each in RELATIONS.items()
}
CODECS = {t: RowCodec(each, key_schema_id=1, value_schema_id=2) for t, each in RELATIONS.items()}
TAKEN = [
    """
    SELECT Customer, quotient(sum(amount), count(amount), 2, 0, 24) AS a,
        quotient(sum(amount * (1 - customer)), count(*), 2, 0, 24, 3) AS b,
        cast(quotient(sum(id), 7, 0, 0, 24) AS decimal(34, 24)) AS c,
        cast(sum(amount) AS decimal(30, 4)) AS d,
        quotient(100.00 * sum(CASE WHEN paid THEN amount ELSE 0 END), 3, 4, 0, 24) AS e
    FROM orders GROUP BY Customer HAVING quotient(sum(amount), count(*), 2, 0, 24) > -5
    """,
    """
    SELECT id, quotient(amount, id + 10, 2, 0, 24) AS a, round(amount, 1) AS b,
        round(amount * 1.005, 2) AS c, cast(customer div 2 AS int) AS d, id div -2 AS e,
        cast(customer AS bigint) AS f, cast(customer AS decimal(12, 2)) AS g
    FROM orders
    """,
    """
    SELECT id, sum(amount) OVER (PARTITION BY customer ORDER BY id) AS a,
        sum(amount) OVER (PARTITION BY customer ORDER BY id
            ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS b,
        count(status) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS c,
        min(day) OVER (PARTITION BY paid ORDER BY id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS d,
        max(status) OVER (PARTITION BY customer) AS e, count(*) OVER () AS f,
        lag(status) OVER (PARTITION BY customer ORDER BY id DESC) AS g,
        lead(amount, 2) OVER (ORDER BY id) AS h,
        sum(customer) OVER (PARTITION BY paid ORDER BY status, id DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS i
    FROM orders
    """,
    "SELECT * FROM orders",
    "SELECT id, status || '!' AS s, -customer AS m, amount * 2 + 1 AS a, raw FROM orders o",
    """
    SELECT id, CASE WHEN amount > 3 THEN 'much' WHEN paid THEN status ELSE 'little' END AS s,
        coalesce(status, 'none') AS t, if(paid, id, customer) AS n FROM orders
    WHERE (NOT paid OR paid IS NULL) AND customer IN (1, 2, 3) AND id BETWEEN -5 AND 5
    """,
    "SELECT id FROM orders WHERE status <=> 'a' OR status >= 'b'",
    """
    SELECT id, DATE '2024-02-29' AS d, min(day) AS m FROM orders
    WHERE day >= date '2020-01-01' OR day < CAST('0001-12-31' AS date) GROUP BY id
    """,
    """
    SELECT Customer, count(*) AS n, count(status) AS m, sum(amount) AS a, min(status) AS s,
        max(placed) AS p, min(day) AS d, sum(id) FILTER (WHERE paid) AS i
    FROM orders GROUP BY Customer
    """,
    """
    SELECT Customer, bool_or(paid) AS a, bool_and(paid) FILTER (WHERE id > 0) AS b,
        bool_and(amount > 1 OR status IS NULL) AS c, coalesce(bool_or(status = 'a'), false) AS d
    FROM orders GROUP BY Customer HAVING bool_or(paid) IS NOT NULL OR count(*) > 1
    """,
    """
    SELECT o.id, o.placed, collect_list(struct(l.sku, named_struct('n', l.quantity) AS q))
        FILTER (WHERE l.quantity > 0) AS lines
    FROM orders o LEFT JOIN lines l ON l.order_id = o.id GROUP BY o.id, o.placed
    """,
    """
    SELECT o.customer, array_agg(l.sku ORDER BY l.quantity DESC NULLS LAST, l.id, o.id) AS s,
        array_agg(o.score ORDER BY o.day NULLS FIRST, o.id DESC, l.id) FILTER (WHERE paid) AS t,
        array_join(array_agg(l.sku ORDER BY l.id, o.id) FILTER (WHERE l.sku IS NOT NULL), ',') AS u,
        listagg(status, '') WITHIN GROUP (ORDER BY o.id DESC, l.id) AS v, collect_list(l.id) AS skus
    FROM orders o LEFT JOIN lines l ON l.order_id = o.id GROUP BY o.customer
    """,
    """
    SELECT o.id, collect_list(l.sku) AS skus FROM orders o JOIN lines l ON l.order_id = o.id
    GROUP BY o.id HAVING count(*) > 1
    """,
    """
    SELECT id, amount * 1.5 + 0.05 AS a, status LIKE 'a%' AS s, status NOT LIKE '_' AS t,
        trim(TRAILING ' ' FROM status || ' ') <> 'a' AS r
    FROM orders
    """,
    """
    SELECT Customer, avg(amount) AS a, avg(amount * (1 - customer)) AS b, avg(id) AS i,
        avg(amount) FILTER (WHERE paid) AS p, count(DISTINCT status) AS s,
        count(DISTINCT placed) AS m
    FROM orders GROUP BY Customer
    """,
    """
    SELECT o.id, sort_array(collect_list(struct(l.sku, l.quantity)) FILTER (WHERE l.id IS NOT NULL))
        AS sorted FROM orders o LEFT JOIN lines l ON l.order_id = o.id GROUP BY o.id
    """,
    "SELECT o.id, l.id AS line FROM orders o, lines l WHERE l.order_id = o.id AND o.amount > 0.5",
    "SELECT DISTINCT customer AS id, status, day FROM orders",
    "SELECT 1 AS id, count(*) AS n, sum(amount) AS s, avg(id) AS a FROM orders WHERE amount < 5",
    """
    SELECT o.id, l.id AS line FROM orders o RIGHT JOIN lines l ON l.order_id = o.id UNION ALL
    SELECT o.id, l.id FROM orders o FULL JOIN lines l ON l.order_id = o.id AND l.quantity > o.id
    """,
    "SELECT id, customer FROM orders UNION SELECT order_id, quantity FROM lines",
    "SELECT id, customer FROM orders EXCEPT SELECT order_id, quantity FROM lines",
    "SELECT id FROM orders INTERSECT SELECT order_id FROM lines",
    "SELECT o.id FROM orders o LEFT SEMI JOIN lines l ON l.order_id = o.id",
    "SELECT o.id FROM orders o LEFT ANTI JOIN lines l ON l.order_id = o.id AND l.sku = 'a'",
    """
    SELECT n AS id, count(*) AS customers, max(s) AS s FROM (
        SELECT customer, count(status) AS n, max(amount) AS s FROM orders GROUP BY customer
    ) t GROUP BY n
    """,
    """
    WITH t AS (SELECT order_id, count(*) AS n, max(sku) AS sku FROM lines GROUP BY order_id),
    u AS (SELECT t.n, t.order_id FROM t WHERE t.n > 1)
    SELECT o.id, t.n, t.sku, u.n AS m FROM orders o LEFT JOIN t ON t.order_id = o.id
        LEFT JOIN u ON u.order_id = o.customer
    """,
    """
    SELECT o.id FROM orders o
    WHERE EXISTS (SELECT 1 FROM lines l WHERE l.order_id = o.id AND l.quantity > 0)
        AND NOT EXISTS (SELECT * FROM lines l WHERE l.order_id = o.customer)
    """,
    """
    SELECT o.id FROM orders o WHERE o.customer IN (SELECT l.quantity FROM lines l)
        AND (o.id IN (SELECT order_id FROM lines l WHERE l.sku = o.status))
    """,
    "SELECT id FROM orders WHERE customer NOT IN (SELECT quantity FROM lines)",
    """
    SELECT id, (SELECT max(l.id) FROM lines l WHERE l.order_id = o.id) AS n,
        (SELECT count(*) FROM lines l WHERE l.sku = o.status) AS m,
        (SELECT sum(quantity) FROM lines) AS s FROM orders o
    """,
    """
    SELECT id, n, m FROM (
        SELECT id, row_number() OVER (PARTITION BY customer ORDER BY day DESC, id) AS n,
            rank() OVER (PARTITION BY customer ORDER BY status) AS r,
            dense_rank() OVER (ORDER BY status DESC) AS m
        FROM orders) t WHERE n = 1 OR r = 2
    """,
]
CALLS = [
    """
    SELECT id, upper(status) AS a, lower(status) AS b, length(status) AS c, trim(status) AS d,
        substring(status, 1, 2) AS e, substring(status, 2) AS f, left(status, 1) AS g,
        right(status, 2) AS h, ltrim('a', status) AS i, rtrim(status) AS j,
        replace(status, 'a', 'xy') AS k, translate(status, 'ab', 'x') AS l, reverse(status) AS m,
        repeat(status, 2) AS n, lpad(status, 3, '*-') AS o, rpad(status, 3, '*') AS p,
        split_part(status, 'a', 2) AS q, instr(status, 'b') AS r, startswith(status, 'a') AS s,
        endswith(status, 'a') AS t, contains(status, 'b') AS u, concat(status, '-', status) AS v,
        concat_ws('/', status, 'x', status) AS w, ascii(status) AS x, md5(status) AS y,
        octet_length(status) AS z
    FROM orders
    """,
    """
    SELECT id, status RLIKE '^[a-c]+' AS a, status RLIKE 'a{1,2}\\\\z' AS b, status ILIKE 'A%' AS c,
        status ILIKE '_!' AS d, paid IS TRUE AS e, paid IS NOT FALSE AS f,
        status IS DISTINCT FROM 'a' AS g, nullif(status, 'a') AS h,
        id IN (4, customer) AS o, abs(id) IN (1, 3) AS p, least(status, 'b') AS i,
        cast(paid AS int) AS j, cast(paid AS string) AS k, cast(customer AS boolean) AS l,
        cast(cast(customer AS string) AS bigint) AS m, cast(NULL AS string) AS n
    FROM orders
    """,
    """
    SELECT id, abs(customer) AS a, abs(amount) AS b, customer % 2 AS c, id % -3 AS d,
        greatest(customer, 1) AS e, least(amount, 1, id) AS f, ceil(amount) AS g,
        floor(amount) AS h, sign(amount) AS i, cast(sign(amount) AS decimal(1, 0)) AS j,
        cast(amount AS decimal(12, 1)) AS k, cast(round(amount, 0) AS int) AS l,
        cast(amount AS string) AS m, cast(amount AS double) AS n, cast(customer AS double) AS o,
        ceil(amount * 1.5) * 2 AS p, -(amount + customer) AS q, customer * customer - id AS r,
        amount % 2 AS s, amount % 0.7 AS t, 7 % (amount + 20) AS u, customer / 4 AS v,
        CASE WHEN paid THEN counts END AS w
    FROM orders
    """,
    """
    SELECT id, score > 0 AS a, score = 0 AS b, score < 1.5 AS c, score <=> score AS d,
        score >= -0.5 AS e, score IN (0, 1.5) AS f, score * 2 - 1 AS g, -score AS h,
        coalesce(score, 0.5) AS i, CASE WHEN score > customer THEN score ELSE 0 END AS j,
        rint(score) AS k, score BETWEEN 0 AND 2 AS l, score / 3 AS m,
        customer / (id + 10) AS n
    FROM orders WHERE score IS NULL OR score > -1 OR paid
    """,
    """
    SELECT Customer, sum(score) + 0 AS a, avg(score) + 0 AS b, count(score) AS c,
        sum(id * customer) AS d, sum(id) FILTER (WHERE score > 1) AS e
    FROM orders GROUP BY Customer
    """,
    """
    SELECT id, year(clock) AS a, month(day) AS b, day(clock) AS c, quarter(day) AS d,
        weekofyear(day) AS e, dayofweek(day) AS f, dayofyear(day) AS g, hour(clock) AS h,
        minute(clock) AS i, extract(second FROM clock) AS j, extract(week FROM clock) AS k,
        cast(clock AS date) AS l, cast(day AS timestamp_ntz) AS m, cast(day AS string) AS n,
        cast(clock AS string) AS o, date_format(clock, 'yyyy-MM-dd HH:mm:ss') AS p,
        to_date(clock) AS q, cast(placed AS timestamp_ntz) AS r, unix_micros(placed) AS s
    FROM orders
    """,
    """
    SELECT id, date_trunc('month', placed) AS a,
        cast(date_trunc('week', clock) AS timestamp_ntz) AS b,
        trunc(day, 'quarter') AS c, trunc(day, 'year') AS d, date_add(day, customer) AS e,
        date_sub(day, 31) AS f, datediff(day, date '2020-03-01') AS g, datediff(clock, day) AS h,
        clock + interval '1' month AS j, placed - interval '13' month AS k,
        clock - interval '36' hour AS l, clock >= timestamp_ntz '2020-01-31 00:00:00' AS m,
        placed < timestamp '2020-01-31 00:00:00.5' AS n, clock > day AS o,
        make_date(2020, 2, customer + 10) AS p, greatest(day, date '2020-01-31') AS q
    FROM orders
    """,
    """
    SELECT id, get(counts, 0) AS a, get(counts, 2) AS b, size(counts) AS c,
        array_contains(counts, customer) AS d, has_all(counts, array(1)) AS e,
        arrays_overlap(counts, array(customer, 3)) AS f, nullif(array_size(counts), 0) AS g,
        array_join(cast(counts AS array<string>), ',') AS h
    FROM orders
    """,
]
DAYS = """
    SELECT id FROM orders
    WHERE day >= cast(DATE '2020-03-31' AS timestamp_ntz) - interval '1' month
        OR day < cast(DATE '1996-02-29' AS timestamp_ntz) + interval '1' year
        OR day BETWEEN DATE '2019-01-01' AND cast(DATE '2019-01-01' AS timestamp_ntz)
            + interval '90' day
"""
REFUSED = [
    "SELECT id, abs(id) IN (4, customer) AS s FROM orders",
    "SELECT id, upper(day) AS s FROM orders",
    "SELECT id, replace(status, status, 'a') AS s FROM orders",
    "SELECT id, status RLIKE 'a.b' AS s FROM orders",
    "SELECT id, status RLIKE '\\\\w' AS s FROM orders",
    "SELECT id, substring(status, 0, 2) AS s FROM orders",
    "SELECT id, hour(placed) AS s FROM orders",
    "SELECT id, hour(to_date(clock)) AS s FROM orders",
    "SELECT id, cast(placed AS date) AS s FROM orders",
    "SELECT id, cast(amount AS bigint) AS s FROM orders",
    "SELECT id, cast(score AS bigint) AS s FROM orders",
    "SELECT id, cast(score AS string) AS s FROM orders",
    "SELECT id, amount > score AS s FROM orders",
    "SELECT id, floor(score) AS s FROM orders",
    "SELECT id, amount / score AS s FROM orders",
    "SELECT id, get_json_object(status, '$.*') AS s FROM orders",
    "SELECT id, date_format(clock, 'EEE') AS s FROM orders",
    "SELECT id, count(*) AS s FROM orders GROUP BY id, score",
    "SELECT id, max(score) AS s FROM orders GROUP BY id",
    "SELECT id FROM orders WHERE day > DATE '2024-2-9'",
    "SELECT id, CAST(status AS date) AS d FROM orders",
    "SELECT id, amount / 3 AS a FROM orders",
    "SELECT id, amount * 1.5e0 AS a FROM orders",
    "SELECT id, status LIKE 'a\\\\%' AS s FROM orders",
    "SELECT id, status LIKE day AS s FROM orders",
    "SELECT id, sort_array(collect_list(score)) AS s FROM orders GROUP BY id",
    "SELECT id, sort_array(collect_list(day), false) AS s FROM orders GROUP BY id",
    "SELECT id, n FROM (SELECT id, collect_list(day) AS n FROM orders GROUP BY id) t",
    "SELECT id, (SELECT l.id FROM lines l WHERE l.order_id = o.id) AS n FROM orders o",
    "SELECT DISTINCT id, score FROM orders",
    "SELECT id FROM orders WHERE id = 1 OR customer NOT IN (SELECT quantity FROM lines)",
    "SELECT id, status AS s FROM orders UNION SELECT id, quantity FROM lines",
    "SELECT id, sum(score) OVER (ORDER BY id) AS s FROM orders",
    "SELECT id, lag(status, 1, 'a') OVER (ORDER BY id) AS s FROM orders",
    "SELECT id, sum(id) OVER (ORDER BY id RANGE 1 PRECEDING) AS s FROM orders",
    "SELECT id, try_cast(customer AS tinyint) AS s FROM orders",
    "SELECT id, cast(amount AS int) AS s FROM orders",
    "SELECT id, round(score, 1) AS s FROM orders",
    "SELECT id, extract(hour FROM placed) AS s FROM orders",
    "SELECT id FROM orders ORDER BY id LIMIT 1",
    "SELECT id, day > '2020-01-01' AS s FROM orders",
    "SELECT id, struct(Customer) AS s FROM orders",
    "SELECT id, count(DISTINCT status, day) AS s FROM orders GROUP BY id",
    "SELECT id, count(DISTINCT score) AS s FROM orders GROUP BY id",
]
instants = st.sampled_from(
    ["2020-01-31 00:00:00", "2020-02-29 23:59:59.999999", "1969-12-31 01:00:00.5"]
) | st.builds(
    "{:04d}-{:02d}-{:02d} {:02d}:59:07".format,
    *(st.integers(1, 9998), st.integers(1, 12), st.integers(1, 28), st.integers(0, 23)),
)
small = st.none() | st.integers(-3, 3)
order = st.tuples(
    st.integers(-3, 6),
    small,
    st.none() | st.sampled_from(["", "a", "b", "é\u2028\x00".replace("\x00", "0"), "a!"]),
    st.none() | st.decimals(-9, 9, places=2),
    st.none() | st.sampled_from(["NaN", "-0", "1.5", "-Infinity", "1e300"]),
    st.none() | st.sampled_from(["infinity", "-infinity", "2013-01-01 05:06:07.000008+00",
                                 "0044-03-15 12:00:00+00 BC"]),
    st.none() | st.sampled_from(["infinity", "2013-01-01 05:06:07.5"]),
    st.none() | st.sampled_from(["2020-02-29", "infinity", "0044-03-15 BC"]),
    st.none() | st.sampled_from(["t", "f"]),
    st.none() | st.sampled_from(["\\x", "\\x00ff"]),
    st.none() | st.sampled_from(["{}", "{1,NULL,3}"]),
)  # fmt: skip
line = st.tuples(
    st.integers(0, 9), st.none() | st.integers(-3, 6), st.none() | st.text("ab"), small
)
plain_order = st.tuples(
    st.integers(-3, 6),
    small,
    st.none() | st.sampled_from(["", "a", "ab", "é\u2028", " a ", "Ab!", "b", "aa", "bab"]),
    st.none() | st.decimals(-9, 9, places=2),
    st.none() | st.sampled_from(["NaN", "-0", "1.5", "-Infinity", "0.5", "-2.5"]),
    st.none() | instants.map(lambda at: f"{at}+00"),
    st.none() | instants,
    st.none() | instants.map(lambda at: at[:10]),
    st.none() | st.sampled_from(["t", "f"]),
    st.none(),
    st.none() | st.sampled_from(["{}", "{1,NULL,3}", "{2}", "{-1,3}"]),
)
orders = st.lists(order, max_size=12, unique_by=lambda row: row[0])
lines = st.lists(line, max_size=12, unique_by=lambda row: row[0])


def records(table: TableName, rows: Sequence[tuple]) -> list[RowRecord]:
    codec = CODECS[table]
    found = []
    for number, row in enumerate(rows):
        sent = [None if each is None else str(each).encode() for each in row]
        key = codec.encode_key((str(row[0]).encode(),))
        found.append(RowRecord(key, codec.encode_value(sent), 0, number, ()))
    return found


def computed(query: LocalQuery | BySpark, found: Mapping) -> pa.Table:
    """Return the rows of a view that some records at each place give."""
    if isinstance(query, BySpark):
        return query.rows({place: record_table(some) for place, some in found.items()})
    return query.rows(
        {
            place: RecordColumns(SCHEMAS[place.table], query.used[place]).table(some)
            for place, some in found.items()
        }
    )


def read(spark, sql: str):
    """Return the query of a view, and the schema that Spark gives its rows."""
    key = "Customer" if "GROUP BY Customer" in sql else "id"
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {key}\n{sql}")
    assert isinstance(spec.source, SqlSource)
    empty = spark.createDataFrame([], "key binary, value binary, partition int, offset bigint")
    states = {table: decode(empty, SCHEMAS[table]).frame for table in spec.tables}
    return spec.source, sql_frame(spark, spec.source, states).schema


def sorted_rows(table: pa.Table) -> list[str]:
    """Return rows as texts in one order; lists that were collected are in none."""
    plain = [
        {n: sorted(map(repr, v)) if n in {"lines", "skus"} else repr(v) for n, v in row.items()}
        for row in physical(table).to_pylist()
    ]
    return sorted(map(repr, plain))


def physical(table: pa.Table) -> pa.Table:
    """Let dates and moments be numbers, which Python has for all of them."""
    columns = [
        each.combine_chunks().view({32: pa.int32(), 64: pa.int64()}[each.type.bit_width])
        if pa.types.is_temporal(each.type)
        else each
        for each in table.columns
    ]
    return pa.Table.from_arrays(columns, names=table.column_names)


@pytest.mark.parametrize("sql", first(5, TAKEN))
def test_a_query_means_here_what_it_means_in_spark(spark, sql):
    source, schema = read(spark, sql)
    here = LocalQuery(source, SCHEMAS, schema)
    there = BySpark(spark, source, SCHEMAS)

    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=[*HealthCheck],
        phases=[Phase.explicit, Phase.generate],  # to shrink by Spark takes minutes
    )
    @given(some=orders, more=lines)
    def law(some, more):
        given_rows = {ORDERS: records(ORDERS, some), LINES: records(LINES, more)}
        found = {place: given_rows[place.table] for place in source.references}
        ours, sparks = computed(here, found), computed(there, found)
        assert ours.schema.types == sparks.schema.types
        assert sorted_rows(ours) == sorted_rows(sparks)

    law()


@pytest.mark.parametrize("sql", first(3, CALLS))
def test_a_call_means_here_what_it_means_in_spark(spark, sql):
    source, schema = read(spark, sql)
    here, there = LocalQuery(source, SCHEMAS, schema), BySpark(spark, source, SCHEMAS)

    @settings(
        max_examples=20,
        deadline=None,
        suppress_health_check=[*HealthCheck],
        phases=[Phase.explicit, Phase.generate],
    )
    @given(some=st.lists(plain_order, max_size=12, unique_by=lambda row: row[0]))
    def law(some):
        found = dict.fromkeys(source.references, records(ORDERS, some))
        assert sorted_rows(computed(here, found)) == sorted_rows(computed(there, found))

    law()


def test_constant_days_are_computed_as_in_spark(spark):
    source, schema = read(spark, DAYS)
    days = ["2020-02-28", "2020-02-29", "1997-02-27", "1997-02-28", "2019-01-01", "2019-04-01",
            "2019-04-02", "0044-03-15 BC", None]  # fmt: skip
    rows = [(n, *[None] * 6, day, *[None] * 3) for n, day in enumerate(days)]
    found = dict.fromkeys(source.references, records(ORDERS, rows))
    ours = computed(LocalQuery(source, SCHEMAS, schema), found)
    assert sorted_rows(ours) == sorted_rows(computed(BySpark(spark, source, SCHEMAS), found))
    assert ours["id"].to_pylist() == [1, 2, 4, 5, 7]


@pytest.mark.parametrize("sql", first(12, REFUSED))
def test_a_query_that_may_mean_something_else_is_refused(spark, sql):
    source, schema = read(spark, sql)
    with pytest.raises(UnknownValueError):
        LocalQuery(source, SCHEMAS, schema)


def test_a_value_without_a_place_in_its_type_is_left_to_spark(spark):
    source, schema = read(spark, "SELECT id, amount FROM orders")
    here = LocalQuery(source, SCHEMAS, schema)
    row = (1, None, None, "NaN", *[None] * 7)
    with pytest.raises(UnknownValueError):
        computed(here, dict.fromkeys(source.references, records(ORDERS, [row])))


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("SELECT id, quotient(amount, id, 2, 0, 24) AS a FROM orders", (0, 1, None, 1)),
        ("SELECT id, id div customer AS a FROM orders", (1, 0)),
        ("SELECT id, cast(id AS int) AS a FROM orders", (2**40, 0)),
        ("SELECT id, extract(year FROM day) AS a FROM orders", (1, *[None] * 6, "infinity")),
        ("SELECT id, extract(year FROM day) AS a FROM orders", (1, *[None] * 6, "0044-03-15 BC")),
    ],
)
def test_what_has_no_exact_answer_is_left_to_spark(spark, sql, row):
    source, schema = read(spark, sql)
    here = LocalQuery(source, SCHEMAS, schema)
    good = (1, 1, None, 1, None, None, None, "2020-02-29", *[None] * 3)
    assert computed(here, dict.fromkeys(source.references, records(ORDERS, [good]))).num_rows == 1
    row = (*row, *[None] * (len(good) - len(row)))
    with pytest.raises(UnknownValueError):
        computed(here, dict.fromkeys(source.references, records(ORDERS, [row])))


def test_numbers_that_do_not_fit_are_left_to_spark(spark):
    source, schema = read(spark, "SELECT id, customer * 2 AS n FROM orders")
    here = LocalQuery(source, SCHEMAS, schema)
    row = (1, 2**31 - 1, *[None] * 9)
    with pytest.raises(UnknownValueError):
        computed(here, dict.fromkeys(source.references, records(ORDERS, [row])))


def test_records_for_a_follower_come_in_parts_of_some_megabytes(spark, monkeypatch):
    """Java holds a part as a whole: that of a state as it is stored has no bound."""
    monkeypatch.setattr(logs, "PART_BYTES", 100_000)
    records = spark.range(0, 5_000, 1, 2).selectExpr(
        "encode(cast(id AS string), 'utf-8') AS key",
        "encode(repeat('x', 200), 'utf-8') AS value",
        "id",
    )

    def sizes(frame):
        parts = frame.groupBy(F.spark_partition_id()).agg(F.sum(F.length("value")))
        return [size for _, size in parts.collect()]

    assert sum(sizes(logs.in_parts(records))) == sum(sizes(records)) == 5_000 * 200
    assert max(sizes(logs.in_parts(records))) < 2 * 100_000 < max(sizes(records))
    monkeypatch.setattr(logs, "PART_BYTES", 16 << 20)
    assert len(sizes(logs.in_parts(records))) == 2, "few records stay where they are"
