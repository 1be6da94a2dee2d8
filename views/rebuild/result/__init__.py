"""Results of a run: one for each view, its tables, and the error of its exit code.

Facts come in, JSON and text go out. The folders of `views.rebuild` and the commands import it.
"""
