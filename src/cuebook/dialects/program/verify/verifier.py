"""Verifies a reply against the listing it executes, item by item: refuses, repairs or warns. Pure.

After each item, it can say whether everything so far is legal. Generation can be stopped at the first illegal item,
and everything before it can take effect.
"""

from __future__ import annotations

import hashlib
import json
from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cuebook.dialects.program.listing import ELIDABLE, Listing, Position, call_named
from cuebook.dialects.program.machine.decide import SPEAKING, Spelled, asked_for
from cuebook.dialects.program.parse.signatures import name_of
from cuebook.dialects.program.reply.items import (
    Artifact,
    Assign,
    Call,
    Check,
    Defect,
    Item,
    Plan,
    Prose,
    Recap,
    ReplyItem,
    Return,
    SaveArtifact,
    Step,
    Target,
    Trigger,
    Var,
    What,
    Yield,
    YieldCheck,
)
from cuebook.dialects.program.reply.reader import Reply, items_of
from cuebook.dialects.program.values.evaluate import NotComputable, is_error
from cuebook.dialects.program.values.expressions import CallOf, Expression, Literal, Ref, Words
from cuebook.dialects.program.values.placeholders import interpolated
from cuebook.dialects.program.verify.arguments import (
    GivenListing,
    GivenPosition,
    GivenState,
    listing_of,
    position_of,
    state_of,
)
from cuebook.dialects.program.verify.expectations import Expectations, same
from cuebook.dialects.program.verify.flow import Path
from cuebook.dialects.program.verify.scope import BUILT_IN, SUMMARY, Remark, Scope, shown
from cuebook.dialects.program.verify.triggers import Triggering
from cuebook.dialects.program.verify.verdicts import (
    Action,
    CheckTriggers,
    LoadContent,
    Policy,
    State,
    Summarise,
    Verdict,
    Verdicts,
)
from cuebook.formats.suggestions import meant

MOST_SUMMARY_LINES = 5
_EXECUTES = (Step, Var, Assign, Call, Artifact, SaveArtifact, Return)


