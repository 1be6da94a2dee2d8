"""Events of OpenLineage: runs with their datasets, and the thread that sends them.

Jobs and states of their datasets come in, as plain values; events go out to the server, topic or
file that OpenLineage's own configuration names. Commands of capture and of views import it.
"""
