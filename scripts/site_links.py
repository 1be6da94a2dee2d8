"""A hook of mkdocs: what pages name as `docs/NAME.md` is a link there.

In the repository a page names another by its path, which people and editors follow. On the site the
same words lead to the page; a path that is no page is an error, since the build is strict.
"""

from __future__ import annotations

import os
import re
from typing import Any

_PAGE = re.compile(r"(?<!\[)`docs/((?:decisions/)?[\w-]+\.md)`")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401 - mkdocs' own
    """Return the text of a page with links in place of paths, outside of its blocks of code."""
    here = os.path.dirname(page.file.src_uri)  # noqa: PTH120 - addresses of a site, not files

    def link(found: re.Match[str]) -> str:
        target = os.path.relpath(found[1], here or ".")
        return f"[{found[1].removesuffix('.md')}]({target})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(each if each.startswith("```") else _PAGE.sub(link, each) for each in parts)
