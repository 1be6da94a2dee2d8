"""A hook of mkdocs: what pages name as `docs/NAME.md` is a link there.

In the repository a page names another by its path, which people and editors follow. On the site its
title leads to the page; a path that is no page is an error, since the build is strict.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_PAGE = re.compile(r"(?<!\[)`docs/((?:decisions/)?[\w-]+\.md)`")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:  # noqa: ANN401 - mkdocs' own
    """Return the text of a page with links in place of paths, outside of its blocks of code."""
    here = os.path.dirname(page.file.src_uri)  # noqa: PTH120 - addresses of a site, not files

    def link(found: re.Match[str]) -> str:
        target = os.path.relpath(found[1], here or ".")
        return f"[{_title(Path(config.docs_dir) / found[1])}]({target})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(each if each.startswith("```") else _PAGE.sub(link, each) for each in parts)


def _title(page: Path) -> str:
    """Return the heading of a page; its name where it is not there, which mkdocs then refuses."""
    if not page.is_file():
        return page.stem
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
