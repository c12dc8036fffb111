"""`cuebook policy`: tests actions, shows the policy, and manages overrides and trust."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath
from typing import Any, NamedTuple

import click
import msgspec

from cuebook.config import Config
from cuebook.formats import addresses
from cuebook.formats.shell import placed_in
from cuebook.gate import approvals
from cuebook.gate import policy as rules
from cuebook.gate.gate import NETWORK
from cuebook.gate.policy import (
    Canceller,
    Layer,
    Opinion,
    Override,
    Policy,
    Reason,
    Ruling,
    overrides,
)
from cuebook.gate.policy.decide import restricts_reading
from cuebook.gate.policy.model import AGENT_UNCONFINED
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Action, Domain
from cuebook.service.runs.objects import override_object
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.commands.preset import config_folder, preset_command, rule_lines
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.wiring.wiring import Wiring

EXIT_CODES = {"allow": 0, "ask": 3, "deny": 5}
EXAMPLES = {
    "command": "command git push origin main",
    "http": "http POST https://api.example.com/x",
    "tool": "tool github.create_issue",
    "secret": "secret env:TOKEN",
    "file": "file write:src/a.py",
    "model": "model openai/gpt-5",
}
_DOMAINS: dict[str, Domain] = {
    **{name: domain for domain, table in rules.TABLES.items() for name in (domain, table)},
    "http": "egress",
}
"""The names of the domains on the command line."""


@click.group("policy", help="Test, show and change what playbooks may do.")
def policy_command() -> None:
    pass


# --- test ---------------------------------------------------------------------------------------------


@command(
    "test",
    [
        click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="KIND ACTION..."),
        click.Option(["--reads-only"], is_flag=True, help="Test it as a read-only action."),
        click.Option(["--cwd"], metavar="DIR", help="Test it as a command in this folder of the workspace."),
        options.STORE,
        options.AS_JSON,
    ],
    # Everything after the kind belongs to the action, such as the -f of git push -f.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def _test(given: Given) -> int:
    """Show whether an action would be allowed, and which rule decides.

    \b
    command git push origin main
    http POST https://api.example.com/x
    tool github.create_issue
    secret env:TOKEN
    file write:src/a.py
    model openai/gpt-5

    Options come before the action. The exit code is 0 for allow, 3 for ask and 5 for deny.
    """
    action = _placed(_action(given["words"], given["reads_only"]), given["cwd"])
    wiring = session.wiring_of(given)

    async def act(service: Service) -> int:
        tested = await _tested(action, wiring, service)
        if given["as_json"]:
            sys.stdout.write(views.json_line(_tested_object(tested)))
        else:
            say("\n".join(_tested_lines(tested)))
        return EXIT_CODES[tested.ruling.decision]

    return session.with_service(given, act, looking=True, wiring=wiring)


class _Tested(NamedTuple):
    action: Action
    ruling: Ruling
    opinions: tuple[Opinion, ...]
    notes: tuple[str, ...]
    """Further remarks for the user."""

    @property
    def suggested(self) -> tuple[str, ...]:
        return overrides.suggested(self.action) if self.ruling.decision == "ask" else ()


async def _tested(action: Action, wiring: Wiring, service: Service) -> _Tested:
    """The policy's decision, and the checks that apply regardless of it."""
    today, notes = await service.policy(), []
    if action.domain == "tool":
        action, note = await _as_marked(action, wiring)
        notes.append(note)
    if action.domain == "command" and action.reads_only and wiring.config.get("sandbox") == "none":
        action = msgspec.structs.replace(action, reads_only=False)
        notes.append("Without a sandbox, nothing stops a command from writing.")
    ruling = rules.decide(action, [today], await service.overrides(), service.clock())
    if action.domain == "egress" and ruling.decision != "deny":
        ruling = _out_of_bounds(action, today) or ruling
    if action.domain == "command":
        ruling = _ask_about_protected_files(action, ruling, today) or ruling
        unfit = wiring.factory.workspace.problem
        notes += [str(unfit)] if unfit is not None else [wiring.factory.sandbox.problem]
    return _Tested(action, ruling, rules.opinions(action, today), tuple(note for note in notes if note))


async def _as_marked(action: Action, wiring: Wiring) -> tuple[Action, str]:
    """The action, marked read-only if a tool with this name exists and declares itself read-only, and a note about it."""
    found = await wiring.factory.tools.find(action.target)
    if isinstance(found, Failed):
        return action, "" if action == NETWORK else f"{found.message} The test assumes that it {_does(action)}."
    marked = msgspec.structs.replace(action, reads_only=found.reads_only)
    also = "The rules for the files, commands, hosts and secrets that a call uses apply as well."
    return marked, f"It {_does(marked)}. {also}"


