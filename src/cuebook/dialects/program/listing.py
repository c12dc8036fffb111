"""The lines of one playbook and their control flow: which line may follow which. Built once, in linear time. Pure.

A line is named by its number, as in `02.01`. A compiler may give several lines the same number; the number then refers to
all of them.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import msgspec

from cuebook.dialects.program.model import CODES, ListingLine, Note, Param, Playbook, Trigger
from cuebook.dialects.program.reply.items import Target

ELIDABLE = frozenset({"CND", "JMP", "CHK", "TNK"})
"""Codes of lines that a reply may pass without naming them."""

Kind = Literal["if", "when", "elif", "else", "loop"]
Status = Literal["arrived", "begun", "done"]
Ways: TypeAlias = Callable[[int], Iterable[int]]
"""Maps a node to the nodes that may follow it."""

END = -1
"""The successor of a line after which the listing ends."""
MOST_PASSED = 1_000
"""The maximum number of nodes to search for the next line: one reply never skips more."""
MOST_TWINS = 16
"""The maximum number of lines with the same number that are distinguished."""


class Position(msgspec.Struct, frozen=True):
    """The position of a frame between two replies."""

    line: str
    """Its number; empty for the first line."""
    status: Status = "arrived"
    """`arrived`: the line has yet to be executed. `done`: its successor is next. `begun`: something was done at the
    line before a reply was refused; the next reply may continue with the line or leave it."""
    pending: tuple[str, ...] = ()
    """Ids of the calls that are queued and have not run yet."""
    settled: bool | None = None
    """At a member of an `If ... Otherwise` chain: whether the body of an earlier member was taken. None if unknown."""


class _Level:
    """Lines whose numbers have the same prefix."""

    def __init__(self) -> None:
        self.latest: int | None = None
        """The last line so far with exactly this number."""
        self.below: dict[str, _Level] = {}


class LineYield(msgspec.Struct, frozen=True):
    """How a line returns control."""

    target: Target | None
    """None if the line does not say what it waits for."""
    repeats: bool = False
    """`done when ...`: the line is repeated until the condition holds."""


_KINDS: dict[Kind, re.Pattern[str]] = {
    "elif": re.compile(r"(?:else|otherwise)\s*+,?+\s*+(?:if|when)\b|elif\b", re.IGNORECASE),
    "else": re.compile(r"(?:else|otherwise)\b", re.IGNORECASE),
    "loop": re.compile(r"(?:while|until|for|foreach|as long as|repeat|loop)\b", re.IGNORECASE),
    "when": re.compile(r"(?:when|case)\b", re.IGNORECASE),
}
"""How a condition begins. The first match wins."""
_JUMP = re.compile(r"(?<![\w.])\d{1,4}(?:\.\d{1,4})*+")
_JUMP_IF = re.compile(r"\b(?:if|when|unless|while|until)\b.*", re.IGNORECASE | re.DOTALL)
_YIELDED = re.compile(
    r"(?:for\s*+)?+(?:(?P<call>call(?:s\b|\b|(?=complete)))|(?P<user>(?:user|human)(?:\b|(?=input)))|(?P<exit>exit\b)"
    r"|(?P<return>return\b)|(?P<meeting>meeting\b)|(?P<agent>agent\b))",
    re.IGNORECASE,
)
_INLINE = re.compile(r";\s*+yld\b\s*+", re.IGNORECASE)
_DONE = re.compile(r";\s*+done\b", re.IGNORECASE)
_CALL = re.compile(
    r"(?:\$\w++\s*+(?::\s*+[\w.\[\], ]++)?\s*+=\s*+)?(?:call\s++)?(?P<name>[^\W\d][\w.]*+)\(", re.IGNORECASE
)
_CONDITIONAL = re.compile(
    r"[(,]\s*+if\b|\bif\s++(?:not|necessary|needed|required|applicable|possible|you haven't)\b|\bunless\b",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\$(?P<name>[^\W\d]\w*+)(?::(?P<type>[^\W\d]\w*+(?:\[[\w, ]*+\])?))?")
_ENDS = re.compile(
    r"\b(?:end|exit|stop|quit|terminate)s?\b[^.;]{0,20}\b(?:program|playbooks?|application)\b|\bEndProgram\b",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"(?:\b(?:never|not|cannot|without|avoid)|n['’]t)\s++(?:(?:ever|yet|just|simply|to)\s++)?\Z", re.IGNORECASE
)
_RETURNS = re.compile(r"return\b", re.IGNORECASE)
_WAITS = re.compile(r"\bwait", re.IGNORECASE)


class Listing:
    """Nodes are line indexes. A member of an `If ... Otherwise` chain has a second node, `index + len(lines)`: it means
    that the body of an earlier member was taken, so it does not lead into its own body."""

    def __init__(
        self,
        name: str,
        lines: Iterable[ListingLine],
        *,
        params: Sequence[Param] = (),
        returns: str = "",
        triggers: Sequence[Trigger] = (),
        notes: Sequence[Note] = (),
        description: str = "",
        react: bool = False,
    ) -> None:
        self.name = name
        self.lines = tuple(lines)
        self.params, self.returns = tuple(params), returns
        self.triggers, self.notes = tuple(triggers), tuple(notes)
        self.description = description
        self.react = react
        self.by_number: dict[str, list[int]] = {}
        for index, line in enumerate(self.lines):
            self.by_number.setdefault(line.number, []).append(index)
        self._shape()
        self.after = self._followers()
        self.next = [self._next(index) for index in range(len(self.lines))]
        self._settled = {
            index + len(self.lines): self._next_when_settled(index)
            for index in range(len(self.lines))
            if index in self._chained
        }
        self._nodes = {number: self._nodes_of(found[:MOST_TWINS]) for number, found in self.by_number.items()}

    @classmethod
    def of(cls, playbook: Playbook) -> Listing:
        return cls(
            playbook.name,
            playbook.steps,
            params=playbook.params,
            returns=playbook.returns,
            triggers=playbook.triggers,
            notes=playbook.notes,
            description=playbook.description,
            react=playbook.kind == "react",
        )

    @classmethod
    def of_rows(cls, name: str, rows: Iterable[Sequence[str]], **more: Any) -> Listing:
        """Build a listing from `[number, code, text]` rows."""
        lines = (ListingLine(number, code, text) for number, code, text in rows)  # type: ignore[arg-type]
        return cls(name, lines, **more)

    # --- structure ------------------------------------------------------------------------------------------

    def _shape(self) -> None:
        """Set the parent of each line, and the chains of conditions of which at most one is taken."""
        top = _Level()
        self.parent: list[int | None] = []
        self.children: dict[int | None, list[int]] = {None: []}
        for index, line in enumerate(self.lines):
            level, parent = top, None
            for part in line.number.split("."):
                parent = parent if level.latest is None else level.latest
                level = level.below.setdefault(part, _Level())
            level.latest = index
            self.parent.append(parent)
            self.children.setdefault(parent, []).append(index)
        self.kinds = [self._kind(index) for index in range(len(self.lines))]
        self.place = {index: at for group in self.children.values() for at, index in enumerate(group)}
        self._chain_next: dict[int, int] = {}
        self._chained: set[int] = set()
        """The members of chains after the first."""
        for group in self.children.values():
            self._chain(group)

    def _kind(self, index: int) -> Kind | None:
        line = self.lines[index]
        if str(line.code) == "ELS":  # a relic of old compilers
            return "else"
        if line.code != "CND":
            return None
        text = line.text.lstrip()
        for kind, pattern in _KINDS.items():
            if pattern.match(text):
                return kind
        return "loop" if self._jumps_back(index) else "if"

    def _jumps_back(self, index: int) -> bool:
        below = self.children.get(index)
        last = self.lines[below[-1]] if below else None
        return last is not None and last.code == "JMP" and jump_of(last) == self.lines[index].number

    def _chain(self, group: list[int]) -> None:
        last: int | None = None
        for index in group:
            kind = self.kinds[index]
            member = kind in ("elif", "else") or (kind == "when" and last is not None and self.kinds[last] == "when")
            if member and last is not None:
                self._chain_next[last] = index
                self._chained.add(index)
            last = index if kind is not None and kind != "else" else None

    # --- flow -----------------------------------------------------------------------------------------------

    def _followers(self) -> list[int]:
        """The successor of each line, or of the rest of its chain, once it has ended. Parents come before children."""
        after: list[int] = [END] * len(self.lines)
        for group in self.children.values():
            for one, other in itertools.pairwise(group):
                after[one] = other
        for index, parent in enumerate(self.parent):
            if after[index] == END and parent is not None:
                after[index] = self._behind_body(parent, after)
        return after

    def _behind_body(self, index: int, after: list[int]) -> int:
        if self.kinds[index] == "loop":
            return index
        follower = self._chain_next.get(index)
        return after[index] if follower is None else follower + len(self.lines)

    def _next(self, index: int) -> tuple[int, ...]:
        line = self.lines[index]
        body = self.children.get(index, ())
        leaves = self.after[index]
        if line.code == "RET":
            return ()
        if line.code == "JMP":
            found = tuple(self.by_number.get(jump_of(line), ()))
            return (*found, leaves) if jump_condition(line) or not found else found
        if line.code == "YLD":
            target = self.yields[index]
            return () if target is not None and target.target in ("exit", "return") else (leaves,)
        if not body:
            return (leaves,)
        if self.kinds[index] is None or (self.kinds[index] == "else" and index in self._chained):
            return (body[0],)
        return (body[0], leaves)

    def _next_when_settled(self, index: int) -> tuple[int, ...]:
        """The successor of a chain's member after an earlier member was taken: only one member of `If ... Otherwise`,
        or of several `When`, applies."""
        follower = self._chain_next.get(index)
        return (self.after[index] if follower is None else follower + len(self.lines),)

    def in_chain(self, index: int) -> bool:
        """Whether a condition belongs to the condition before it."""
        return index in self._chained

    def successors(self, node: int) -> tuple[int, ...]:
        return self.next[node] if node < len(self.lines) else self._settled[node]

    def jumps(self, node: int) -> tuple[int, ...]:
        """The target nodes of a JMP: several if lines share a number."""
        return tuple(self.by_number.get(jump_of(self.line_at(node)), ()))

    def line_at(self, node: int) -> ListingLine:
        return self.lines[node % len(self.lines)]

    def nodes_of(self, number: str) -> tuple[int, ...]:
        """All nodes of a line."""
        return self._nodes.get(number, ())

    def _nodes_of(self, found: list[int]) -> tuple[int, ...]:
        return (*found, *(index + len(self.lines) for index in found if index in self._chained))

    def nodes_at(self, position: Position) -> tuple[int, ...]:
        """The nodes at which a frame may be, according to its position."""
        nodes = self.nodes_of(position.line)
        if position.settled is None:
            return nodes
        if position.settled:
            return tuple(node for node in nodes if self._is_settled(node) or node not in self._chained)
        return tuple(node for node in nodes if not self._is_settled(node))

    def position_at(self, nodes: Collection[int], status: Status = "arrived") -> Position:
        """The position of a frame that is at nodes of one line."""
        number = self.line_at(next(iter(nodes))).number
        if not self._chained:
            return Position(number, status)
        settled = {self._is_settled(node) for node in nodes if node % len(self.lines) in self._chained}
        return Position(number, status, settled=settled.pop() if len(settled) == 1 else None)

    def _is_settled(self, node: int) -> bool:
        return node >= len(self.lines)

    def reached(
        self, nodes: Iterable[int], wanted: Collection[int] | None = None, ways: Ways | None = None
    ) -> frozenset[int]:
        """The nodes that may directly follow the given nodes: their successors, and the nodes after elidable lines.
        With `wanted`, only those are returned, and the search ends when all are found. `ways` replaces the listing's
        own successors if the caller knows more."""
        ways = ways or self.successors
        found: set[int] = set()
        left = None if wanted is None else set(wanted)
        waiting: deque[int] = deque()
        for node in nodes:
            waiting.extend(ways(node))
        while waiting and len(found) < MOST_PASSED and (left is None or left):
            one = waiting.popleft()
            if one in found:
                continue
            found.add(one)
            if left is not None:
                left.discard(one)
            if one != END and self.line_at(one).code in ELIDABLE:
                waiting.extend(ways(one))
        return frozenset(found) if wanted is None else frozenset(found.intersection(wanted))

    def resumes(self, position: Position | None, ways: Ways | None = None) -> frozenset[int]:
        """The nodes at which the next reply may continue."""
        if not self.lines:
            return frozenset({END})
        if position is None or not position.line:
            return self._entered((0,), ways)
        nodes = self.nodes_at(position)
        if position.status == "arrived":
            return self._entered(nodes, ways)
        again = nodes if position.status == "begun" else (node for node in nodes if self._repeats(node))
        return frozenset(again) | self.reached(nodes, ways=ways)

    def _entered(self, nodes: Collection[int], ways: Ways | None) -> frozenset[int]:
        elidable = (node for node in nodes if self.line_at(node).code in ELIDABLE)
        return frozenset(nodes) | self.reached(elidable, ways=ways)

    def _repeats(self, node: int) -> bool:
        found = self.yields[node % len(self.lines)]
        return found is not None and found.repeats

    def lines_of(self, nodes: Iterable[int]) -> tuple[ListingLine, ...]:
        """The lines of these nodes, each once, in the order of the listing."""
        indexes = sorted({node % len(self.lines) for node in nodes if node != END})
        return tuple(self.lines[index] for index in indexes)

    def reachable(self) -> set[int]:
        """The indexes of all lines that can be reached from the first line, with `END` if the end can be reached."""
        seen: set[int] = set()
        waiting = [0] if self.lines else []
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if node != END:
                waiting += self.successors(node)
        return {node if node == END else node % len(self.lines) for node in seen}

    # --- the text of a line ---------------------------------------------------------------------------------

    @cached_property
    def yields(self) -> list[LineYield | None]:
        return [yield_of(line) for line in self.lines]

    @cached_property
    def calls(self) -> list[str]:
        """The playbook that each line calls by name."""
        return [call_named(line) for line in self.lines]

    @cached_property
    def declared(self) -> dict[str, str]:
        """The variables that the playbook mentions, with their declared types."""
        found = {param.name: param.type for param in self.params}
        texts = [line.text for line in self.lines] + [trigger.text for trigger in self.triggers]
        for text in (*texts, *(note.text for note in self.notes), self.description):
            for one in _VARIABLE.finditer(text):
                if not found.get(one["name"]):
                    found[one["name"]] = one["type"] or ""
        return found


def jump_of(line: ListingLine) -> str:
    """The number of the line that a JMP goes to; empty if it names no line."""
    found = _JUMP.search(line.text)
    return ".".join(part.zfill(2) for part in found[0].split(".")) if found else ""


def jump_condition(line: ListingLine) -> str:
    """The `if $x > 3` of `JMP 04 if $x > 3`; if it does not hold, the next line follows. Empty for an unconditional
    jump."""
    found = _JUMP_IF.search(line.text)
    return found[0].strip() if found else ""


def yield_of(line: ListingLine) -> LineYield | None:
    """How a line yields: as a YLD line, or by `; YLD ...` after its action."""
    if line.code == "YLD":
        return LineYield(_target(line.text.strip()), _DONE.search(line.text) is not None)
    found = _INLINE.search(line.text)
    if found is None:
        return None
    return LineYield(_target(line.text[found.end() :]), _DONE.search(line.text, found.end()) is not None)


def _target(text: str) -> Target | None:
    found = _YIELDED.match(text)
    return cast(Target, found.lastgroup) if found else None


def call_named(line: ListingLine) -> str:
    """The playbook that a QUE line calls by name; empty if the line only describes a call or makes it conditional."""
    found = _CALL.match(line.text.lstrip()) if line.code == "QUE" else None
    return found["name"] if found and not _CONDITIONAL.search(line.text) else ""


def ends_program(line: ListingLine) -> bool:
    """Whether the line ends the program. A line that forbids ending it does not count."""
    return any(not _NOT.search(line.text, max(0, one.start() - 40), one.start()) for one in _ENDS.finditer(line.text))


def says_return(line: ListingLine) -> bool:
    """Whether the line returns: a RET line, a line that ends the frame, or a line whose text says to return."""
    found = yield_of(line)
    over = found is not None and found.target in ("return", "exit")
    return line.code == "RET" or over or _RETURNS.match(line.text.lstrip()) is not None


def waits(line: ListingLine) -> bool:
    return _WAITS.search(line.text) is not None


def known_code(code: str) -> bool:
    return code in CODES
