"""Rules from records to rows: which part fills which column, and how it is written. Pure.

Values, schemas and descriptions of tables come in, texts of COPY and plans for C go out.
"""
