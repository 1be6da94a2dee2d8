"""State -> derived views: declared in a project, rebuilt aside, verified, published at once."""

from views.declare import view

__all__ = ["view"]
