"""Many rows at once: the same bytes as `changelog.contract.codec`, column by column.

A row costs Python a few microseconds as soon as it is touched by itself. Here a batch of one
table's rows stays in the buffer in which it arrived; numpy finds the fields, Arrow reads numbers
and dates, and one `take` puts the encoded pieces of all rows together. What a column's fast way
does not know, its slow way in `changelog.contract.text` encodes, value by value: that is the law,
and the tests compare both.
"""
