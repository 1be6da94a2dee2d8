"""Read schemas from the registry, by a small client of the verifier's own."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from tempfile import NamedTemporaryFile
from typing import Any

import fastavro
import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
)

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import CorruptRecordError, UnavailableLogError
from changelog.contract.rows.harmless_schema import check_tame
from changelog.protobuf.compile import compiled
from changelog.runtime.bounded_answers import bound
from changelog.runtime.tls_trust import authorities

log = logging.getLogger("changelog.views")

_TIMEOUT_SECONDS = 30.0
_NOT_FOUND = 404
_TOO_MANY = 429
_SERVER_ERROR = 500
_TRIES = 4
_FIRST_WAIT_S = 1.5
"""Doubled each time. A proof is the last step of a run: a registry that restarts must not cost the
work before it."""


class WriterSchemas:
    """Fetches the text of a schema by its id; asks the registry once for each."""

    def __init__(self, connection: RegistryConnection) -> None:
        self._connection = connection
        self._known: dict[int, str] = {}

    def text(self, schema_id: int) -> str:
        """Return the schema's JSON text.

        Raises CorruptRecordError: the registry does not know the id, or a record under the schema
        could do harm; UnavailableLogError: the registry does not answer.
        """
        if schema_id not in self._known:
            text = self._fetch(schema_id)
            check_tame(text, f"schema {schema_id}")
            self._known[schema_id] = text
        return self._known[schema_id]

    def protobuf(self, schema_id: int) -> str:
        """Return a schema of Protobuf, compiled; raises as `text` does."""
        if schema_id not in self._known:
            self._known[schema_id] = compiled(self._fetch(schema_id), f"schema {schema_id}")
        return self._known[schema_id]

    def _fetch(self, schema_id: int) -> str:
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(_TRIES),
            wait=wait_exponential(multiplier=_FIRST_WAIT_S),
            before_sleep=_tell,
            reraise=True,
        )
        return retrying(self._asked, schema_id)

    def _asked(self, schema_id: int) -> str:
        try:
            with self._client() as client:
                answer = client.get(f"{self._connection.url}/schemas/ids/{schema_id}")
                if answer.status_code != _NOT_FOUND:
                    answer.raise_for_status()
                    return str(answer.json()["schema"])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise UnavailableLogError(
                f"the schema registry at {self._connection} does not give schema {schema_id}: "
                f"{type(error).__name__}",
                hint="check that it runs and that its address is right",
            ) from error
        raise CorruptRecordError(
            f"the schema registry at {self._connection} does not know schema {schema_id}",
            hint="check that it is the registry that capture used",
        )

    def _client(self) -> httpx.Client:
        options = self._connection.options
        user, _, password = options.get("basic.auth.user.info", "").partition(":")
        authority, text = options.get("ssl.ca.location"), options.get("ssl.ca.pem")
        certificate = options.get("ssl.certificate.location")
        trusted = authorities()
        if authority or text or certificate or "ssl.certificate.pem" in options:
            trusted = ssl.create_default_context(cafile=authority, cadata=text)
        if certificate:
            trusted.load_cert_chain(certificate, options.get("ssl.key.location"))
        elif "ssl.certificate.pem" in options:
            with NamedTemporaryFile("w", encoding="ascii") as file:  # Python takes it from a file
                file.write(f"{options['ssl.certificate.pem']}\n{options.get('ssl.key.pem', '')}")
                file.flush()
                trusted.load_cert_chain(file.name)
        client = httpx.Client(
            auth=(user, password) if user else None,
            verify=trusted,
            timeout=_TIMEOUT_SECONDS,
        )
        bound(client)
        return client


class ArchivedSchemas(WriterSchemas):
    """The schemas that an archive of the log has, without a registry."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        """Take the text of each schema by its id."""
        super().__init__(RegistryConnection(url=""))
        self._texts = texts

    def _fetch(self, schema_id: int) -> str:
        if schema_id not in self._texts:
            raise CorruptRecordError(f"the archive does not have schema {schema_id}")
        return self._texts[schema_id]


def _tell(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("%s; asked again in %.0f s", error, state.upcoming_sleep)


def _may_pass(error: BaseException) -> bool:
    """Return whether a question that failed may be answered a moment later."""
    cause = error.__cause__
    if isinstance(cause, httpx.HTTPStatusError):
        status = cause.response.status_code
        return status == _TOO_MANY or status >= _SERVER_ERROR
    # Whoever is silent has been waited for.
    return isinstance(cause, httpx.TransportError) and not isinstance(cause, httpx.TimeoutException)


# For the verifier alone: the code that it verifies strips schemas in `changelog.avro.bodies`.
_KEPT = {"type", "name", "namespace", "fields", "items", "values", "symbols", "size"}
_TYPES = {"type", "fields", "items", "values"}


def parsed(raw: Any) -> Any:  # noqa: ANN401 - JSON
    """Return fastavro's form of a schema without logical types.

    fastavro's own fail on infinities, on years before 1 and past 9999.
    """
    return fastavro.parse_schema(_without_logic(raw))


def _without_logic(raw: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(raw, list):
        return [_without_logic(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    # An attribute such as `key` or `relation` is ours and holds names, never types.
    kept = {name: value for name, value in raw.items() if name in _KEPT}
    return kept | {name: _without_logic(kept[name]) for name in kept.keys() & _TYPES}
