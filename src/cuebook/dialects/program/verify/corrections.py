"""The correction that a model gets after a refused reply: the rule, the position, the legal lines, and what took effect."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cuebook.dialects.program.listing import Position
from cuebook.dialects.program.model import ListingLine
from cuebook.dialects.program.reply.items import Artifact, Assign, Call, Return, SaveArtifact, Step, Var
from cuebook.dialects.program.reply.reader import place_of
from cuebook.dialects.program.verify.verdicts import RULES, Verdict, Verdicts

MOST_RETRIES = 2
_MOST_LINES = 12
_STATUS = {"arrived": "not yet executed", "begun": "being executed", "done": "executed"}


class Retry(msgspec.Struct, frozen=True):
    """Plain values: the machine records exactly what the model reads."""

    rule: str
    asks: str
    """What the rule requires."""
    problem: str
    at: str
    """The position in the reply, with the words there."""
    position: str
    """The position of the frame, as in `Main:02, executed`."""
    legal: tuple[str, ...]
    """The lines that may come next, as in the listing."""
    applied: tuple[str, ...]
    """What has already taken effect."""

    @property
    def text(self) -> str:
        """The message to the model."""
        parts = [
            "The reply was refused. Nothing from the refused place on has taken effect.",
            f"rule: {self.rule} - {self.asks}",
            f"problem: {self.problem}",
            f"at: {self.at}",
            f"position: {self.position}",
            "legal next lines:",
            *(f"- {line}" for line in self.legal or ("(none: return or yield)",)),
            "already applied, do not repeat:",
            *(f"- {done}" for done in self.applied or ("(nothing)",)),
            "Reply again from this position, in the same format.",
        ]
        return "\n".join(parts)


def retry_of(verdicts: Verdicts, playbook: str, text: str) -> Retry:
    """The correction for a refused reply. `text` is the reply."""
    verdict = verdicts.rejected
    if verdict is None:
        raise ValueError("the reply was not refused")
    legal = [_line(playbook, line) for line in verdict.legal]
    if len(legal) > _MOST_LINES:
        legal = [*legal[:_MOST_LINES], f"and {len(legal) - _MOST_LINES} more"]
    return Retry(
        rule=verdict.rule,
        asks=" ".join(RULES[rule][1] for rule in (verdict.rule, verdict.because) if rule),
        problem=verdict.words,
        at=_place(verdict, text),
        position=_position(playbook, verdicts.position),
        legal=tuple(legal),
        applied=tuple(_applied(verdicts)),
    )


def _line(playbook: str, line: ListingLine) -> str:
    return f"{playbook}:{line.number}:{line.code} {line.text}".rstrip()


def _position(playbook: str, position: Position) -> str:
    if not position.line:
        return f"{playbook}, no line"
    return f"{playbook}:{position.line}, {_STATUS[position.status]}"


def _place(verdict: Verdict, text: str) -> str:
    line, column = place_of(verdict.start, text)
    words = " ".join(text[verdict.start : verdict.end].split())[:80]
    return f"line {line}, column {column}{': ' if words else ''}{words}"


def _applied(verdicts: Verdicts) -> Iterator[str]:
    for action in verdicts.actions:
        match action:
            case Step(playbook, line, code):
                yield f"step {playbook}:{line}:{code}".rstrip(":")
            case Var(name):
                yield f"${name} was set"
            case Assign(name, call):
                yield f"${name} = {call.name}(...) was queued"
            case Call(name):
                yield f"{name}(...) was queued"
            case Artifact(name):
                yield f"${name} was saved"
            case SaveArtifact():
                yield "an artifact was saved"
            case Return():
                yield "the return was taken"
