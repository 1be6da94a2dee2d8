"""Templates of lines: `changelog.lines.forms.template`."""

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.lines.forms.template import FIELDS, Field, parse_template, unescaped


def test_fields_braces_and_escapes_are_told_apart():
    assert parse_template(r"{{{key}}}:\t{header.a b}\x00\\n%") == [
        b"{",
        Field("key"),
        b"}",
        b":",
        b"\t",
        Field("header.a b"),
        b"\0",
        b"\\",
        b"n%",
    ]
    assert parse_template("") == []
    assert [parse_template(f"{{{name}}}") for name in FIELDS] == [[Field(n)] for n in FIELDS]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{keys}", "did you mean {key}"),
        ("{}", "there is no field"),
        ("{header.}", "did you mean {headers}"),
        ("a}b", "a brace stands alone"),
        ("{key", "a brace stands alone"),
        (r"\q", "no escape"),
        (r"\x1", "no escape"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_template(text)


def test_an_option_may_hold_escapes():
    assert unescaped(r"\x1f|\n", "--separator") == b"\x1f|\n"
    with pytest.raises(ConfigurationError, match=r"--separator: \\q"):
        unescaped(r"\q", "--separator")
