"""Verifies a reply against the listing it executes, item by item: what is refused, repaired or remarked on. Pure.

After each item it is known whether everything so far is legal, so that a generation can be stopped at the first item that
is not, and what stands before it can take effect.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.dialects.program.expressions import Expression, Literal, Ref, Words
from cuebook.dialects.program.flow import Path
from cuebook.dialects.program.given import (
    GivenListing,
    GivenPosition,
    GivenState,
    listing_of,
    position_of,
    state_of,
)
from cuebook.dialects.program.items import (
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
from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.reply import Reply, items_of
from cuebook.dialects.program.scope import SUMMARY, Remark, Scope
from cuebook.dialects.program.signatures import name_of
from cuebook.dialects.program.triggering import Triggering
from cuebook.dialects.program.verdicts import (
    Action,
    CheckTriggers,
    LoadContent,
    Policy,
    State,
    Summarise,
    Verdict,
    Verdicts,
)
from cuebook.dialects.wording import meant

MOST_SUMMARY_LINES = 5
_EXECUTES = (Step, Var, Assign, Call, Artifact, SaveArtifact, Return)


class Verifier:
    """Sees the items of one reply in their order. What it said once stays said."""

    def __init__(self, listing: Listing, position: Position | None = None, state: State | None = None) -> None:
        self._listing = listing
        self._state = state or State()
        self._path = Path(listing, position, self._state.entries)
        self._scope = Scope(listing, self._state)
        own = {param.name for param in listing.params}
        self._triggers = Triggering(self._state.triggers, self._state.variables, self._state.held, own)
        self._verdicts: list[Verdict] = []
        self._actions: list[Action] = []
        self._stands: Position | None = None
        """Where the frame stands after something was refused."""
        self.rejected = False
        """Whether something was refused."""
        self.ended = False
        """Whether nothing that follows can have an effect."""
        self._heads = {"recap", "plan"}
        """What the reply must begin with, and has not."""
        self._unchecked: Step | Var | None = None
        """A step or a variable after which nobody has looked at the triggers."""
        self._bare = True
        """Whether nothing but a step was seen since the last look."""
        self._parting = False
        """A trigger has fired, and the line is named where the reply stops for it."""
        self._unfired = ""
        """The playbook of a trigger that does not hold: its call has no effect."""
        self._said = {_person(target) for target in self._state.said}
        self._pending: list[str] = list(position.pending) if position else []
        self._returned: Return | None = None
        self._value: Any = None
        self._summary: Var | None = None
        self._terminator: Yield | Return | None = None
        self._progress = ""
        """The digest of where the terminator leaves the frame."""

    def see(self, item: ReplyItem) -> list[Verdict]:
        """What this item is about to be told; nothing more once something was refused."""
        if self.ended:
            return []
        before = len(self._verdicts)
        self._begun(item)
        if self._parting and isinstance(item, _EXECUTES) and not (isinstance(item, Var) and item.name == SUMMARY):
            self._end_for_trigger(item)
            return self._verdicts[before:]
        match item:  # what is there most often comes first
            case Step():
                self._step(item)
            case Check():
                self._checked(item)
            case Prose() if not self._path.moved:  # words before the first step execute no line
                self._actions.append(item)
            case Prose():
                self._act(item)
            case Call():
                self._queued(item, item, self._scope.call(item))
            case Assign():
                self._queued(item, item.call, self._scope.assign(item))
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
        """The reply is over: what came of it. At `after` something stands behind its yield, and has no effect."""
        if not self.rejected and self._terminator is None:
            here = Prose("", start=end, end=end)
            if self._returned is None:
                self._say("S3", "R", "The reply neither yields nor returns.", here)
            else:
                self._end(self._returned, here)
        if not self.rejected and after is not None:
            behind = Prose("", start=after, end=after)
            self._say("S3", "F", "What stands behind the first yield has no effect.", behind)
        return self.result()

    def result(self) -> Verdicts:
        """What came of the items seen so far."""
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
        )

    def _position(self) -> Position:
        """Where the frame stands after what was seen."""
        how = self._terminator if isinstance(self._terminator, Yield) else None
        return self._stands or self._path.stopped(how, tuple(self._pending))

    # --- saying ---------------------------------------------------------------------------------------------

    def _say(self, rule: str, policy: Policy, words: str, item: Item) -> None:
        leaving = isinstance(item, Step)
        self._tell(Verdict(rule, policy, words.strip(), item.start, item.end, self._path.number), leaving=leaving)

    def _tell(self, verdict: Verdict, *, leaving: bool) -> None:
        """What is legal instead of what was refused is just what the next reply may begin with."""
        if verdict.policy == "R":
            self._stands = self._path.refused(tuple(self._pending), leaving=leaving)
            legal = self._listing.lines_of(self._listing.resumes(self._stands)) if self._listing.lines else ()
            verdict = msgspec.structs.replace(verdict, legal=legal)
            self.rejected = self.ended = True
        self._verdicts.append(verdict)

    def _act(self, item: Action) -> None:
        self._path.act()
        self._bare = False
        self._actions.append(item)

    def _take(self, item: ReplyItem, remarks: Sequence[Remark]) -> bool:
        """Lets an item take effect, unless one of the remarks refuses it."""
        for remark in remarks:
            self._say(remark.rule, remark.policy, remark.words, item)
            if self.rejected:
                return False
        self._act(item)
        while self._scope.needed:
            self._actions.append(LoadContent(self._scope.needed.pop(0)))
        return True

    def _begun(self, item: ReplyItem) -> None:
        """A reply begins with recap and plan; words between them are theirs."""
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

    def _step(self, step: Step) -> None:
        self._unfired = ""
        if step.is_line and self._elsewhere(step.playbook):
            words = f"{self._listing.name} is being executed, and not {step.playbook}."
            return self._say("C1", "R", words, step)
        if not step.is_line:
            return self._reference(step)
        refused = self._path.refusal(step)
        if refused is not None:
            return self._tell(refused, leaving=True)
        self._check_passed(step)
        self._call_due(step)
        self._path.move(step)
        self._parting = self._triggers.fired is not None
        self._unchecked, self._bare = step, True
        code = self._path.line.code if self._path.line else step.code
        if step.code and step.code != code:
            self._say("C3", "F", f"{step.line} is {code} in the listing, and not {step.code}.", step)
        self._actions.append(msgspec.structs.replace(step, code=code))
        return None

    def _elsewhere(self, playbook: str) -> bool:
        """Whether this is the name of a playbook that is not executed here."""
        agent, _, name = playbook.rpartition(".")
        known = self._state.agent
        return name != _last(self._listing.name) or bool(agent and known and agent != known)

    def _reference(self, step: Step) -> None:
        """A step that names a trigger or a note, and goes nowhere."""
        notes = {note.id for note in self._listing.notes}
        if step.line[0] == "N" and notes and step.line not in notes:
            return self._say("C2", "R", f"{self._listing.name} has no note {step.line}.", step)
        self._actions.append(step)
        return None

    # --- values ---------------------------------------------------------------------------------------------

    def _var(self, var: Var) -> None:
        if var.name == SUMMARY:
            return self._summarised(var)
        if self._behind_yield(var):
            return None
        self._unchecked = self._unchecked or var
        fitted, remarks = self._scope.var(var)
        if self._take(fitted, remarks):
            self._triggers.changed(var.name, self._scope.variables)
        return None

    def _summarised(self, var: Var) -> None:
        self._actions.append(var)
        text = _text(var.value)
        lines = text.strip().splitlines()
        if not isinstance(_plain(var.value), str) or not 1 <= len(lines) <= MOST_SUMMARY_LINES:
            self._say("Q1", "F", f"$__ is a text of one to {MOST_SUMMARY_LINES} lines.", var)
            short = Literal("\n".join(lines[:MOST_SUMMARY_LINES]))
            var = msgspec.structs.replace(var, value=short)
            self._actions[-1] = var
        self._summary = var if lines else None

    def _queued(self, item: Call | Assign, call: Call, remarks: list[Remark]) -> None:
        if self._unfired and _last(self._unfired) == _last(call.name):
            self._unfired = ""
            return
        due = self._triggers.awaiting is not None
        self._triggers.called(call)
        if not due and self._behind_yield(item):
            return
        if not self._take(item, remarks):
            return
        self._path.call(call.name)
        self._pending.append(f"{self._path.number}#{len(self._pending) + 1}")
        target = call.said_to
        if target is not None:
            self._said.add(_person(_text(target)))

    def _behind_yield(self, item: ReplyItem) -> bool:
        """Whether an item is refused because it stands at a YLD line: there, nothing is left to do but to yield."""
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
        """The call of a trigger's playbook, with the variables that have the names of its parameters."""
        signature = (self._state.playbooks or {}).get(trigger.playbook)
        params = signature.params if signature else ()
        named = tuple((one.name, Ref(one.name)) for one in params if one.name in self._scope.variables)
        self._pending.append(f"{self._path.number}#{len(self._pending) + 1}")
        return Call(trigger.playbook, (), named)

    def _check_passed(self, item: Item) -> None:
        """The reply goes on: if nobody has looked at the triggers since the last step, that is made up for."""
        unchecked, self._unchecked = self._unchecked, None
        if unchecked is None or self._returned is not None:
            return
        self._say("T1", "F", "The triggers were not looked at here.", unchecked)
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
            return self._say("C9", "R", f"{self._path.number} is no RET line, and not the end of the listing.", item)
        if self._path.left_undone:
            return self._say("C12", "R", self._path.left_undone, item)
        fitted, value, remarks = self._scope.returned(item)
        if self._take(fitted, remarks):
            self._returned, self._value = fitted, value
        return None

    def _yield(self, item: Yield) -> None:
        if not (self._path.at_yield or (self._bare and isinstance(self._unchecked, Step))):
            self._check_passed(item)
        self._call_due(item)
        target = self._target(item)
        if target is None:
            return
        if target == "user" and not self._path.may_wait() and "user" not in self._said:
            self._say("C11", "W", "The user is waited for, and was told nothing.", item)
        if target == "return":
            self._end(self._returned or Return(), item)
        else:
            self._end(
                msgspec.structs.replace(item, target=target, name=item.name if target == item.target else ""), item
            )

    def _target(self, item: Yield) -> Target | None:
        """For what the reply really yields; None if it must not."""
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
                    "T3", "F", f"A trigger has fired: the reply yields for the call, and not for {item.target}.", item
                )
            return "call"
        if item.target == "exit" and not exits:
            self._say("C10", "R", f"{path.number} does not say that the program ends.", item)
            return None
        if item.target == "return" and not path.may_return():
            self._say("C9", "R", f"{path.number} is no RET line, and not the end of the listing.", item)
            return None
        if item.target in ("exit", "return") and path.left_undone:
            self._say("C12", "R", path.left_undone, item)
            return None
        if item.target == "return" or (at_return and item.target == "call"):
            self._say("C9", "F", "Nothing was returned: Return[] is taken.", item)
            self._actions.append(Return(start=item.start, end=item.start))
            return "return"
        listed = path.listed_target()
        if listed is not None and listed != item.target and item.target != "exit":
            self._say("C6", "F", f"{path.number} yields for {listed}, and not for {item.target}.", item)
            return listed
        agents = self._state.agents
        if item.target == "agent" and item.name[:1].isupper() and agents and name_of(item.name) not in agents:
            self._say("V4", "R", f"There is no agent '{item.name}'. {meant(item.name, agents)}", item)
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
            self._say("Q1", "F", "The return has no summary in $__: one is made.", item)
            self._actions.append(Summarise())
        self._terminator, self.ended = how, True
        if isinstance(how, Yield):
            self._actions.append(how)
        self._progress = self._digest(self._position())
        if self._state.last and self._state.last == self._progress:
            self._terminator = None
            self._say("C13", "R", "Nothing has changed since the last reply.", item)

    def _digest(self, position: Position) -> str:
        """A digest of where the frame stands and what it knows: two replies must not end in the same."""
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
    """The verdicts on a reply to the playbook that it executes, in the order of its text. A reply that cannot be read is
    refused by S2 or S3; nothing is raised for it.

    - `listing`: the lines, as `["01:QUE Say(user, Hello)", "02:YLD for exit"]`, as `["01", "QUE", "Say(user, Hello)"]` rows,
      as one text, or as a `Listing` or the `Playbook` of a program. Of a program's text, the playbook that the reply names.
    - `position`: where the frame stands: a `Position`, or the number of the line that is to be executed, as in `"02.01"`.
      None if that is not known: then the first step may be any line, and what follows it is judged.
    - `state`: what is known beforehand: a `State`, or the variables by name. None or an empty mapping if nothing is: then
      no variable, playbook or trigger is judged by it.
    - `reply`: its text, or what `parse_reply` made of it.

    >>> listing = ["01:QUE Say(user, Ask for a name)", "02:YLD for user", "03:RET"]
    >>> found = verify_reply(listing, "01", None, 'recap - new\\nplan - ask\\n`Step["Main:03:RET"]` yld return')
    >>> found.ok, found.rules, [line.number for line in found.rejected.legal]
    (False, ('C4:R',), ['01'])

    Each verdict has its `rule`, its `policy` (R rejected, F repaired, W remarked on), its `words`, and where it stands:
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
