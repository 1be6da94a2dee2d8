"""What a run would do, before Spark starts: views analysed, the log cut and judged.

Words of a command line and specifications come in, plans go out. The runs, `views.explain` and the
commands import it.
"""
