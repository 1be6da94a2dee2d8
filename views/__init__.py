"""Derived views of the log: built, proved, switched.

States come in; generations go out to sinks, each with its proof. Nobody below may import it.
"""

from views.project.declare import view

__all__ = ["view"]
