"""What the log says of tables: survivors decoded, whatever form they have.

Survivors come in, tables of DuckDB go out.
"""
