"""Answers of a registry are bounded, and errors caught, whichever HTTP module its client uses."""

import pytest

from changelog.contract.base.errors import LogError
from changelog.runtime import bounded_answers
from changelog.runtime.bounded_answers import bound
from changelog.runtime.http_modules import HTTP_MODULES, NO_ANSWER

BY_NAME = {module.__name__: module for module in HTTP_MODULES}


@pytest.fixture(params=["httpx", "httpx2"])
def module(request):
    """Return a module; both are there, as the client of OpenLineage brings the second."""
    return BY_NAME[request.param]


def client_of(module, answer):
    client = module.Client(transport=module.MockTransport(lambda _: answer))
    bound(client)
    return client


def test_an_answer_that_is_small_is_read(module):
    with client_of(module, module.Response(200, json={"id": 1})) as client:
        answer = client.get("http://registry/ids")
    assert answer.json() == {"id": 1}
    assert answer.request.headers["Accept-Encoding"] == "identity"


def test_an_answer_that_is_too_large_or_compressed_is_refused(module, monkeypatch):
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", 1 << 20)
    large = module.Response(200, stream=module.ByteStream(b"x" * ((1 << 20) + 1)))
    with client_of(module, large) as client, pytest.raises(LogError, match="more than 1 MiB"):
        client.get("http://registry/ids")
    packed = module.Response(
        200, headers={"Content-Encoding": "gzip"}, stream=module.ByteStream(b"")
    )
    with client_of(module, packed) as client, pytest.raises(LogError, match="compresses"):
        client.get("http://registry/ids")


def test_its_errors_are_among_those_that_are_caught(module):
    with module.Client() as client, pytest.raises(NO_ANSWER):
        client.get("http://127.0.0.1:1")
