"""Files of statements: strange content, and files that appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os

import pytest

from changelog.attestation.envelope import opened
from changelog.attestation.file import StatementFile, check_new, write_new
from changelog.attestation.statement import STATEMENT, written
from changelog.contract.base.errors import ConfigurationError, RefutedError, SinkError


def document(text):
    return f'{{"_type": "{STATEMENT}", "predicateType": "k", "predicate": {text}}}'.encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"checksum": NaN}',
        '{"checksum": "\\ud800"}',
        '{"checksum": "", "n": %s}' % ("9" * 5000),
        "[]",
        '"x"',
        "[" * 100_000,
        '{"checksum": "", "deep": ' + "[" * 900 + "]" * 900 + "}",
    ],
)
def test_what_no_program_of_ours_writes_is_no_certificate(text):
    with pytest.raises(RefutedError, match="altered, or no certificate"):
        opened(document(text), "c.json")


def test_a_statement_of_any_kind_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "c.json"
    write_new(path, written("k", [{"name": "é"}], {"a": 1.5}))
    file = StatementFile.read(path, None)
    assert (file.statement.kind, file.signature) == ("k", "not signed")
    assert file.statement.predicate["a"] == 1.5
    assert json.loads(path.read_bytes())["subject"] == [{"name": "é"}]


def test_no_file_is_left_of_a_check_and_of_a_write_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    check_new(path)
    assert not list(tmp_path.iterdir())

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SinkError, match="No space left"):
        write_new(path, b"content")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    path = tmp_path / "c.json"
    path.write_bytes(b"older")
    with pytest.raises(ConfigurationError, match="there already"):
        check_new(path)
    with pytest.raises(SinkError, match="File exists"):
        write_new(path, b"newer")
    assert [path.read_bytes()] == [b"older"]
    assert list(tmp_path.iterdir()) == [path]
    for odd in (tmp_path / "none" / "c.json", tmp_path / f"{'n' * 300}.json", path / "c.json"):
        with pytest.raises(ConfigurationError, match="cannot be written"):
            check_new(odd)
