"""`changelog verify --target`: caches and topics, equal and with planted defects."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import redis

from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.watch import KeyWatch
from changelog.contract.base.errors import ConfigurationError
from tests.support.cache_cluster import cache_cluster
from tests.support.copies import COLUMNS, Source, every_row
from tests.support.document_copies import DOCUMENT_KINDS, CacheCopy
from tests.support.planted import planted_defects

ROWS = every_row()


@pytest.fixture
def source(dsn):
    made = Source(dsn)
    made.fill(ROWS)
    return made


@pytest.fixture(params=[*DOCUMENT_KINDS])
def copy(request, endpoints, prefix):
    with closing(DOCUMENT_KINDS[request.param](endpoints, prefix)) as made:
        made.fill(ROWS)
        yield made


@pytest.fixture
def compared(endpoints):
    settings = {"kafka.brokers": endpoints.brokers, "registry.url": endpoints.schema_registry}

    def run(source, copy, **options):
        with (
            closing(PostgresSide(source.dsn, ComparedRelation(table="every"), of="source")) as own,
            closing(
                open_target(
                    parse_target(copy.target),
                    "every",
                    Path(),
                    key=["id"],
                    given_settings=settings,
                )
            ) as other,
        ):
            return compare(own, other, CompareRequest(**{"settle_s": 0.0, **options}))

    return run


def test_a_copy_of_every_type_is_equal(source, copy, compared):
    report = compared(source, copy)
    assert report.verified is True, report.lines()
    assert report.compared == tuple(COLUMNS)
    assert (report.source_rows, report.target_rows) == (len(ROWS), len(ROWS))
    assert not report.not_compared
    assert not report.notes


def test_planted_defects_are_all_found_and_nothing_else(source, copy, compared):
    planted = planted_defects(has_duplicate=copy.has_duplicate)
    copy.fill(planted.rows)
    report = compared(source, copy, most_shown=100)
    seen = {
        int(each.key["id"] or 0): (each.kind, {values.column for values in each.columns})
        for each in report.differences
    }
    assert seen == planted.expected


def test_a_change_that_comes_later_is_seen(source, copy, compared, monkeypatch):
    """Rows that the copy gets, changes and loses between two looks at the keys that differ."""
    rows = [dict(row) for row in ROWS]
    lost, stale = rows.pop(3), rows[5]
    stale["t"] = "stale"
    copy.fill([*rows, {**ROWS[7], "id": 999_983}])
    look, looks = KeyWatch._look, []

    def mended(watch, watched):
        looks.append(len(watched))
        if len(looks) == 2:
            copy.fill(ROWS)
        return look(watch, watched)

    monkeypatch.setattr(KeyWatch, "_look", mended)
    report = compared(source, copy, settle_s=20.0)
    assert report.verified is True, report.lines()
    assert looks[0] >= 3, lost


def test_the_entries_of_a_cluster_are_those_of_all_its_servers(
    source, endpoints, prefix, compared, tmp_path
):
    planted = planted_defects(has_duplicate=False)
    with (
        cache_cluster(tmp_path) as url,
        closing(CacheCopy(endpoints, prefix, url)) as copy,
    ):
        copy.fill(ROWS)
        assert compared(source, copy).verified is True
        copy.fill(planted.rows)
        report = compared(source, copy, most_shown=100)
        assert {int(each.key["id"] or 0) for each in report.differences} == {*planted.expected}
        copy.target = copy.target.replace("redis+cluster", "redis")
        with pytest.raises(ConfigurationError, match="one server of a cluster"):
            compared(source, copy)


def test_texts_under_names_with_wildcards_letters_are_rows(source, endpoints, prefix, run_command):
    texts = ["{bad", "[", "plain", '{"unfinished": ']
    with closing(redis.Redis.from_url(str(endpoints.cache))) as client:
        for number, text in enumerate(texts):
            client.set(f"{prefix}[z]?:{number}", text)
        values = ", ".join(f"({number}, '{text}')" for number, text in enumerate(texts))
        words = ["verify", "--source", source.dsn, "--key", "id", "--settle", "0", "--json"]
        words += ["--query", f"SELECT * FROM (VALUES {values}) AS v(id, value)"]
        words += ["--target", f"cache:{endpoints.cache}/{prefix}\\[z\\]\\?:*"]
        code, report, said = run_command(words)
        assert (code, report["rows_target"]) == (0, len(texts)), said
        client.set(f"{prefix}[z]?:0", "{worse")
        assert run_command(words)[0] == 3


def test_a_copy_that_was_emptied_differs_and_an_empty_source_equals_it(
    source, copy, endpoints, prefix, run_command
):
    copy.fill([])
    words = ["verify", "--source", source.dsn, "--target", copy.target, "--settle", "0", "--json"]
    words += ["--broker", endpoints.brokers, "--schema-registry", endpoints.schema_registry]
    code, _, said = run_command([*words, "every"])
    assert (code, f"differs from its source in {len(ROWS)} keys" in said) == (3, True), said
    query = f"SELECT * FROM {source.name} WHERE false"
    code, report, said = run_command([*words, "--query", query, "--key", "id"])
    assert (code, report["verified"], report["rows_source"]) == (0, True, 0), said
    is_told = any("has no entry that matches" in note for note in report["notes"])
    assert is_told is copy.target.startswith("cache:")


@pytest.mark.parametrize(
    ("target", "code", "part"),
    [
        ("cache:redis://:s3cret@127.0.0.1:1/0/a:*", 1, "does not answer"),
        ("cache:{cache}/{prefix}:*", 3, "differs from its source in"),
        ("cache:{cache}", 2, "does not name entries of a cache"),
        ("cache:{cache}/{prefix}-set*", 1, "it is neither a text nor a hash"),
    ],
)
def test_bad_input_is_told_in_a_line(source, endpoints, prefix, run_command, target, code, part):
    client = redis.Redis.from_url(str(endpoints.cache))
    with closing(client):
        client.sadd(f"{prefix}-set", "a")
        target = target.format(cache=endpoints.cache, prefix=prefix)
        ended, _, said = run_command(
            ["verify", "every", "--source", source.dsn, "--target", target]
        )
        assert client.smembers(f"{prefix}-set") == {b"a"}
        client.delete(f"{prefix}-set")
    assert (ended, part in said) == (code, True), said
    assert "s3cret" not in said


def test_a_module_that_is_not_installed_is_named(source, run_command, monkeypatch):
    monkeypatch.setattr("changelog.compare.needed.find_spec", lambda _: None)
    words = ["verify", "every", "--source", source.dsn, "--target", "cache:redis://h/0/a:*"]
    ended, _, said = run_command(words)
    assert (ended, "needs the module redis, which is not installed" in said) == (2, True), said