def _does(action: Action) -> str:
    return "only reads" if action.reads_only else "may change something"


def _out_of_bounds(action: Action, today: Policy) -> Ruling | None:
    """Denies a URL that the HTTP performer refuses unless a rule names the host. Returns None for other URLs."""
    try:
        url = addresses.parse_url(action.target.partition(" ")[2])
        addresses.check_host(url, lambda host, port: rules.names_host([today], host, port))
    except addresses.RefusedAddress as refused:
        words = f"{refused.message.rstrip('.')}; it is refused unless an egress rule names the host"
    except BadInput as refused:
        words = refused.message.rstrip(".")
    else:
        return None
    return Ruling("deny", (Reason(action, "deny", words, "default"),))


def _ask_about_protected_files(action: Action, ruling: Ruling, today: Policy) -> Ruling | None:
    by_default = ruling.decision == "allow" and any(reason.where == "default" for reason in ruling.reasons)
    if not by_default or not restricts_reading([today]):
        return None
    words = "a command could read files that the policy protects from reading"
    return Ruling("ask", (Reason(action, "ask", words, "default"),))


def _action(words: tuple[str, ...], reads_only: bool) -> Action:
    domain = _domain(words[0] if words else "")
    target = words[1:]
    if domain == "command" and target:
        if len(target) == 1 and len(target[0].split()) > 1:
            complain(f"cuebook: {shlex.quote(target[0])} is treated as the name of a single program. Omit the quotes.")
        return Action("command", shlex.join(target), reads_only)
    if domain == "egress" and 0 < len(target) <= 2:
        method, url = target if len(target) == 2 else ("GET", target[0])
        if "://" not in url:
            raise BadInput(
                f"'{url[:100]}' is not a URL.", fix=f"For example: `{EXAMPLES['http']}`; options come first."
            )
        return Action("egress", f"{method.upper()} {_without_query(url)}", reads_only)
    if domain == "file" and len(target) == 1 and not target[0].startswith(("read:", "write:")):
        raise BadInput("A file needs read: or write: before its path.", fix=f"For example: `{EXAMPLES['file']}`.")
    if len(target) != 1:
        kind = "http" if domain == "egress" else domain
        what = "The action is missing." if not target else f"Only one {kind} can be tested at a time."
        raise BadInput(what, fix=f"For example: `{EXAMPLES[kind]}`; options come first.")
    return Action(domain, target[0], reads_only)


def _placed(action: Action, folder: str | None) -> Action:
    """The action with the folder of the workspace that it runs in."""
    if folder is None:
        return action
    if action.domain != "command":
        raise BadInput("--cwd is only for commands.", fix="Omit it.")
    place = normpath(folder)
    if place.startswith(("/", "..")):
        raise BadInput(f"The folder '{folder}' is not in the workspace.", fix="Pass a path inside the workspace.")
    return msgspec.structs.replace(action, target=placed_in(place, action.target))


def _domain(name: str) -> Domain:
    if name not in _DOMAINS:
        wrong = f"Unknown kind of action '{name}'." if name else "The kind of action is missing."
        raise BadInput(wrong, fix=f"Choose from: {', '.join(EXAMPLES)}.")
    return _DOMAINS[name]


def _without_query(url: str) -> str:
    return url.partition("#")[0].partition("?")[0]


def _tested_lines(tested: _Tested) -> Iterator[str]:
    action, ruling = tested.action, tested.ruling
    yield f"{ruling.decision}: {action.domain} {action.target}"
    for opinion in tested.opinions:
        yield from _opinion_lines(opinion)
    for reason in ruling.reasons:
        if reason.where == "default":
            yield f"  {reason.decision:<6}built in: {reason.rule}"
        elif reason.override:
            yield f"  {reason.decision:<6}{reason.where}: {reason.rule}"
    yield "decided by: " + "; ".join(f"{reason.rule} ({reason.where})" for reason in ruling.deciding)
    for note in tested.notes:
        yield f"note: {note}"
    for pattern in tested.suggested:
        yield f"allow it in advance: cuebook policy allow {action.domain} {shlex.quote(pattern)}"


def _opinion_lines(opinion: Opinion) -> Iterator[str]:
    if opinion.decision is None:
        yield f"  {'-':<6}{opinion.whose}: {opinion.where} has no rule for it"
    for rule in opinion.rules:
        ignored = "" if opinion.counts else f", ignored: {_why_not(opinion)}"
        yield f"  {opinion.decision if opinion.counts else '-':<6}{opinion.whose}: {rule.words} ({rule.where}){ignored}"