class Verifier:
    """Sees the items of one reply in order. A verdict is never withdrawn."""

    def __init__(self, listing: Listing, position: Position | None = None, state: State | None = None) -> None:
        self._listing = listing
        self._state = state or State()
        self._scope = Scope(listing, self._state)
        self._expect = Expectations(listing, self._scope, self._state, position)
        self._path = Path(listing, position, self._state.entries, self._expect.ways)
        self._from = position
        self._asked = tuple(self._asked_for(position))
        """Variables without a value that the user was asked for."""
        self._given: set[str] = set()
        """The variables that the reply itself has set at this line, or on its way there."""
        self._computed: tuple[str, Any] | None = None
        """The variable that the current line has set by computation, and its value."""
        own = {param.name for param in listing.params}
        state = self._state
        self._triggers = Triggering(state.triggers, state.variables, state.held, own, state.spent)
        self._verdicts: list[Verdict] = []
        self._actions: list[Action] = []
        self._resumes_at: Position | None = None
        """The position of the frame after a refusal."""
        self.rejected = False
        """Whether something was refused."""
        self.ended = False
        """Whether nothing that follows can have an effect."""
        self._heads = {"recap", "plan"}
        """The parts that the reply must begin with and still lacks."""
        self._unchecked: Step | Var | None = None
        """A step or a variable after which the triggers were not checked."""
        self._bare = True
        """Whether only a step was seen since the last check."""
        self._parting = False
        """Whether a trigger has fired and the line at which the reply stops for it was named."""
        self._unfired = ""
        """The playbook of a trigger that does not hold: its call has no effect."""
        self._said = {_person(target) for target in self._state.said}
        self._pending: list[str] = list(position.pending) if position else []
        self._returned: Return | None = None
        self._value: Any = None
        self._summary: Var | None = None
        self._terminator: Yield | Return | None = None
        self._progress = ""
        """The digest of the frame's state after the terminator."""

    def see(self, item: ReplyItem) -> list[Verdict]:
        """Return the verdicts on this item; none after a refusal."""
        if self.ended:
            return []
        before = len(self._verdicts)
        item = self._filled_in(item)
        self._begun(item)
        if self._parting and isinstance(item, _EXECUTES) and not (isinstance(item, Var) and item.name == SUMMARY):
            self._end_for_trigger(item)
            return self._verdicts[before:]
        match item:  # the most frequent ones first
            case Step():
                self._step(item)
            case Check():
                self._checked(item)
            case Prose() if not self._path.moved:  # words before the first step execute no line
                self._actions.append(item)
            case Prose():
                self._act(item)
            case Call() | Assign():
                self._queued(item)
            case Var():
                self._var(item)
            case Recap() | Plan() | YieldCheck():
                self._actions.append(item)
            case Yield():
                self._yield(item)
            case Artifact() | SaveArtifact():
                if self._take(item, self._scope.saved(item)):
                    self._path.call("SaveArtifact")
            case Return():
                self._return(item)
            case Trigger():
                self._trigger(item)
            case What():  # it executes no line
                self._say("WHAT", "W", item.text or "Something unexpected happened.", item)
                self._bare = False
                self._actions.append(item)
            case Defect():
                self._say(item.rule, "R", f"{item.message[:1].upper()}{item.message[1:]}. {item.fix}", item)
        return self._verdicts[before:]

    def finish(self, end: int = 0, after: int | None = None) -> Verdicts:
        """End the reply and return the result. `after` is the offset of text after the yield, which has no effect."""
        if not self.rejected and self._terminator is None:
            here = Prose("", start=end, end=end)
            if self._returned is None:
                self._say("S3", "R", "The reply neither yields nor returns.", here)
            else:
                self._end(self._returned, here)
        if not self.rejected and after is not None:
            behind = Prose("", start=after, end=after)
            self._say("S3", "F", "Text after the first yield has no effect.", behind)
        return self.result()

    def result(self) -> Verdicts:
        """The result of the items seen so far."""
        position = self._position()
        return Verdicts(
            tuple(self._verdicts),
            tuple(self._actions),
            position,
            self._terminator,
            dict(self._scope.set),
            self._value,
            _text(self._summary.value) if self._summary else "",
            self._progress if self._terminator is not None else self._digest(position),
            self._expect.loops,
        )

    def _position(self) -> Position:
        """The position of the frame after the items seen so far."""
        how = self._terminator if isinstance(self._terminator, Yield) else None
        return self._resumes_at or self._path.stopped(how, tuple(self._pending))

    # --- verdicts -------------------------------------------------------------------------------------------

    def _say(self, rule: str, policy: Policy, words: str, item: Item) -> None:
        leaving = isinstance(item, Step)
        self._add(Verdict(rule, policy, words.strip(), item.start, item.end, self._path.number), leaving=leaving)

    def _add(self, verdict: Verdict, *, leaving: bool, position: Position | None = None) -> None:
        """Add a verdict. A refusal lists the lines that the next reply may begin with, from `position` if it is not the
        current position."""
        if verdict.policy == "R":
            self._resumes_at = position or self._path.refused(tuple(self._pending), leaving=leaving)
            resumed = self._listing.resumes(self._resumes_at, self._expect.ways)
            legal = self._listing.lines_of(resumed) if self._listing.lines else ()
            verdict = msgspec.structs.replace(verdict, legal=legal)
            self.rejected = self.ended = True
        self._verdicts.append(verdict)

    def _act(self, item: Action) -> None:
        self._path.act()
        self._bare = False
        self._actions.append(item)

    def _take(self, item: ReplyItem, remarks: Sequence[Remark]) -> bool:
        """Apply an item, unless one of the remarks refuses it."""
        for remark in remarks:
            self._say(remark.rule, remark.policy, remark.words, item)
            if self.rejected:
                return False
        self._act(item)
        while self._scope.needed:
            self._actions.append(LoadContent(self._scope.needed.pop(0)))
        return True

    def _begun(self, item: ReplyItem) -> None:
        """Check that a reply begins with recap and plan. Words between them belong to them."""
        if not self._heads:
            return
        if isinstance(item, (Recap, Plan)):
            self._heads.discard(type(item).__name__.lower())
        elif not isinstance(item, (Prose, Defect)):
            self._say("S1", "F", f"The reply has no {' and no '.join(sorted(self._heads, reverse=True))}.", item)
            if "recap" in self._heads:
                self._actions.append(Recap(f"{self._listing.name} is at {self._path.number or 'its beginning'}"))
            if "plan" in self._heads:
                self._actions.append(Plan("go on from there"))
            self._heads = set()

    # --- steps ----------------------------------------------------------------------------------------------

    def _filled_in(self, item: ReplyItem) -> ReplyItem:
        """The item with `{$x}` filled in, for each variable that exists."""
        if not isinstance(item, (Var, Call, Assign, Return, Artifact, SaveArtifact)):
            return item
        known = ChainMap[str, Any](self._scope.variables, self._listing.declared)
        filled: ReplyItem = interpolated(item, known)
        return filled

    def _step(self, step: Step) -> None:
        self._unfired = ""
        if step.is_line and self._elsewhere(step.playbook):
            words = f"{self._listing.name} is being executed, not {step.playbook}."
            return self._say("C1", "R", words, step)
        if not step.is_line:
            return self._reference(step)
        leaves = self._path.moved and step.line != self._path.number
        if leaves and (self._left(step) or self._unanswered(step)):
            return None
        refused = self._path.refusal(step)
        if refused is not None:
            return self._add(refused, leaving=True)
        self._check_passed(step)
        self._call_due(step)
        if self._path.move(step):
            self._computed = None
            self._rounds(step)
            if self._path.line is None or self._path.line.code not in ELIDABLE:
                self._given.clear()
        self._parting = self._triggers.fired is not None
        self._unchecked, self._bare = step, True
        code = self._path.line.code if self._path.line else step.code
        if step.code and step.code != code:
            self._say("C3", "F", f"{step.line} is {code} in the listing, not {step.code}.", step)
        self._actions.append(msgspec.structs.replace(step, code=code))
        return None

    def _elsewhere(self, playbook: str) -> bool:
        """Whether the name refers to a playbook that is not being executed here."""
        agent, _, name = playbook.rpartition(".")
        known = self._state.agent
        return name != _last(self._listing.name) or bool(agent and known and agent != known)

    def _reference(self, step: Step) -> None:
        """Accept a step that names a trigger or a note. It does not move."""
        notes = {note.id for note in self._listing.notes}
        if step.line[0] == "N" and notes and step.line not in notes:
            return self._say("C2", "R", f"{self._listing.name} has no note {step.line}.", step)
        self._actions.append(step)
        return None

    # --- computed values ------------------------------------------------------------------------------------

    def _rounds(self, step: Step) -> None:
        """Set the items of the loops whose next iteration begins with this step."""
        for name, value in self._expect.arrived(step.line) if self._path.here is not None else ():
            if name not in self._scope.variables or not same(value, self._scope.variables[name]):
                if name in self._given:
                    self._say(
                        "V6", "F", f"${name} is set to the next item of its list, not to the reply's value.", step
                    )
                self._put(name, value, step)

    def _left(self, item: Item) -> bool:
        """Apply the computed value of a line that the reply leaves without setting it. Return whether that is refused."""
        here = self._path.here
        computed = self._expect.sets(here) if here is not None and self._path.moved and self._computed is None else None
        if computed is not None and computed.name not in self._given:
            words = f"{self._path.number} sets ${computed.name}, but the reply does not: the computed value is set."
            self._say("V6", "F", words, item)
            self._computed = (computed.name, computed.value)
            self._put(computed.name, computed.value, item)
        return self.rejected

    def _put(self, name: str, value: Any, item: Item) -> None:
        """Set a variable to its computed value."""
        var = Var(name, Literal(value), start=item.start, end=item.start)
        fitted, remarks = self._scope.var(var)
        if self._take(fitted, [one for one in remarks if one.rule != "V2"]):
            self._triggers.changed(name, self._scope.variables)

    def _expected(self, var: Var) -> Var | None:
        """The assignment with its computed value; None if it has no effect."""
        here = self._path.here
        computed = self._computed
        if here is not None and computed is None:
            found = self._expect.sets(here)
            if found is not None and found.name == var.name:
                computed = self._computed = (found.name, found.value)
        if computed is not None and computed[0] == var.name:
            self._path.over()
            return self._held_to(var, computed[1], f"{self._path.number} sets ${var.name} to")
        if var.name in self._expect.items:
            return self._held_to(var, self._expect.items[var.name], f"${var.name} is the item of its loop,")
        fixed = self._state.heard is False and not is_error(self._scope.variables.get(var.name))
        if fixed and here is not None and var.name in self._scope.variables and var.name in self._expect.reads(here):
            words = f"{self._path.number} computes with ${var.name}, which already has a value: it is not set there."
            self._say("V6", "F", words, var)
            return None
        return var

    def _held_to(self, var: Var, value: Any, what: str) -> Var:
        try:
            agrees = same(value, self._expect.value(var.value), self._scope.type_of(var.name))
        except NotComputable:
            agrees = False
        if not agrees:
            words = f"{what} {shown(value)}, which was computed: the reply's value has no effect."
            self._say("V6", "F", words, var)
        return msgspec.structs.replace(var, value=Literal(value))

    def _expected_return(self, item: Return) -> Return:
        here = self._path.here
        computed = self._expect.returns(here) if here is not None else None
        if computed is None:
            return item
        try:
            said = None if item.value is None else self._expect.value(item.value)
            agrees = same(computed.value, said, self._listing.returns)
        except NotComputable:
            agrees = False
        if agrees and item.value is not None:
            return msgspec.structs.replace(item, value=Literal(computed.value))
        if not agrees:
            words = f"{self._path.number} returns {shown(computed.value)}, which was computed."
            self._say("V6", "F", words, item)
        return item if computed.value is None else msgspec.structs.replace(item, value=Literal(computed.value))

    def _expected_call(self, item: Call | Assign) -> Call | Assign | None:
        """The call as the line specifies it; None if it has no effect, or was refused."""
        call = item.call if isinstance(item, Assign) else item
        here = self._path.here
        wanted = self._expect.spelled(here) if here is not None else None
        if wanted is None or _last(wanted.name) != _last(call.name):
            return item if self._may_call(item, call, wanted) else None
        if wanted.call is not None and _last(call.name) in SPEAKING:
            return self._expected_say(item, call, wanted.call)
        if wanted.call is not None and _last(call.name) in map(_last, self._path.calls):
            words = f"{self._path.number} calls {wanted.name} once: it is not called again."
            self._say("V6", "F", words, item)
            return None
        fitted, changed = self._expect.called(wanted, call)
        if changed:
            words = f"{self._path.number} calls {wanted.name} with a different {' and '.join(changed)}: the listing's is used."
            self._say("V6", "F", words, item)
        return self._for_target(item, fitted, wanted)

    def _for_target(self, item: Call | Assign, call: Call, wanted: Spelled) -> Call | Assign:
        given = item.name if isinstance(item, Assign) else ""
        if wanted.target:
            if given != wanted.target:
                words = f"{self._path.number} stores the result of {wanted.name} in ${wanted.target}."
                self._say("V6", "F", words, item)
            return Assign(wanted.target, call, wanted.type, start=item.start, end=item.end)
        if given and given in self._scope.variables and wanted.call is not None:
            words = f"{self._path.number} does not store the result of {wanted.name}: ${given} is unchanged."
            self._say("V6", "F", words, item)
            return call
        return msgspec.structs.replace(item, call=call) if isinstance(item, Assign) else call

    def _may_call(self, item: Item, call: Call, wanted: Spelled | None) -> bool:
        """Whether a call that its line does not name may be made there. It is refused if another line names it."""
        name, here = _last(call.name), self._path.here
        nowhere = here is None and (self._path.moved or self._path.position.status != "done")
        if name in BUILT_IN or not self._listing.lines or self._listing.react or nowhere:
            return True
        if not self._expect.exists(call.name):
            return True  # it is refused for that reason
        line = self._listing.lines[here] if here is not None else None
        if line is not None and line.code == "QUE" and not call_named(line):
            return True  # the line describes a call, and the model chooses which
        if wanted is not None and wanted.call is not None and _last(wanted.name) not in SPEAKING:
            self._say("C12", "R", f"{self._path.number} calls {wanted.name}, not {call.name}.", item)
            return False
        named = line.text if line is not None else ""
        others = [line.number for line in self._listing.lines if _last(call_named(line)) == name]
        computed = here is not None and (self._expect.sets(here) or self._expect.returns(here))
        if (others and name not in named) or computed:
            where = f"{', '.join(others)} calls it" if others else "the line calls nothing"
            at = self._path.number if here is not None else "No line"
            self._say("C12", "R", f"{at} does not call {call.name}: {where}.", item)
            return False
        return True

    def _expected_say(self, item: Call | Assign, call: Call, wanted: CallOf) -> Call | Assign | None:
        """The message to the recipient that the line names, with the value of the variable that the line names, if any."""
        listed = Call(call.name, wanted.args, wanted.named)
        target, to = listed.said_to, call.said_to
        if len(wanted.args) + len(wanted.named) > 1 and target is not None and to is not None:
            person, said_to = _person(_text(target)), _person(_text(to))
            if not said_to.startswith(person) and not isinstance(target, Ref):
                policy: Policy = "R" if said_to == "user" else "F"
                self._say("V6", policy, f"{self._path.number} speaks to {person}, not to {said_to}.", item)
                if self.rejected:
                    return None
                call = msgspec.structs.replace(call, args=(Literal(person), call.message or Literal("")), named=())
                item = msgspec.structs.replace(item, call=call) if isinstance(item, Assign) else call
        message = listed.message
        if isinstance(message, Ref) and message.name in self._scope.variables and call.message is not None:
            text = self._scope.variables[message.name]
            try:
                agrees = same(text, self._expect.value(call.message), "str")
            except NotComputable:
                agrees = False
            if not agrees and not is_error(text):
                self._say("V6", "R", f"{self._path.number} says exactly the value of ${message.name}.", item)
                return None
            if _last(call.name) in map(_last, self._path.calls):
                self._say("V6", "R", f"{self._path.number} speaks once.", item)
                return None
        return item

    def _asked_for(self, position: Position | None) -> Iterator[str]:
        """The typed variables of the question just answered that still have no value."""
        if position is None or position.status != "done" or not self._scope.known or self._state.heard is False:
            return
        for name in asked_for(self._listing, position.line):
            if name not in self._scope.variables:
                yield name

    def _unanswered(self, item: Item) -> bool:
        """Refuse a reply that does not set the variables the user was asked for. Return whether it was refused."""
        missing = [
            name for name in self._asked if name not in self._scope.variables and name not in self._scope.awaited
        ]
        line = self._path.line if self._path.moved else None
        if missing and (line is None or line.code not in ELIDABLE):
            words = f"${missing[0]} was asked for, but has no value. Set it, or ask again: Say and 'yld user', without a step."
            self._actions = [
                one for one in self._actions if not isinstance(one, Step)
            ]  # back to the position of the question
            place = Verdict("V3", "R", words, item.start, item.end, self._path.number)
            self._add(place, leaving=False, position=self._from)
        return self.rejected

    # --- values ---------------------------------------------------------------------------------------------

    def _var(self, var: Var) -> None:
        if var.name == SUMMARY:
            return self._summarised(var)
        if self._behind_yield(var):
            return None
        self._unchecked = self._unchecked or var
        expected = self._expected(var)
        if expected is None:
            return None
        fitted, remarks = self._scope.var(expected)
        if expected is not var:
            remarks = [one for one in remarks if one.rule != "V2"]
        self._given.add(var.name)
        if self._take(fitted, remarks):
            self._triggers.changed(var.name, self._scope.variables)
        return None

    def _summarised(self, var: Var) -> None:
        self._actions.append(var)
        text = _text(var.value)
        lines = text.strip().splitlines()
        if not isinstance(_plain(var.value), str) or not 1 <= len(lines) <= MOST_SUMMARY_LINES:
            self._say("Q1", "F", f"$__ is a string of one to {MOST_SUMMARY_LINES} lines.", var)
            short = Literal("\n".join(lines[:MOST_SUMMARY_LINES]))
            var = msgspec.structs.replace(var, value=short)
            self._actions[-1] = var
        self._summary = var if lines else None

    def _queued(self, item: Call | Assign) -> None:
        call = item.call if isinstance(item, Assign) else item
        if self._unfired and _last(self._unfired) == _last(call.name):
            self._unfired = ""
            return
        due = self._triggers.awaits(call)
        self._triggers.called(call)
        if not due:
            if self._behind_yield(item) or (self._path.moved and self._unanswered(item)):
                return
            expected = self._expected_call(item)
            if expected is None:
                return
            item, call = expected, expected.call if isinstance(expected, Assign) else expected
        remarks = self._scope.assign(item) if isinstance(item, Assign) else self._scope.call(call)
        if not self._take(item, remarks):
            return
        self._path.call(call.name)
        self._pending.append(f"{self._path.number}#{len(self._pending) + 1}")
        target = call.said_to
        if target is not None:
            self._said.add(_person(_text(target)))
            self._scope.spoken(call)

    def _behind_yield(self, item: ReplyItem) -> bool:
        """Refuse an item at a YLD line, where only a yield is left to do. Return whether it was refused."""
        if not self._path.at_yield or self._path.listed_target() is None:
            return False
        self._say("C6", "R", f"{self._path.number} is a YLD line: nothing is executed there.", item)
        return True

    # --- triggers -------------------------------------------------------------------------------------------

    def _trigger(self, trigger: Trigger) -> None:
        self._unchecked = None
        remark = self._triggers.named(trigger)
        if remark is not None:
            self._say(remark.rule, remark.policy, remark.words, trigger)
            self._unfired = trigger.playbook
        else:
            self._actions.append(trigger)

    def _checked(self, check: Check) -> None:
        self._unchecked, self._unfired = None, ""
        self._actions.append(check)
        self._fire_missed(check)

    def _fire_missed(self, item: Item) -> None:
        for trigger, remark in self._triggers.missed():
            self._say(remark.rule, remark.policy, remark.words, item)
            self._actions += [trigger, self._call_for(trigger)]

    def _call_for(self, trigger: Trigger) -> Call:
        """The call to a trigger's playbook. Variables with the names of its parameters become its arguments."""
        signature = (self._state.playbooks or {}).get(trigger.playbook)
        params = signature.params if signature else ()
        named = tuple((one.name, Ref(one.name)) for one in params if one.name in self._scope.variables)
        self._pending.append(f"{self._path.number}#{len(self._pending) + 1}")
        return Call(trigger.playbook, (), named)

    def _check_passed(self, item: Item) -> None:
        """Compensate for a missing check of the triggers since the last step."""
        unchecked, self._unchecked = self._unchecked, None
        if unchecked is None or self._returned is not None:
            return
        self._say("T1", "F", "The triggers were not checked here.", unchecked)
        self._actions.append(CheckTriggers())
        self._fire_missed(item)

    def _end_for_trigger(self, item: Item) -> None:
        self._call_due(item)
        self._say("T3", "F", "A trigger has fired: the reply ends there, with 'yld call'.", item)
        self._end(Yield("call", start=item.start, end=item.start), item)

    def _call_due(self, item: Item) -> None:
        trigger = self._triggers.uncalled()
        if trigger is not None:
            self._say("T3", "F", f"{trigger.playbook} is called, because its trigger has fired.", item)
            self._actions.append(self._call_for(trigger))

    # --- the end --------------------------------------------------------------------------------------------

    def _return(self, item: Return) -> None:
        if not self._path.may_return():
            return self._say("C9", "R", f"{self._path.number} is neither a RET line nor the end of the listing.", item)
        if self._path.left_undone:
            return self._say("C12", "R", self._path.left_undone, item)
        if self._left(item) or self._unanswered(item):
            return None
        fitted, value, remarks = self._scope.returned(self._expected_return(item))
        if self._take(fitted, remarks):
            self._returned, self._value = fitted, value
        return None

    def _yield(self, item: Yield) -> None:
        if not (self._path.at_yield or (self._bare and isinstance(self._unchecked, Step))):
            self._check_passed(item)
        self._call_due(item)
        if self._path.acted and self._left(item):
            return
        target = self._target(item)
        if target is None or (target not in ("user", "return") and self._unanswered(item)):
            return
        if target == "user" and not self._path.may_wait() and "user" not in self._said:
            self._say("C11", "W", "The reply waits for the user without having said anything.", item)
        if target == "return":
            self._end(self._returned or Return(), item)
        else:
            self._end(
                msgspec.structs.replace(item, target=target, name=item.name if target == item.target else ""), item
            )

    def _target(self, item: Yield) -> Target | None:
        """The actual target of the yield; None if the reply must not yield."""
        path = self._path
        at_return = path.moved and path.line is not None and path.line.code == "RET"
        exits = item.target == "exit" and path.may_exit(self._state.root)
        if self._returned is not None:
            if item.target == "return" or exits:
                return item.target
            self._say("S3", "F", f"The reply has returned: 'yld {item.target}' has no effect.", item)
            return "return"
        if self._triggers.fired is not None:
            if item.target != "call":
                self._say(
                    "T3", "F", f"A trigger has fired: the reply yields for the call, not for {item.target}.", item
                )
            return "call"
        if item.target == "exit" and not exits:
            self._say("C10", "R", f"{path.number} does not say that the program ends.", item)
            return None
        if item.target == "return" and not path.may_return():
            self._say("C9", "R", f"{path.number} is neither a RET line nor the end of the listing.", item)
            return None
        if item.target in ("exit", "return") and path.left_undone:
            self._say("C12", "R", path.left_undone, item)
            return None
        if item.target == "return" or (at_return and item.target == "call"):
            self._say("C9", "F", "Nothing was returned: Return[] is assumed.", item)
            here = path.here
            computed = self._expect.returns(here) if here is not None else None
            value = computed.value if computed is not None else None
            self._value = value
            returned = Return(None if value is None else Literal(value), start=item.start, end=item.start)
            self._returned = returned
            self._actions.append(returned)
            return "return"
        listed = path.listed_target()
        if listed is not None and listed != item.target and item.target != "exit":
            self._say("C6", "F", f"{path.number} yields for {listed}, not for {item.target}.", item)
            return listed
        agents = self._state.agents
        if item.target == "agent" and item.name[:1].isupper() and agents and name_of(item.name) not in agents:
            self._say("V4", "R", f"There is no agent named '{item.name}'. {meant(item.name, agents)}", item)
            return None
        return item.target

    def _end(self, how: Yield | Return, item: Item) -> None:
        returns = isinstance(how, Return)
        over = returns or self._returned is not None or (isinstance(how, Yield) and how.target == "exit")
        if self._summary is not None and not over:
            policy: Policy = "W" if self._listing.react else "R"
            self._say("V1", policy, "$__ is set only with a return.", self._summary)
        if self.rejected:
            return
        if returns and self._summary is None:
            self._say("Q1", "F", "The return has no summary in $__: one is generated.", item)
            self._actions.append(Summarise())
        self._terminator, self.ended = how, True
        if isinstance(how, Yield):
            self._actions.append(how)
        self._progress = self._digest(self._position())
        if self._state.last and self._state.last == self._progress:
            self._terminator = None
            self._say("C13", "R", "Nothing has changed since the last reply.", item)

    def _digest(self, position: Position) -> str:
        """A digest of the frame's position and knowledge. Two replies in a row must not end with the same digest."""
        if self._state.variables is None:
            return ""
        known = [self._listing.name, position.line, position.status, self._scope.variables, self._state.inbox]
        known.append(sorted(self._state.artifacts or ()))
        data = json.dumps(known, sort_keys=True, default=repr)
        return hashlib.sha256(data.encode()).hexdigest()[:16]


