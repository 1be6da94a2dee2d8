-- key: flight_id
-- sinks: search
-- description: One document per flight, with its airline, plane and both airports inside.
SELECT
    f.flight_id,
    f.flight,
    f.time_hour,
    f.dep_time,
    f.dep_delay,
    f.arr_time,
    f.arr_delay,
    f.air_time,
    f.distance,
    named_struct('carrier', f.carrier, 'name', a.name) AS airline,
    named_struct(
        'tailnum', f.tailnum, 'manufacturer', p.manufacturer, 'model', p.model, 'seats', p.seats
    ) AS plane,
    named_struct('faa', f.origin, 'name', o.name, 'lat', o.lat, 'lon', o.lon) AS origin,
    named_struct('faa', f.dest, 'name', d.name, 'lat', d.lat, 'lon', d.lon) AS dest
FROM flights AS f
LEFT JOIN airlines AS a ON a.carrier = f.carrier
LEFT JOIN planes AS p ON p.tailnum = f.tailnum
LEFT JOIN airports AS o ON o.faa = f.origin
LEFT JOIN airports AS d ON d.faa = f.dest
