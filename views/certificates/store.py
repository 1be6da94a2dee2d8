"""Certificates in the warehouse: a file for each, chained by the digest of the one before."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from changelog.attestation.envelope import Signer, opened, sealed
from changelog.attestation.statement import altered
from replay.spark.files import Files, uri_of
from views.certificates.statement import Certificate, written

FOLDER = "_certificates"
_NAME = re.compile(r"(\d{12})\.json")


class CertificateStore:
    """The certificates of one view."""

    def __init__(self, warehouse: str, view: str) -> None:
        self._folder = f"{uri_of(warehouse)}/{FOLDER}/{view}"
        self.place_aside = f"{self._folder}/staged.json"
        self._files = Files()

    def place(self, generation: int) -> str:
        """Return the place of a generation's certificate."""
        return f"{self._folder}/{generation:012d}.json"

    def generations(self) -> list[int]:
        """Return the generations that have a certificate, oldest first."""
        names = map(_NAME.fullmatch, self._files.names(self._folder))
        return [int(name[1]) for name in names if name is not None]

    def read(self, generation: int) -> Certificate:
        """Return the certificate of a generation.

        Raises RefutedError: it is altered.
        """
        place = self.place(generation)
        return Certificate.of(opened(self._files.read(place), place), place)

    def add(self, predicate: Mapping[str, Any], signer: Signer | None) -> str:
        """Write the certificate of a new generation, chained to the newest one; return its place.

        Raises RefutedError: the newest one is altered; FileExistsError: the generation has one.
        """
        generations = self.generations()
        before = None
        if generations:
            newest = self.read(generations[-1])
            before = {"generation": newest.generation, "sha256": newest.sha256}
        place = self.place(predicate["generation"])
        content = sealed(written({**predicate, "previous": before}), signer)
        self._files.create(place, content, makes_folder=True)
        return place

    def put_aside(self, predicate: Mapping[str, Any]) -> None:
        """Keep the facts of a staged generation; they replace facts that were kept before."""
        if self._files.exists(self.place_aside):
            self._files.remove_file(self.place_aside)
        content = json.dumps(predicate, ensure_ascii=False).encode()
        self._files.create(self.place_aside, content, makes_folder=True)

    def aside(self, generation: int) -> dict[str, Any] | None:
        """Return the facts of a staged generation, None if it was staged without certificate.

        Raises RefutedError: they are altered.
        """
        if not self._files.exists(self.place_aside):
            return None
        try:
            predicate: dict[str, Any] = json.loads(self._files.read(self.place_aside))
            return predicate if predicate["generation"] == generation else None
        except (ValueError, KeyError, TypeError) as error:
            raise altered(self.place_aside, repr(error)) from error
