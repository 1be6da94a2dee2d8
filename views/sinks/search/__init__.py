"""Views as search indexes, which readers open by an alias.

Documents come in; an index for each generation goes out, and an alias of the served one.
"""
