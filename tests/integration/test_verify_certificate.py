"""`changelog verify --target --certificate`: written for each verdict, and read again."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from psycopg2.extensions import make_dsn, parse_dsn
from typer.testing import CliRunner

from changelog.attestation.file import StatementFile
from changelog.attestation.statement import canonical, parsed, written
from changelog.cli import app
from changelog.compare.certificate import KIND, ComparedPair, facts_of
from changelog.compare.certificate_command import show_comparisons
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.contract.base.errors import RefutedError
from changelog.contract.base.lsn import Lsn
from tests.support.captured_project import REPOSITORY
from tests.support.signing import keys

SCHEMA = json.loads((REPOSITORY / "docs" / "comparison.schema.json").read_text("utf-8"))
FILL = """
CREATE TABLE orders (id int PRIMARY KEY, t text, amount numeric, secret json, inner_only point);
INSERT INTO orders SELECT n, 'text ' || n, n * 1.25 FROM generate_series(1, 1000) AS n;
CREATE TABLE copy (id int PRIMARY KEY, t varchar, amount numeric(20, 5), secret jsonb, own text);
INSERT INTO copy SELECT id, t, amount, secret::jsonb FROM orders;
"""
SPOIL = """
UPDATE copy SET t = 'canary-value' WHERE id IN (471, 2, 3);
DELETE FROM copy WHERE id IN (11, 12);
INSERT INTO copy VALUES (987654, 'risen', 1);
"""


@pytest.fixture
def filled(execute):
    execute(FILL)


class Verify:
    """Compares with a certificate; returns the exit code, the facts that it states, and errors."""

    def __init__(self, dsn, path, run_command):
        self.path, self.dsn, self.run_command = path, dsn, run_command
        self.target = f"postgres:{dsn} dbname={parse_dsn(dsn)['dbname']}/copy"

    def __call__(self, *more, source=None, target=None, table=("orders",)):
        self.path.unlink(missing_ok=True)
        words = ["verify", *table, "--source", source or self.dsn, "--settle", "0", "--json"]
        words += ["--target", target or self.target, "--certificate", str(self.path), *more]
        code, _, errors = self.run_command(words)
        facts = facts_in(self.path.read_bytes()) if self.path.exists() else None
        return code, facts, errors


@pytest.fixture
def verify(dsn, filled, tmp_path, run_command):
    return Verify(dsn, tmp_path / "c.json", run_command)


def facts_in(content):
    """Return the predicate of a file, which follows the schema."""
    document = json.loads(content)
    if "payload" in document:
        document = json.loads(base64.b64decode(document["payload"]))
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA, format_checker=FormatChecker()).validate(document)
    return document["predicate"]


def read(path, *more):
    """Run `changelog verify FILE` where no package of an extra can be imported."""
    blocked = "duckdb pyspark sqlglot deltalake pandas pyarrow numpy redis py4j obstore"
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}.split()))\n"
        "from changelog.cli import main\nsys.argv[0] = 'changelog'\nmain()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "verify", path, *more],
        capture_output=True, text=True, check=False, timeout=120, cwd=path.parent,
    )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


def test_what_was_compared_is_stated_as_the_server_has_it(dsn, execute, verify):
    ((before,),) = execute("SELECT pg_current_wal_lsn()::text")
    code, facts, errors = verify()
    ((after,),) = execute("SELECT pg_current_wal_lsn()::text")
    assert (code, facts["verdict"]["result"]) == (0, "equal"), errors
    assert "the certificate is" in errors
    ((system_id, database, server),) = execute(
        "SELECT system_identifier::text, current_database(), current_setting('server_version')"
        " FROM pg_control_system()"
    )
    identity = {"system_id": system_id, "database": database, "schema": "public"}
    assert facts["source"]["identity"] == {**identity, "table": "orders"}
    assert facts["target"]["identity"] == {**identity, "table": "copy"}
    assert (facts["source"]["query_sha256"], facts["target"]["kind"]) == (None, "postgres")
    assert facts["servers"] == {"source": server, "target": server}
    began, ended = (Lsn.parse(facts[name]["lsn"]) for name in ("began", "ended"))
    assert Lsn.parse(before) <= began <= ended <= Lsn.parse(after)
    assert facts["rows"] == {"source": 1000, "target": 1000}
    assert facts["key"] == ["id"]
    assert facts["columns"][:3] == [
        column("id", "integer", "integer", "whole number"),
        column("t", "text", "character varying", "text"),
        column("amount", "numeric", "numeric", "numeric"),
    ]
    assert facts["not_compared"] == [
        {"side": "source", "column": "inner_only", "reason": 'the target has no "inner_only"'},
        {
            "side": "target",
            "column": "own",
            "reason": "no column of the source is compared with it",
        },
    ]
    assert (facts["settle_seconds"], facts["repair"]) == (0, None)
    assert facts["sample"] == {"share": 1, "buckets": 61, "compared_buckets": 61}

    code, output, errors = read(verify.path)
    assert (code, errors) == (0, "")
    assert output.startswith("holds: a certificate of a comparison, made 20")
    for part in (
        "\n  not signed\n",
        f"\n  equal: copy of {database}",
        f"1,000 rows: orders of {database}",
        f"from {facts['began']['lsn']} (",
        "it tells of that time and has no digest of rows; compare again",
        "not compared: own of the target",
    ):
        assert part in output


def column(name, source_type, target_type, form):
    return {
        "source": name, "source_type": source_type, "target": name, "target_type": target_type,
        "compared_as": form,
    }  # fmt: skip


def test_a_difference_is_certified_without_keys_and_values(execute, verify):
    execute(SPOIL)
    code, facts, _ = verify()
    assert code == 3
    assert facts["verdict"] == {
        "result": "differs", "differing_keys": 6, "at_least": False, "undecided_keys": 0,
    }  # fmt: skip
    content = verify.path.read_text("utf-8")
    assert [word for word in ("canary", "risen", "987654", "471") if word in content] == []
    code, output, errors = read(verify.path)
    assert (code, "differed in 6 keys: copy of" in output) == (3, True)
    assert "compare again to know how it is now" in errors
    code, output, _ = read(verify.path, "--json")
    assert code == 3
    result = json.loads(output.splitlines()[0])
    assert (result["verified"], result["signed"], result["comparison"]) == (False, False, facts)
    assert result["sha256"] == hashlib.sha256(verify.path.read_bytes()).hexdigest()


def test_nothing_compared_is_undecided(execute, verify):
    execute("DELETE FROM orders; DELETE FROM copy; ANALYZE orders")
    code, facts, _ = verify("--sample", "1%")
    assert (code, facts["verdict"]["result"]) == (4, "undecided")
    assert facts["sample"] == {"share": 0.01, "buckets": 61, "compared_buckets": 1}
    code, output, _ = read(verify.path)
    assert (code, "undecided, the sample had no row" in output) == (4, True)
    assert "0 rows in 1 of 61 buckets of the keys" in output


def test_a_repair_is_certified_by_the_comparison_after_it(execute, verify):
    execute(SPOIL)
    code, facts, _ = verify("--repair")
    assert (code, facts["verdict"]["differing_keys"], facts["repair"]) == (3, 6, None)
    execute(
        "ALTER TABLE copy ADD CHECK (id <> 11); CREATE TABLE noted (lsn pg_lsn);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO noted SELECT pg_current_wal_insert_lsn(); RETURN NULL; END';"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON copy"
        " FOR EACH ROW EXECUTE FUNCTION note()"
    )
    code, facts, errors = verify("--repair", "--yes")
    assert code == 3, errors
    assert facts["repair"] == {
        "insert": 1, "update": 3, "delete": 1, "refused": 1, "changed_meanwhile": 0,
        "agrees_by_now": 0, "stored_otherwise": 0,
    }  # fmt: skip
    assert facts["verdict"]["differing_keys"] == 1
    ((last,),) = execute("SELECT max(lsn)::text FROM noted")
    assert Lsn.parse(facts["began"]["lsn"]) >= Lsn.parse(last), "it began after the repair"
    _, output, _ = read(verify.path)
    assert "after a repair: 1 delete, 1 insert, 1 refused, 3 update\n" in output

    execute("ALTER TABLE copy DROP CONSTRAINT copy_id_check")
    assert verify("--repair", "--yes")[:1] == (0,)
    code, facts, _ = verify("--repair", "--yes")
    assert (code, {*facts["repair"].values()}) == (0, {0}), "there was nothing to do"
    assert "after a repair: nothing was written" in read(verify.path)[1]


def test_a_repair_that_is_not_allowed_leaves_no_certificate(execute, verify):
    execute("DELETE FROM orders")
    code, facts, errors = verify("--repair", "--yes")
    assert (code, facts, verify.path.exists()) == (2, None, False), errors


def test_a_file_or_key_that_cannot_be_used_is_refused_before_the_comparison(verify, tmp_path):
    (tmp_path / "there.json").write_text("older")
    (tmp_path / "bad.pem").write_text("no key")
    (tmp_path / "folder.json").mkdir()
    nowhere = "postgresql://me@127.0.0.1:1/shop"
    for words, part in (
        (["--certificate", tmp_path / "none" / "c.json"], "cannot be written: No such file"),
        (["--certificate", tmp_path / "folder.json"], "is there already"),
        (["--certificate", tmp_path / "there.json"], "is not overwritten"),
        (["--certificate", tmp_path / "c.txt"], "does not end with .json"),
        (["--certificate-key", tmp_path / "bad.pem"], "cannot be used"),
        (["--certificate-key", tmp_path / "none.pem"], "cannot be used"),
        (["--every", "1h"], "--certificate does not go with --every"),
    ):
        code, facts, errors = verify(*map(str, words), source=nowhere)
        assert (code, facts, part in errors) == (2, None, True), errors
    assert (tmp_path / "there.json").read_text() == "older"
    assert {path.name for path in tmp_path.iterdir()} == {"there.json", "bad.pem", "folder.json"}
    assert verify(source=nowhere)[0] == 1, "the source is asked only then"


def test_options_of_a_certificate_need_one(run_command):
    words = ["verify", "orders", "--source", "postgresql://x/y", "--target", "parquet:x"]
    code, _, errors = run_command([*words, "--certificate-key", "x"])
    assert (code, "--certificate-key only works with --certificate" in errors) == (2, True), errors
    code, _, errors = run_command(["verify", "orders", "--certificate", "x.json"])
    assert (code, "--certificate only works with --target" in errors) == (2, True), errors
    code, _, errors = run_command(["verify", "--view", "v", "--certificate", "x.json"])
    assert (code, "--certificate does not go with --view" in errors) == (2, True), errors


def test_a_signature_is_checked_and_another_key_refused(verify, tmp_path):
    folders = tmp_path / "own", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    (secret, public), (_, other) = map(keys, folders)
    code, facts, errors = verify("--certificate-key", str(secret))
    assert (code, facts["verdict"]["result"]) == (0, "equal"), errors
    code, output, _ = read(verify.path, "--public-key", public)
    assert (code, "\n  signed by the key\n" in output) == (0, True)
    assert "signed by a key that was not checked" in read(verify.path)[1]
    code, output, errors = read(verify.path, "--public-key", other)
    assert (code, output, "not signed by the key" in errors) == (3, "", True)

    content = verify.path.read_bytes()
    for place, key in (
        (content.index(b'"payload"') + 400, ()),
        (content.index(b'"sig"') + 40, ("--public-key", public)),
    ):
        letter = b"A" if content[place : place + 1] != b"A" else b"B"
        verify.path.write_bytes(content[:place] + letter + content[place + 1 :])
        code, output, errors = read(verify.path, *key)
        assert (code, output) == (3, ""), errors


def test_each_altered_byte_is_noticed(verify):
    verify()
    content = verify.path.read_bytes()
    for place in range(0, len(content), 7):
        letter = content[place] ^ 1
        with pytest.raises(RefutedError, match="altered, or no certificate"):
            parsed(content[:place] + bytes([letter]) + content[place + 1 :], "c.json")


def test_other_words_under_a_right_checksum_are_noticed(verify):
    verify()
    document = json.loads(verify.path.read_bytes())
    facts, subject = document["predicate"], document["subject"]
    del facts["checksum"]
    of_subject = {name: facts[name] for name in ("source", "target", "key", "columns")}
    digest = hashlib.sha256(canonical(of_subject)).hexdigest()
    assert subject == [
        {"name": facts["target"]["place"], "digest": {"changelogComparison1": digest}}
    ]

    def refused(**more):
        verify.path.write_bytes(written(KIND, subject, {**facts, **more}))
        with pytest.raises(RefutedError) as told:
            show_comparisons([StatementFile.read(verify.path, None)])
        return str(told.value)

    assert "its subject is another" in refused(key=["t"])
    odd_verdicts: list[Any] = [None, [], "x", {"result": "fine"}, {"result": []}, 7]
    for odd in odd_verdicts:
        assert "it lacks a fact" in refused(verdict=odd)
    assert "it lacks a fact" in refused(settle_seconds=10**400)


def test_a_strangers_words_do_not_draw_on_the_terminal(verify):
    verify()
    document = json.loads(verify.path.read_bytes())
    facts = document["predicate"]
    facts["made"] = "now\n  signed by the key\x1b[2J"
    verify.path.write_bytes(written(KIND, document["subject"], facts))
    _, output, _ = read(verify.path)
    assert r"made now\n  signed by the key\x1b[2J (" in output
    assert "\n  signed" not in output


def test_no_password_user_or_parameter_is_in_it(dsn, verify):
    with_password = make_dsn(dsn, password="s3cr3t")
    target = f"postgres:{with_password} dbname={parse_dsn(dsn)['dbname']}/copy"
    assert verify(source=with_password, target=target)[0] == 0
    assert "s3cr3t" not in verify.path.read_text("utf-8")
    with (
        closing(PostgresSide(dsn, ComparedRelation(table="orders"), of="source")) as source,
        closing(PostgresSide(dsn, ComparedRelation(table="copy"), of="target")) as copy,
    ):
        report = compare(source, copy, CompareRequest(settle_s=0.0))
        pair = ComparedPair(source, copy, "delta")

        def stated(place):
            copy.place = place
            return facts_of(pair, report, None)["target"]["place"]

        assert stated("delta:az://me:s3cr3t@b/x?sig=s3cr3t&x") == "delta:az://***@b/x?***"
        assert stated("search:https://s3cr3t@h/orders") == "search:https://***@h/orders"
        assert stated("parquet:/data/?\udcff.parquet") == r"parquet:/data/?\udcff.parquet"


def test_a_role_that_may_not_know_the_system_leaves_it_out(dsn, execute, prefix, verify):
    execute(
        f"CREATE ROLE {prefix}_reader LOGIN; GRANT SELECT ON orders TO {prefix}_reader;"
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public"
    )
    code, facts, errors = verify(source=make_dsn(dsn, user=f"{prefix}_reader"))
    assert code == 0, errors
    assert {*facts["source"]["identity"]} == {"database", "schema", "table"}
    assert "system_id" in facts["target"]["identity"]


def test_a_query_is_named_by_its_digest(dsn, verify, tmp_path):
    query = "SELECT id, t\r\nFROM orders WHERE t <> 'canary-word';\n"
    (tmp_path / "query.sql").write_bytes(query.encode())
    words = ("--query", f"@{tmp_path / 'query.sql'}", "--key", "id")
    code, facts, errors = verify(*words, table=())
    assert code == 0, errors
    assert facts["source"]["query_sha256"] == hashlib.sha256(query.encode()).hexdigest()
    assert {*facts["source"]["identity"]} == {"system_id", "database"}
    assert "canary-word" not in verify.path.read_text("utf-8")
    assert f"query {facts['source']['query_sha256']}" in read(verify.path)[1]


def test_files_are_named_by_their_path(verify, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids = list(range(1, 1001))
    pq.write_table(pa.table({"id": ids, "word": [f"text {n}" for n in ids]}), "c.parquet")
    words = ("--columns", "t=word")
    code, facts, errors = verify(*words, target="parquet:*.parquet")
    assert (code, facts["verdict"]["result"]) == (0, "equal"), errors
    assert facts["target"] == {
        "kind": "parquet", "place": "parquet:*.parquet",
        "identity": {"path": str(tmp_path / "*.parquet")},
    }  # fmt: skip
    assert facts["servers"]["target"] is None
    assert [column["target"] for column in facts["columns"]] == ["id", "word"]
    assert [column["column"] for column in facts["not_compared"]] == [
        "amount", "secret", "inner_only",
    ]  # fmt: skip


def test_a_topic_is_named_by_its_id(verify, kafka, make_topic, send):
    topic = make_topic("orders")
    for number in range(1, 1001):
        row = {"id": number, "t": f"text {number}"}
        send(topic, (json.dumps({"id": number}).encode(), json.dumps(row).encode()))
    words = ("--columns", "t", "-b", kafka.brokers)
    code, facts, errors = verify(*words, target=f"topic:{topic}")
    assert code == 0, errors
    assert {*facts["target"]["identity"]} == {"cluster_id", "topic_id"}
    assert all(facts["target"]["identity"].values())


def test_certificates_of_two_kinds_are_not_checked_together(verify, tmp_path):
    verify()
    (tmp_path / "view.json").write_bytes(written("urn:changelog-store:certificate:1", [], {}))
    ran = CliRunner().invoke(app, ["verify", str(verify.path), str(tmp_path / "view.json")])
    assert "checked by commands of their own" in str(ran.exception)
    ran = CliRunner().invoke(app, ["verify", str(verify.path), "--as-sql", "copy"])
    assert "has no digests of rows" in str(ran.exception)


def test_twin_the_schema_refuses_what_is_not_in_it(verify):
    verify()
    document = json.loads(verify.path.read_bytes())
    document["predicate"]["digest"] = "0" * 64
    with pytest.raises(ValidationError, match="digest"):
        Draft202012Validator(SCHEMA).validate(document)
