"""The verifier accepts everything a grammar allows: random replies made from it, for the compiled listings."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any, TypeAlias

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.reply.grammar import grammar_of
from cuebook.dialects.program.verify.expectations import legal_after
from cuebook.dialects.program.verify.verdicts import State
from cuebook.dialects.program.verify.verifier import verify_reply
from tests.dialects.program.recordings import beside, listings

_TOKEN = re.compile(
    r"\s*(?:(?P<text>\"(?:[^\"\\]|\\.)*\")|(?P<letter>\[(?:[^\]\\]|\\.)*\])|(?P<name>\w+)"
    r"|\{(?P<times>\d+,\d+)\}|(?P<mark>[()|?]))"
)
_ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_MOST_STEPS = 3_000

Node: TypeAlias = tuple[str, Any]


class Sampler:
    """Generates a reply that a grammar allows."""

    def __init__(self, grammar: str, chance: random.Random) -> None:
        rules = (line.partition(" ::= ") for line in grammar.splitlines() if " ::= " in line)
        self._rules = {name: self._read(list(_TOKEN.finditer(rule)))[0] for name, _, rule in rules}
        self._chance = chance

    def _read(self, tokens: list[re.Match[str]], at: int = 0) -> tuple[Node, int]:
        ways: list[list[Node]] = [[]]
        while at < len(tokens) and tokens[at][0].strip() != ")":
            found = tokens[at]
            kind, value = found.lastgroup or "", found[found.lastgroup or 0]
            at += 1
            if value == "|" and kind == "mark":
                ways.append([])
            elif kind == "times" or value == "?":
                least, most = (int(one) for one in (value.split(",") if kind == "times" else "01"))
                ways[-1][-1] = ("times", (ways[-1][-1], least, min(most, least + 3)))
            elif kind == "mark":
                inner, at = self._read(tokens, at)
                ways[-1].append(inner)
                at += 1
            else:
                ways[-1].append((kind, value))
        return ("ways", ways), at

    def said(self) -> str | None:
        """Returns None for a reply that loops for too long."""
        out: list[str] = []
        waiting = [self._rules["root"]]
        for _ in range(_MOST_STEPS):
            if not waiting:
                return "".join(out)
            kind, value = waiting.pop()
            if kind == "ways":
                waiting += reversed(self._chance.choice(value))
            elif kind == "times":
                waiting += [value[0]] * self._chance.randint(value[1], value[2])
            elif kind == "name":
                waiting.append(self._rules[value])
            elif kind == "letter":
                out.append(self._chance.choice("abcxyz" if value.startswith("[^") else "123456789"))
            else:
                out.append(re.sub(r"\\.", lambda found: _ESCAPED[found[0]], value[1:-1]))
        return None


@beside
def test_what_a_grammar_allows_is_accepted() -> None:
    chance, broken, made = random.Random(3), Counter[str](), 0
    for many in listings().values():
        for listing in many[:3]:
            for position in positions(listing, chance):
                known = dict.fromkeys(listing.declared, 1) if chance.random() < 0.5 else {}
                state = State(variables={**known, "_": None}, heard=False)
                grammar = grammar_of(listing, position, known, {}, legal=legal_after(listing, position, state))
                for said in [Sampler(grammar, chance).said() for _ in range(3)] if grammar else ():
                    if said is not None:
                        found = verify_reply(listing, position or Position(""), state, said)
                        made += 1
                        broken.update(verdict.rule for verdict in found.verdicts if verdict.policy == "R")
    assert made > 1000
    assert broken == {}


def positions(listing: Listing, chance: random.Random) -> list[Position | None]:
    """The beginning, and one of each status."""
    numbers = [line.number for line in listing.lines]
    return [None, *(Position(chance.choice(numbers), status) for status in ("arrived", "begun", "done") if numbers)]
