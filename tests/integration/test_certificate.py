"""Certificates on the real stack: written at publication, and checked again later."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from jsonschema import Draft202012Validator, FormatChecker

from changelog.attestation.envelope import opened
from changelog.attestation.file import StatementFile
from changelog.contract.base.errors import RefutedError
from tests.support.captured_project import REPOSITORY, captured_database, rebuild_view
from tests.support.signing import keys
from views.certificates.command import verify_certificates
from views.certificates.postgres_digest import digest_statement
from views.certificates.spark_digest import spark_digest
from views.certificates.statement import Certificate
from views.verify.values.types import parse_type

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(10, 2), at timestamptz,
    tags text[], weight double precision, raw bytea, day date);
INSERT INTO orders SELECT n, 'é' || n % 3, n * 1.25, '2020-01-01'::timestamptz + n * interval '1 s',
    ARRAY['a', NULL], n / 7.0, decode(to_hex(n + 4096), 'hex'), date '2024-01-01' + n
    FROM generate_series(1, 200) n;
INSERT INTO orders VALUES (0, NULL, NULL, NULL, '{}', '-0', '', NULL),
    (-1, '', 0, '1969-12-31 23:59:59.999999Z', NULL, 'NaN', NULL, '0001-01-01');
CREATE SCHEMA served;
"""
COPY = "-- key: id\n-- sinks: postgres, delta\nSELECT * FROM orders\n"


