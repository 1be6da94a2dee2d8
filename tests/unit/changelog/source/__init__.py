"""Unit tests of the PostgreSQL side of capture."""
