"""Parses a model's reply into items in order, each with its position in the text.

`parse_reply` parses a whole reply. `ReplyReader` parses it as it arrives; the items do not depend on how the text is
split.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from cuebook.dialects.program.reply.directives import directive_of, is_stray, line_of, opaque
from cuebook.dialects.program.reply.items import (
    Artifact,
    Assign,
    Call,
    Check,
    Defect,
    Plan,
    Prose,
    Recap,
    ReplyItem,
    Return,
    SaveArtifact,
    Step,
    Trigger,
    Var,
    What,
    Yield,
    YieldCheck,
)
from cuebook.dialects.program.reply.scanner import Scanner, Span
from cuebook.kernel.errors import BadInput

__all__ = [
    "Artifact", "Assign", "Call", "Check", "Defect", "Group", "Plan", "Prose", "Recap", "Reply", "ReplyError", "ReplyItem",
    "ReplyReader", "Return", "SaveArtifact", "Step", "Trigger", "Var", "What", "Yield", "YieldCheck", "parse_reply",
]  # fmt: skip

Action: TypeAlias = Step | Var | Artifact | SaveArtifact | Call | Assign | Return | What | Prose


class ReplyError(BadInput):
    """The reply cannot be parsed."""

    code = "invalid_reply"

    def __init__(
        self, rule: Literal["S2", "S3"], position: int, line: int, column: int, message: str, fix: str
    ) -> None:
        self.rule, self.position, self.line, self.column = rule, position, line, column
        super().__init__(f"line {line}, column {column}: {message}", fix=fix)


class Group(msgspec.Struct, frozen=True):
    """The items between two checks of the triggers."""

    actions: tuple[Action, ...] = ()
    check: Check | Trigger | None = None
    yield_check: YieldCheck | None = None


class Reply(msgspec.Struct, frozen=True, dict=True):
    items: tuple[ReplyItem, ...]
    """All items in order, up to the first yield."""
    after: int | None = None
    """The offset of text after the first yield, which is not parsed."""

    @property
    def recap(self) -> str:
        return next((item.text for item in self.items if isinstance(item, Recap)), "")

    @property
    def plan(self) -> str:
        return next((item.text for item in self.items if isinstance(item, Plan)), "")

    @property
    def terminator(self) -> Yield | Return | None:
        """The yield, or else the return, that ends it."""
        if self.items and isinstance(self.items[-1], Yield):
            return self.items[-1]
        return next((item for item in reversed(self.items) if isinstance(item, Return)), None)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(item for item in self.items if isinstance(item, Step))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        groups: list[Group] = []
        actions: list[Action] = []
        for item in self.items:
            match item:
                case Check() | Trigger():
                    groups.append(Group(tuple(actions), item))
                    actions = []
                case YieldCheck():
                    last = groups[-1] if groups and not actions else Group(tuple(actions))
                    groups[len(groups) - (1 if groups and not actions else 0) :] = [
                        msgspec.structs.replace(last, yield_check=item)
                    ]
                    actions = []
                case Recap() | Plan() | Yield() | Defect():
                    pass
                case _:
                    actions.append(item)
        return (*groups, Group(tuple(actions))) if actions else tuple(groups)


class ReplyReader:
    """Parses a reply as it arrives. A `Defect` or a `Yield` is its last item."""

    def __init__(self) -> None:
        self._scanner = Scanner(self._take, lambda text, line_start: opaque(text, line_start, self._headed))
        self._items: list[ReplyItem] = []
        """Items that are complete but not yet returned."""
        self._ended = False
        self._returned = False
        self._headed = False
        """Whether anything other than recap and plan was seen. After that, these words are plain text."""
        self._assigned: Prose | None = None
        """Text directly before a directive: `$x =` names the result of the call that follows."""
        self.after: int | None = None

    def feed(self, chunk: str) -> list[ReplyItem]:
        """Return the items that this piece of text completes."""
        self._scanner.feed(chunk)
        return self._given()

    def finish(self) -> list[ReplyItem]:
        """Return the items that the end of the text completes; a `Defect` if it must not end here."""
        self._scanner.finish()
        if not self._ended and not self._returned:
            message = "the reply neither yields nor returns"
            fix = "End it with a line such as 'yld user', 'yld call', 'yld return' or 'yld exit'."
            at = self._scanner.offset
            self._add(Defect("S3", message, fix, start=at, end=at))
        return self._given()

    def _given(self) -> list[ReplyItem]:
        items, self._items = self._items, []
        return items

    def _take(self, span: Span) -> None:
        if self._ended:
            if self.after is None and (span.directive or span.text.strip(" \t\r\n`")):
                self.after = span.start
            return
        before, self._assigned = self._assigned, None
        if span.directive or span.broken:
            self._headed = True
            item: ReplyItem | None = directive_of(span, before)
        else:
            item = line_of(span, headed=self._headed)
            self._headed |= not isinstance(item, (Recap, Plan, Prose))
        if before is not None and not isinstance(item, Assign):
            self._add(before)
        if isinstance(item, Prose) and span.before_directive and is_stray(item.text):
            self._assigned = item
        elif item is not None:
            self._add(item)

    def _add(self, item: ReplyItem) -> None:
        self._items.append(item)
        self._returned |= isinstance(item, Return)
        self._ended |= isinstance(item, (Yield, Defect))


def items_of(text: str) -> tuple[tuple[ReplyItem, ...], int | None]:
    """Return the items of a reply, and the offset of any text after its yield."""
    reader = ReplyReader()
    items = reader.feed(text) + reader.finish()
    return tuple(items), reader.after


def parse_reply(text: str) -> Reply:
    """Return the parsed reply. Raise `ReplyError`, with the position, if it cannot be parsed.

    >>> reply = parse_reply('recap - asked\\nplan - greet\\n`Var[$name, "Ada"]`\\ntrig? no\\n`Step["Main:02:YLD"]` yld user')
    >>> reply.recap, reply.steps[0].line, reply.terminator.target
    ('asked', '02', 'user')

    `items` contains everything in the order of the text, and `groups` the same, divided by the checks of triggers.
    """
    if not isinstance(text, str):
        raise BadInput(f"A reply must be a str, got {type(text).__name__}.", fix="Pass the text of the reply.")
    items, after = items_of(text)
    last = items[-1] if items else None
    if isinstance(last, Defect):
        raise error_of(last, text)
    return Reply(items, after)


def error_of(defect: Defect, text: str) -> ReplyError:
    line, column = place_of(defect.start, text)
    return ReplyError(defect.rule, defect.start, line, column, defect.message, defect.fix)


def place_of(position: int, text: str) -> tuple[int, int]:
    """Line and column, both counted from 1."""
    start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, position - start + 1
