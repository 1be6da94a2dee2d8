"""States of tables, with the numbers of their scan.

A cut and frames come in, what views read goes out.
"""
