"""`changelog verify FILE` of a certificate of a comparison: what it says of then, not of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from changelog.attestation.file import StatementFile
from changelog.attestation.statement import altered
from changelog.compare.certificate import KIND, SUBJECT, subject_digest
from changelog.contract.base.errors import RefutedError, VerdictError
from changelog.runtime.edge import print_json

_VERIFIED = {"equal": True, "differs": False, "undecided": None}
_AGAIN = "compare again to know how it is now: changelog verify TABLE --source … --target …"


def is_comparison(file: StatementFile) -> bool:
    """Tell whether a certificate is of a comparison."""
    return file.statement.kind == KIND


def show_comparisons(files: Sequence[StatementFile], *, as_json: bool = False) -> None:
    """Print certificates of comparisons whose bytes and signatures are checked.

    Raises as the comparison did. RefutedError: the two differed, or a certificate has other facts
    than one has; VerdictError: keys were undecided, or nothing was compared.
    """
    shown = [_shown(file) for file in files]
    for result, lines in shown:
        if as_json:
            print_json(result)
        else:
            print("\n".join(lines))
    for outcome, error in ((False, RefutedError), (None, VerdictError)):
        for result, lines in shown:
            if result["verified"] is outcome:
                raise error(f"{result['certificate']} says: {lines[2].strip()}", hint=_AGAIN)


def _shown(file: StatementFile) -> tuple[dict[str, Any], list[str]]:
    """Return a certificate as an object of JSON, and as lines for people.

    Raises RefutedError: it lacks a fact, or its subject is another.
    """
    facts = file.statement.predicate
    try:
        (subject,) = file.statement.statement["subject"]
        is_subject = subject["digest"][SUBJECT] == subject_digest(facts)
        verified = _VERIFIED[facts["verdict"]["result"]]
        lines = _lines(file, facts)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise altered(str(file.path), f"it lacks a fact: {error!r}") from error
    if not is_subject:
        raise altered(str(file.path), "its subject is another")
    result = {
        "certificate": str(file.path),
        "sha256": file.statement.sha256,
        "signed": file.signed,
        "signature_checked": file.checked_key,
        "verified": verified,
        "comparison": dict(facts),
    }
    return result, lines


def _lines(file: StatementFile, facts: Mapping[str, Any]) -> list[str]:
    source, target, rows = facts["source"], facts["target"], facts["rows"]
    sample = facts["sample"]
    part = ""
    if sample["share"] < 1:
        part = f" in {sample['compared_buckets']:,} of {sample['buckets']:,} buckets of the keys"
    lines = [
        f"holds: a certificate of a comparison, made {facts['made']} ({file.path})",
        f"  {file.signature}",
        f"  {_verdict(facts)}: {target['place']}",
        f"  source  {rows['source']:,} rows{part}: {source['place']}{_identity(source)}",
        f"  target  {rows['target']:,} rows{part}{_identity(target)}",
        f"  columns {', '.join(column['source'] for column in facts['columns'])}",
        *(
            f"  not compared: {column['column']} of the {column['side']} ({column['reason']})"
            for column in facts["not_compared"]
        ),
        *(f"  note: {note}" for note in facts["notes"]),
        f"  from {_moment(facts['began'])} to {_moment(facts['ended'])} of the source",
        f"  a difference counts if it lasts {facts['settle_seconds']:g} s",
    ]
    if facts["repair"] is not None:
        counts = [
            f"{count:,} {name.replace('_', ' ')}"
            for name, count in facts["repair"].items()
            if count
        ]
        lines.append(f"  after a repair: {', '.join(counts) or 'nothing was written'}")
    lines.append(f"  it tells of that time and has no digest of rows; {_AGAIN}")
    return [_printable(line) for line in lines]


def _verdict(facts: Mapping[str, Any]) -> str:
    verdict = facts["verdict"]
    differing, undecided = verdict["differing_keys"], verdict["undecided_keys"]
    match verdict["result"]:
        case "equal":
            return "equal"
        case "differs":
            least = "at least " if verdict["at_least"] else ""
            return f"differed in {least}{differing:,} keys"
        case _ if undecided:
            return f"undecided, {undecided:,} keys kept changing"
        case _:
            return "undecided, the sample had no row"


def _identity(side: Mapping[str, Any]) -> str:
    facts = [f"{name} {text}" for name, text in side["identity"].items()]
    if side.get("query_sha256"):
        facts.append(f"query {side['query_sha256']}")
    return f" ({', '.join(facts)})" if facts else ""


def _moment(moment: Mapping[str, Any]) -> str:
    return f"{moment['lsn']} ({moment['at']})"


def _printable(line: str) -> str:
    """Return a line of a stranger's document without what would draw on the terminal."""
    return "".join(
        letter if letter.isprintable() else ascii(letter).strip("'\"") for letter in line
    )
