"""Where a view's table of Iceberg is: a catalogue, and a name in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.installed.extras import check_extra

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_EMBEDDED = "embedded"
FOLDER, FILE = "_iceberg", "catalogue.db"
"""The folder of the embedded catalogue and its tables in a warehouse, and the catalogue in it."""


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """A table's catalogue and its name."""

    catalogue: str  # its name in pyiceberg's configuration; empty for a file of SQLite
    # the folder of that file and of its tables; empty where a catalogue is named
    folder: str
    table: str  # the namespace, a point and the table

    @property
    def unpublished(self) -> str:
        """Return the table's name before its first generation is published; no view has it."""
        namespace, _, name = self.table.rpartition(".")
        return f"{namespace}._{name}_unpublished"

    def to_location(self) -> dict[str, str]:
        """Return the parts that an address has."""
        where = {"catalogue": self.catalogue} if self.catalogue else {"folder": self.folder}
        return {**where, "table": self.table}

    @classmethod
    def of_location(cls, location: Mapping[str, str]) -> IcebergPlace:
        """Read what `to_location` returned."""
        return cls(location.get("catalogue", ""), location.get("folder", ""), location["table"])

    def __str__(self) -> str:
        """Return the table as `changelog verify --target` names it."""
        if self.catalogue:
            return f"iceberg:{self.catalogue}/{self.table}"
        return f"iceberg:{self.folder}/{self.table.replace('.', '/')}"

    @property
    def is_made(self) -> bool:
        """Tell whether the catalogue may be opened without making it."""
        return bool(self.catalogue) or Path(self.folder, FILE).exists()

    def make(self) -> None:
        """Make the folder of the file of SQLite; a catalogue that is named is there.

        Raises ConfigurationError: SQLite would take a part of the path for something else.
        """
        if self.catalogue:
            return
        if "?" in self.folder:
            raise ConfigurationError(
                f"the path {self.folder} has a question mark, which a path of SQLite cannot have",
                hint="name the warehouse's folder without, or give sinks.iceberg.catalogue",
            )
        Path(self.folder).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        """Open the catalogue.

        Raises ConfigurationError: there is none of the name, or its client is not installed.
        """
        check_extra("iceberg", "a view in Iceberg")
        with closing(self._opened()) as catalogue:
            yield catalogue

    def _opened(self) -> Catalog:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
        from pyiceberg.exceptions import NotInstalledError  # noqa: PLC0415 - likewise

        name, properties = self.catalogue, dict[str, str | None]()
        if not name:
            name = _EMBEDDED
            uri = f"sqlite:///{self.folder}/{FILE}"
            properties = {"type": "sql", "uri": uri, "warehouse": self.folder}
        try:
            return load_catalog(name, **properties)
        except (ValueError, ImportError, NotInstalledError) as error:
            hint = (
                "pyiceberg finds catalogues in ~/.pyiceberg.yaml or in PYICEBERG_CATALOG__… "
                "variables; sinks.iceberg.catalogue in changelog.toml has the name of one"
            )
            if not self.catalogue or isinstance(error, ImportError | NotInstalledError):
                hint = "pip install 'pyiceberg[sql-sqlite]'; of others [sql-postgres], [glue], …"
            raise ConfigurationError(
                f"the catalogue {name} of Iceberg cannot be opened: {redacted(str(error))}",
                hint=hint,
            ) from error

    def load(self, catalogue: Catalog) -> tuple[Table, bool] | None:
        """Return the table and whether it has the name that readers open, or None."""
        from pyiceberg.exceptions import (  # noqa: PLC0415 - an extra
            NoSuchNamespaceError,
            NoSuchTableError,
        )

        for name in (self.table, self.unpublished):
            try:
                return catalogue.load_table(name), name == self.table
            except (NoSuchTableError, NoSuchNamespaceError):
                continue
        return None


def checked_table(text: str) -> str:
    """Return the name of a table with its namespace.

    Raises SinkError: it is none.
    """
    parts = text.split(".")
    if len(parts) > 1 and all(parts) and "/" not in text:
        return text
    raise SinkError(f"{text!r} does not name a table of Iceberg", hint="write namespace.table")
