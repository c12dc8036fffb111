"""Computes what it can of a listing to compare a reply with it: branches, iterations, values, calls, returns. Pure.

Where nothing can be computed, there is no expectation and the reply is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

import msgspec

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.machine.decide import Decider, Returns, Sets, Spelled, has_words, reads_of, spelled
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.values.evaluate import DoesNotCoerce, NotComputable, coerced, evaluate, figures, is_text
from cuebook.dialects.program.values.expressions import CallOf, Expression, refs_of
from cuebook.dialects.program.values.placeholders import mentions
from cuebook.dialects.program.verify.scope import Scope
from cuebook.dialects.program.verify.verdicts import Signature, State


class Expectations:
    """The expectations for one reply, from line to line. `scope` contains what the reply has set so far."""

    def __init__(self, listing: Listing, scope: Scope, state: State, position: Position | None) -> None:
        self._listing, self._scope = listing, scope
        self._signatures: Mapping[str, Signature] = state.playbooks or {}
        self._known = state.playbooks is not None
        self._decider = Decider(listing, scope.type_of, known=self._knows, signatures=self._signatures, watched=())
        self.loops = dict(state.loops)
        """The index of the current item of each `For each` around the reply, by line, where known."""
        self._previous = position.line if position is not None else ""
        """The previous line. A `For each` that is named on the way does not count."""
        self.items: dict[str, Any] = {}
        """The current item of each loop around the reply, where known."""

    def _knows(self, name: str) -> bool:
        return not self._known or name in self._signatures

    @property
    def _variables(self) -> Mapping[str, Any]:
        """The variables that have a value now, without those that a queued call will set."""
        awaited = self._scope.awaited
        known = self._scope.variables
        return {name: one for name, one in known.items() if name not in awaited} if awaited else known

    # --- successors ---------------------------------------------------------------------------------------

    def ways(self, node: int) -> tuple[int, ...]:
        """The possible successors of a node, as far as they can be computed now."""
        return self._decider.ways(node, self._variables, self.loops, self._previous)

    def arrived(self, number: str) -> Iterator[tuple[str, Any]]:
        """Record the line that the reply has moved to. Yield the items of the `For each` loops whose next iteration begins
        there."""
        index = self._listing.by_number[number][0]
        if self._decider.item_of(index) is not None and self._listing.lines[index].code == "CND":
            return
        previous = next(iter(self._listing.by_number.get(self._previous, ())), None)
        for loop in self._loops_around(index):
            yield from self._round(loop, index, previous)
        around = {self._listing.lines[loop].number for loop in self._loops_around(index)}
        self.loops = {line: round for line, round in self.loops.items() if line in around}
        self._previous = number

    def _loops_around(self, index: int) -> Iterator[int]:
        above = self._listing.parent[index]
        while above is not None:
            if self._decider.item_of(above) is not None:
                yield above
            above = self._listing.parent[above]

    def _round(self, loop: int, index: int, previous: int | None) -> Iterator[tuple[str, Any]]:
        found, number = self._decider.item_of(loop), self._listing.lines[loop].number
        items = self._variables.get(found[1]) if found else None
        inside = previous is not None and (previous == loop or loop in self._loops_around(previous))
        if inside and previous is not None and index > previous:
            return
        round = self.loops.get(number, -1 if not inside else None)
        self.loops.pop(number, None)
        if found is None or round is None or not isinstance(items, list) or self._decider.passable(loop):
            return
        if round + 1 < len(items):
            self.loops[number] = round + 1
            self.items[found[0]] = items[round + 1]
            yield found[0], items[round + 1]

    # --- values -------------------------------------------------------------------------------------------

    def sets(self, index: int) -> Sets | None:
        """The variable that a line sets, and its value."""
        done = self._decider.decide(index, self._variables, {}, "") if self._code(index) == "EXE" else None
        return done if isinstance(done, Sets) else None

    def returns(self, index: int) -> Returns | None:
        done = self._decider.decide(index, self._variables, {}, "") if self._code(index) == "RET" else None
        return done if isinstance(done, Returns) else None

    def _code(self, index: int) -> str:
        return self._listing.lines[index].code

    def reads(self, index: int) -> frozenset[str]:
        """The variables used in the computation of a line, if it leaves nothing to a model."""
        return reads_of(self._listing.lines[index])

    def value(self, expression: Expression) -> Any:
        """Return the value of an expression. Raise `NotComputable` if it has none."""
        return evaluate(expression, self._variables)

    # --- calls --------------------------------------------------------------------------------------------

    def spelled(self, index: int) -> Spelled | None:
        found = spelled(self._listing.lines[index])
        return found if found is not None and (self._code(index) == "QUE" or found.name in self._signatures) else None

    def exists(self, name: str) -> bool:
        """Whether the playbook exists; true if the playbooks are unknown."""
        return self._knows(name)

    def called(self, wanted: Spelled, call: Call) -> tuple[Call, list[str]]:
        """The call as the line specifies it, and the arguments that had to be changed. Words of the listing are left to
        the reply."""
        name = wanted.name if self._known and self._knows(wanted.name) else call.name
        if wanted.call is None:
            return msgspec.structs.replace(call, name=name), []
        signature = self._signatures.get(name)
        params = signature.params if signature else ()
        types = {param.name: param.type for param in params}
        listed, given = _bound(wanted.call, [*types]), _bound(call, [*types])
        kept, changed, complete = dict(given), [], True
        for key, value in listed.items():
            if not self._computes(value) or (is_text(types.get(key, "")) and figures(value)):
                complete = False
                continue
            if key not in given or not self._same(value, given[key], types.get(key, "")):
                changed.append(key)
            kept[key] = value
        surplus = [key for key in given if key not in listed]
        if complete and surplus:
            changed += surplus
            kept = {key: value for key, value in kept.items() if key in listed}
        if not changed:
            return msgspec.structs.replace(call, name=name), []
        args = tuple(kept.pop(str(at)) for at in range(len(kept)) if str(at) in kept)
        return msgspec.structs.replace(call, name=name, args=args, named=tuple(kept.items())), changed

    def _computes(self, value: Expression) -> bool:
        """Whether a value is known, or will be when earlier calls have run."""
        if has_words(value) or mentions(value):
            return False
        names = [*refs_of(value)]
        if any(name in self._scope.awaited for name in names):
            return all(name in self._scope.awaited or name in self._variables for name in names)
        return self._decider.value(value, self._variables) is not None

    def _same(self, listed: Expression, given: Expression, type: str) -> bool:
        if listed == given:
            return True
        try:
            return same(self.value(listed), self.value(given), type)
        except NotComputable:
            return False


def legal_after(listing: Listing, position: Position | None, state: State) -> frozenset[int]:
    """The nodes at which the next reply may continue, given what can be computed."""
    expect = Expectations(listing, Scope(listing, state), state, position)
    return listing.resumes(position, expect.ways)


def _bound(call: CallOf | Call, names: list[str]) -> dict[str, Expression]:
    """The arguments by parameter name, or by position if they have none."""
    keys = [names[at] if at < len(names) else str(at) for at in range(len(call.args))]
    return dict(zip(keys, call.args, strict=True)) | {name.removeprefix("$"): value for name, value in call.named}


def same(one: Any, other: Any, type: str = "") -> bool:
    """Whether two values are equal for a variable of this type. Rounding differences do not count."""
    try:
        one, other = coerced(one, type).value, coerced(other, type).value
    except DoesNotCoerce:
        return False
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or isclose(one, other, rel_tol=1e-9)
    return bool(one == other)
