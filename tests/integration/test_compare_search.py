"""`changelog verify --target search:`: indexes, equal and with planted defects, and bad input."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from changelog.compare import search_side
from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.watch import KeyWatch
from changelog.runtime.tls_trust import authorities
from tests.support.copies import COLUMNS, Source, every_row
from tests.support.document_copies import SEARCH_KINDS, SearchCopy
from tests.support.planted import planted_defects

ROWS = every_row()


@pytest.fixture
def source(dsn):
    made = Source(dsn)
    made.fill(ROWS)
    return made


@pytest.fixture(params=[*SEARCH_KINDS])
def copy(request, endpoints, prefix):
    with closing(SEARCH_KINDS[request.param](endpoints, prefix)) as made:
        made.fill(ROWS)
        yield made


def compared(dsn, target, table="every", key=("id",), **options):
    with (
        closing(PostgresSide(dsn, ComparedRelation(table=table), of="source")) as own,
        closing(open_target(parse_target(target), table, Path(), key=key)) as other,
    ):
        return compare(own, other, CompareRequest(**{"settle_s": 0.0, **options}))


def test_an_index_of_every_type_is_equal(source, copy, monkeypatch):
    monkeypatch.setattr(search_side, "_PAGE_BYTES", 4_000)  # so that a scroll has many pages
    report = compared(source.dsn, copy.target)
    assert report.verified is True, report.lines()
    assert report.compared == tuple(COLUMNS)
    assert (report.source_rows, report.target_rows) == (len(ROWS), len(ROWS))


def test_planted_defects_are_all_found_and_nothing_else(source, copy):
    planted = planted_defects(has_duplicate=copy.has_duplicate)
    copy.fill(planted.rows)
    report = compared(source.dsn, copy.target, most_shown=100)
    seen = {
        int(each.key["id"] or 0): (each.kind, {values.column for values in each.columns})
        for each in report.differences
    }
    assert seen == planted.expected


def test_a_document_that_comes_later_is_seen(source, copy, monkeypatch):
    copy.fill(ROWS[1:])
    look, looks = KeyWatch._look, []

    def mended(watch, watched):
        looks.append(len(watched))
        if len(looks) == 2:
            copy.fill(ROWS)
        return look(watch, watched)

    monkeypatch.setattr(KeyWatch, "_look", mended)
    report = compared(source.dsn, copy.target, settle_s=20.0)
    assert report.verified is True, report.lines()
    assert len(looks) > 1


@pytest.fixture
def pairs(dsn, execute, endpoints, prefix):
    """An index whose ids are JSON arrays of a key of two columns, and an alias of it."""
    execute("CREATE TABLE pairs (a text, n int, t text, j jsonb, PRIMARY KEY (a, n))")
    execute(
        """INSERT INTO pairs VALUES ('x,"y', 1, 'one', '{"k": 1.50}'), ('é', -2, 'two', '"text"')"""
    )
    with closing(SearchCopy(endpoints, prefix)) as made:
        made.fill([])
        put(made, '["x,\\"y",1]', '{"t": "one", "j": {"k": 1.5}}')
        put(made, '["é",-2]', '{"t": "two", "j": "text"}', routing="elsewhere")
        yield made


def put(copy, name, text, **more):
    copy.bulk(json.dumps({"index": {"_id": name, **more}}) + "\n" + text + "\n")


def test_an_id_has_the_values_of_several_key_columns(dsn, pairs):
    report = compared(dsn, pairs.target, "pairs", ("a", "n"))
    assert report.verified is True, report.lines()
    put(pairs, '["é",-2]', '{"t": "Two", "j": "text"}', routing="elsewhere")
    (difference,) = compared(dsn, pairs.target, "pairs", ("a", "n")).differences
    assert (difference.key, [each.column for each in difference.columns]) == (
        {"a": "é", "n": "-2"},
        ["t"],
    )


def test_another_id_is_compared_with_a_query(dsn, endpoints, prefix, execute, run_command):
    execute("CREATE TABLE parts (a text, n int, t text)")
    execute("INSERT INTO parts VALUES ('x', 1, 'one'), ('y', 2, 'two')")
    with closing(SearchCopy(endpoints, prefix)) as copy:
        copy.fill([])
        put(copy, "x-1", '{"t": "one"}')
        put(copy, "y-2", '{"t": "two"}')
        words = ["verify", "--query", "SELECT a || '-' || n AS id, t FROM parts", "--key", "id"]
        words += ["--columns", "id=_id,t", "--source", dsn, "--target", copy.target, "--json"]
        code, report, said = run_command([*words, "--settle", "0"])
        assert (code, report.get("verified")) == (0, True), said
        words[words.index("--query") + 1] = "SELECT * FROM parts"
        words[words.index("id")] = "a,n"
        words[words.index("id=_id,t")] = "t"
        code, _, said = run_command(words)
    assert code == 2, said
    assert "is not a JSON array of the 2 values of the key" in said


def test_two_documents_of_an_alias_are_a_duplicate(source, endpoints, prefix):
    with (
        closing(SearchCopy(endpoints, f"{prefix}-1")) as one,
        closing(SearchCopy(endpoints, f"{prefix}-2")) as two,
    ):
        one.fill(ROWS)
        two.fill(ROWS[:1])
        add = [{"add": {"index": copy.name, "alias": prefix}} for copy in (one, two)]
        one.client.post("/_aliases", json={"actions": add}).raise_for_status()
        target = f"search:{endpoints.search}/{prefix}"
        (difference,) = compared(source.dsn, target).differences
    assert (difference.kind, difference.target_rows) == ("duplicated", 2)


@pytest.mark.parametrize(
    ("target", "code", "part"),
    [
        ("search:{url}/nowhere", 2, 'has no index "nowhere"'),
        ("search:{url}", 2, "is not the address of an index"),
        ("search:http://me:s3cret@127.0.0.1:1/orders", 1, "does not answer"),
    ],
)
def test_bad_input_is_told_in_a_line(
    source, endpoints, run_command, monkeypatch, target, code, part
):
    monkeypatch.setattr(search_side, "_PAUSES_S", (0.1,))
    target = target.format(url=endpoints.search)
    words = ["verify", "every", "--source", source.dsn, "--target", target]
    ended, _, said = run_command(words)
    assert (ended, part in said) == (code, True), said
    assert "s3cret" not in said


def test_a_key_that_no_document_has_is_told(source, endpoints, prefix, run_command):
    with closing(SearchCopy(endpoints, prefix)) as copy:
        copy.fill(ROWS)
        before = copy.client.get(f"/{prefix}/_search").json()["hits"]["hits"]
        words = ["verify", "every", "--source", source.dsn, "--target", copy.target]
        code, _, said = run_command([*words, "--columns", "t=nothing"])
        assert copy.client.get(f"/{prefix}/_search").json()["hits"]["hits"] == before
    assert (code, 'the target has no "nothing"' in said) == (2, True), said


def test_documents_without_their_source_are_told(source, endpoints, prefix, run_command):
    with httpx.Client(base_url=str(endpoints.search), verify=authorities()) as client:
        client.put(f"/{prefix}", json={"mappings": {"_source": {"enabled": False}}})
        client.put(f"/{prefix}/_doc/1?refresh=true", json={"id": 1}).raise_for_status()
        words = ["verify", "every", "--source", source.dsn]
        code, _, said = run_command([*words, "--target", f"search:{endpoints.search}/{prefix}"])
        client.delete(f"/{prefix}")
    assert (code, "have no _source" in said) == (2, True), said
