"""What the page knows of a project's line, and in which words it says so.

Looks at servers come in; values, texts and bars go out. Nothing here knows of HTTP.
"""
