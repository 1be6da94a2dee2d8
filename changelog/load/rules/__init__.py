"""Rules by which records become rows: sources of the columns, and texts of their values. Pure.

Values, schemas and descriptions of tables come in, texts of COPY and plans for C go out.
"""
