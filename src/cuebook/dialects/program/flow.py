"""Follows a reply through a listing: where it stands, what may come next, and which moves are refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from cuebook.dialects.program.items import Call, Step, Target, Yield
from cuebook.dialects.program.listing import (
    END,
    Listing,
    Position,
    call_named,
    ends_program,
    says_return,
    waits,
)
from cuebook.dialects.program.model import ListingLine
from cuebook.dialects.program.verdicts import Verdict

MOST_ENTRIES = 100
"""How often a line may be entered before something new comes in."""


class Path:
    """The nodes where a frame may stand. A line that is there twice, or in two ways, is several."""

    def __init__(self, listing: Listing, position: Position | None, entries: dict[str, int]) -> None:
        self.listing = listing
        first = listing.lines[0].number if listing.lines else ""
        self.position = position if position is not None and position.line else Position(first)
        self._entries = dict(entries)
        self._nodes: frozenset[int] | None = None
        """None before the first step of the reply."""
        self._acted = False
        """Whether anything was done at this line."""
        self._calls: list[str] = []
        """The names of the calls made at this line."""

    # --- where it stands ------------------------------------------------------------------------------------

    @property
    def moved(self) -> bool:
        return self._nodes is not None

    @property
    def number(self) -> str:
        return self.position.line

    @property
    def line(self) -> ListingLine | None:
        indexes = self.listing.by_number.get(self.number)
        return self.listing.lines[indexes[0]] if indexes else None

    @property
    def at_yield(self) -> bool:
        """At a YLD line that this reply named."""
        line = self.line
        return self.moved and line is not None and line.code == "YLD"

    @property
    def legal(self) -> frozenset[int]:
        """The nodes that the next step may name."""
        if self._nodes is None:
            return self.listing.resumes(self.position)
        return self._nodes.union(*(self.listing.reached(node) for node in self._nodes))

    def legal_lines(self) -> tuple[ListingLine, ...]:
        return self.listing.lines_of(self.legal) if self.listing.lines else ()

    def _ahead(self) -> frozenset[int]:
        """What may follow the line where it stands, once that is over."""
        if self._nodes is None:
            return self.listing.resumes(self.position)
        return frozenset().union(*(self.listing.reached(node) for node in self._nodes))

    def at_end(self) -> bool:
        """Whether nothing is left to do: here, or behind lines that need not be named, the listing is over."""
        return not self.listing.lines or END in self._ahead()

    # --- moving ---------------------------------------------------------------------------------------------

    def act(self) -> None:
        self._acted = True

    def call(self, call: Call) -> None:
        self._acted = True
        self._calls.append(call.name)

    def refusal(self, step: Step) -> Verdict | None:
        """Why the reply must not go there; None if it may."""
        listing = self.listing
        if listing.react and not listing.lines:
            return None
        if not listing.by_number.get(step.line):
            return self._refused("C2", step, f"{listing.name} has no line {step.line}.")
        if step.line != self.number and self.moved:
            if self.at_yield:
                words = f"{self.number} is a YLD line: the reply must yield there, and not go on to {step.line}."
                return self._refused("C6", step, words)
            missing = self._missing_call()
            if missing:
                return self._refused("C12", step, f"{self.number} calls {missing}, and the reply has not called it.")
        if not self._targets(step):
            return self._illegal(step)
        if self._entries.get(step.line, 0) >= MOST_ENTRIES:
            words = f"{step.line} was entered {MOST_ENTRIES} times, and nothing new came in."
            return self._refused("C13", step, words)
        return None

    def _targets(self, step: Step) -> frozenset[int]:
        return self.legal.intersection(self.listing.nodes_of(step.line))

    def _illegal(self, step: Step) -> Verdict:
        if not self.moved:
            how = "was executed" if self.position.status == "done" else "is still to be executed"
            return self._refused(
                "C4", step, f"{self.number} {how}, and {step.line} does not follow.", self._broken(step)
            )
        return self._refused("C5", step, f"{step.line} does not follow {self.number}.", self._broken(step))

    def _refused(self, rule: str, step: Step, words: str, because: str = "") -> Verdict:
        here = self.listing.lines_of(self._nodes) if rule == "C12" and self._nodes is not None else self.legal_lines()
        return Verdict(rule, "R", words, step.start, step.end, self.number, because, here)

    def _broken(self, step: Step) -> str:
        """The narrower rule: what the jump passes over, or what it does instead of what the line says."""
        line = self.line
        if line is not None and line.code == "JMP" and self.moved:
            return "C8"
        near = self._ahead() | (self._nodes or frozenset())
        settled = {node for node in near if node >= len(self.listing.lines)}
        bodies = {self.listing.children.get(node - len(self.listing.lines), [END])[0] for node in settled}
        if bodies.intersection(self.listing.by_number[step.line]):
            return "C8"
        return "C7" if self._passes_over(step) else ""

    def _passes_over(self, step: Step) -> bool:
        """Whether the line lies ahead, behind some that must not be passed over."""
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

    def move(self, step: Step) -> None:
        """Goes to a line that was not refused."""
        again = self.moved and step.line == self.number
        nodes = self._targets(step)
        self._nodes = nodes
        self.position = Position(step.line)
        if not again:
            self._entries[step.line] = self._entries.get(step.line, 0) + 1
            self._acted, self._calls = False, []

    def _missing_call(self) -> str:
        line = self.line
        named = call_named(line) if line is not None else ""
        made = {name.rpartition(".")[2] for name in self._calls}
        return "" if not named or named.rpartition(".")[2] in made else named

    # --- ending ---------------------------------------------------------------------------------------------

    def may_return(self) -> bool:
        line = self.line
        if self.listing.react or line is None:
            return True
        here = self.moved or self.position.status == "arrived"
        return (here and says_return(line)) or self.at_end()

    def may_exit(self, root: bool) -> bool:
        line = self.line
        if self.listing.react or line is None:
            return True
        if ends_program(line) or (root and (self.at_end() or line.code == "RET")):
            return True
        return any(found == "exit" for found in self._yields_here())

    def _yields_here(self) -> Iterator[str | None]:
        """Targets of the YLD lines that a yield could be: the one where it stands, or else those ahead."""
        indexes = self.listing.by_number.get(self.number, []) if self.moved else []
        found = [self.listing.yields[index] for index in indexes]
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
        """For what the YLD line yields where the reply stands; None if it stands at none, or that does not say."""
        line = self.line
        if not self.at_yield or line is None:
            return None
        found = self.listing.yields[self.listing.by_number[line.number][0]]
        return found.target if found else None

    def may_wait(self) -> bool:
        line = self.line
        return line is not None and waits(line)

    def stopped(self, how: Yield | None, pending: tuple[str, ...]) -> Position:
        """Where the frame stands after a yield, or after the last thing that was accepted."""
        line = self.line
        if line is None:
            return Position(self.number, self.position.status, pending)
        if not self.moved and (self.position.status == "done" or not self._acted):
            return self._behind_yield(how, Position(self.number, self.position.status, pending))
        done = self._acted and not self._missing_call()
        if line.code == "YLD":
            done = how is not None
        position = Position(self.number, "done" if done else "arrived", pending)
        return self._behind_yield(how, position)

    def _behind_yield(self, how: Yield | None, position: Position) -> Position:
        """A yield that names no line is the YLD line that follows, if there is one such."""
        if how is None or position.status != "done" or self.at_yield:
            return position
        fitting = [node for node in self._yields_ahead() if self._yields_for(node, how)]
        if len(fitting) != 1:
            return position
        return Position(self.listing.lines[fitting[0]].number, "done", position.pending)

    def _yields_for(self, index: int, how: Yield) -> bool:
        found = self.listing.yields[index]
        return found is not None and found.target == how.target
