"""Standing permissions of triggers: which actions they could cover, and how an approver gives and withdraws one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.playbook import Playbook
from cuebook.gate.policy.overrides import suggested
from cuebook.gate.roles import NotAllowed, Principal
from cuebook.gate.standing_permissions import STANDING, Allowed, Standing, effect_key, may_still_allow
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import AskModel, ReadSource
from cuebook.kernel.errors import BadInput, Conflict
from cuebook.kernel.ports import Action
from cuebook.kernel.ports.admin_acts import KeptChange
from cuebook.kernel.triggers import SCHEDULE
from cuebook.service.preview.asked import StepRuling
from cuebook.service.preview.explanation import Explanation
from cuebook.service.preview.rulings import ActRuling
from cuebook.service.service import Service
from cuebook.service.triggers.firing import Triggers
from cuebook.service.triggers.trigger import Trigger

LASTS = 90 * 86400.0
"""Seconds for which a permission holds, if nothing else was chosen."""


class Asking(msgspec.Struct, frozen=True):
    """One thing that the runs of a trigger would ask about."""

    step: str
    what: str
    """The action as a person reads it."""
    allowed: tuple[Allowed, ...] = ()
    """What a permission would allow, so that it is not asked."""
    why: str = ""
    """Why a permission cannot cover it, as a clause."""
    preview: dict[str, str] = {}
    """What it sends with it, such as the input of a command or the body of a request."""


def askings(explained: Explanation, varied: Explanation | None = None) -> list[Asking]:
    """Everything that would be asked, in the order of the steps. `varied` explains the same with other values in the inputs
    that events fill in: what differs depends on the event, and cannot be allowed in advance.
    """
    found: list[Asking] = []
    for one in explained.asked:
        found += [asking for asking in _of_step(one, varied) if asking not in found]
    return found


def _depends(one: StepRuling, varied: Explanation) -> bool:
    """Whether what a step does depends on the event."""
    act = one.act.act
    if isinstance(
        act.effect, AskModel | ReadSource
    ):  # it is allowed to ask this model or read this source, whatever for
        return False
    return not any(other.act.act.label == act.label and other.act.act.effect == act.effect for other in varied.asked)


def _of_step(one: StepRuling, varied: Explanation | None) -> Iterator[Asking]:
    act, step = one.act, one.act.act.label
    if act.decision == "ask":
        key = "" if act.act.effect is None else effect_key(act.act.effect)
        allowed = tuple(Allowed(domain, pattern, step, key) for domain, pattern in _narrowed(act.settled_by) if key)
        what = ", ".join(f"{domain} {pattern}" for domain, pattern in act.settled_by) or _named(act)
        depends = varied is not None and _depends(one, varied)
        why = act.once_only or ("it depends on the event" if depends else "")
        why = why or ("" if allowed else "no safe pattern matches it")
        left_out = _EVIDENT | _OF_THE_MOMENT
        shown = {name: text for name, text in act.preview.items() if name not in left_out and text != "no"}
        yield Asking(step, what, () if why else allowed, why, shown)
    if act.decision == "unknown":
        yield Asking(step, act.act.title or "the step", why="only the run shows what it asks")
    for tool in act.tools:
        if tool.decision == "ask":
            yield Asking(step, f"tool {tool.tool}", why="the model chooses what it does")


def _named(act: ActRuling) -> str:
    """What an act does, if no action of it is known before the run."""
    known = next((f"{name} {act.preview[name]}" for name in ("command", "request") if name in act.preview), "")
    return known or act.act.title or "the step"


_EVIDENT = frozenset({"command", "request", "program", "folder", "may change", "time limit"})
"""Parts of a preview that an action names itself, or that are much the same for all commands."""
_OF_THE_MOMENT = frozenset({"files as they are now", "content not bound", "page", "the page now"})
"""Parts that a permission is not bound to, because they are different for each run."""


def _narrowed(patterns: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    """The patterns that are single actions; nothing if one of them is not."""
    found = [next(iter(suggested(Action(domain, pattern))), "") for domain, pattern in patterns]  # type: ignore[arg-type]
    if all(found):
        yield from ((domain, pattern) for (domain, _), pattern in zip(patterns, found, strict=True))


def digest_of_view(trigger: Trigger, playbook: str, policy: str, asks: Sequence[Asking]) -> str:
    """Identifies everything that an approver who looks at a trigger decides on."""
    parts = (trigger.trigger, trigger.created, trigger.owner, trigger.target, playbook, policy, tuple(asks))
    return digest_of(msgspec.json.encode(parts, order="sorted").decode())[:32]


def check_unchanged(trigger: Trigger, digest: str, seen: str) -> None:
    """Raises `Conflict` if an approver saw something else than what is there now."""
    if digest != seen:
        raise Conflict(
            f"What the runs of '{trigger.name}' would ask is not what you saw; nothing was allowed.",
            fix="The playbook, the policy or the trigger has changed: look at it again.",
        )


class Permissions:
    """The standing permissions of a store."""

    def __init__(self, service: Service, triggers: Triggers) -> None:
        self._service = service
        self._triggers = triggers

    async def of(self, trigger: Trigger) -> Standing | None:
        body = (await self._service.kept(trigger.tenant, STANDING)).get(trigger.trigger)
        return None if body is None else msgspec.convert(body, Standing)

    def check_giver(self, trigger: Trigger, explained: Explanation, who: Principal) -> None:
        """Raises `NotAllowed` unless this user may allow something to a trigger."""
        who.require("approver", "allow in advance what runs ask")
        if explained.others_approve and who.name == trigger.owner:
            raise NotAllowed(
                f"The runs of '{trigger.name}' belong to {who.name}, and the policy wants another person to approve.",
                fix="Ask another approver.",
            )

    async def give(
        self,
        trigger: Trigger,
        playbook: str,
        policy: str,
        asks: Sequence[Asking],
        who: Principal,
        seconds: float = LASTS,
    ) -> Standing:
        """Allows exactly what can be allowed of this, for runs of the playbook and under the policy with these digests."""
        who.require("approver", "allow in advance what runs ask")
        allowed = tuple(dict.fromkeys(each for one in asks for each in one.allowed))
        if not allowed:
            fix = f"`cuebook {trigger.COMMAND} show {trigger.name}` shows what would be asked, and why."
            raise BadInput(f"There is nothing that '{trigger.name}' could be allowed in advance.", fix=fix)
        if seconds <= 0:
            raise BadInput("A permission must last for some time.", fix="Use a time such as 90d.")
        now = self._triggers.now()
        made = Standing(trigger.trigger, playbook, policy, allowed, who.name, now, expires=now + seconds)
        await self._change("allow", trigger, who, msgspec.to_builtins(made), {"allowed": _listed(made)})
        return made

    async def withdraw(self, trigger: Trigger, who: Principal) -> bool:
        """Withdraws the permission. Runs in progress ask from then on."""
        who.require("approver", "withdraw what is allowed in advance")
        return await self._change("disallow", trigger, who, None, {})

    async def drop(self, trigger: Trigger, who: Principal) -> None:
        """Removes the permission of a trigger that is removed."""
        await self._change("disallow", trigger, who, None, {})

    async def problem(self, trigger: Trigger, standing: Standing, playbook: str, policy: str) -> tuple[str, bool]:
        """Why a permission no longer holds for runs of this playbook under this policy, as a sentence, and whether that suspends
        the trigger when it fires: only a change of one of them suspends a schedule.
        """
        now = self._triggers.now()
        changed = standing.problem(playbook, policy, now)
        if changed:
            return changed, trigger.KIND == SCHEDULE and now < standing.expires
        users = await self._service.kept(trigger.tenant, "user")
        return ("" if may_still_allow(standing, users) else f"{standing.by} may no longer approve."), False

    async def check(self, trigger: Trigger, playbook: Playbook, policy: str) -> str:
        """Why a trigger that fires must be suspended, if its permission no longer holds; empty if it may fire.

        A schedule is suspended by a change. An event is not lost: its run asks for approval, as after the permission's end.
        """
        standing = await self.of(trigger)
        if standing is None:
            return ""
        problem, suspends = await self.problem(trigger, standing, playbook.digest, policy)
        if not problem:
            return ""
        kind, name = trigger.COMMAND.capitalize(), trigger.name
        words = f"What it was allowed in advance no longer holds. {problem}"
        fix = f"`cuebook {trigger.COMMAND} allow {name}` shows what its runs ask now, and allows it"
        if suspends:
            return f"{words} {fix}; `cuebook {trigger.COMMAND} disallow {name}` lets them wait for approval."
        key = f"standing.{playbook.digest[:16]}.{policy[:16]}"
        await self._triggers.notify(trigger, key, f"{kind} '{name}': {words} Its runs wait for approval. {fix}.")
        return ""

    async def _change(
        self, what: str, trigger: Trigger, who: Principal, after: dict[str, Any] | None, details: Mapping[str, Any]
    ) -> bool:
        before = (await self._service.kept(trigger.tenant, STANDING)).get(trigger.trigger)
        if before is None and after is None:
            return False
        change = KeptChange(trigger.tenant, STANDING, trigger.trigger, before, after)
        await self._triggers.record(what, trigger, who, details, changes=[change])
        return True


def _listed(standing: Standing) -> list[str]:
    return list(dict.fromkeys(f"{one.domain} {one.pattern}" for one in standing.allowed))
