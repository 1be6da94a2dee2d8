"""Many rows at once: the same bytes as `changelog.contract.codec`, in C.

A row costs Python tens of microseconds as soon as it is touched by itself. Here rows stay in the
memory in which they arrived, and `changelog/native` writes their records behind one another. What
it does not know is given back, row by row, and encoded by `changelog.contract`: that is the law,
and the tests compare both.
"""
