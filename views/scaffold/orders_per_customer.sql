-- key: customer_id
-- dialect: postgres
-- sinks: delta
-- description: What each customer ordered.
SELECT
    c.customer_id,
    c.name,
    count(o.order_id) AS orders,
    coalesce(sum(o.amount), 0) AS amount
FROM customers AS c
LEFT JOIN orders AS o ON o.customer_id = c.customer_id
GROUP BY c.customer_id, c.name
