"""The verifier's questions to the schema registry."""

import json
from http.server import BaseHTTPRequestHandler

import pytest

from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import UnavailableLogError
from tests.support.http_listener import Quiet, listening
from views.verify.log import registry
from views.verify.log.registry import WriterSchemas


@pytest.fixture
def ask(monkeypatch):
    """Ask a registry for a schema: it answers by these, the last one again and again."""

    def asked(*answers, tries=4):
        monkeypatch.setattr(registry, "_TRIES", tries)
        monkeypatch.setattr(registry, "_FIRST_WAIT_S", 0.0)
        questions = []

        class Registry(Quiet, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                questions.append(self.path)
                status = answers[min(len(questions), len(answers)) - 1]
                if status is None:
                    return  # the connection ends without an answer
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps({"schema": '"string"'}).encode())

        with listening(Registry) as url:
            try:
                return WriterSchemas(RegistryConnection(url=url)).text(7), questions
            except UnavailableLogError as error:
                return error, questions

    return asked


@pytest.mark.parametrize("away", [503, 429, None])
def test_a_registry_that_is_away_for_a_moment_is_asked_again(ask, away) -> None:
    answer, questions = ask(away, away, 200)
    assert (answer, len(questions)) == ('"string"', 3)


def test_a_registry_that_stays_away_is_given_up(ask) -> None:
    error, questions = ask(503)
    assert isinstance(error, UnavailableLogError)
    assert len(questions) == 4


def test_a_registry_that_lets_nobody_in_is_asked_once(ask) -> None:
    error, questions = ask(401)
    assert isinstance(error, UnavailableLogError)
    assert len(questions) == 1


def test_twin_with_one_try_a_moment_is_an_error(ask) -> None:
    error, questions = ask(503, 200, tries=1)
    assert isinstance(error, UnavailableLogError)
    assert len(questions) == 1
