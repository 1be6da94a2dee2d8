"""Requests for records: their forms, ids, rights, and what is refused."""

import json

import pytest

from changelog.connect.http.admission import Admission
from changelog.connect.http.rights import Rights
from changelog.connect.produce import encode
from changelog.connect.produce.encode import Encoders
from changelog.connect.produce.errors import ProduceError
from changelog.connect.produce.remembered import Answer, RememberedIds, lane_of, name_of, noted
from changelog.connect.produce.requests import (
    MOST_RECORDS,
    NamedSchema,
    ValueForm,
    digest_of,
    form_of,
    parsed,
    request_id,
)
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.sections import Http, HttpToken

PHONE, OWN = "phone-0123456789abc", "own-0123456789abcdef"
ENCODERS = Encoders(RegistryConnection(url=""))


def encoded(form, *records, **members):
    return written(form, json.dumps({"records": records, **members}).encode())


def written(form, body):
    request = parsed(form, body)
    return encode.encoded(request, *(part.result(10) for part in ENCODERS.of("t", request)))


def code_of(call, *arguments):
    with pytest.raises(ProduceError) as caught:
        call(*arguments)
    return caught.value.error_code


def test_the_content_type_says_the_form():
    assert form_of("application/vnd.kafka.json.v2+json") is ValueForm.JSON
    assert form_of("Application/vnd.kafka.AVRO.v2+json; charset=utf-8") is ValueForm.AVRO
    assert form_of("application/vnd.kafka.avro.v1+json") is ValueForm.AVRO
    assert form_of("application/vnd.kafka.v1+json") is ValueForm.BINARY
    # A browser sends the first three for a page of another site without asking here.
    for other in ("text/plain", "application/x-www-form-urlencoded", "", "application/json"):
        assert code_of(form_of, other) == 415
    for other in ("jsonschema.v2", "json.v3", "v2"):
        assert code_of(form_of, f"application/vnd.kafka.{other}+json") == 415


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"records": [{"value": NaN}]}', 400),
        (b'{"records": [{"value": 1, "value": 2}]}', 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b"{}", 422),
        (b'{"records": []}', 422),
        (b'{"records": {}}', 422),
        (b'{"records": [1]}', 422),
        (b'{"records": [{"valeu": 1}]}', 422),
        (b'{"records": [{}]}', 422),
        (b'{"records": [{"key": 1}]}', 422),
        (b'{"records": [{"value": 1}], "more": 1}', 422),
        (b'{"records": [{"value": 1, "partition": "0"}]}', 422),
        (b'{"records": [{"value": 1, "partition": true}]}', 422),
        (b'{"records": [{"value": 1, "partition": -1}]}', 422),
        (b'{"records": [{"value": 1}], "value_schema": 5}', 422),
        (b'{"records": [{"value": 1}], "value_schema_id": "5"}', 422),
        (b'{"records": [{"value": 1}], "value_schema_id": 0}', 422),
        (b'{"records": [{"value": 1}], "value_schema_id": 5, "value_schema": "x"}', 422),
        (json.dumps({"records": [{"value": 1}] * (MOST_RECORDS + 1)}).encode(), 422),
    ],
)
def test_a_body_without_the_form_of_one_is_refused(body, code):
    assert code_of(parsed, ValueForm.JSON, body) == code


def test_a_record_may_name_its_partition_or_the_path_does():
    body = b'{"records": [{"value": 1, "partition": 2}, {"value": 1}]}'
    assert [record.partition for record in parsed(ValueForm.JSON, body).records] == [2, None]
    assert [record.partition for record in parsed(ValueForm.JSON, body, 2).records] == [2, 2]
    assert code_of(parsed, ValueForm.JSON, body, 1) == 422


def test_documents_are_written_in_the_digits_that_they_come_in():
    body = '{"records": [{"key": "ä", "value": {"z": 1.10, "a": 123456789012345678901.5e3}}]}'
    (record,) = written(ValueForm.JSON, body.encode())
    assert record.key == '"ä"'.encode()
    assert record.value == b'{"z":1.10,"a":123456789012345678901.5e3}'


def test_null_is_a_tombstone_and_a_missing_key_is_none():
    (record, bare) = encoded(ValueForm.JSON, {"key": "a", "value": None}, {"value": 0})
    assert (record.key, record.value) == (b'"a"', None)
    assert (bare.key, bare.value) == (None, b"0")