@pytest.fixture(scope="module")
def project(stack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    with captured_database(stack, folder, TABLES) as (made, _):
        keys(folder)
        text = (made.root / "changelog.toml").read_text(encoding="utf-8")
        setting = (
            f'sinks.postgres.url = {json.dumps(made.dsn)}\nrebuild.certificate_key = "key.pem"\n'
        )
        (made.root / "changelog.toml").write_text(setting + text, encoding="utf-8")
        made.view("copied.sql", COPY)
        made.view("copied.postgres.json", json.dumps({"table": "served.copied"}))
        yield made


def certified(capsys, monkeypatch, project, *more):
    done = rebuild_view(capsys, monkeypatch, project, "copied", "--certificate", "--json", *more)
    assert done.code == 0, done.err
    return Path(done.results[0]["certificate_file"])


def verify(project, path, public_key=None):
    verify_certificates([StatementFile.read(path, public_key)], project.root, {})


def refuted(project, path, public_key=None):
    with pytest.raises(RefutedError) as told:
        verify(project, path, public_key)
    return str(told.value)


def command(project, *words):
    return subprocess.run(
        [sys.executable, "-m", "changelog", "verify", *map(str, words), "--project", project.root],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_a_certificate_is_written_and_holds_until_something_changes(
    spark, project, capsys, monkeypatch
):
    first = certified(capsys, monkeypatch, project)
    certificate = Certificate.of(opened(first.read_bytes(), ""), "")
    schema = json.loads((REPOSITORY / "docs" / "certificate.schema.json").read_text("utf-8"))
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(certificate.statement)
    assert certificate.predicate["rows"] == 202

    # The three implementations, each where the rows are.
    types = [(name, parse_type(kind)) for name, kind in certificate.columns]
    of_postgres = {
        place: (count, digest)
        for place, count, digest in project.query(
            digest_statement("served.copied", types, certificate.key, {})
        )
    }
    delta = spark.read.format("delta").load(str(project.warehouse / "copied"))
    names = [name for name, _ in certificate.columns]
    of_spark = spark_digest(delta.select(*names), certificate.key)
    assert certificate.ranges_of("postgres") == certificate.ranges_of("delta")
    assert certificate.ranges_of("postgres") == of_postgres == of_spark

    ran = command(project, first, "--public-key", project.root / "public.pem")
    assert ran.returncode == 0, ran.stderr
    assert "holds: copied, generation" in ran.stdout
    assert "signed by the key" in ran.stdout
    assert "rows equal in postgres, delta" in ran.stdout
    ran = command(project, first, "--as-sql", "served.copied")
    printed = project.query(ran.stdout)
    assert {place: (count, digest) for place, count, digest in printed} == of_postgres

    # A row that somebody alters where readers see it.
    before = project.query("SELECT amount FROM served.copied WHERE id = 7")
    project.execute("UPDATE served.copied SET amount = amount + 0.01 WHERE id = 7")
    assert "rows differ in postgres, key range" in refuted(project, first)
    ran = command(project, first, "--json")
    assert ran.returncode == 3, ran.stderr
    report = json.loads(ran.stdout.splitlines()[0])
    assert (report["verified"], report["sinks"]) == (False, ["delta"])
    project.execute(f"UPDATE served.copied SET amount = {before[0][0]} WHERE id = 7")
    verify(project, first)

    # A row that somebody appends to the table that readers of the Delta table open.
    table = DeltaTable(str(project.warehouse / "copied"))
    added = table.to_pyarrow_table().slice(0, 1)
    write_deltalake(table, added, mode="append")
    assert "rows differ in delta, key range" in refuted(project, first)
    DeltaTable(str(project.warehouse / "copied")).restore(table.version() - 1)
    verify(project, first)

    # A certificate of a generation that no longer serves.
    second = certified(capsys, monkeypatch, project)
    assert Certificate.of(opened(second.read_bytes(), ""), "").previous == certificate.sha256
    verify(project, second, project.root / "public.pem")
    assert "other generation: postgres serves generation" in refuted(project, first)

    # A changed byte, another key, and a broken chain.
    copy, public = project.root / "copy.json", project.root / "public.pem"
    content = second.read_bytes()
    for place, key, word in (
        (content.index(b'"payload"') + 400, None, "altered"),
        (content.index(b'"sig"') - 40, public, "not signed by the key"),
        (content.index(b'"sig"') + 40, public, "not signed by the key"),
    ):
        other = b"A" if content[place : place + 1] != b"A" else b"B"
        copy.write_bytes(content[:place] + other + content[place + 1 :])
        assert word in refuted(project, copy, public_key=key)
    saved = first.read_bytes()
    first.unlink()
    assert "broken chain" in refuted(project, second)
    first.write_bytes(saved)
    verify(project, second)


def test_a_refresh_has_a_certificate_of_all_rows(project, capsys, monkeypatch):
    assert rebuild_view(capsys, monkeypatch, project, "copied", "--refresh").code == 0
    project.execute("UPDATE orders SET amount = amount + 1 WHERE id = 7")
    project.capture()
    path = certified(capsys, monkeypatch, project, "--refresh")
    certificate = Certificate.of(opened(path.read_bytes(), ""), "")
    assert certificate.predicate["rows"] == 202
    assert {proof["mode"] for proof in certificate.predicate["verification"]} == {"changed"}
    verify(project, path)
    project.execute("UPDATE served.copied SET amount = amount + 0.01 WHERE id = 7")
    assert "rows differ in postgres, key range" in refuted(project, path)


def test_a_staged_generation_has_its_certificate_when_it_is_published(project, capsys, monkeypatch):
    def staged(*words):
        return rebuild_view(capsys, monkeypatch, project, "copied", "--json", *words)

    done = staged("--stage", "--certificate")
    assert done.code == 0, done.err
    (at,) = [done.results[0]["addresses"]["postgres"]["table"]]
    project.execute(f"UPDATE {at} SET amount = amount + 0.01 WHERE id = 7")
    refused = staged("--publish")
    assert refused.code == 1
    assert "other values than those that were proved" in refused.err
    refused = staged("--publish", "--verify", "none")
    assert refused.code == 3
    assert "the rows are not those that were staged" in refused.err
    project.execute(f"UPDATE {at} SET amount = amount - 0.01 WHERE id = 7")
    published = staged("--publish")
    assert published.code == 0, published.err
    path = Path(published.results[0]["certificate_file"])
    assert Certificate.of(opened(path.read_bytes(), ""), "").predicate["rows"] == 202
    verify(project, path)
    assert staged("--stage").code == 0
    assert "certificate_file" not in staged("--publish").results[0]


def test_a_certificate_needs_a_proof_and_a_key_that_can_be_used(
    spark, project, capsys, monkeypatch
):
    for words in (["--verify", "none"], ["--follow"], ["--plan"]):
        done = rebuild_view(capsys, monkeypatch, project, "copied", "--certificate", *words)
        assert done.code == 2
    key = project.root / "key.pem"
    secret = key.read_text()
    key.write_text("no key")
    done = rebuild_view(capsys, monkeypatch, project, "copied", "--certificate")
    key.write_text(secret)
    assert done.code == 2
    assert "cannot be used" in done.err
    assert secret.splitlines()[1] not in done.err + done.out
