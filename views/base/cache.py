"""Names of a view's entries in a cache, as writers, the verifier and readers need them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Value = Literal["json", "hash", "string"]
HashTag = Literal["view", "key"]


def pointer(view: str) -> str:
    """Return the key that holds the number of the published generation."""
    return f"{view}:current"


def register(view: str) -> str:
    """Return the hash of the generations: each one's number of rows, or `open`."""
    return f"{view}:generations"


def form_key(view: str, generation: int | str) -> str:
    """Return the key that holds the form of a generation."""
    return f"{view}:form:{generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheForm:
    """Names and form of one generation's cache entries."""

    prefix: str  # what each entry's key starts with; the row's id follows
    suffix: str = ""  # what it ends with
    ids: str  # the key of the set of the generation's ids
    value: Value = "json"  # what an entry is: a JSON document, a hash of texts, or one text
    key: tuple[tuple[str, str], ...] = ()  # names and types of the view's key columns

    @classmethod
    def of(
        cls,
        view: str,
        generation: int,
        *,
        value: Value = "json",
        hash_tag: HashTag | None = None,
        key: Sequence[tuple[str, str]] = (),
    ) -> CacheForm:
        """Return the form of a generation."""
        name = f"{{{view}}}" if hash_tag == "view" else view
        opening, closing = ("{", "}") if hash_tag == "key" else ("", "")
        return cls(
            prefix=f"{name}:{generation}:{opening}",
            suffix=closing,
            ids=f"{name}:keys:{generation}",
            value=value,
            key=tuple(key),
        )

    def entry(self, id_: str) -> str:
        """Return the key of a row's entry."""
        return f"{self.prefix}{id_}{self.suffix}"

    def text(self) -> str:
        """Return the form as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str | bytes) -> CacheForm:
        """Read what `text` gave."""
        form = json.loads(text)
        return cls(**{**form, "key": tuple((name, kind) for name, kind in form["key"])})
