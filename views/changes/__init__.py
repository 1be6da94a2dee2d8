"""The changes of a view as its readers see them, from any moment on that is still kept.

A view's topic comes in; changed rows and the frontiers at which they are whole go out.
"""
