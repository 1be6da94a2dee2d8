"""Plans a run before Spark starts: analyses the views, cuts and judges the log.

Options of a command line and specifications come in, plans go out. The runs, `views.explain` and
the commands import it.
"""
