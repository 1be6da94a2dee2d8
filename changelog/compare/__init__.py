"""Any copy of a table compared with PostgreSQL, while both are written.

A table or query of PostgreSQL and a copy of it come in, a report goes out. Digests by bucket say
where the two differ, rows are looked at there alone, and a difference counts only when it outlives
the time that the copy may lag.
"""
