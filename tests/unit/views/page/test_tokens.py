"""Tokens that may read the changes of some views, and do nothing else."""

from __future__ import annotations

import httpx
import pytest

from changelog.config import load_project
from changelog.connect.http.additions import AdditionPlace
from changelog.connect.http.admission import Admission
from changelog.contract.base.errors import ConfigurationError
from changelog.sections import Http
from tests.support.memory_sessions import MemorySessions
from tests.unit.changelog.connect.test_attacks import TOKEN, served
from tests.unit.views.page.test_changes import Feed
from views.page.addition import Page
from views.page.changes import ChangeStreams

SHOP, OWN = "shop-0123456789abcdef", {"Authorization": f"Bearer {TOKEN}"}
PAGE = "https://app.example.com"
SETTINGS = f"""
[http.tokens.shop]
token = "{SHOP}"
views = ["totals", "shop.*"]
origins = ["{PAGE}"]
[http.tokens.phone]
token = "phone-0123456789abcdef"
topics = ["clicks"]
"""
FOREIGN = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setattr(ChangeStreams, "_begun", lambda *_: Feed(fails=True))
    (tmp_path / "changelog.toml").write_text(SETTINGS)
    place = AdditionPlace(
        folder=tmp_path,
        settings=load_project(tmp_path, needs=[]),
        group="g",
        admission=Admission(TOKEN.encode()),
        is_tls=False,
        sessions=MemorySessions(),
    )
    with served(TOKEN, [Page(place)]) as url:
        yield url


def test_a_token_reads_its_views_by_header_and_by_address(url):
    own = {"Authorization": f"Bearer {SHOP}"}
    for view in ("totals", "shop.cards"):
        assert httpx.get(f"{url}/views/{view}/changes", headers=own).status_code == 200
        assert httpx.get(f"{url}/views/{view}/changes?token={SHOP}").status_code == 200
    assert httpx.get(f"{url}/views/totals/changes", headers=OWN).status_code == 200


def test_it_does_nothing_else(url):
    own = {"Authorization": f"Bearer {SHOP}"}
    refused = httpx.get(f"{url}/views/customers/changes", headers=own)
    assert refused.status_code == 403
    assert refused.json()["error"] == 'this token may not read the changes of view "customers"'
    assert httpx.get(f"{url}/connectors", headers=own).status_code == 401
    assert httpx.get(f"{url}/page/live", headers=own).status_code == 401
    assert httpx.get(f"{url}/page/live?token={SHOP}").status_code == 401


@pytest.mark.parametrize("token", ["phone-0123456789abcdef", "shop-0123456789abcdee", "", TOKEN])
def test_other_tokens_in_the_address_read_nothing(url, token):
    answer = httpx.get(f"{url}/views/totals/changes?token={token}")
    assert answer.status_code == (403 if token.startswith("phone") else 401)


def test_pages_of_the_origins_read_with_it_and_no_others(url):
    address = f"{url}/views/totals/changes?token={SHOP}"
    answer = httpx.get(address, headers=FOREIGN)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert answer.headers["vary"] == "Origin"
    other = httpx.get(address, headers={**FOREIGN, "Origin": "https://elsewhere.example.com"})
    assert other.status_code == 403
    assert "access-control-allow-origin" not in other.headers
    assert httpx.get(f"{url}/page?token={SHOP}", headers=FOREIGN).status_code == 403
    # A remembered password counts for nothing where a page of another site sends it.
    path = f"{url}/views/totals/changes"
    assert httpx.get(path, headers={**FOREIGN, **OWN}).status_code == 403


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "may do nothing"),
        ('views = ["a"]\norigins = ["https://app.example.com/"]', "no origin"),
        ('views = ["a"]\norigins = ["*"]', "no origin"),
        ('views = ["a"]\norigins = ["https://APP.example.com"]', "no origin"),
    ],
)
def test_a_token_without_a_use_and_what_is_no_origin_are_refused(tmp_path, lines, message):
    (tmp_path / "changelog.toml").write_text(f'[http.tokens.a]\ntoken = "{SHOP}"\n{lines}\n')
    with pytest.raises(ConfigurationError, match=message) as refused:
        load_project(tmp_path, needs=[]).section(Http)
    assert SHOP not in str(refused.value)
