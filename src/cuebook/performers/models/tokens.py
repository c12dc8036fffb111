"""How many tokens a text has where no tokenizer is at hand: an estimate, and said to be one.

Two figures, because they serve two ends. `upper` (one token for three ASCII characters, one for each other
character) is for budgets and leaves room to spare; `likely` (one for four, and two for three others) decides
whether an input is refused before the call, where an estimate that is too high would refuse what fits.
"""

from __future__ import annotations

import math

import msgspec

from cuebook.performers.models.port import Request

MESSAGE_OVERHEAD = 8
"""Tokens that a chat template puts around a turn, rounded up."""


class TokenEstimate(msgspec.Struct, frozen=True):
    likely: int
    upper: int


def estimate_text(text: str) -> TokenEstimate:
    ascii_count = len(text) if text.isascii() else sum(1 for c in text if c < "\x80")
    other = len(text) - ascii_count
    return TokenEstimate(math.ceil(ascii_count / 4 + other * 2 / 3), math.ceil(ascii_count / 3) + other)


def estimate_request(request: Request) -> TokenEstimate:
    likely = upper = 0
    texts = [message.text for message in request.messages]
    texts += [msgspec.json.encode(m.calls).decode() for m in request.messages if m.calls]
    texts += [msgspec.json.encode(tool).decode() for tool in request.tools]
    if request.schema is not None:
        texts.append(msgspec.json.encode(request.schema).decode())
    for text in texts:
        part = estimate_text(text)
        likely, upper = likely + part.likely, upper + part.upper
    overhead = MESSAGE_OVERHEAD * max(1, len(request.messages))
    return TokenEstimate(likely + overhead // 2, upper + overhead)
