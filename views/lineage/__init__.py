"""Runs of views as events of OpenLineage: topics, what sinks serve, columns, proofs.

Declared views and the results of their runs come in; facts for `changelog.runtime.lineage` go out.
The commands that run views import it.
"""
