"""Where a row of a view comes from.

A key comes in, the records behind it go out.
"""
