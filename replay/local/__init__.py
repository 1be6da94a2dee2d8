"""A log of ours without Spark: states, single rows and versions of keys, in this process.

A cut comes in, tables of Arrow go out, in the types that Spark gives. Views may import it, the
verifier may not.
"""
