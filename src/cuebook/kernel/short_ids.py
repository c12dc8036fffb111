"""Ids of waits that people can copy from a chat, read aloud or type: the beginning of the id is enough.

The short id has no characters that look alike, and its last character is a check: a wrong or swapped character is
recognised instead of naming another wait.
"""

from __future__ import annotations

import secrets

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""31 characters, without those that look alike. A prime number of them makes the check reliable."""
FIRST = "w"
SHORT = 8
"""The length of a short id: the first letter, six random characters, and the check."""
_REST = 9
_MARKS = " \t\r\n`'\"()[]<>#,:;!?*"


def new_wait_id() -> str:
    body = "".join(secrets.choice(LETTERS) for _ in range(SHORT - 2))
    rest = "".join(secrets.choice(LETTERS) for _ in range(_REST))
    return f"{FIRST}{body}{_check(body)}{rest}"


def short_id(wait: str) -> str:
    return wait[:SHORT]


def normal(written: str) -> str:
    """The id as it was made, from what a person typed: in capitals, or with the marks that chats put around it."""
    bare = written.strip(_MARKS).lower()
    short = bare.rstrip(".").strip(_MARKS)  # of a longer id, a dot begins the signature
    return short if len(short) <= SHORT else bare


def is_mistyped(written: str) -> bool:
    """Whether a short id cannot be right, because its check does not match."""
    if len(written) != SHORT or written[0] != FIRST or any(one not in LETTERS for one in written):
        return False
    return _check(written[1:-1]) != written[-1]


def _check(body: str) -> str:
    """Detects every single wrong character, and every two neighbours that were swapped."""
    return LETTERS[sum(place * LETTERS.index(one) for place, one in enumerate(body, 1)) % len(LETTERS)]
