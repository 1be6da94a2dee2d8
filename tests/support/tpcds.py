"""TPC-DS in small: some of its tables, rows from a seed, and queries of the forms that it has.

https://www.tpc.org/tpcds/ describes it. The queries are our own, after its own: WITH, ROLLUP and
`grouping`, windows over aggregates, INTERSECT and EXCEPT, EXISTS and IN, values of subqueries,
FULL JOIN, joins of a table with itself.
"""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

TABLES = {
    "date_dim": "d_date_sk int primary key, d_date date, d_year int, d_moy int, d_qoy int,"
    " d_day_name char(9)",
    "item": "i_item_sk int primary key, i_item_id char(16), i_brand char(50), i_class char(50),"
    " i_category char(50), i_current_price numeric(7,2), i_manufact_id int",
    "customer": "c_customer_sk int primary key, c_customer_id char(16), c_first_name char(20),"
    " c_last_name char(30), c_current_addr_sk int, c_birth_year int",
    "customer_address": "ca_address_sk int primary key, ca_state char(2), ca_zip char(10),"
    " ca_city varchar(60)",
    "store": "s_store_sk int primary key, s_store_name varchar(50), s_state char(2)",
    "store_sales": "ss_item_sk int, ss_ticket_number bigint, ss_sold_date_sk int,"
    " ss_customer_sk int, ss_store_sk int, ss_quantity int, ss_sales_price numeric(7,2),"
    " ss_ext_sales_price numeric(7,2), ss_net_profit numeric(7,2),"
    " primary key (ss_item_sk, ss_ticket_number)",
    "store_returns": "sr_item_sk int, sr_ticket_number bigint, sr_returned_date_sk int,"
    " sr_customer_sk int, sr_return_quantity int, sr_return_amt numeric(7,2),"
    " primary key (sr_item_sk, sr_ticket_number)",
    "web_sales": "ws_item_sk int, ws_order_number bigint, ws_sold_date_sk int,"
    " ws_bill_customer_sk int, ws_quantity int, ws_ext_sales_price numeric(7,2),"
    " ws_net_profit numeric(7,2), primary key (ws_item_sk, ws_order_number)",
}
DDL = "\n".join(f"CREATE TABLE {name} ({columns});" for name, columns in TABLES.items())
CATEGORIES = ("Books", "Music", "Sports")
STATES = ("TN", "CA", "OH")
_DAY = date(1999, 1, 1)


