"""Digests of sent rows: what is the same is not sent again."""

from views.rebuild.local import sent
from views.rebuild.local.sent import SentDigests


def of(**rows):
    """Return digests of some rows by their keys."""
    return {key: f"{key}={row}".encode().ljust(16) for key, row in rows.items()}


def test_only_what_differs_is_unsent():
    digests = SentDigests()
    assert digests.unsent("v", of(a=1, b=2)) == {"a", "b"}
    assert digests.unsent("v", of(a=1, b=3)) == {"b"}
    assert digests.unsent("w", of(a=1)) == {"a"}, "another view's"
    assert digests.unsent("v", of(a=1, b=3)) == set()
    assert digests.unsent("v", {}) == set()
    digests.forget("v")
    assert digests.unsent("v", of(a=1)) == {"a"}
    assert digests.unsent("w", of(a=1)) == set()
    digests.forget()
    assert digests.unsent("w", of(a=1)) == {"a"}


def test_too_many_are_forgotten_and_sent_again(monkeypatch):
    monkeypatch.setattr(sent, "MOST_KEYS", 3)
    digests = SentDigests()
    assert digests.unsent("v", of(a=1, b=1)) == {"a", "b"}
    assert digests.unsent("w", of(a=1, b=1)) == {"a", "b"}
    assert digests.unsent("w", of(a=1)) == set()
    assert digests.unsent("v", of(a=1)) == {"a"}, "once more than it had to be"


def test_keys_that_share_a_hash_are_sent_rather_than_left_out(monkeypatch):
    monkeypatch.setattr(sent, "hash", lambda _key: 7, raising=False)
    digests = SentDigests()
    assert digests.unsent("v", of(a=1, b=1)) == {"a", "b"}
    assert digests.unsent("v", of(a=2)) == {"a"}
    assert digests.unsent("v", of(b=1)) == {"b"}
    assert digests.unsent("v", of(a=2)) == {"a"}
