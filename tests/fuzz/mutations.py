"""What disks, transfers and strangers do to files: random damage, and the search for the smallest that still hurts."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
TEXTS = (
    *(b"\0", b"\n", b"\r", b"\t", b" ", b"\x1b[31m", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\xa9", b"%00", b"\xd9\xa3"),
    *(b"-1", b"0", b"1e999", b"nan", b"inf", b"9" * 19, b"9" * 5000, b"2147483648", b"../../x", b"/dev/null", b"''"),
)
_MOST = 1 << 16
_STRETCH = 1 << 10
_TRIES = 3000


def mutate(data: bytes, dice: random.Random, *, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Return a damaged copy: one to eight changes, of bytes, numbers, words, stretches or lines."""
    bad = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        if not bad:
            bad = bytearray(dice.choice((b"", b"\n", dice.choice(others))))
        else:
            dice.choice(CHANGES)(bad, dice, others, words)
    return bytes(bad[:_MOST])


Change = Callable[[bytearray, random.Random, Sequence[bytes], Sequence[bytes]], None]


def _flip(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)


def _byte(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    bad[dice.randrange(len(bad))] = dice.randrange(256)


def _number(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    size, here = dice.choice((1, 2, 4, 8)), dice.randrange(len(bad))
    number = dice.choice((*NUMBERS, len(bad), here)) % (1 << 8 * size)
    bad[here : here + size] = number.to_bytes(size, dice.choice(("little", "big")))


def _delete(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    here = dice.randrange(len(bad))
    del bad[here : here + dice.choice((1, 2, 8, 64, len(bad)))]


def _repeat(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    here, size = dice.randrange(len(bad)), dice.choice((1, 4, 32, 256))
    there = dice.randrange(len(bad))
    bad[there:there] = bad[here : here + size] * dice.choice((1, 1, 2, 50))


def _insert(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    here = dice.randrange(len(bad) + 1)
    bad[here:here] = dice.choice((*words, *TEXTS))


def _replace_token(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    here = dice.choice((0, dice.randrange(len(bad))))
    tokens = list(re.finditer(rb"\d+|[A-Za-z_]+|[^\s\w]", bad[here : here + _STRETCH]))
    if tokens:
        token = dice.choice(tokens)
        bad[here + token.start() : here + token.end()] = dice.choice((*words, *TEXTS, b""))


def _lines(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    lines = bytes(bad).split(b"\n")
    here, there = dice.randrange(len(lines)), dice.randrange(len(lines))
    kind = dice.randrange(3)
    if kind == 0:
        lines[here], lines[there] = lines[there], lines[here]
    elif kind == 1:
        lines.insert(there, lines[here])
    else:
        del lines[here]
    bad[:] = b"\n".join(lines)


def _splice(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    other = dice.choice(others)
    bad[dice.randrange(len(bad)) :] = other[dice.randrange(len(other) + 1) :]


def _truncate(bad: bytearray, dice: random.Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    del bad[dice.randrange(len(bad)) :]


CHANGES: tuple[Change, ...] = (
    *(_flip, _byte, _number, _delete, _repeat, _insert, _replace_token, _replace_token, _lines, _splice, _truncate),
)


def shrink(data: bytes, hurts: Callable[[bytes], bool], *, seconds: float = 60) -> bytes:
    """Return a small input that still hurts: stretches of halving size are left out, then bytes made plain."""
    end, tries = time.monotonic() + seconds, 0
    size = len(data) // 2
    while size and tries < _TRIES:
        here = 0
        while here < len(data) and tries < _TRIES and time.monotonic() < end:
            tries += 1
            smaller = data[:here] + data[here + size :]
            if hurts(smaller):
                data = smaller
            else:
                here += size
        size //= 2
    return data
