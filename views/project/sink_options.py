"""Options of a view's sink, from `views/NAME.KIND.json` next to the view.

For example `views/routes.search.json`. What may stand in it is each sink's to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from changelog.contract.base.errors import ViewError

_SUFFIX = ".json"


def sink_options(path: Path, sinks: Sequence[str], root: Path) -> dict[str, Mapping[str, Any]]:
    """Read the options of a view's sinks; a sink without a file is not in the answer.

    Args:
        path: the file that declares the view.
        sinks: where it is served.
        root: folder of the project, which no file may lead out of.

    Raises:
        ViewError: a file is no JSON object, gives a name twice, or is for a sink that the view
            does not have.
    """
    options: dict[str, Mapping[str, Any]] = {}
    for file in sorted(path.parent.glob(f"{path.stem}.*{_SUFFIX}")):
        kind = file.name.removeprefix(f"{path.stem}.").removesuffix(_SUFFIX)
        if kind not in sinks:
            raise ViewError(
                f'{file.name} is for the sink "{kind}", where view "{path.stem}" is not served',
                hint=f"it is served in {', '.join(sinks)}; add the sink to the view or remove it",
            )
        if not file.resolve().is_relative_to(root.resolve()):
            raise ViewError(f"{file} leads out of the project", hint="put the file itself here")
        options[kind] = _object(file)
    return options


def _object(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_each_once)
    except OSError as error:
        raise ViewError(f"{path.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ViewError(f"{path.name} cannot be used: {error}") from error
    if not isinstance(value, dict):
        raise ViewError(f"{path.name} holds no JSON object", hint='write {"option": value, …}')
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" stands twice in one object')
    return members
