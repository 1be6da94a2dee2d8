"""The verifier's own reading of the log: read, fold, decode.

Topics and a frontier come in, tables of DuckDB go out.
"""
