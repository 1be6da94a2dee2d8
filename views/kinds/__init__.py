"""The two kinds of view: a SQL file, a decorated function."""
