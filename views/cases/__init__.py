"""Run small cases of a view in both engines: `changelog test`.

Files of cases come in, passed or the differences go out. Only the commands import it.
"""
