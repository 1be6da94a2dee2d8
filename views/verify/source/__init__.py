"""The log against its source: tables of PostgreSQL at one frontier.

A database and a log come in, a report goes out.
"""
