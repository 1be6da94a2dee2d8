"""Reads a sink's options from the JSON of `views/NAME.KIND.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from changelog.contract.base.errors import ConfigurationError


class Options(BaseModel):
    """The options of one kind of sink; each is a field with its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


T = TypeVar("T", bound=Options)


def read_options(model: type[T], view: str, kind: str, options: Mapping[str, Any]) -> T:
    """Return the options of a view's sink.

    Raises ConfigurationError: one does not exist, or has a wrong value.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        fault = "there is no such option" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigurationError(
            f"{view}.{kind}.json: {place}: {fault}",
            hint=f"the options are {', '.join(model.model_fields)}",
        ) from None
