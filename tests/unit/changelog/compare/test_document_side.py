"""Documents as a copy: digits that are kept, the last state of an id, keys in ids, envelopes."""

from __future__ import annotations

from contextlib import closing

import pytest

from changelog.compare import document_side
from changelog.compare.document_side import Document, DocumentSide, field_texts, id_part, parsed
from changelog.compare.forms import Native, TypeFamily
from changelog.compare.plan import KeyBuckets, make_plan
from changelog.compare.texts import document_json, document_list
from changelog.compare.topic_side import row_of
from changelog.connect.rules.records.reading import BadRecordError
from changelog.contract.base.errors import ConfigurationError, SinkError

INTEGER, TEXT = Native("integer", TypeFamily.INTEGER), Native("text", TypeFamily.TEXT)
NUMERICS = Native("numeric[]", TypeFamily.NUMERIC, is_list=True)
JSON = Native("jsonb", TypeFamily.JSON)


class FakeSide(DocumentSide):
    """Documents in a list, which a test may change."""

    def __init__(self, documents, key=("id",)):
        super().__init__("fake:documents", key)
        self.documents, self.reads = documents, []
        self.load()

    def _read(self):
        self.reads.append("all")
        yield from self.documents

    def _read_again(self, ids):
        self.reads.append([*ids])
        yield from (document for document in self.documents if document.id in ids)


class SeveralStates(FakeSide):
    comes_twice = True


def document(id_, text, version=""):
    return Document(id_, field_texts(parsed(text, "here")), version)


def bound(side, columns, key=("id",)):
    plan = make_plan(
        columns,
        side.columns(),
        key=key,
        columns={},
        buckets=KeyBuckets(61, by_value=False),
    )
    side.bind(plan)
    return side


def rows(side, *keys):
    return {row.key: row.texts for row in side.look(keys)}


def test_all_digits_of_numbers_are_kept():
    text = '{"id": 1, "l": [1.10, 0.12345678901234567890123, null], "j": {"a": 1e2, "b": 1.50}}'
    with closing(FakeSide([document("1", text)])) as side:
        bound(side, {"id": INTEGER, "l": NUMERICS, "j": JSON})
        assert rows(side, ("1",)) == {
            ("1",): ('["1.1","0.12345678901234567890123",null]', '{"a": 100, "b": 1.50}')
        }


def test_fields_that_differ_in_case_are_two_columns():
    with closing(FakeSide([document("1", '{"id": 1, "a": "x", "A": "y"}')])) as side:
        bound(side, {"id": INTEGER, "a": TEXT, "A": TEXT})
        assert rows(side, ("1",)) == {("1",): ("x", "y")}


def test_the_last_state_of_an_id_counts(monkeypatch):
    monkeypatch.setattr(document_side, "_BATCH", 2)
    states = [
        document("a", '{"id": 1, "t": "new"}', "2"),
        document("a", '{"id": 1, "t": "old"}', "1"),
        document("b", '{"id": 2, "t": "first"}', "1"),
        document("a", '{"id": 1, "t": "older"}', "0"),
        Document("b", None, "2"),
        document("c", '{"id": 3, "t": "first"}', "1"),
        document("c", '{"id": 3, "t": "second"}', "1"),
    ]
    with closing(SeveralStates(states)) as side:
        bound(side, {"id": INTEGER, "t": TEXT})
        assert sum(digest.rows for digest in side.digests().values()) == 2
        assert {key for key, _ in side.rows(range(61))} == {("1",), ("3",)}
        statement = f"SELECT {side._fields['t']} FROM {side.relation} ORDER BY id"
        assert side._fetched(statement) == [("new",), ("second",)]


def test_documents_are_read_again_by_their_ids():
    documents = [document(str(n), f'{{"id": {n}, "t": "x"}}') for n in range(5)]
    with closing(FakeSide(documents)) as side:
        bound(side, {"id": INTEGER, "t": TEXT})
        documents[1] = document("1", '{"id": 1, "t": "new", "more": 1}')
        documents[2:3] = []
        documents.append(document("7", '{"id": 7, "t": "late"}'))
        assert rows(side, ("1",), ("2",), ("7",)) == {("1",): ("new",), ("7",): ("late",)}
        assert side.reads == ["all", ["1", "2", "7"]]


