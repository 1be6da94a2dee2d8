"""Inputs: texts of some bytes each, kept as a line of hexadecimal words, and changed at random."""

from __future__ import annotations

from pathlib import Path
from random import Random

CORPUS = Path(__file__).parent / "corpus"
_MOST_TEXTS = 24
_INTERESTING = [
    b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 4, bytes(4),
    b"\xff" * 8, b"\x80" + bytes(7), b"\t", b"\\", b"\\N", b"\\x", b"{", b"}", b'"', b",", b"-",
    b".", b"e9", b"NULL", b"NaN", b"infinity", b"-infinity", b" BC", b"+00", b"9" * 39, b"n", b"u",
    b"N", b"K", b"O", b"t\x00\x00\x00\x01", b"\x00\x00\x00\x00\x07",
]  # fmt: skip


Input = tuple[bytes, ...]


def corpus(target: str) -> list[Input]:
    lines = (CORPUS / f"{target}.txt").read_text("ascii").splitlines()
    return [parsed(line) for line in lines if line and not line.startswith("#")]


def parsed(line: str) -> Input:
    """Return an input from its line; `-` is a text without bytes."""
    return tuple(b"" if word == "-" else bytes.fromhex(word) for word in line.split())


def line_of(some: Input) -> str:
    return " ".join(text.hex() or "-" for text in some)


def changed(some: Input, others: list[Input], chance: Random) -> Input:
    texts = list(some)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(texts)) if texts else 0
        match chance.randrange(8):
            case 0:
                texts.insert(place, chance.choice(chance.choice(others) or (b"",)))
            case 1 if len(texts) > 1:
                del texts[place]
            case 2 if texts:
                texts[place] = texts[place][: chance.randint(0, len(texts[place]))]
            case 3 if texts:
                texts.insert(place, texts[place])
            case _ if texts:
                texts[place] = _bent(texts[place], chance)
            case _:
                texts.append(b"")
    return tuple(texts[:_MOST_TEXTS])


def _bent(text: bytes, chance: Random) -> bytes:
    at = chance.randint(0, len(text))
    match chance.randrange(5):
        case 0:
            return text[:at] + chance.choice(_INTERESTING) + text[at:]
        case 1:
            word = chance.choice(_INTERESTING)
            return text[:at] + word + text[at + len(word) :]
        case 2:
            return text[:at] + text[at + chance.randint(1, 8) :]
        case 3:
            end = min(len(text), at + chance.randint(1, 16))
            return text[:end] + text[at:end] * chance.randint(1, 3) + text[end:]
        case _:
            if at == len(text):
                return text + chance.randbytes(chance.randint(1, 9))
            return text[:at] + bytes([text[at] ^ 1 << chance.randrange(8)]) + text[at + 1 :]
