"""Views for people who write Python: what `from views import Project` gives.

A project's folder comes in, frozen values that show themselves go out. Each method does what the
option of `rebuild-view` with its name does, and raises where that ends with another code than 0.
"""
