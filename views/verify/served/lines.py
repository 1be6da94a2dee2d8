"""A file of JSON lines, each an id and a row, as the memory sink writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from changelog.contract.base.errors import SinkError
from views.base.address import Address


def line_documents(address: Address) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return id and row of each line.

    Raises:
        SinkError: the file is not there, or a line is not of this form.
    """
    path = Path(address.location["path"])
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                yield entry["id"], entry["row"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SinkError(f"{path} cannot be read: {error!r}") from error
