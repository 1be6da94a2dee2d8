-- key: flight_id
-- sinks: delta
-- description: The table as it is, for anything that reads Delta.
SELECT * FROM flights
