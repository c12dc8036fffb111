"""The gate: every effect that reaches the outside world passes through here, whichever dialect asked for it.

It combines what the effect would do (as described by its performer), what the policies say, which secrets it needs and
what the user has approved into one ruling. It does not perform the effect.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from cuebook.gate import approvals
from cuebook.gate.limits import Ceilings
from cuebook.gate.policy import (
    Override,
    Policy,
    Reason,
    Ruling,
    approvals_of,
    decide_all,
)
from cuebook.gate.policy.decide import denies_network, restricts_reading, untrusted_naming
from cuebook.gate.roles import Principal
from cuebook.gate.secrets import MANAGED, SecretProblem, Vault
from cuebook.kernel.effects import (
    Acting,
    AskApproval,
    AskModel,
    CallTool,
    Effect,
    RunCommand,
    RunPlaybook,
    RunPython,
    SecretNeed,
    SecretUse,
    Send,
    SendHttp,
)
from cuebook.kernel.errors import Elsewhere
from cuebook.kernel.model_names import chain
from cuebook.kernel.outcomes import LACKS_SECRET, Failed
from cuebook.kernel.ports import (
    Action,
    Admitted,
    Case,
    Describer,
    Description,
    Limits,
    Needed,
    Observer,
    Outliner,
    Redactor,
    Trust,
)
from cuebook.kernel.run import RunRow, Settings
from cuebook.kernel.votes import RULE, Rule, can_be_met

if TYPE_CHECKING:
    from cuebook.gate.offers import Offers

NETWORK = Action("tool", "network")
"""The action of a process that needs the network. It counts as read-only where its hosts are listed, or where it was
approved with a tool server."""

INWARD: tuple[type[Effect], ...] = (Send, RunPython, RunPlaybook)
"""Effects that stay within Cuebook: the effects of a child run are examined one by one."""


def revoked_in(run: str) -> str:
    """The kind of the records that say which overrides of a run were revoked."""
    return f"revoked {run}"


class Kept(Protocol):
    """The part of a store that the gate needs: decisions for all runs of a tenant."""

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None: ...

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]: ...


class Gate:
    """Rules on effects. There is one gate per process."""

    def __init__(
        self,
        describers: Mapping[type[Effect], Any],
        kept: Kept,
        today: Callable[[str], Awaitable[Policy]],
        vault: Vault,
        *,
        redactor: Redactor,
        ceilings: Ceilings = Ceilings(),
        workspaces: Sequence[str] = (),
        confined: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`confined` says whether commands run in a sandbox."""
        self._performers = describers
        # Checking a performer against a protocol is slow and the result never changes, so it is cached.
        self._describers: dict[type[Effect], Describer | None] = {}
        self._outliners: dict[type[Effect], Outliner | None] = {}
        self._observers: dict[type[Effect], Observer | None] = {}
        self._kept = kept
        self._today = today
        self._vault = vault
        self._masked = redactor.value
        self._ceilings = ceilings
        self._workspaces = workspaces
        """The real path of the folder that commands and file tools are confined to."""
        self._confined = confined
        self._clock = clock
        self._snapshots: dict[str, Policy] = {}

    async def lacking(self, effect: Effect, tenant: str) -> SecretProblem | None:
        """Why a secret of this effect is unavailable, if that can be determined without reading it."""
        try:
            return self._lacking(await self._uses(effect, tenant))
        except SecretProblem as problem:
            return problem

    def _lacking(self, uses: Iterable[SecretUse]) -> SecretProblem | None:
        return next(filter(None, (self._vault.absent(use.handle) for use in uses)), None)

    # --- the port ---

    async def examine(self, effect: Effect, case: Case) -> Admitted | Needed | Failed:
        if isinstance(effect, INWARD):
            return Admitted(_nothing_more, dict)
        # This comes first, because the current policy also decides which addresses can be described.
        policies = await self._policies(effect, case)
        if isinstance(policies, Failed):
            return policies
        outliner = self._outliner(type(effect))
        if case.granted and self._observer(type(effect)) is None:
            outliner = None
        if outliner is None:
            description = await self._described(effect, case)
        else:
            description = await outliner.outline(effect, case.settings)
        if isinstance(description, Failed):
            return _with_untrusted(description, effect, policies)
        wanted = _wanted(effect)
        uses = await self._uses(effect, case.run.tenant)
        secret = tuple(Action("secret", use.handle) for use in uses)
        if not isinstance(effect, AskModel):  # a model is the same in every folder
            self.check_place(case.run)
        actions = tuple(self._canonical(action) for action in description.actions)
        ruling = decide_all((*actions, *secret), policies)
        # Overrides matter only where approval would be required, and a command has no further actions while it runs.
        settled = ruling.decision != "ask" and isinstance(effect, RunCommand)
        overrides = [] if settled else await self._overrides(effect, case, policies)
        if overrides:
            ruling = decide_all((*actions, *secret), policies, overrides, self._clock())
        networked = any((action.domain, action.target) == (NETWORK.domain, NETWORK.target) for action in actions)
        listed = any(action.domain == "egress" for action in actions)  # then there is a ruling on each host
        if networked and not listed and denies_network(policies):
            return Failed(
                "forbidden",
                f"{approvals.one_line(self._mask(case)(description.summary))}: it needs the network, and the policy denies all network access.",
                fix="Allow the hosts that it needs in the policy's egress rules instead of denying everything.",
            )
        if ruling.decision == "deny":
            return _forbidden(self._mask(case)(description.summary), ruling)
        # Checked first, because an approval would be useless. Only the owner of this machine learns what is missing.
        lacking = self._lacking(uses) if case.run.owner == Principal().name or ruling.decision == "allow" else None
        if lacking is not None:
            return msgspec.structs.replace(Failed.of(lacking), details=_recorded(ruling, ""))
        limits = self._ceilings.for_effect(effect, description.seconds)
        needed = await self._untrusted(description, case, policies)
        if needed is not None:
            return needed
        why = _why(wanted[0], effect, ruling, policies)
        permitted = False
        if isinstance(effect, CallTool) and effect.granted:
            from cuebook.gate.permissions import is_permitted  # only coding agents have permissions

            permitted = ruling.decision == "ask" and is_permitted(effect, ruling)
        asks = (ruling.decision == "ask" and not description.harmless and not permitted) or bool(why)
        if asks and outliner is not None:
            description = await self._described(effect, case)
            if isinstance(description, Failed):
                return description
        if asks and not description.preview:
            description = msgspec.structs.replace(description, preview=_about(effect, description))
        digest = approvals.digest(effect, description, limits) if asks or case.granted else ""
        approved = digest in case.granted
        if asks and not approved:
            from cuebook.gate.offers import Offers, offers

            found = offers((*actions, *secret), ruling, policies, overrides, self._clock(), why)
            if case.redactor is not None:  # a pattern could be a part of the value
                found = Offers(once_only="it has a sensitive input")
            return self._approval(effect, description, ruling, digest, wanted, why, case, policies, found)
        missed = await self._vault.fetch(one.target for one in (*actions, *secret) if one.domain == "secret")
        if missed:
            recorded = _recorded(ruling, digest if approved else "")
            failed = Failed.of(next(iter(missed.values())))
            return msgspec.structs.replace(failed, details={**recorded, LACKS_SECRET: True})
        return Admitted(
            permits=_Permits(description, policies, overrides, self._clock, approved or permitted),
            secrets=lambda: self._vault.resolve_uses(uses),
            limits=limits,
            ruling=_recorded(ruling, digest if approved else ""),
            # Only what the approval is bound to is checked again; everything else is resolved when it is performed.
            still=(lambda: self._still(effect, case, limits, digest)) if approved and description.bound else None,
        )

    async def learn(
        self, declared: Iterable[SecretNeed], used: Iterable[SecretNeed], run: RunRow, policy: str | None
    ) -> Failed | None:
        """Adds the secrets to the redactor. A denied secret is not read, unless the run has used it before."""
        used = frozenset(used)
        names = {name: str(body["handle"]) for name, body in (await self._kept.kept(run.tenant, "secret")).items()}
        policies = await self._policies_of(run.tenant, policy)
        lacking: dict[str, SecretProblem] = {}
        found: list[tuple[SecretNeed, str]] = []
        for need in dict.fromkeys((*used, *declared)):
            try:
                handle = self._vault.canonical(names.get(need.handle, need.handle))
            except SecretProblem as unknown:
                if need.required:
                    lacking.setdefault(unknown.message, unknown)
                continue
            if need in used or decide_all((Action("secret", handle),), policies).decision != "deny":
                found.append((need, handle))
        missed = await self._vault.fetch(handle for _, handle in found)
        for need, handle in found:
            problem = missed.get(handle) or (None if handle.startswith(MANAGED) else self._vault.know(handle))
            if problem is not None and need.required:
                lacking.setdefault(problem.message, problem)
        if not lacking:
            return None
        first = next(iter(lacking.values()))
        fixes = dict.fromkeys(problem.fix for problem in lacking.values())
        return Failed(first.code, " ".join(lacking), fix=" ".join(fixes))

    def check_place(self, run: RunRow) -> None:
        if not run.workspace or not self._workspaces or run.workspace in self._workspaces:
            return
        there = f"cd {shlex.quote(run.workspace)} && " if os.path.isabs(run.workspace) else ""
        raise Elsewhere(
            f"Run {run.id} belongs to {run.workspace}, but this is {self._workspaces[0]}.",
            fix=f"Decisions and answers are saved. Resume the run there: `{there}cuebook resume {run.id}`;"
            f" if the folder has moved: `cuebook resume {run.id} --workspace FOLDER`.",
        )

    async def trusted(self, trust: Trust, run: RunRow, by: str) -> None:
        await self._remember(run.tenant, trust, by)

    def shown(self, words: str, parts: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
        masked = self._masked(dict(parts))
        return approvals.one_line(self._masked(words)), approvals.preview(masked), approvals.whole(masked)

    def _mask(self, case: Case) -> Callable[[Any], Any]:
        """Masks what must not be shown of an effect, as it is examined."""
        return self._masked if case.redactor is None else case.redactor.value

    async def _still(self, effect: Effect, case: Case, limits: Limits, digest: str) -> Failed | None:
        description = await self._described(effect, case)
        if isinstance(description, Failed):
            return description
        if approvals.digest(effect, description, limits) == digest:
            return None
        return Failed(
            "changed",
            f"{approvals.one_line(self._mask(case)(description.summary))}: it changed after the approval, so it was not performed.",
            fix="Retry the run; the action is examined again.",
        )

    # --- for performers that check trust before they describe an effect ---

    async def is_trusted(self, tenant: str, subject: str, digest: str) -> bool:
        return (await self._kept.kept(tenant, "trust")).get(subject, {}).get("digest") == digest

    # --- internal ---

    def _describer(self, kind: type[Effect]) -> Describer | None:
        if kind not in self._describers:
            found = self._performers.get(kind)
            self._describers[kind] = found if isinstance(found, Describer) else None
        return self._describers[kind]

    def _outliner(self, kind: type[Effect]) -> Outliner | None:
        if kind not in self._outliners:
            found = self._performers.get(kind)
            self._outliners[kind] = found if isinstance(found, Outliner) else None
        return self._outliners[kind]

    def _observer(self, kind: type[Effect]) -> Observer | None:
        if kind not in self._observers:
            found = self._performers.get(kind)
            self._observers[kind] = found if isinstance(found, Observer) else None
        return self._observers[kind]

    async def _described(self, effect: Effect, case: Case) -> Description | Failed:
        """The description of the effect, plus the preview that its program adds."""
        observer = self._observer(type(effect))
        if observer is not None:
            description = await observer.observe(effect, case.settings, case.run.id)
        else:
            description = await self._own_description(effect, case.settings)
        if isinstance(description, Failed) or not isinstance(effect, Acting) or not effect.preview:
            return description
        return msgspec.structs.replace(description, preview={**description.preview, **effect.preview})

    async def _own_description(self, effect: Effect, settings: Settings) -> Description | Failed:
        if isinstance(effect, AskApproval):
            return Description((), "")
        describer = self._describer(type(effect))
        if describer is not None:
            return await describer.describe(effect, settings)
        if isinstance(effect, AskModel):
            model = settings.asked(effect.model)
            return Description(tuple(Action("model", one, reads_only=True) for one in chain(model)), f"Ask {model}")
        if isinstance(effect, Acting) and effect.secrets:
            return Failed(
                "secret_misplaced",
                f"'{effect.fingerprint}' does not accept secrets.",
                fix="Use a command, a request or a tool where a secret is needed.",
            )
        preview = {"effect": msgspec.json.encode(effect, enc_hook=str).decode()}
        action = Action("tool", effect.fingerprint, reads_only=not effect.changes)
        return Description((action,), effect.fingerprint, preview)

    async def _uses(self, effect: Effect, tenant: str) -> tuple[SecretUse, ...]:
        """The secrets that the effect needs, each with its direct handle."""
        uses = effect.secrets if isinstance(effect, Acting) else ()
        if not uses:
            return ()
        names = {name: str(body["handle"]) for name, body in (await self._kept.kept(tenant, "secret")).items()}
        self._vault.check_uses(uses)
        return tuple(
            msgspec.structs.replace(use, handle=self._vault.canonical(names.get(use.handle, use.handle)))
            for use in uses
        )

    def _canonical(self, action: Action) -> Action:
        if action.domain != "secret":
            return action
        return msgspec.structs.replace(action, target=self._vault.canonical(action.target))

    async def _policies(self, effect: Effect, case: Case) -> tuple[Policy, ...] | Failed:
        if case.policy is None and not isinstance(effect, AskModel):
            return Failed(
                "no_policy",
                "The run has no policy, so it cannot perform any actions.",
                fix="Start it again with `cuebook run`.",
            )
        return await self._policies_of(case.run.tenant, case.policy)

    async def _policies_of(self, tenant: str, snapshot: str | None) -> tuple[Policy, ...]:
        """The policies that apply to a run: the policy it started with and the current policy."""
        today = await self._today(tenant)
        if snapshot is None:
            return (today,)
        known = self._snapshots.get(snapshot)
        if known is None:
            if len(self._snapshots) > 100:
                self._snapshots.clear()
            known = Policy.from_snapshot(snapshot)
            known = self._snapshots[snapshot] = known if self._confined else _unconfined(known)
        chosen = tuple(layer for layer in known.layers if layer.whose == "run")
        if chosen:  # otherwise today's policy would ask about everything that was chosen for the run
            today = Policy((*today.layers, *chosen))
        if known != today:
            return (known, today)
        self._snapshots[snapshot] = today  # identical objects compare faster next time
        return (today,)

    async def _overrides(self, effect: Effect, case: Case, policies: Sequence[Policy]) -> list[Override]:
        """The overrides that apply. If someone else must approve, the owner's own overrides do not."""
        run = case.run
        found = [msgspec.convert(body, Override) for body in (await self._kept.kept(run.tenant, "override")).values()]
        if case.overrides:
            revoked = await self._kept.kept(run.tenant, revoked_in(case.outermost or run.id))
            found += [
                Override(
                    one.id,
                    one.domain,  # type: ignore[arg-type]
                    one.pattern,
                    one.by,
                    one.created,
                    tenant=run.tenant,
                    run=case.outermost or run.id,
                )
                for one in case.overrides
                if one.id not in revoked
            ]
        if run.trigger and len(policies) == 1:  # otherwise the policy has changed since the run started
            found += await self._standing(effect, run, case.policy)
        if found and approvals_of(policies).different_person:
            return [override for override in found if override.by != run.owner]
        return found

    async def _standing(self, effect: Effect, run: RunRow, snapshot: str | None) -> Sequence[Override]:
        """What the run's trigger was allowed in advance, while its giver is still an approver."""
        from cuebook.gate.standing_permissions import STANDING, Standing, may_still_allow, standing_overrides

        standing = await self._kept.kept(run.tenant, STANDING)
        found = standing_overrides(standing, run, snapshot, effect, self._clock())
        if not found:
            return ()
        given = msgspec.convert(standing[run.trigger], Standing)
        return found if may_still_allow(given, await self._kept.kept(run.tenant, "user")) else ()

    async def _untrusted(self, description: Description, case: Case, policies: Sequence[Policy]) -> Needed | None:
        """Asks to trust the first dependency of the effect that is not trusted yet, or has changed since."""
        if not description.trusts:
            return None
        known = await self._kept.kept(case.run.tenant, "trust")
        for trust in description.trusts:
            before = known.get(trust.subject, {}).get("digest")
            digest = approvals.trust_digest(trust.subject, trust.digest)
            if before == trust.digest or digest in case.granted:
                continue
            if before is None and not trust.ask_first:
                await self._remember(case.run.tenant, trust, "first use")
                continue
            parts, terms = self._mask(case)(trust.preview), _terms(policies)
            details = {
                "summary": trust.prompt,
                "preview": approvals.preview(parts),
                "requester": case.run.owner,
                "about": trust.subject,
                "once_only": "the approval is remembered until it changes",
                **terms.details,
            }
            whole = approvals.whole(parts)
            return Needed(trust.prompt, digest, details, terms.seconds, terms.on_expiry, trust, whole)
        return None

    async def _remember(self, tenant: str, trust: Trust, by: str) -> None:
        body = {"digest": trust.digest, "by": by, "at": self._clock()}
        await self._kept.keep(tenant, "trust", trust.subject, body)

    def _approval(
        self,
        effect: Effect,
        description: Description,
        ruling: Ruling,
        digest: str,
        wanted: tuple[str, str],
        why: str,
        case: Case,
        policies: Sequence[Policy],
        found: Offers,
    ) -> Needed | Failed:
        words, purpose = wanted
        rule = effect.rule if isinstance(effect, Acting) and words else None
        masked = self._mask(case)
        summary = approvals.one_line(masked(description.summary))
        parts = masked(description.preview)
        terms = _terms(policies)
        if rule is not None and not can_be_met(_with(rule, terms), case.run.owner):
            return _unmet(rule, summary, case.run.owner)
        asks = [reason for reason in ruling.reasons if reason.decision == "ask"]
        details = {
            "summary": summary,
            "preview": approvals.preview(parts),
            "requester": case.run.owner,
            "rules": [*(_said(reason) for reason in asks), *([why] if why else [])],
            "purpose": purpose,
            "bound": _short(description.bound),
            "suggestions": [
                [reason.action.domain, pattern]
                for reason in (asks if case.redactor is None else ())
                for pattern in _suggested(reason.action)
            ],
            "always": [list(one) for one in found.patterns[0]] if found.patterns and not terms.details else [],
            "offers": [[list(one) for one in patterns] for patterns in found.patterns],
            **({"once_only": found.once_only} if found.once_only else {}),
            **terms.details,
            **_of_rule(rule),
        }
        prompt = summary  # without a question mark, which could be mistaken for part of a command or a URL
        if words:
            prompt = approvals.one_line(masked(words)) + (f" ({summary})" if summary else "")
        whole = approvals.whole(parts)
        return Needed(prompt, digest, details, terms.seconds, terms.on_expiry, whole=whole)


def _unconfined(policy: Policy) -> Policy:
    from cuebook.gate.policy.presets import unconfined

    return unconfined(policy)


class _Terms(msgspec.Struct, frozen=True):
    seconds: float | None
    on_expiry: Any
    details: dict[str, Any]


def _terms(policies: Sequence[Policy]) -> _Terms:
    """The strictest approval settings of the policies."""
    strictest = approvals_of(policies)
    return _Terms(
        strictest.expires_after, strictest.on_expiry, {"different_person": True} if strictest.different_person else {}
    )


def _with(rule: Rule, terms: _Terms) -> Rule:
    strict = rule.different_person or bool(terms.details)
    return msgspec.structs.replace(rule, different_person=strict)


def _of_rule(rule: Rule | None) -> dict[str, Any]:
    """The part of an approval's details that says who decides. Only one action is approved then, never more."""
    if rule is None:
        return {}
    made: dict[str, Any] = {RULE: rule.plain()}
    if rule.different_person:
        made["different_person"] = True
    if rule.words():
        made |= {"offers": [], "always": [], "once_only": f"its playbook says who decides ({rule.words()})"}
    return made


def _unmet(rule: Rule, summary: str, owner: str) -> Failed:
    return Failed(
        "no_approvers",
        f"{summary or 'This'}: it can never be approved. It needs {rule.words()}, and {owner} started the run.",
        fix="List more people in `by`, or have someone else start the run.",
    )


class _Permits:
    """Rules on actions that appear only while an effect is performed, when it is too late to ask: `ask` means deny."""

    def __init__(
        self,
        description: Description,
        policies: Sequence[Policy],
        overrides: Sequence[Override],
        clock: Callable[[], float],
        approved: bool,
    ) -> None:
        self._shown = description.actions if approved else ()
        self._policies = policies
        self._overrides = overrides
        self._clock = clock

    def __call__(self, action: Action) -> Failed | None:
        ruling = decide_all((action,), self._policies, self._overrides, self._clock())
        if ruling.decision == "allow":
            return None
        if ruling.decision == "ask" and any(_same_place(action, shown, ruling) for shown in self._shown):
            return None
        if ruling.decision == "ask":
            return Failed(
                "forbidden",
                f"{approvals.one_line(action.target)} was requested while the step was being performed and needs its own"
                f" approval: {_said(ruling.reasons[0])}.",
                fix="Request it in a separate step, or allow it in a policy.",
            )
        return _forbidden(action.target, ruling)


def _same_place(action: Action, shown: Action, ruling: Ruling) -> bool:
    """Whether this action was approved, or its origin was and no rule asks about this read."""
    if action == shown:
        return True
    if action.domain != "egress" or shown.domain != "egress" or not action.reads_only:
        return False
    by_default = all(reason.where == "default" for reason in ruling.reasons)
    return by_default and _origin(action.target) == _origin(shown.target)


def _origin(target: str) -> tuple[str, str]:
    method, _, url = target.partition(" ")
    scheme, _, rest = url.partition("://")
    return method, f"{scheme}://{rest.partition('/')[0]}".lower()


def _may_read_protected_files(ruling: Ruling, policies: Sequence[Policy]) -> bool:
    """Whether a read-only command needs approval because it could read protected files."""
    by_default = any(reason.action.domain == "command" and reason.where == "default" for reason in ruling.reasons)
    return by_default and restricts_reading(policies)


def _wanted(effect: Effect) -> tuple[str, str]:
    """The question that the effect itself asks the user, and its subject."""
    if not isinstance(effect, Acting) or not effect.approval:
        return "", "policy"
    return effect.approval, effect.purpose if isinstance(effect, AskApproval) else "step"


def _about(effect: Effect, description: Description) -> dict[str, str]:
    """The preview of an effect whose performer does not provide one."""
    if isinstance(effect, AskModel):
        last = effect.context.block
        return {"prompt": effect.prompt or (str(last.text) if last is not None else "")}
    return (
        {"actions": "\n".join(f"{one.domain} {one.target}" for one in description.actions)}
        if description.actions
        else {}
    )


def _why(wanted: str, effect: Effect, ruling: Ruling, policies: Sequence[Policy]) -> str:
    """Why approval is required although no rule asks; empty if it is not."""
    if isinstance(effect, AskApproval) and effect.purpose == "takeover":
        return "the step was performed, and there is no check that it worked"
    if wanted:
        return "the step asks for approval"
    if isinstance(effect, RunCommand) and effect.from_outside and any(one.asks_from_outside for one in policies):
        return "it depends on the output of a model, a server or a tool"
    if ruling.decision == "allow" and _may_read_protected_files(ruling, policies):
        return "it could read files that the policy protects from reading"
    return ""


def _short(bound: Mapping[str, Any]) -> dict[str, str]:
    """Short digests of everything the approval is bound to, stored with it to show later what changed."""
    flat: dict[str, str] = {}
    for name, value in bound.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, one in parts:
            made = sha256(msgspec.json.encode(one, enc_hook=str)).hexdigest()[:16]
            flat[f"{name} {part}".strip()[:120]] = made
    return dict(list(flat.items())[:50])


def _suggested(action: Action) -> tuple[str, ...]:
    from cuebook.gate.policy.overrides import suggested  # analyses commands, which most runs do not need

    return suggested(action)


def _with_untrusted(failed: Failed, effect: Effect, policies: Sequence[Policy]) -> Failed:
    """The failure for a denied address, with the file that would allow it if it were trusted."""
    if failed.code != "refused_address" or not isinstance(effect, SendHttp):
        return failed
    where = untrusted_naming(policies, f"{effect.method} {effect.url}")
    if not where:
        return failed
    fix = f"{where} allows it, but is not trusted: review it, then `cuebook policy trust {shlex.quote(where)}` and run again."
    return msgspec.structs.replace(failed, fix=fix)


def _nothing_more(action: Action) -> Failed | None:
    return Failed("forbidden", f"{approvals.one_line(action.target)} was not requested.")


def _forbidden(what: str, ruling: Ruling) -> Failed:
    denials = [reason for reason in ruling.reasons if reason.decision == "deny"]
    said = "; ".join(_said(reason) for reason in denials)
    return Failed(
        "forbidden",
        f"{approvals.one_line(what)}: the policy denies it ({said}).",
        fix="`cuebook policy test` shows which rule decides; change the policy if this should be allowed.",
        details={"rules": [_said(reason) for reason in denials]},
    )


def _said(reason: Reason) -> str:
    return f"{reason.rule} ({reason.where})" if reason.where else reason.rule


def _recorded(ruling: Ruling, approved: str) -> dict[str, Any]:
    made: dict[str, Any] = {"decision": ruling.decision, "rules": [_said(reason) for reason in ruling.reasons]}
    overrides = [reason.override for reason in ruling.reasons if reason.override]
    if overrides:
        made["overrides"] = overrides
    if approved:
        made["approved"] = approved
    return made
