"""Options of `changelog read` to the range that is read, the format of lines, and schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from changelog.contract.base.errors import ConfigurationError
from changelog.lines.as_kcat import ReadLetters, beginnings, parse_places
from changelog.lines.forms.kcat import (
    check_ours,
    envelope_lines,
    parse_tokens,
    string,
    unpacked,
    with_schema,
)
from changelog.lines.forms.render import LineRenderer, json_lines, template_lines
from changelog.lines.forms.shown import As, Framed, Show, parse_form, plain, token
from changelog.lines.forms.template import DEFAULT, parse_template, unescaped
from changelog.lines.place import parse_until
from changelog.lines.reading import ReadRequest
from changelog.lines.words import ReadWords

_LEVELS = "read_committed", "read_uncommitted"


def wanted_of(
    topic: str, words: ReadWords, letters: ReadLetters, options: dict[str, str]
) -> ReadRequest:
    """Return the range to read, and the group that reads it.

    Raises ConfigurationError: options contradict each other, or are none.
    """
    if words.at_end and words.until not in {None, "end"}:
        raise ConfigurationError("--exit and --until contradict each other", hint="give one")
    start, until = parse_places(words.start or (), at_end=words.at_end)
    if words.until is not None and words.until != "end" and until is not None:
        raise ConfigurationError("-o e@ and --until contradict each other", hint="give one")
    begin = beginnings(start, words.group, letters, options)
    level = options.pop("isolation.level", _LEVELS[0])
    if level not in _LEVELS:
        raise ConfigurationError(
            "-X isolation.level is none that there is", hint=f"{' or '.join(_LEVELS)}"
        )
    return ReadRequest(
        topic=topic,
        partitions=tuple(number for number in words.partition or () if number != -1),
        start=begin.start,
        until=until if words.until is None else parse_until(words.until),
        group=begin.group,
        alone=begin.alone,
        anew=begin.anew,
        committed=level == _LEVELS[0] and not words.uncommitted,
        count=words.count,
    )


def lines_of(
    topic: str, words: ReadWords, letters: ReadLetters, framed: Framed, broker: Callable[[Any], int]
) -> LineRenderer:
    """Return the renderer of records: by our words, or by kcat's letters.

    Raises ConfigurationError: options contradict each other, or are none.
    """
    looks = [words.as_json, words.template is not None, letters.envelope]
    if sum((*looks, letters.tokens is not None)) > 1:
        raise ConfigurationError(
            "--json, --format, -J and -f contradict each other", hint="give one"
        )
    delimiter = unescaped(words.delimiter, "--delimiter")
    if letters.is_kcat and not (words.as_json or words.template is not None):
        return _kcat_lines(topic, words, letters, framed, broker)
    key = parse_form(words.key_form or words.form or "auto")
    value = parse_form(words.value_form or words.form or "auto")
    if words.as_json:
        return json_lines(
            topic, key=token(key, framed), value=token(value, framed), delimiter=delimiter
        )
    if words.template is not None:
        check_ours(words.template)
    return template_lines(
        parse_template(DEFAULT if words.template is None else words.template),
        key=plain(key, framed),
        value=plain(value, framed),
        null=unescaped("NULL" if words.null is None else words.null, "--null"),
        delimiter=delimiter,
    )


def _kcat_lines(
    topic: str, words: ReadWords, letters: ReadLetters, framed: Framed, broker: Callable[[Any], int]
) -> LineRenderer:
    """Return the renderer of a topic as kcat prints it: text, unless `-s` or `--as` say more."""
    forms = {"key": words.key_form or words.form, "value": words.value_form or words.form}
    shows: dict[str, Show | None] = {}
    for which, form in forms.items():
        packed = letters.packed_as(which)
        if packed is not None and form is not None:
            raise ConfigurationError("-s and --as contradict each other", hint="give one")
        how = parse_form("avro" if packed == "avro" else form or "text")
        if letters.envelope:
            if packed not in {None, "avro"}:
                raise ConfigurationError(
                    "kcat's -J takes no numbers of -s", hint="-f '%k %s\\n' shows them"
                )
            show = string if how is As.TEXT else token(how, framed)
            shows[which] = with_schema(show, f"{which}_schema_id") if how is As.AVRO else show
        else:
            shows[which] = plain(how, framed) if packed in {None, "avro"} else unpacked(packed)
    delimiter = unescaped(words.delimiter, "--delimiter")
    if letters.envelope:
        return envelope_lines(
            topic,
            key=shows["key"],  # type: ignore[arg-type]
            value=shows["value"],  # type: ignore[arg-type]
            broker=broker,
            delimiter=delimiter,
        )
    null = words.null if words.null is not None else "NULL" if letters.says_null else ""
    return template_lines(
        parse_tokens(letters.format()),
        key=shows["key"],
        value=shows["value"],
        null=unescaped(null, "--null"),
        delimiter=b"" if letters.tokens is not None else delimiter,
    )