def test_all_are_read_again_where_an_id_cannot_be_told():
    documents = [document(f"doc {n}", f'{{"id": {n}, "t": "x"}}') for n in range(5)]
    with closing(FakeSide(documents)) as side:
        bound(side, {"id": INTEGER, "t": TEXT})
        assert rows(side, ("1",)) == {("1",): ("x",)}
        assert side.reads == ["all", ["doc 1"]]
        documents.append(document("other", '{"id": 7, "t": "late"}'))
        assert rows(side, ("1",), ("7",)) == {("1",): ("x",), ("7",): ("late",)}
        assert side.reads == ["all", ["doc 1"], "all"]


def test_a_key_of_several_columns_is_in_the_id():
    documents = [document('["é",2]', '{"t": "x"}'), document('["a",1]', '{"t": "y"}')]
    with closing(FakeSide(documents, ("k", "n"))) as side:
        bound(side, {"k": TEXT, "n": INTEGER, "t": TEXT}, ("k", "n"))
        assert rows(side, ("é", "2")) == {("é", "2"): ("x",)}
        assert side.reads == ["all", ['["é",2]']]
    with pytest.raises(ConfigurationError, match="'a-1' is not a JSON array of the 2 values"):
        FakeSide([document("a-1", '{"t": "x"}')], ("k", "n"))


def test_too_many_fields_are_told(monkeypatch):
    monkeypatch.setattr(document_side, "_MOST_FIELDS", 3)
    with pytest.raises(SinkError, match="more than 3 different fields"):
        FakeSide([document("1", '{"id": 1, "a": 1, "b": 2, "c": 3}')])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"bb":1.50,"a":[1e2]}', '{"a": [100], "bb": 1.50}'),
        ("plain", '"plain"'),
        ('"text"', '"text"'),
        ("null", "null"),
    ],
)
def test_json_of_a_document_is_written_as_jsonb_does(text, canonical):
    assert document_json(text) == canonical


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        (
            '[1.50, -0.0, "a", true, null, {"k": 1.0}]',
            ["1.50", "-0.0", "a", "true", None, '{"k":1}'],
        ),
        ("[]", []),
        ('[0:1]={a,"b,\\"",NULL}', ["a", 'b,"', None]),
        ("[0:1]={", None),
        ("[[1]]", None),
        ("{1,2}", None),
        ("[1", None),
        (None, None),
    ],
)
def test_the_elements_of_an_array_are_texts(text, texts):
    assert document_list(text) == texts


@pytest.mark.parametrize(
    ("id_", "part"), [('["a",1.10]', "1.10"), ('["a"]', None), ("a-1", None), ("[a", None)]
)
def test_a_part_of_an_id(id_, part):
    assert id_part(id_, 1, 2) == part


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ({"id": 1, "op": "x"}, {"id": 1, "op": "x"}),
        ({"op": "c", "before": None, "after": {"id": 1}}, {"id": 1}),
        ({"op": "d", "before": {"id": 1}, "after": None}, None),
        ({"op": "c", "before": "yes", "after": "no"}, {"op": "c", "before": "yes", "after": "no"}),
        ({"op": "u", "ts": 1, "lsn": 2, "before_id": 1, "after_id": 1, "after_t": None},
         {"id": 1, "t": None}),
        ({"op": "d", "ts": 1, "lsn": 2, "before_id": 1}, None),
        ({"id": 1, "__op": "c", "__deleted": "false"}, {"id": 1}),
        ({"id": 1, "__deleted": True}, None),
        (None, None),
    ],
)  # fmt: skip
def test_the_row_that_a_value_tells_of(value, row):
    assert row_of(value) == row


@pytest.mark.parametrize(
    "value", [[1], "text", {"op": "x", "after": {"id": 1}}, {"op": "u", "after": None}]
)
def test_a_value_without_a_row_is_refused(value):
    with pytest.raises(BadRecordError):
        row_of(value)


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(BadRecordError, match="not valid Unicode"):
        field_texts(parsed('{"t": "\\ud800"}', "here"))
