"""What becomes of a record: which of its parts fill which columns, and how they are written. Pure.

Values, schemas and descriptions of tables come in, texts of COPY and plans for C go out.
"""