def _plain(value: Expression) -> Any:
    return value.value if isinstance(value, Literal) else value.text if isinstance(value, Words) else None


def _text(value: Expression) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else "" if plain is None else str(plain)


def _last(name: str) -> str:
    """The name of a playbook without its agent."""
    return name.rpartition(".")[2]


def _person(target: str) -> str:
    return "user" if target.strip().lower() in ("user", "human", "") else target.strip()


def verify_reply(
    listing: GivenListing, position: GivenPosition = None, state: GivenState = None, reply: Reply | str = ""
) -> Verdicts:
    """Verify a reply against the playbook that it executes. A reply that cannot be parsed is refused by S2 or S3; no
    error is raised for it.

    - `listing`: the lines, as `["01:QUE Say(user, Hello)", "02:YLD for exit"]`, as `["01", "QUE", "Say(user, Hello)"]` rows,
      as one string, or as a `Listing` or the `Playbook` of a program. For a program's text, the playbook that the reply names.
    - `position`: the position of the frame: a `Position`, or the number of the line to execute, as in `"02.01"`. If it is
      None, the first step may be any line, and what follows it is judged.
    - `state`: the state before the reply: a `State`, or the variables by name. If it is None or an empty mapping,
      variables, playbooks and triggers are not judged.
    - `reply`: its text, or the result of `parse_reply`.

    >>> listing = ["01:QUE Say(user, Ask for a name)", "02:YLD for user", "03:RET"]
    >>> found = verify_reply(listing, "01", None, 'recap - new\\nplan - ask\\n`Step["Main:03:RET"]` yld return')
    >>> found.ok, found.rules, [line.number for line in found.rejected.legal]
    (False, ('C4:R',), ['01'])

    Each verdict has its `rule`, its `policy` (R rejected, F repaired, W warning), its `words`, and its place:
    `start` and `end` in the reply, `line` in the listing.
    """
    items, after, end = _read(reply)
    lines = listing_of(listing, items)
    verifier = Verifier(lines, position_of(position, lines, items), state_of(state))
    for item in items:
        verifier.see(item)
    return verifier.finish(end, after)


def _read(reply: Reply | str) -> tuple[Sequence[ReplyItem], int | None, int]:
    if isinstance(reply, Reply):
        return reply.items, reply.after, reply.items[-1].end if reply.items else 0
    items, after = items_of(reply)
    return items, after, len(reply)
