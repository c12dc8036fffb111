"""Mutated pipelines yield a document or Cuebook's own errors, each with a line, a code and a fix."""

from __future__ import annotations

import random

from cuebook.dialects.pipeline.check import CODES, check
from cuebook.dialects.pipeline.drawing import drawing
from cuebook.dialects.pipeline.parse import read
from cuebook.dialects.presentation.drawing import mermaid
from tests.dialects.pipeline.samples import FULL, MINIMAL
from tests.support.sampling import many

PIECES = (
    "${", "$$", "$test.json", "${version}", "secret:env:X", "'", '"', "\\", "{}", "[]", "null", "- ", ": ", "|", "cli ",
    "http POST https://x.y", "mcp a.b c:={", "llm", "with: {argv: [x]}", "condition: '((1'", "output: json", "&a", "*a",
    "\t", "\n", "\u2028", "\ud83d\ude00", "1e999", "999999999999999999999", "!!binary x", "---\n", "#",
)  # fmt: skip


def mutated(chance: random.Random) -> str:
    lines = chance.choice((FULL, FULL, MINIMAL)).splitlines(keepends=True)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(lines)) if lines else 0
        match chance.randrange(4):
            case 0:
                del lines[place : place + chance.randint(1, 3)]
            case 1:
                lines[place:place] = lines[place : place + chance.randint(1, 4)]
            case 2 if place < len(lines):
                line = lines[place]
                at = chance.randint(0, len(line))
                lines[place] = line[:at] + chance.choice(PIECES) + line[at + chance.randint(0, 3) :]
            case _:
                lines.insert(place, chance.choice(PIECES))
    return "".join(lines)


def test_mutated_pipelines_yield_a_document_or_errors_of_cuebook() -> None:
    chance = random.Random(11)
    documents = 0
    for _ in range(many(400, 1_500)):
        text = mutated(chance)
        found = read(text, "a.yml")
        for problem in (*found.errors, *found.warnings):
            assert problem.line, text
            assert problem.fix, text
            assert problem.code in CODES, text
        check(text, "a.yml")
        if found.pipeline is not None:
            documents += 1
            mermaid(drawing(found.pipeline))
    assert documents > many(4, 30)
