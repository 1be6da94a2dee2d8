"""Digests of sent rows: what is the same is not sent again."""

from views.rebuild.local import sent
from views.rebuild.local.sent import SentDigests


def test_only_what_differs_is_unsent():
    digests = SentDigests()
    assert digests.unsent("v", {"a": b"1", "b": b"2"}) == {"a", "b"}
    assert digests.unsent("v", {"a": b"1", "b": b"3"}) == {"b"}
    assert digests.unsent("w", {"a": b"1"}) == {"a"}, "another view's"
    assert digests.unsent("v", {"a": b"1", "b": b"3"}) == set()
    digests.forget("v")
    assert digests.unsent("v", {"a": b"1"}) == {"a"}
    assert digests.unsent("w", {"a": b"1"}) == set()
    digests.forget()
    assert digests.unsent("w", {"a": b"1"}) == {"a"}


def test_too_many_are_forgotten_and_sent_again(monkeypatch):
    monkeypatch.setattr(sent, "MOST_KEYS", 3)
    digests = SentDigests()
    assert digests.unsent("v", {"a": b"1", "b": b"1"}) == {"a", "b"}
    assert digests.unsent("w", {"a": b"1", "b": b"1"}) == {"a", "b"}
    assert digests.unsent("w", {"a": b"1"}) == set()
    assert digests.unsent("v", {"a": b"1"}) == {"a"}, "once more than it had to be"
