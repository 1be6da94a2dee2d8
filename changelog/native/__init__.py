"""What runs once a record, in C: plain functions over memory, called once a batch.

The sources are in `src`, what Python may call is declared in `src/api.h`, and `library` opens the
library that is compiled from them at installation. Python decides, C repeats: no rule of the log
stands here alone, each function is held by a test to the same rule in Python.
"""
