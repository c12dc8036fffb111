"""Checks which variables, artifacts and playbooks a reply may set, use and call. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.machine.frames import is_private
from cuebook.dialects.program.model import Param
from cuebook.dialects.program.parse.signatures import name_of
from cuebook.dialects.program.reply.items import Artifact, Assign, Call, Return, SaveArtifact, Var
from cuebook.dialects.program.values.evaluate import (
    DoesNotCoerce,
    NotComputable,
    coerced,
    evaluate,
    figures,
    holds_error,
    is_error,
    is_text,
    type_name,
)
from cuebook.dialects.program.values.expressions import Expression, Field, Literal, Ref, Words, refs_of
from cuebook.dialects.program.verify.verdicts import Policy, Signature, State
from cuebook.formats.suggestions import meant

SUMMARY = "__"
RESULT = "_"
PEOPLE = frozenset({"user", "human", ""})
_AGENT_ID = re.compile(r"agent \d+", re.IGNORECASE)


class Remark(msgspec.Struct, frozen=True):
    """A broken rule and the reason, from which a verdict is made."""

    rule: str
    policy: Policy
    words: str


def _takes(*names: str, optional: int = 0, open: bool = False) -> Signature:
    least = len(names) - optional
    params = tuple(Param(name, has_default=at >= least) for at, name in enumerate(names))
    return Signature(params, open)


BUILT_IN: Mapping[str, Signature] = {
    "Say": _takes("target", "message", optional=1),
    "SendMessage": _takes("target", "message", optional=1),
    "WaitForMessage": _takes("source", optional=1),
    "CreateAgent": _takes("klass", open=True),
    "LoadArtifact": _takes("name"),
    "InviteToMeeting": _takes("id", "agents"),
    "Loadfile": _takes("path", "inline", "silent", optional=2),
    "EndProgram": Signature(),
}


_NEVER_NULL = frozenset({"int", "float", "bool"})
"""Types that a reply must not set to null. A string or a list may still be empty."""


class Scope:
    """The values that a reply has set so far, on top of the state before it."""

    def __init__(self, listing: Listing, state: State) -> None:
        self._listing, self._state = listing, state
        self.known = state.variables is not None
        self.variables: dict[str, Any] = dict(state.variables or {})
        self.set: dict[str, Any] = {}
        """The variables that this reply has set."""
        self.awaited: set[str] = set(state.awaited)
        """Variables that receive the result of a call that has not run yet."""
        self._types = {name: type for name, type in state.types.items() if type}
        self._artifacts = dict(state.artifacts or {})
        self.needed: list[str] = []
        """Artifacts whose content must be loaded."""

    # --- setting --------------------------------------------------------------------------------------------

    def var(self, var: Var) -> tuple[Var, list[Remark]]:
        """The assignment as it takes effect, and the problems with it."""
        remarks = [*self._target(var.name), *self.used(var.value)]
        type = self.type_of(var.name) or var.type
        value, more = self._fitted(var.value, type, f"${var.name}", "V2")
        remarks += more
        if type_name(type) in _NEVER_NULL and "none" not in type.lower() and value == Literal(None):
            remarks.append(Remark("V2", "R", f"${var.name} must be of type {type}, got no value."))
        if not _refused(remarks):
            self._remember(var.name, value, type)
        return msgspec.structs.replace(var, value=value, type=type if var.type else ""), remarks

    def assign(self, assign: Assign) -> list[Remark]:
        remarks = [*self._kept(assign.name), *self._target(assign.name), *self.call(assign.call)]
        if assign.type:
            self._types.setdefault(assign.name, assign.type)
        self.awaited.add(assign.name)
        return remarks

    def _remember(self, name: str, value: Expression, type: str) -> None:
        if type:
            self._types.setdefault(name, type)
        self.awaited.discard(name)
        try:
            self.variables[name] = self.set[name] = evaluate(value, self.variables)
        except NotComputable:  # only if the variables are unknown
            self.variables[name] = self.set[name] = None

    def _kept(self, name: Any) -> Iterator[Remark]:
        if name == SUMMARY:
            yield Remark("V1", "R", "$__ is reserved for the summary of a return.")

    def _target(self, name: str) -> Iterator[Remark]:
        if name == RESULT:
            yield Remark("V1", "R", "$_ is the result of the last call and cannot be set.")
        elif not self.known or name == SUMMARY or name.startswith("_"):
            return
        elif name not in self.variables and name not in self._listing.declared and name not in self._types:
            policy: Policy = "W" if self._listing.react else "R"
            hint = meant(name, sorted({*self._listing.declared, *self.variables}))
            yield Remark("V1", policy, f"{self._listing.name} has no variable ${name}. {hint}")

    def type_of(self, name: str) -> str:
        """The declared type, from the listing or an earlier declaration."""
        return self._types.get(name) or self._listing.declared.get(name, "")

    def _fitted(self, value: Expression, type: str, what: str, rule: str) -> tuple[Expression, list[Remark]]:
        """The value, converted to its type."""
        if is_text(type) and figures(value):
            return value, [Remark(rule, "R", f"{_upper(what)} is a string: write it in quotes.")]
        private = any(map(is_private, refs_of(value)))
        try:
            plain = evaluate(value, self.variables)
        except NotComputable as why:
            undefined = not self.known or any(True for _ in self._undefined(value))
            return value, [] if undefined else [Remark(rule, "R", f"The value of {what} cannot be computed: {why}.")]
        try:
            fitted = coerced(plain, type)
        except DoesNotCoerce:
            words = "a private value" if private else shown(plain)
            return value, [Remark(rule, "R", f"{_upper(what)} must be of type {type}, got {words}.")]
        if not fitted.changed:
            same = fitted.value is plain or fitted.value.__class__ is plain.__class__
            return value if same else Literal(fitted.value), []
        how = "Its value was changed" if private else f"{shown(plain)} was converted to {shown(fitted.value)}"
        words = f"{how}, because {what} is {type}."
        return Literal(fitted.value), [Remark(rule, "F", words)]

    # --- using ----------------------------------------------------------------------------------------------

    def used(self, *values: Expression) -> list[Remark]:
        """The problems with the variables that values refer to."""
        remarks = [self._about(name) for value in values for name in dict.fromkeys(self._undefined(value))]
        remarks += [one for value in values for one in self._errors(value)]
        return remarks + [one for value in values for one in self._contents(value)]

    def _errors(self, value: Expression) -> Iterator[Remark]:
        """Report the error of a failed call that is used as a value. Its parts, such as `$x.message`, may be used."""
        failed = [name for name in refs_of(value) if holds_error(self.variables.get(name))]
        if not failed:
            return
        try:
            sound = not holds_error(evaluate(value, self.variables))
        except NotComputable:
            sound = False
        if not sound:
            error = self.variables[failed[0]]
            words = error.get("message", "") if is_error(error) else "a call failed"
            yield Remark("V3", "R", f"${failed[0]} is an error, not a value: {words}")

    def _undefined(self, value: Expression) -> Iterator[str]:
        if self.known:
            for name in refs_of(value):
                if name not in self.variables and name not in self._artifacts:
                    yield name

    def _about(self, name: str) -> Remark:
        if name in self.awaited:
            return Remark("V3", "R", f"${name} has no value yet: its call runs at the next 'yld call'.")
        return Remark("V3", "R", f"${name} has no value. {meant(name, sorted(self.variables))}")

    def _contents(self, value: Expression) -> Iterator[Remark]:
        """Report artifacts whose content is needed but not loaded."""
        name = (
            value.of.name if isinstance(value, Field) and isinstance(value.of, Ref) and value.name == "content" else ""
        )
        name = value.name if isinstance(value, Ref) else name
        if self._artifacts.get(name) is False and name not in self.needed:
            self.needed.append(name)
            yield Remark(
                "V5", "F", f"The content of ${name} was not loaded: it is loaded now, and the model is asked again."
            )

    def call(self, call: Call) -> list[Remark]:
        values = (*call.args, *(value for _, value in call.named))
        return [*self._callee(call), *self._recipient(call), *self.used(*values), *self._loading(call)]

    def _recipient(self, call: Call) -> Iterator[Remark]:
        """Check that a message has a recipient, if the agents are known."""
        to = call.said_to
        name = to.value if isinstance(to, Literal) else to.text if isinstance(to, Words) else None
        agents = self._state.agents
        if agents is None or not isinstance(name, str) or name.strip().lower() in PEOPLE:
            return
        words = name.strip()
        if words.lower().startswith("meeting"):
            yield Remark("V4", "R", "Meetings are not supported: speak to the user, or to an agent.")
        elif name_of(words) == self._state.agent:
            yield Remark("V4", "R", f"{words} speaks to itself.")
        elif name_of(words) not in agents and not _AGENT_ID.fullmatch(words):
            yield Remark(
                "V4", "R", f"There is no agent named '{words}' to speak to. {meant(words, ('user', *agents))}".rstrip()
            )

    def _callee(self, call: Call) -> Iterator[Remark]:
        if self._state.playbooks is None:
            return
        name = call.name.rpartition(".")[2] if call.name.rpartition(".")[2] in BUILT_IN else call.name
        signature = self._state.playbooks.get(call.name) or BUILT_IN.get(name)
        if signature is None:
            if call.name in self._state.private:
                yield Remark("V4", "R", f"'{call.name}' belongs to another agent and is not public.")
            else:
                hint = meant(call.name, self._state.playbooks)
                yield Remark("V4", "R", f"There is no playbook '{call.name}'. {hint}")
            return
        wrong = unbound(signature, call) or _unquoted(signature, call)
        if wrong:
            yield Remark("V4", "R", f"{call.name} {wrong}.")

    def _loading(self, call: Call) -> Iterator[Remark]:
        wanted = call.args[0] if call.name == "LoadArtifact" and call.args else None
        name = wanted.value if isinstance(wanted, Literal) else wanted.name if isinstance(wanted, Ref) else None
        if self._state.artifacts is not None and isinstance(name, str) and name not in self._artifacts:
            yield Remark("V5", "F", f"There is no artifact '{name}': the call returns an error.")

    def saved(self, item: Artifact | SaveArtifact) -> list[Remark]:
        name: Any = item.name
        if isinstance(item, SaveArtifact):
            name = item.name.name if isinstance(item.name, Ref) else getattr(item.name, "value", None)
        remarks = [*self._kept(name), *self.used(item.summary, item.content)]
        if name == RESULT:
            remarks[:0] = self._target(name)
        if isinstance(name, str) and not _refused(remarks):
            self._artifacts[name] = True
            self._remember(name, item.content, "")
        return remarks

    def spoken(self, call: Call) -> None:
        """Record a queued message: it is the result of the last call."""
        try:
            self.variables[RESULT] = evaluate(call.message or Literal(""), self.variables)
        except NotComputable:
            self.variables.pop(RESULT, None)

    def returned(self, item: Return) -> tuple[Return, Any, list[Remark]]:
        """The return as it takes effect, its value, and the problems with it."""
        if item.value is None:
            return item, None, []
        if isinstance(item.value, Ref) and is_error(self.variables.get(item.value.name)):
            return item, self.variables[item.value.name], []  # the call fails in the same way as the call before
        remarks = self.used(item.value)
        value, more = self._fitted(item.value, self._listing.returns, f"the result of {self._listing.name}", "Q2")
        try:
            plain = evaluate(value, self.variables)
        except NotComputable:
            plain = None
        fitted = item if value is item.value else msgspec.structs.replace(item, value=value)
        return fitted, plain, [*remarks, *more]


def _refused(remarks: list[Remark]) -> bool:
    return any(remark.policy == "R" for remark in remarks)


def unbound(signature: Signature, call: Call) -> str:
    """Why arguments do not match a signature; empty if they do."""
    if call.name == "Say" and len(call.args) == 1 and not call.named:
        return ""  # the short form has only the message
    names = [param.name for param in signature.params]
    if len(call.args) > len(names) and not signature.open:
        return f"takes {len(names)} arguments, got {len(call.args)}"
    given = {*names[: len(call.args)]}
    for name, _ in call.named:
        if name in given:
            return f"got '{name}' twice"
        if name not in names and not signature.open:
            return f"takes no argument '{name}'"
        given.add(name)
    missing = [param.name for param in signature.params if not param.has_default and param.name not in given]
    return f"needs {', '.join(missing)}" if missing else ""


def _unquoted(signature: Signature, call: Call) -> str:
    """Which string lacks quotes and would be computed as arithmetic; empty if none does."""
    names = [param.name for param in signature.params]
    given = dict(zip(names, call.args, strict=False)) | dict(call.named)
    for param in signature.params:
        if param.name in given and is_text(param.type) and figures(given[param.name]):
            return f"expects {param.name} to be a string: write it in quotes"
    return ""


def _upper(words: str) -> str:
    return words[:1].upper() + words[1:]


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
