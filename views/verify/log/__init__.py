"""States of tables according to the log: survivors decoded, whatever their form.

Survivors come in, tables of DuckDB go out.
"""