def test_bytes_are_base64():
    (record,) = encoded(ValueForm.BINARY, {"key": "AA==", "value": "S2Fma2E="})
    assert (record.key, record.value) == (b"\0", b"Kafka")
    others: list[object] = ["S2Fma2E", "S2Fm a2E=", "-_==", 5, {}]
    for other in others:
        assert code_of(encoded, ValueForm.BINARY, {"value": other}) == 42206


def test_keys_and_values_of_a_form_with_schemas_have_them():
    assert code_of(encoded, ValueForm.AVRO, {"value": 1}) == 42202
    assert code_of(encoded, ValueForm.AVRO, {"key": 1, "value": None}) == 42201
    assert code_of(lambda: encoded(ValueForm.JSON, {"value": 1}, value_schema="x")) == 422
    # Without a registry there are none.
    assert code_of(lambda: encoded(ValueForm.AVRO, {"value": 1}, value_schema='"int"')) == 422


def test_a_schema_is_named_by_text_or_id():
    body = b'{"records": [{"value": 1}], "value_schema_id": 7, "key_schema": "\\"int\\""}'
    request = parsed(ValueForm.AVRO, body)
    assert request.value_schema == NamedSchema(number=7)
    assert request.key_schema == NamedSchema('"int"')


def test_an_id_is_visible_and_short():
    assert request_id({}) == ""
    assert request_id({"idempotency-key": "a-1"}) == "a-1"
    for other in ("", "a b", "ä", "x" * 256):
        assert code_of(request_id, {"idempotency-key": other}) == 400


def test_another_request_has_another_digest():
    one = digest_of("t", None, ValueForm.JSON, b"{}")
    others = [
        digest_of("u", None, ValueForm.JSON, b"{}"),
        digest_of("t", 0, ValueForm.JSON, b"{}"),
        digest_of("t", None, ValueForm.BINARY, b"{}"),
        digest_of("t", None, ValueForm.JSON, b"{ }"),
    ]
    assert len({one, *others}) == 5
    assert name_of("phone", "1") != name_of("", "1")


def test_ids_are_forgotten_in_the_order_of_their_time():
    now = 1000.0
    ids = RememberedIds(KafkaConnection(brokers=""), "r", 0, 1.0, clock=lambda: now)
    names = [name_of("", str(n)) for n in range(3)]
    assert all(0 <= lane_of(name) < 4 for name in names)
    answer = Answer([(0, 5), (1, 2**40)], None, 7)
    for name in names:
        ids.note(name, noted(b"d" * 32, answer))
        now += 1800
    assert ids.answered(names[0]) is None
    digest, again = ids.answered(names[1]) or (b"", answer)
    assert (digest, again) == (b"d" * 32, Answer([(0, 5), (1, 2**40)], None, 7, is_repeated=True))


def rights(own=""):
    settings = Http(topics=["shop.*"], tokens={"phone": HttpToken(token=PHONE, topics=["clicks"])})
    return Rights(settings, Admission(own.encode()))


def writer(own, *headers):
    return rights(own).writer([(b"host", b"localhost"), *headers])


def test_two_holders_of_one_token_are_refused():
    with pytest.raises(ConfigurationError, match='the worker and "phone"') as caught:
        rights(PHONE)
    assert PHONE not in str(caught.value)
    token = HttpToken(token=PHONE, topics=["clicks"])
    with pytest.raises(ConfigurationError, match='"phone" and "till" of'):
        Rights(Http(tokens={"phone": token, "till": token}), Admission(b""))


def test_a_token_may_write_to_its_topics_alone():
    phone = writer(OWN, (b"authorization", f"Bearer {PHONE}".encode()))
    assert phone.name == "phone"
    assert [phone.may_write(topic) for topic in ("clicks", "clicks2", "shop.a")] == [1, 0, 0]
    own = writer(OWN, (b"authorization", f"Bearer {OWN}".encode()))
    assert [own.may_write(topic) for topic in ("clicks", "shop.a", "shop")] == [0, 1, 0]


def test_without_credentials_only_loopback_writes_and_only_where_no_token_is_needed():
    assert writer(OWN) is None
    assert writer("").name == ""
    assert writer("", (b"authorization", b"Bearer wrong-0123456789")) is None
    assert rights("").writer([(b"host", b"example.com")]) is None


def test_a_token_is_not_shown():
    assert PHONE not in repr(rights(OWN)) + repr(rights(OWN).settings)
    assert PHONE not in json.dumps(rights(OWN).settings.model_dump())
