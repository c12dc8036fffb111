"""Compares the triggers in a reply with the existing triggers and the values they watch. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cuebook.dialects.program.reply.items import Call, Trigger
from cuebook.dialects.program.values.evaluate import NotComputable, condition_of, is_error, judge
from cuebook.dialects.program.values.expressions import Expression, refs_of
from cuebook.dialects.program.verify.scope import Remark
from cuebook.dialects.program.verify.verdicts import KnownTrigger
from cuebook.formats.suggestions import meant


class Triggering:
    """The triggers that fired, the ones that should have, and the one whose call is still missing."""

    def __init__(
        self,
        known: Mapping[str, KnownTrigger] | None,
        variables: Mapping[str, Any] | None,
        fired: Mapping[str, bool] | None = None,
        own: Collection[str] = (),
        spent: Collection[str] = (),
    ) -> None:
        """`fired` maps the id of a trigger to whether it has already fired. `own` contains the parameters of the frame,
        which never fire a trigger. `spent` contains the triggers that have fired for the last input."""
        self._known, self._before, self._spent = known, fired or {}, spent
        self._conditions: dict[str, Expression] = {}
        self._watched: dict[str, list[str]] = {}
        self._held: dict[str, bool | None] = {}
        """Whether each computable condition held before; None if only a model can judge the values."""
        for id, trigger in (known or {}).items() if variables is not None else ():
            condition = condition_of(trigger.text) if trigger.kind == "CND" else None
            if condition is not None and not {*own}.isdisjoint(refs_of(condition)):
                self._held[id] = self._before.get(id) if fired is not None else None
            elif condition is not None:
                self._conditions[id] = condition
                self._held[id] = self._holds(id, variables or {})
                for name in refs_of(condition):
                    self._watched.setdefault(name, []).append(id)
        self._due: list[str] = []
        self.awaiting: Trigger | None = None
        """The trigger whose playbook has yet to be called."""
        self.fired: Trigger | None = None

    def _holds(self, id: str, variables: Mapping[str, Any]) -> bool | None:
        condition = self._conditions[id]
        names = [*refs_of(condition)]
        try:
            if not any(is_error(variables.get(name)) for name in names):
                return judge(condition, variables)
        except NotComputable:
            pass
        return None if all(name in variables for name in names) else False

    def changed(self, name: str, variables: Mapping[str, Any]) -> None:
        """Record that a variable was set: conditions that become true are due."""
        for id in self._watched.get(name, ()):
            now = self._holds(id, variables)
            if now and not self._held[id] and id not in self._due:
                self._due.append(id)
            elif not now and id in self._due:
                self._due.remove(id)
            self._held[id] = now

    def named(self, trigger: Trigger) -> Remark | None:
        """Record that the reply fires a trigger. Return the problem with that, if any."""
        if trigger.kind == "BGN":
            return Remark("T2", "R", f"{trigger.playbook}:{trigger.id} fires only at the start of the program.")
        if self._known is None:
            self._fire(trigger)
            return None
        id = f"{trigger.playbook}:{trigger.id}"
        if id not in self._known:  # the reply may have written the agent's own name before it
            id = f"{trigger.playbook.rpartition('.')[2]}:{trigger.id}"
        known = self._known.get(id)
        if known is None or known.kind == "BGN":
            others = sorted(one for one, trigger in self._known.items() if trigger.kind != "BGN")
            return Remark("T2", "R", f"There is no trigger '{id}' here. {meant(id, others)}")
        if id in self._spent:
            return Remark("T4", "F", f"'{known.text}' has already fired for this: it does not fire again.")
        if self._held.get(id) is False:
            return Remark("T4", "F", f"'{known.text}' does not hold: the trigger does not fire.")
        if id in self._due:
            self._due.remove(id)
        elif self._before.get(id):
            return Remark("T4", "F", f"'{known.text}' already held before and fired then: it does not fire again.")
        self._fire(trigger)
        return None

    def _fire(self, trigger: Trigger) -> None:
        self.fired = self.awaiting = trigger

    def awaits(self, call: Call) -> bool:
        """Whether this is the call that a fired trigger requires."""
        return self.awaiting is not None and _same(call.name, self.awaiting.playbook)

    def called(self, call: Call) -> None:
        if self.awaits(call):
            self.awaiting = None

    def missed(self) -> Iterator[tuple[Trigger, Remark]]:
        """The triggers that should have fired by now."""
        for id in self._due:
            playbook, _, number = id.rpartition(":")
            words = f"'{(self._known or {})[id].text}' holds now: the trigger fires."
            trigger = Trigger(playbook, number, "CND")
            self.fired = trigger
            yield trigger, Remark("T4", "F", words)
        self._due = []

    def uncalled(self) -> Trigger | None:
        """The trigger whose playbook should have been called by now, reported once."""
        trigger, self.awaiting = self.awaiting, None
        return trigger


def _same(one: str, other: str) -> bool:
    return one.rpartition(".")[2] == other.rpartition(".")[2]
