"""Progress of long work: steps that are counted, and bars that show them.

Numbers come in; bars on a terminal and lines of a log go out. Any package imports it.
"""
