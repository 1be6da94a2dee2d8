"""Documents of certificates: canonical bytes, each changed byte, the chain, the signature."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jsonschema import Draft202012Validator, FormatChecker, ValidationError

from changelog.attestation.envelope import KeyFile, check_signature, opened, sealed
from changelog.attestation.file import StatementFile
from changelog.attestation.statement import parsed as parsed_statement
from changelog.contract.base.errors import ConfigurationError, RefutedError
from tests.support.signing import keys
from views.certificates.check import check_chain, differing_ranges
from views.certificates.command import print_statement
from views.certificates.statement import Certificate, added, sink_entry, written
from views.certificates.store import CertificateStore

SCHEMA = json.loads(
    (Path(__file__).parents[4] / "docs" / "certificate.schema.json").read_text("utf-8")
)
ONE, TWO = f"{1:064x}", f"{2**256 - 1:064x}"


def predicate(generation=1, ranges=None, previous=None, **others):
    ranges = {"0": (2, ONE), "f": (1, TWO)} if ranges is None else ranges
    return {
        "view": "sums",
        "generation": generation,
        "run": "r1",
        "published": "2026-01-02T03:04:05+00:00",
        "definition": {
            "text": "SELECT 'é'",
            "sha256": ONE,
            "fingerprint": "f",
            "key": ["id"],
            "columns": [{"name": "id", "type": "int"}],
        },
        "origin": "start",
        "frontiers": [
            {
                "system_id": "1",
                "cluster_id": "c",
                "slot": "s",
                "epoch": 1,
                "lsn": "0/1A",
                "time": "2026-01-02T03:04:00+00:00",
                "topics": ["t"],
            }
        ],
        "topics": [
            {
                "topic": "t",
                "id": "abc",
                "table": "public.t",
                "offsets": [{"partition": 0, "start": 0, "end": 7}],
                "schemas": {"key": 1, "value": 2},
            }
        ],
        "verdict": {"kind": "exact", "deadline": None},
        "engines": {"changelog-store": "1", "pyspark": "4", "duckdb": "2"},
        "rows": 3,
        "sinks": [sink_entry("delta", {"path": "/w/sums"}, ranges)],
        "verification": [
            {
                "sink": "delta",
                "by": "duckdb",
                "verified": True,
                "mode": "full",
                "share": 1.0,
                "rows_expected": 3,
                "rows_served": 3,
                "mismatches": 0,
                "notes": [],
            }
        ],
        "previous": previous,
        **others,
    }


def parsed(content, name):
    return Certificate.of(parsed_statement(content, name), name)


def validate(content):
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA, format_checker=FormatChecker()).validate(json.loads(content))


def test_a_statement_is_read_as_it_was_written_and_follows_the_schema():
    content = written(predicate())
    validate(content)
    read = parsed(content, "c.json")
    assert (read.view, read.generation, read.previous, read.key) == ("sums", 1, None, ["id"])
    assert read.columns == [("id", "int")]
    assert read.ranges_of("delta") == {"0": (2, ONE), "f": (1, TWO)}
    (subject,) = read.statement["subject"]
    assert subject == {"name": "sums/1/delta", "digest": {"changelogRows1": "0" * 64}}
    assert "é" in content.decode()


def test_twin_the_schema_refuses_what_is_not_said_in_it():
    with pytest.raises(ValidationError, match="extra"):
        validate(written(predicate(extra=1)))
    incomplete = predicate()
    del incomplete["verdict"]
    with pytest.raises(ValidationError, match="verdict"):
        validate(written(incomplete))


def test_each_changed_byte_is_noticed():
    content = written(predicate())
    for place in range(len(content)):
        for other in {content[place] ^ 1, ord(" "), ord("0")} - {content[place]}:
            altered = content[:place] + bytes([other]) + content[place + 1 :]
            with pytest.raises(RefutedError, match="altered"):
                parsed(altered, "c.json")
    for altered in (content + b"\n", content[:-1], b"", b"{}", b"[]", b"null", b'{"_type": 1}'):
        with pytest.raises(RefutedError):
            opened(altered, "c.json")


def test_digests_that_do_not_add_up_are_noticed_under_a_right_checksum():
    facts = predicate()
    facts["sinks"][0]["digest"] = ONE
    with pytest.raises(RefutedError, match="do not add up"):
        parsed(written(facts), "c.json")


def test_the_digest_of_all_is_the_sum_of_the_ranges():
    assert added({}) == "0" * 64
    assert added({"0": (1, ONE), "1": (1, ONE)}) == f"{2:064x}"
    assert added({"0": (1, ONE), "1": (1, TWO)}) == "0" * 64


def test_differing_ranges_are_named_with_their_rows():
    served = {"0": (2, ONE), "3": (4, ONE)}
    lines = differing_ranges({"0": (2, ONE), "f": (1, TWO)}, served)
    assert lines == [
        "key range 3: 0 rows in the certificate, 4 served",
        "key range f: 1 rows in the certificate, 0 served",
    ]
    assert differing_ranges(served, served) == []


def test_the_store_chains_certificates_and_notices_a_broken_chain(tmp_path):
    store = CertificateStore(str(tmp_path), "sums")
    assert store.generations() == []
    for number in (1, 2, 10):
        store.add(predicate(number), None)
    assert store.generations() == [1, 2, 10]
    chain = [store.read(number) for number in (1, 2, 10)]
    assert [each.previous for each in chain] == [None, chain[0].sha256, chain[1].sha256]
    assert check_chain(chain) == []
    for content in (each.content for each in chain):
        validate(content)
    (place, text), *others = check_chain([chain[0], chain[2]])
    assert (place, others) == (1, [])
    assert "broken chain: the certificate of generation 10" in text
    forged = parsed(
        written(predicate(2, {"0": (1, ONE)}, dict(chain[1].predicate["previous"]))), ""
    )
    assert [place for place, _ in check_chain([chain[0], forged, chain[2]])] == [2]
    with pytest.raises(FileExistsError):
        store.add(predicate(10), None)


def test_nothing_is_chained_to_an_altered_certificate(tmp_path):
    store = CertificateStore(str(tmp_path), "sums")
    place = Path(store.add(predicate(1), None))
    place.write_bytes(place.read_bytes().replace(b"0/1A", b"0/1B"))
    with pytest.raises(RefutedError, match="altered"):
        store.add(predicate(2), None)


def test_the_query_for_psql_has_the_names_of_the_table(tmp_path, capsys):
    facts = predicate()
    facts["sinks"].append(sink_entry("postgres", {"columns": '{"id": "number"}'}, {}))
    path = tmp_path / "c.json"
    path.write_bytes(written(facts))
    print_statement(StatementFile.read(path, None), "public.sums")
    query = capsys.readouterr().out
    assert '("number")::text' in query
    assert "FROM public.sums" in query
    assert '"id"' not in query


def test_a_signed_certificate_is_checked_by_the_public_key(tmp_path):
    secret, public = keys(tmp_path)
    store = CertificateStore(str(tmp_path), "sums")
    place = Path(store.add(predicate(), KeyFile(secret)))
    content = place.read_bytes()
    check_signature(content, str(place), public)
    file = StatementFile.read(place, public)
    assert (file.signed, file.signature) == (True, "signed by the key")
    assert file.statement.sha256 == parsed(written(predicate()), "").sha256
    envelope = json.loads(content)
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    validate(base64.b64decode(envelope["payload"]))


def test_another_key_another_payload_and_no_signature_are_refused(tmp_path):
    secret, public = keys(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = keys(tmp_path / "other")
    content = sealed(written(predicate()), KeyFile(secret))
    with pytest.raises(RefutedError, match="not signed by the key"):
        check_signature(content, "c.json", other)
    envelope = json.loads(content)
    envelope["payload"] = base64.b64encode(written(predicate(2))).decode()
    with pytest.raises(RefutedError, match="not signed by the key"):
        check_signature(json.dumps(envelope).encode(), "c.json", public)
    with pytest.raises(RefutedError, match="is not signed"):
        check_signature(written(predicate()), "c.json", public)
    altered: list[dict[str, Any]] = [
        {"signatures": []},
        {"payloadType": "text/plain"},
        {"payload": "%"},
    ]
    for broken in altered:
        with pytest.raises(RefutedError):
            check_signature(json.dumps({**envelope, **broken}).encode(), "c.json", public)


def test_a_key_that_cannot_be_used_is_told_without_its_content(tmp_path):
    odd, _ = keys(tmp_path, X25519PrivateKey.generate())
    with pytest.raises(ConfigurationError, match="no Ed25519 key"):
        KeyFile(odd)
    text = tmp_path / "text.pem"
    text.write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigurationError) as told:
        KeyFile(text)
    assert "c2VjcmV0" not in str(told.value)
    with pytest.raises(ConfigurationError, match="No such file"):
        KeyFile(tmp_path / "none.pem")