def fill(cursor, seed=5, tickets=260):
    """Put rows into the tables."""
    random = Random(seed)  # noqa: S311 - no secret
    pick = random.choice
    for key in range(1, 61):
        day = _DAY + timedelta(17 * key)
        parts = (day, day.year, day.month, (day.month + 2) // 3, day.strftime("%A"))
        _insert(cursor, "date_dim", (key, *parts))
    for key in range(1, 31):
        category = None if key == 30 else pick(CATEGORIES)
        brand, kind = pick(("amalg", "edu pack", "export")), pick(("classical", "fiction", None))
        price, maker = random.randint(50, 9999) / 100, key % 4
        _insert(cursor, "item", (key, f"ITEM{key:04d}", brand, kind, category, price, maker))
    for key in range(1, 41):
        names = pick(("Anna", "Bo", None)), pick(("Lee", "Ng"))
        _insert(cursor, "customer", (key, f"C{key:05d}", *names, key % 20 or None, 1950 + key % 9))
    for key in range(1, 20):
        place = pick(STATES), f"{30000 + 7 * key}", pick(("Fairview", "Oakland"))
        _insert(cursor, "customer_address", (key, *place))
    for key in range(1, 5):
        _insert(cursor, "store", (key, pick(("ought", "able")), pick(STATES)))
    for ticket in range(1, tickets):
        sold = random.randint(1, 50)
        for item in random.sample(range(1, 31), random.randint(1, 3)):
            buyer = random.randint(1, 40) if random.random() > 0.05 else None
            number, money = random.randint(1, 9), random.randint(100, 9999) / 100
            profit = random.randint(-5000, 9000) / 100
            sale = (sold, buyer, random.randint(1, 4), number, money, number * money, profit)
            _insert(cursor, "store_sales", (item, ticket, *sale))
            if random.random() < 0.2:
                back = (min(sold + random.randint(1, 9), 60), buyer, 1, money)
                _insert(cursor, "store_returns", (item, ticket, *back))
        if ticket % 2:
            for item in random.sample(range(1, 31), 2):
                number, money = random.randint(1, 9), random.randint(100, 9999) / 100
                order = (sold, random.randint(1, 40), number, number * money, money - 40)
                _insert(cursor, "web_sales", (item, ticket, *order))


def _insert(cursor, table, row):
    marks = ", ".join(["%s"] * len(row))
    cursor.execute(f"INSERT INTO {table} VALUES ({marks})", row)


QUERIES = {
    "returned_more_than_usual": (
        "c_customer_id",
        """
WITH customer_total_return AS (
    SELECT sr_customer_sk AS ctr_customer_sk, d_year AS ctr_year, sum(sr_return_amt) AS ctr_total
    FROM store_returns, date_dim
    WHERE sr_returned_date_sk = d_date_sk
    GROUP BY sr_customer_sk, d_year)
SELECT DISTINCT c_customer_id
FROM customer_total_return ctr1, customer
WHERE ctr1.ctr_total > (SELECT avg(ctr_total) * 1.2 FROM customer_total_return ctr2
                        WHERE ctr1.ctr_year = ctr2.ctr_year)
  AND ctr_customer_sk = c_customer_sk
ORDER BY c_customer_id""",
    ),
    "weekly_pattern": (
        "s_store_name, d_year",
        """
SELECT s_store_name, d_year,
    sum(CASE WHEN d_day_name = 'Sunday' THEN ss_sales_price ELSE NULL END) AS sun_sales,
    sum(CASE WHEN d_day_name = 'Monday' THEN ss_sales_price ELSE NULL END) AS mon_sales,
    count(DISTINCT ss_customer_sk) AS buyers
FROM date_dim JOIN store_sales ON d_date_sk = ss_sold_date_sk JOIN store ON s_store_sk = ss_store_sk
GROUP BY s_store_name, d_year""",
    ),
    "share_of_its_class": (
        "i_item_id",
        """
SELECT i_item_id, i_category, i_class, i_current_price, sum(ss_ext_sales_price) AS itemrevenue,
    sum(ss_ext_sales_price) * 100 / sum(sum(ss_ext_sales_price)) OVER (PARTITION BY i_class)
        AS revenueratio
FROM store_sales, item, date_dim
WHERE ss_item_sk = i_item_sk AND i_category IN ('Sports', 'Books') AND ss_sold_date_sk = d_date_sk
  AND d_date BETWEEN CAST('1999-02-22' AS date) AND (CAST('1999-02-22' AS date) + 800)
GROUP BY i_item_id, i_class, i_category, i_current_price
ORDER BY i_category, i_class, i_item_id, revenueratio""",
    ),
    "profit_by_rollup": (
        "i_category, i_class, lochierarchy",
        """
SELECT sum(ss_net_profit) / sum(ss_ext_sales_price) AS gross_margin, i_category, i_class,
    grouping(i_category) + grouping(i_class) AS lochierarchy,
    rank() OVER (PARTITION BY grouping(i_category) + grouping(i_class),
        CASE WHEN grouping(i_class) = 0 THEN i_category END
        ORDER BY sum(ss_net_profit) / sum(ss_ext_sales_price) ASC) AS rank_within_parent
FROM store_sales, date_dim d1, item, store
WHERE d1.d_year >= 1999 AND d1.d_date_sk = ss_sold_date_sk AND i_item_sk = ss_item_sk
  AND s_store_sk = ss_store_sk
GROUP BY ROLLUP (i_category, i_class)""",
    ),
    "bought_in_both": (
        "n",
        """
SELECT count(*) AS n FROM (
    SELECT DISTINCT c_last_name, c_first_name, d_date FROM store_sales, date_dim, customer
    WHERE ss_sold_date_sk = d_date_sk AND ss_customer_sk = c_customer_sk
    INTERSECT
    SELECT DISTINCT c_last_name, c_first_name, d_date FROM web_sales, date_dim, customer
    WHERE ws_sold_date_sk = d_date_sk AND ws_bill_customer_sk = c_customer_sk) hot_cust""",
    ),
    "bought_in_stores_alone": (
        "c_customer_sk",
        """
SELECT ss_customer_sk AS c_customer_sk FROM store_sales WHERE ss_customer_sk IS NOT NULL
EXCEPT
SELECT ws_bill_customer_sk FROM web_sales WHERE ws_quantity > 7""",
    ),
    "channels_of_customers": (
        "ca_state, c_birth_year",
        """
SELECT ca_state, c_birth_year, count(*) AS cnt1, min(c_birth_year) AS low, max(c_last_name) AS high,
    avg(c_birth_year) AS mean
FROM customer c JOIN customer_address ca ON c.c_current_addr_sk = ca.ca_address_sk
WHERE EXISTS (SELECT * FROM store_sales, date_dim WHERE c.c_customer_sk = ss_customer_sk
              AND ss_sold_date_sk = d_date_sk AND d_year = 1999)
  AND (EXISTS (SELECT * FROM web_sales, date_dim WHERE c.c_customer_sk = ws_bill_customer_sk
               AND ws_sold_date_sk = d_date_sk AND d_year = 2000)
       OR NOT EXISTS (SELECT 1 FROM store_returns WHERE c.c_customer_sk = sr_customer_sk))
GROUP BY ca_state, c_birth_year""",
    ),
    "zips_in_a_list": (
        "ca_zip",
        """
SELECT ca_zip, sum(ws_ext_sales_price) AS total
FROM web_sales, customer, customer_address, date_dim
WHERE ws_bill_customer_sk = c_customer_sk AND c_current_addr_sk = ca_address_sk
  AND (substr(ca_zip, 1, 5) IN ('30007', '30014', '30070', '30119')
       OR ca_state IN ('CA') OR ws_ext_sales_price > 300)
  AND ws_sold_date_sk = d_date_sk
GROUP BY ca_zip""",
    ),
    "running_in_two_channels": (
        "item_sk, d_date",
        """
WITH web AS (
    SELECT ws_item_sk AS item_sk, d_date,
        sum(sum(ws_ext_sales_price)) OVER (PARTITION BY ws_item_sk ORDER BY d_date
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS cume_sales
    FROM web_sales, date_dim WHERE ws_sold_date_sk = d_date_sk
    GROUP BY ws_item_sk, d_date),
store AS (
    SELECT ss_item_sk AS item_sk, d_date,
        sum(sum(ss_sales_price)) OVER (PARTITION BY ss_item_sk ORDER BY d_date
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS cume_sales
    FROM store_sales, date_dim WHERE ss_sold_date_sk = d_date_sk
    GROUP BY ss_item_sk, d_date)
SELECT x.item_sk, x.d_date, x.web_sales, x.store_sales FROM (
    SELECT coalesce(web.item_sk, store.item_sk) AS item_sk,
        coalesce(web.d_date, store.d_date) AS d_date,
        web.cume_sales AS web_sales, store.cume_sales AS store_sales
    FROM web FULL OUTER JOIN store ON web.item_sk = store.item_sk AND web.d_date = store.d_date) x
WHERE x.web_sales > x.store_sales OR x.store_sales IS NULL""",
    ),
    "this_year_and_the_next": (
        "i_brand, d_year",
        """
WITH all_sales AS (
    SELECT i_brand, d_year, sum(sales_cnt) AS sales_cnt, sum(sales_amt) AS sales_amt
    FROM (SELECT i_brand, d_year, ss_quantity - coalesce(sr_return_quantity, 0) AS sales_cnt,
              ss_ext_sales_price - coalesce(sr_return_amt, 0.0) AS sales_amt
          FROM store_sales JOIN item ON i_item_sk = ss_item_sk
              JOIN date_dim ON d_date_sk = ss_sold_date_sk
              LEFT JOIN store_returns
                  ON ss_ticket_number = sr_ticket_number AND ss_item_sk = sr_item_sk
          UNION
          SELECT i_brand, d_year, ws_quantity, ws_ext_sales_price
          FROM web_sales JOIN item ON i_item_sk = ws_item_sk
              JOIN date_dim ON d_date_sk = ws_sold_date_sk) sales_detail
    GROUP BY i_brand, d_year)
SELECT prev_yr.i_brand, prev_yr.d_year, curr_yr.d_year AS next_year,
    prev_yr.sales_cnt AS prev_yr_cnt, curr_yr.sales_cnt AS curr_yr_cnt,
    curr_yr.sales_cnt - prev_yr.sales_cnt AS sales_cnt_diff,
    CAST(curr_yr.sales_cnt AS decimal(17, 2)) / CAST(prev_yr.sales_cnt AS decimal(17, 2)) AS ratio
FROM all_sales curr_yr, all_sales prev_yr
WHERE curr_yr.i_brand = prev_yr.i_brand AND curr_yr.d_year = prev_yr.d_year + 1""",
    ),
    "best_and_worst": (
        "rnk",
        """
SELECT asceding.rnk, i1.i_item_id AS best_performing, i2.i_item_id AS worst_performing
FROM (SELECT * FROM (SELECT item_sk, rank() OVER (ORDER BY rank_col ASC, item_sk) AS rnk
      FROM (SELECT ss_item_sk AS item_sk, avg(ss_net_profit) AS rank_col FROM store_sales ss1
            WHERE ss_store_sk = 4 GROUP BY ss_item_sk
            HAVING avg(ss_net_profit) > 0.9 * (SELECT avg(ss_net_profit) AS rank_col
                FROM store_sales WHERE ss_store_sk = 4)) v1) v11 WHERE rnk < 11) asceding,
    (SELECT * FROM (SELECT item_sk, rank() OVER (ORDER BY rank_col DESC, item_sk) AS rnk
      FROM (SELECT ss_item_sk AS item_sk, avg(ss_net_profit) AS rank_col FROM store_sales ss1
            WHERE ss_store_sk = 4 GROUP BY ss_item_sk) v2) v21 WHERE rnk < 11) descending,
    item i1, item i2
WHERE asceding.rnk = descending.rnk AND i1.i_item_sk = asceding.item_sk
  AND i2.i_item_sk = descending.item_sk""",
    ),
    "dearer_than_its_category": (
        "state",
        """
SELECT a.ca_state AS state, count(*) AS cnt
FROM customer_address a, customer c, store_sales s, date_dim d, item i
WHERE a.ca_address_sk = c.c_current_addr_sk AND c.c_customer_sk = s.ss_customer_sk
  AND s.ss_sold_date_sk = d.d_date_sk AND s.ss_item_sk = i.i_item_sk
  AND i.i_current_price > 1.2 * (SELECT avg(j.i_current_price) FROM item j
                                 WHERE j.i_category = i.i_category)
GROUP BY a.ca_state
HAVING count(*) >= 2""",
    ),
    "buckets": (
        "one",
        """
SELECT 1 AS one,
    CASE WHEN (SELECT count(*) FROM store_sales WHERE ss_quantity BETWEEN 1 AND 4) > 100
        THEN (SELECT avg(ss_ext_sales_price) FROM store_sales WHERE ss_quantity BETWEEN 1 AND 4)
        ELSE (SELECT avg(ss_net_profit) FROM store_sales WHERE ss_quantity BETWEEN 1 AND 4)
    END AS bucket1,
    (SELECT count(*) FROM web_sales WHERE ws_quantity > 4) AS bucket2""",
    ),
    "by_sets": (
        "i_brand, s_state, g",
        """
SELECT i_brand, s_state, grouping(i_brand, s_state) AS g, avg(ss_quantity) AS agg1,
    round(avg(ss_sales_price), 2) AS agg2, count(*) FILTER (WHERE ss_net_profit < 0) AS losses
FROM store_sales JOIN item ON i_item_sk = ss_item_sk JOIN store ON s_store_sk = ss_store_sk
GROUP BY GROUPING SETS ((i_brand, s_state), (i_brand), ())""",
    ),
    "names_by_key": (
        "ss_item_sk, ss_ticket_number",
        """
SELECT ss_item_sk, ss_ticket_number,
    (SELECT i_item_id FROM item WHERE i_item_sk = ss_item_sk) AS item_id,
    (SELECT c_last_name FROM customer WHERE c_customer_sk = ss_customer_sk) AS last_name,
    lag(ss_quantity, 1, 0) OVER (PARTITION BY ss_item_sk ORDER BY ss_ticket_number) AS before
FROM store_sales
WHERE ss_customer_sk IN (SELECT sr_customer_sk FROM store_returns WHERE sr_return_amt > 50)
  AND ss_item_sk NOT IN (SELECT ws_item_sk FROM web_sales WHERE ws_quantity = 9
                         AND ws_item_sk IS NOT NULL)
  AND ss_quantity = ANY ('{1,2,3,5,8}')""",
    ),
    "above_the_mean_of_its_month": (
        "i_manufact_id, d_qoy",
        """
SELECT * FROM (
    SELECT i_manufact_id, d_qoy, sum(ss_sales_price) AS sum_sales,
        round(avg(sum(ss_sales_price)) OVER (PARTITION BY i_manufact_id), 6) AS avg_quarterly_sales
    FROM item, store_sales, date_dim, store
    WHERE ss_item_sk = i_item_sk AND ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk
    GROUP BY i_manufact_id, d_qoy) tmp1
WHERE CASE WHEN avg_quarterly_sales > 0
    THEN abs(sum_sales - avg_quarterly_sales) / avg_quarterly_sales ELSE NULL END > 0.1""",
    ),
    "all_channels": (
        "channel, id",
        """
WITH ssr AS (
    SELECT s_store_name, sum(ss_ext_sales_price) AS sales, sum(coalesce(sr_return_amt, 0)) AS
        returned, sum(ss_net_profit) AS profit
    FROM store_sales LEFT OUTER JOIN store_returns
        ON (ss_item_sk = sr_item_sk AND ss_ticket_number = sr_ticket_number), store
    WHERE ss_store_sk = s_store_sk GROUP BY s_store_name),
wsr AS (
    SELECT i_category, sum(ws_ext_sales_price) AS sales, sum(0.00) AS returned,
        sum(ws_net_profit) AS profit
    FROM web_sales NATURAL JOIN (SELECT i_item_sk AS ws_item_sk, i_category FROM item) i
    GROUP BY i_category)
SELECT channel, id, sum(sales) AS sales, sum(returned) AS returned, sum(profit) AS profit
FROM (SELECT 'store channel' AS channel, s_store_name AS id, sales, returned, profit FROM ssr
      UNION ALL
      SELECT 'web channel', trim(i_category), sales, returned, profit FROM wsr) x
GROUP BY ROLLUP (channel, id)""",
    ),
    "share_of_all": (
        "i_category",
        """
SELECT i_category, sum(ss_ext_sales_price) AS total,
    round(100 * sum(ss_ext_sales_price) / (SELECT sum(ss_ext_sales_price) FROM store_sales), 2)
        AS percent
FROM store_sales JOIN item ON i_item_sk = ss_item_sk
GROUP BY i_category""",
    ),
}
"""Of each query the columns of its key, and its text."""
