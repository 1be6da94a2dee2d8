-- key: origin, dest
-- sinks: cache
-- description: How late each route is.
SELECT
    origin,
    dest,
    count(*) AS flights,
    count(arr_delay) AS arrived,
    sum(CASE WHEN arr_delay > 15 THEN 1 ELSE 0 END) AS late,
    max(arr_delay) AS worst_delay,
    avg(arr_delay) AS mean_delay
FROM flights
GROUP BY origin, dest
