"""Follows a reply through a listing: its position, what may come next, and which moves are refused. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from cuebook.dialects.program.listing import (
    ELIDABLE,
    END,
    MOST_PASSED,
    Listing,
    Position,
    Ways,
    ends_program,
    says_return,
    waits,
)
from cuebook.dialects.program.model import ListingLine
from cuebook.dialects.program.reply.items import Step, Target, Yield
from cuebook.dialects.program.verify.verdicts import Verdict

_HOW = {"arrived": "has not been executed", "begun": "is being executed", "done": "was executed"}
MOST_ENTRIES = 100
"""How often a line may be entered before new input arrives."""


class Path:
    """The nodes at which a frame may be. A line number that occurs twice, or that can be reached in two states, refers
    to several nodes."""

    def __init__(self, listing: Listing, position: Position | None, entries: dict[str, int], ways: Ways) -> None:
        """`ways` returns the possible successors of a node, given what is known now."""
        self.listing, self._ways = listing, ways
        first = listing.lines[0].number if listing.lines else ""
        self.position = position if position is not None and position.line else Position(first)
        self._entries = dict(entries)
        self._nodes: frozenset[int] | None = None
        """None before the first step of the reply."""
        self._index: int | None = next(iter(listing.by_number.get(self.number, ())), None)
        """The index of the line, or the first candidate."""
        self._targets: frozenset[int] = frozenset()
        """The targets of the step that was just accepted."""
        self._acted = self._begun = self.position.status == "begun"
        """Whether anything was done at this line; and whether that was before this reply, including the call that the
        line names."""
        self._calls: list[str] = []
        """The names of the calls made at this line."""
        self._over = False
        """Whether nothing is left to do at this line."""

    # --- position -------------------------------------------------------------------------------------------

    @property
    def moved(self) -> bool:
        return self._nodes is not None

    @property
    def number(self) -> str:
        return self.position.line

    @property
    def line(self) -> ListingLine | None:
        return None if self._index is None else self.listing.lines[self._index]

    @property
    def here(self) -> int | None:
        """The index of the line being executed, if it is unambiguous; None between two lines."""
        if self._nodes is not None:
            return self._index if len({node % len(self.listing.lines) for node in self._nodes}) == 1 else None
        found = self.listing.by_number.get(self.number, ())
        return found[0] if self.position.status != "done" and len(found) == 1 else None

    @property
    def acted(self) -> bool:
        return self._acted

    @property
    def calls(self) -> tuple[str, ...]:
        """The names of the calls that this reply made at this line."""
        return tuple(self._calls)

    @property
    def at_yield(self) -> bool:
        """Whether the reply named a YLD line and is still there."""
        line = self.line
        return self.moved and line is not None and line.code == "YLD"

    @property
    def legal(self) -> frozenset[int]:
        """The nodes that the next step may name."""
        if self._nodes is None:
            return self.listing.resumes(self.position, self._ways)
        return self._nodes | self.listing.reached(self._nodes, ways=self._ways)

    def _ahead(self) -> frozenset[int]:
        """The nodes that may follow the current line once it is over."""
        if self._nodes is None:
            return self.listing.resumes(self.position, self._ways)
        return self.listing.reached(self._nodes, ways=self._ways)

    def at_end(self) -> bool:
        """Whether nothing is left to do: the listing ends here, or after lines that need not be named."""
        ahead = self._ahead() if self.listing.lines else ()
        return not ahead or END in ahead

    # --- moving ---------------------------------------------------------------------------------------------

    def act(self) -> None:
        self._acted = True

    def over(self) -> None:
        """Record that the line is complete: the next reply must not repeat it."""
        self._over = True

    def call(self, name: str) -> None:
        self._acted = True
        self._calls.append(name)

    def refusal(self, step: Step) -> Verdict | None:
        """Why the reply must not go to a line; None if it may."""
        listing = self.listing
        if listing.react and not listing.lines:
            return None
        if not listing.by_number.get(step.line):
            return self._refused("C2", step, f"{listing.name} has no line {step.line}.")
        if step.line != self.number and self.moved:
            if self.at_yield:
                words = (
                    f"{self.number} is a YLD line: the reply must yield there instead of continuing with {step.line}."
                )
                return self._refused("C6", step, words)
            if self.left_undone:
                return self._refused("C12", step, self.left_undone)
        self._targets = self._led_to(step)
        if not self._targets:
            return self._illegal(step)
        if self._entries.get(step.line, 0) >= MOST_ENTRIES:
            words = f"{step.line} was entered {MOST_ENTRIES} times without new input."
            return self._refused("C13", step, words)
        return None

    def _led_to(self, step: Step) -> frozenset[int]:
        wanted = self.listing.nodes_of(step.line)
        if self._nodes is None:
            return self.listing.resumes(self.position, self._ways).intersection(wanted)
        here = self._nodes.intersection(wanted)
        return here | self.listing.reached(self._nodes, wanted, self._ways)

    def _illegal(self, step: Step) -> Verdict:
        decided = self._decided_otherwise(step)
        if decided is not None:
            line = self.listing.line_at(decided)
            words = f"{step.line} does not follow {self.number}: '{line.text}' at {line.number} was computed and leads elsewhere."
            return self._refused("C8", step, words)
        if not self.moved:
            how = _HOW[self.position.status]
            return self._refused(
                "C4", step, f"{self.number} {how}, and {step.line} does not follow it.", self._broken(step)
            )
        return self._refused("C5", step, f"{step.line} does not follow {self.number}.", self._broken(step))

    def _refused(self, rule: str, step: Step, words: str, because: str = "") -> Verdict:
        return Verdict(rule, "R", words, step.start, step.end, self.number, because)

    def _broken(self, step: Step) -> str:
        """The narrower rule that is broken: C7 if lines are skipped, C8 if the line says something else."""
        line = self.line
        if line is not None and line.code == "JMP" and self.moved:
            return "C8"
        near = self._ahead().union(self._nodes or self.listing.nodes_at(self.position))
        settled = {node for node in near if node >= len(self.listing.lines)}
        bodies = {self.listing.children.get(node - len(self.listing.lines), [END])[0] for node in settled}
        if bodies.intersection(self.listing.by_number[step.line]):
            return "C8"
        return "C7" if self._passes_over(step) else ""

    def _decided_otherwise(self, step: Step) -> int | None:
        """The computed condition that prevents the reply from going there; None if there is none."""
        wanted = set(self.listing.nodes_of(step.line))
        begun = self._nodes if self._nodes is not None else self.listing.resumes(self.position)
        first = begun if self._nodes is not None else [one for one in begun if self._elidable(one)]
        waiting: deque[tuple[int, int | None]] = deque((node, None) for node in first)
        seen: set[int] = set()
        while waiting and len(seen) < MOST_PASSED:
            node, before = waiting.popleft()
            taken = {*self._ways(node)}
            for following in self.listing.successors(node):
                decided = before if before is not None or following in taken else node
                if following in wanted and decided is not None:
                    return decided
                if following not in seen and self._elidable(following):
                    seen.add(following)
                    waiting.append((following, decided))
        return None

    def _elidable(self, node: int) -> bool:
        return node != END and self.listing.line_at(node).code in ELIDABLE

    def _passes_over(self, step: Step) -> bool:
        """Whether the line comes later, after lines that must not be skipped."""
        seen: set[int] = set()
        waiting = [node for node in self.legal if node != END]
        wanted = set(self.listing.nodes_of(step.line))
        while waiting:
            node = waiting.pop()
            if node in seen or node == END:
                continue
            if node in wanted:
                return True
            seen.add(node)
            waiting += self.listing.successors(node)
        return False

    def move(self, step: Step) -> bool:
        """Move to an accepted line. Return False if it is the same line again and not its next iteration."""
        again = (self.moved or self._begun) and step.line == self.number and not self._next_round()
        nodes = self._targets
        if len(nodes) > 1:
            nodes = frozenset(node for node in nodes if self.listing.line_at(node).code == step.code) or nodes
        self._nodes = nodes
        self._index = min(nodes) % len(self.listing.lines) if nodes else None
        self.position = self.listing.position_at(nodes) if nodes else Position(step.line)
        if not again:
            self._entries[step.line] = self._entries.get(step.line, 0) + 1
            self._acted, self._calls, self._begun, self._over = False, [], False, False
        return not again

    def _next_round(self) -> bool:
        """Whether the line was executed, and a loop leads back to it."""
        nodes = self._nodes or frozenset()
        return bool((self._over or self._calls) and nodes & self.listing.reached(nodes, nodes, self._ways))

    @property
    def left_undone(self) -> str:
        """What the reply must still do before leaving the line; empty if it may leave."""
        over = self._begun or (not self.moved and self.position.status == "done")
        named = "" if self._index is None or over else self.listing.calls[self._index]
        if not named or named.rpartition(".")[2] in {name.rpartition(".")[2] for name in self._calls}:
            return ""
        return f"{self.number} calls {named}, but the reply does not."

    # --- ending ---------------------------------------------------------------------------------------------

    def may_return(self) -> bool:
        line = self.line
        if self.listing.react or line is None:
            return True
        here = self.moved or self.position.status != "done"
        return (here and says_return(line)) or self.at_end()

    def may_exit(self, root: bool) -> bool:
        line = self.line
        if self.listing.react or line is None:
            return True
        if ends_program(line) or (root and (self.at_end() or line.code == "RET")):
            return True
        return any(found == "exit" for found in self._yields_here())

    def _yields_here(self) -> Iterator[str | None]:
        """The targets of the YLD lines that a yield could refer to: the current line, or else those ahead."""
        found = [self.listing.yields[node % len(self.listing.lines)] for node in self._nodes or ()]
        if any(one is not None for one in found):
            yield from (one.target for one in found if one is not None)
            return
        for node in self._yields_ahead():
            one = self.listing.yields[node]
            yield one.target if one is not None else None

    def _yields_ahead(self) -> list[int]:
        size = len(self.listing.lines)
        ahead = self._ahead() if self.listing.lines else frozenset()
        return sorted({node % size for node in ahead if node != END and self.listing.line_at(node).code == "YLD"})

    def listed_target(self) -> Target | None:
        """The target of the current YLD line; None if it is not a YLD line or has no target."""
        found = self.listing.yields[self._index] if self.at_yield and self._index is not None else None
        return found.target if found else None

    def may_wait(self) -> bool:
        line = self.line
        return line is not None and waits(line)

    def stopped(self, how: Yield | None, pending: tuple[str, ...]) -> Position:
        """The position of the frame after a yield or a return."""
        line = self.line
        here = msgspec.structs.replace(self.position, pending=pending)
        if line is None:
            return here
        if self.moved or (here.status != "done" and self._acted):
            done = how is not None if line.code == "YLD" else self._acted and not self.left_undone
            here = msgspec.structs.replace(here, status="done" if done else "arrived")
        return self._behind_yield(how, here)

    def refused(self, pending: tuple[str, ...], *, leaving: bool) -> Position:
        """The position of the frame after the last accepted item. `leaving` means that the step to another line was
        refused, so the current line is over; otherwise it was being executed and may be continued."""
        line = self.line
        here = msgspec.structs.replace(self.position, pending=pending)
        if line is None or not (self.moved or (here.status == "arrived" and self._acted)):
            return here
        if not self._acted or line.code == "YLD" or self.left_undone:
            return msgspec.structs.replace(here, status="arrived")
        return msgspec.structs.replace(here, status="done" if leaving or self._executed(line) else "begun")

    def _executed(self, line: ListingLine) -> bool:
        """Whether the next reply must not repeat the line: its value is set, or its call is queued."""
        return self._over or (bool(self._calls) and line.code != "RET")

    def _behind_yield(self, how: Yield | None, position: Position) -> Position:
        """A yield without a step refers to the YLD line that follows, if exactly one matches."""
        if how is None or position.status != "done" or self.at_yield:
            return position
        fitting = [node for node in self._yields_ahead() if self._yields_for(node, how)]
        if len(fitting) != 1:
            return position
        number = self.listing.lines[fitting[0]].number
        return Position(number, "done", position.pending)

    def _yields_for(self, index: int, how: Yield) -> bool:
        found = self.listing.yields[index]
        return found is not None and found.target == how.target
