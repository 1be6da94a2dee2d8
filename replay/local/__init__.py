"""Our log without Spark, for its Python API and followers: states, rows, versions of keys.

A cut comes in, tables of Arrow go out, in the types that Spark gives. Views may import it, the
verifier may not.
"""