def _why_not(opinion: Opinion) -> str:
    if opinion.whose == "project":
        return f"the file is not trusted (`cuebook policy trust {shlex.quote(opinion.where)}`)"
    return f"a {opinion.whose} can only restrict actions"


def _tested_object(tested: _Tested) -> dict[str, Any]:
    ruling = tested.ruling
    return {
        "decision": ruling.decision,
        "action": msgspec.to_builtins(tested.action),
        "decided_by": [{"rule": one.rule, "where": one.where, "override": one.override} for one in ruling.deciding],
        "opinions": [
            {
                "whose": one.whose,
                "where": one.where,
                "decision": one.decision,
                "counts": one.counts,
                "rules": [{"rule": rule.words, "where": rule.where} for rule in one.rules],
            }
            for one in tested.opinions
        ],
        "notes": list(tested.notes),
        "suggested": list(tested.suggested),
    }


# --- show ---------------------------------------------------------------------------------------------


@command("show", [options.STORE, options.AS_JSON])
def _show(given: Given) -> int:
    """Show the policy in force.

    The output lists the policy files with their rules, whether the project's file is trusted, and the defaults for actions
    that match no rule.
    """

    async def act(service: Service) -> int:
        today = await service.policy()
        if given["as_json"]:
            layers = msgspec.to_builtins(today.layers)
            found = {
                "layers": layers,
                "approvals": msgspec.to_builtins(today.approvals),
                "from_outside": "ask" if today.asks_from_outside else "allow",
                "postconditions": today.postconditions,
                "cancel": today.cancel,
                "built_in": rules.BUILT_IN,
            }
            sys.stdout.write(views.json_line({**found, "digest": today.digest}))
        else:
            say("\n".join(_policy_lines(today, options.configuration(given))))
            granted = len(await service.overrides())
            if granted:
                say(f"also {display.counted(granted, 'override')}, listed by `cuebook policy overrides`")
        return 0

    return session.with_service(given, act, looking=True)


def _policy_lines(today: Policy, config: Config) -> Iterator[str]:
    if not today.layers:
        yield "There are no policy files; only the built-in defaults apply."
        yield f"Your own file would be {config_folder(config) / 'policy.toml'}; a project's file is cuebook.policy.toml."
        yield ""
    for layer in today.layers:
        yield f"{layer.whose}: {layer.where} ({_standing(layer)})"
        yield from rule_lines(layer)
        yield ""
    asked = today.approvals
    if any(layer.bundle.preset == AGENT_UNCONFINED for layer in today.layers):
        yield "Commands have no sandbox here, so the preset agent does not allow them."
        yield ""
    yield "approvals:"
    yield f"  expire: {display.duration(asked.expires_after) if asked.expires_after is not None else 'never'}"
    yield f"  then:   {asked.on_expiry}"
    if asked.different_person:
        yield "  by someone other than the person who started the run"
    yield ""
    if not today.asks_from_outside:
        yield "An allowed command may contain text from a model, a server or a tool."
    if today.postconditions == "require":
        yield "A step that changes something needs a postcondition, if its dialect supports them."
    yield f"A run may be cancelled by {_CANCELLERS[today.cancel]}."
    yield ""
    yield "if no rule matches:"
    for table, words in rules.BUILT_IN.items():
        yield f"  {table:<10}{words}"


_CANCELLERS: dict[Canceller, str] = {
    "runner": "any user with the role runner",
    "owner": "the user who started it, or an admin",
    "approver": "any user with the role approver",
}


def _standing(layer: Layer) -> str:
    if layer.whose == "user":
        return "yours"
    if layer.may_allow:
        return "trusted"
    return f"not trusted: it can only restrict actions; `cuebook policy trust {shlex.quote(layer.where)}` trusts it"


# --- overrides ----------------------------------------------------------------------------------------


