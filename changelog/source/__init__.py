"""PostgreSQL in: the exported snapshot, the pgoutput stream, the catalogue."""
