"""Other forms of records: JSON documents, envelopes, logs of other programs.

Rows and changes come in, the values of such records go out, and the way back. Whoever reads or
writes such topics may import it.
"""
