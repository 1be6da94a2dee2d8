"""The error of a request, with the codes of the REST proxy."""

from __future__ import annotations

from http import HTTPStatus

NO_TOPIC, NO_PARTITION = 40401, 40402
FORBIDDEN = 40301
NO_KEY_SCHEMA, NO_VALUE_SCHEMA = 42201, 42202
NO_CONVERSION = 42203
NO_SCHEMA = 42205
NO_PAYLOAD = 42206
KAFKA, KAFKA_LATER = 50002, 50003
OTHER_BODY = 42290
"""Of ours: a request's id came before with another body."""

_HUNDRED = 100


class ProduceError(Exception):
    """A request is refused, and nothing of it is written."""

    def __init__(self, error_code: int, message: str) -> None:
        """Take the proxy's code, whose first three digits are HTTP's status."""
        super().__init__(message)
        self.error_code, self.message = error_code, message

    @property
    def status(self) -> int:
        """Return HTTP's status."""
        code = self.error_code
        return code if code < _HUNDRED * _HUNDRED else code // _HUNDRED


def bad_request(message: str) -> ProduceError:
    """Return the error of a request without the form of one."""
    return ProduceError(HTTPStatus.BAD_REQUEST, message)


def unprocessable(message: str) -> ProduceError:
    """Return the error of a request whose members are not as they should be."""
    return ProduceError(HTTPStatus.UNPROCESSABLE_ENTITY, message)
