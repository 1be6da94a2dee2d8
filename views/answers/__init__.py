"""Views against their source: the rows that sinks serve, and PostgreSQL's own answers.

The names of views come in; reports go out, one for each sink. Nothing of ours computes the rows.
"""