@command(
    "allow",
    [
        click.Argument(["domain"]),
        click.Argument(["pattern"]),
        click.Option(
            ["--for", "lasting"],
            metavar="TIME",
            default="7d",
            show_default=True,
            help="How long the override lasts, as in 8h; never means until it is revoked.",
        ),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def _allow(given: Given) -> int:
    """Allow in advance an action that the policy would ask about.

    DOMAIN is tool, command, egress, secret, file or model. PATTERN is the full action, or its beginning followed by one *.
    Actions that a policy denies stay denied.
    """
    domain, pattern, lasting = _domain(given["domain"]), given["pattern"], _lasting(given["lasting"])
    overrides.check_override(domain, pattern)
    if domain == "egress" and _is_local(pattern):
        complain("cuebook: this host stays unreachable until an egress rule in your policy file also names it.")

    async def act(service: Service) -> int:
        made = await service.add_override(domain, pattern, lasting, await session.acting(service, given))
        if given["as_json"]:
            sys.stdout.write(views.json_line(_override_object(made, service.clock())))
            return 0
        say(f"{made.id}: {made.domain} '{made.pattern}' is allowed {_until(made)}.")
        return 0

    return session.with_service(given, act)


@command(
    "overrides",
    [
        click.Option(["--run"], metavar="RUN", help="Those of one run instead, given at its approvals for that run."),
        options.STORE,
        options.AS_JSON,
    ],
)
def _overrides(given: Given) -> int:
    """List the overrides: actions that were allowed in advance.

    The list includes expired and revoked overrides.
    """

    async def act(service: Service) -> int:
        now = service.clock()
        found = await service.overrides() if given["run"] is None else await service.run_overrides(given["run"])
        if given["as_json"]:
            sys.stdout.write(views.json_line([_override_object(one, now) for one in found]))
            return 0
        for one in found:
            state = _state(one, now)
            until = f"valid {_until(one)}" if state == "holds" else state
            by = f"{one.by}, {display.moment(one.created)}"
            say(f"{one.id}  {one.domain:<8}{shlex.quote(one.pattern):<32}  {until}  ({by})")
        if not found and given["run"] is not None:
            say("Nothing was allowed for this run in advance.")
        elif not found:
            say("There are no overrides. `cuebook policy allow DOMAIN PATTERN` adds one.")
        return 0

    return session.with_service(given, act, looking=True)


@command("revoke", [click.Argument(["override"]), options.AS_USER, options.STORE])
def _revoke(given: Given) -> int:
    """Revoke an override, of all runs or of one run.

    From then on, the action needs approval again, also in runs that are in progress.
    """

    async def act(service: Service) -> int:
        await service.revoke_override(given["override"], await session.acting(service, given))
        say(f"{given['override']} is revoked.")
        return 0

    return session.with_service(given, act, looking=True)


def _is_local(pattern: str) -> bool:
    """Whether this URL stays unreachable with an override alone."""
    try:
        addresses.check_host(addresses.parse_url(pattern.rpartition(" ")[2]), lambda host, port: False)
    except addresses.RefusedAddress:
        return True
    except BadInput:
        pass
    return False


def _lasting(given: str) -> float | None:
    try:
        return rules.duration(given)
    except ValueError:
        raise BadInput(f"--for: '{given}' is not a duration.", fix="For example: 8h, 7d or never.") from None


def _state(override: Override, now: float) -> str:
    if override.revoked:
        return "revoked"
    return "holds" if override.holds(now) else "expired"


def _until(override: Override) -> str:
    return "until it is revoked" if override.expires is None else f"until {display.moment(override.expires)}"


def _override_object(override: Override, now: float) -> dict[str, Any]:
    return {**override_object(override, now), "tenant": override.tenant}


# --- trust --------------------------------------------------------------------------------------------


@command(
    "trust",
    [
        click.Argument(["file"], required=False),
        click.Option(["--revoke"], is_flag=True, help="Stop trusting the file."),
        options.AS_USER,
        options.STORE,
    ],
)
def _trust(given: Given) -> int:
    """Show the project's policy file and trust its current content.

    FILE defaults to the nearest one. A trusted file may allow actions. An untrusted or changed file can only restrict them.
    """
    path, *others = _project_files(given)
    subject = rules.trust_subject(path)

    async def revoke(service: Service) -> int:
        there = await service.untrust(subject, await session.acting(service, given))
        say(f"{path} {'is no longer trusted' if there else 'was not trusted'}.")
        return 0

    if given["revoke"]:
        return session.with_service(given, revoke, looking=True)
    text, digest = rules.content_of(path)

    async def trust(service: Service) -> int:
        await service.trust(subject, digest, await session.acting(service, given))
        for line in approvals.shown(text, len(text)).rstrip("\n").split("\n"):
            say(f"| {line}")
        say(f"{path} is trusted as shown (sha256 {digest}).")
        for other in others:
            how = f"cuebook policy trust {shlex.quote(str(other))}"
            say(f"{other} also applies here, but this command does not trust it: {how}")
        return 0

    return session.with_service(given, trust)


def _project_files(given: Given) -> list[Path]:
    """The chosen policy file, and the others that apply here."""
    if given["file"]:
        return [Path(given["file"])]
    found = rules.find(config_folder(options.configuration(given)), Path.cwd())
    paths = [one.path for one in found if one.whose == "project"]
    if not paths:
        raise NotFound("There is no cuebook.policy.toml in this folder or above.", fix="Pass the path of the file.")
    return paths


for _command in (_test, _show, preset_command, _allow, _overrides, _revoke, _trust):
    policy_command.add_command(_command)
