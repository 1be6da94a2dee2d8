"""Write a new project: settings, an example view with its tables, a readme."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from changelog.contract.base.errors import ChangelogError, ConfigurationError

_FILES = {
    "changelog.toml": "changelog.toml",
    "views/orders_per_customer.sql": "orders_per_customer.sql",
    "views/orders_per_customer.cases.toml": "orders_per_customer.cases.toml",
    "example.sql": "example.sql",
    "README.md": "readme.txt",
    ".gitignore": "gitignore.txt",
}


def write_project(directory: Path) -> list[Path]:
    """Write the files of a new project and return their paths.

    Raises:
        ConfigurationError: one of them is there already; nothing is written.
        ChangelogError: the folder cannot be written.
    """
    directory = directory.resolve()
    there = [name for name in _FILES if (directory / name).exists()]
    if there:
        raise ConfigurationError(
            f"{directory} holds {', '.join(there)} already",
            hint="nothing was written; choose another folder",
        )
    written = []
    try:
        for name, template in _FILES.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = files("views.scaffold").joinpath(template).read_text(encoding="utf-8")
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            written.append(path)
    except OSError as error:
        raise ChangelogError(f"cannot write {error.filename}: {error.strerror}") from error
    return written
