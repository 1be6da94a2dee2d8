"""What `changelog test` runs: small cases of a view, in both engines.

Files of cases come in, passed or the differences go out. Only the commands import it.
"""
