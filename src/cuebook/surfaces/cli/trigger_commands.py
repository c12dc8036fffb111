"""What the commands about schedules and other triggers have in common."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cuebook.dialects import registry
from cuebook.dialects.options import COMMON
from cuebook.dialects.playbook import Playbook
from cuebook.formats.duration import seconds_of
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.run import Budget
from cuebook.service.service import Service
from cuebook.service.triggers.administration import TriggerAdministration, TriggerView
from cuebook.service.triggers.events import EVENT_TRIGGERS
from cuebook.service.triggers.permissions import LASTS
from cuebook.service.triggers.schedules import Schedule
from cuebook.service.triggers.trigger import OVERLAPS, Overlap, Target, Trigger, check_trigger_name
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.inputs import gather_answers, gather_inputs
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.playbook_command import FILE, INPUTS
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.ask import someone_is_there
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.surfaces.triggers import (
    asking_lines,
    firing_object,
    trigger_line,
    trigger_object,
    view_lines,
    view_object,
    when,
)
from cuebook.wiring.wiring import Wiring

NAME = click.Argument(["name"])

TARGET: list[click.Parameter] = [
    FILE,
    click.Option(["--name"], metavar="NAME", help="Its name; by default, that of the file without its suffix."),
    *INPUTS,
    *options.ANSWERS,
    *(one for one in options.SETTINGS if one.name == "model" or str(one.name).startswith("budget_")),
    *options.choices([*COMMON, *(option for dialect in registry.dialects() for option in dialect.options)]),
    options.WORKSPACE,
]


def overlap_option(default: Overlap, queued: str) -> click.Option:
    """`queued` says how many firings wait with `queue`."""
    words = {
        "skip": "starts no run",
        "queue": f"waits for its end ({queued})",
        "cancel": "cancels it",
        "parallel": "starts a run alongside it",
    }
    listed = ", ".join(f"{name}{' (the default)' if name == default else ''} {what}" for name, what in words.items())
    return click.Option(
        ["--overlap"],
        type=click.Choice(OVERLAPS),
        default=default,
        help=f"What a firing does while the run of an earlier one is unfinished: {listed}.",
    )


ALLOW: list[click.Parameter] = [
    click.Option(
        ["--allow"], is_flag=True, help="Allow in advance exactly what its runs would ask; needs an approver."
    ),
    click.Option(["--allow-for"], metavar="TIME", default="90d", help="How long that lasts; 90d by default."),
    click.Option(["--dry-run"], is_flag=True, help="Only show what its runs would ask."),
    options.AS_USER,
    options.STORE,
    options.AS_JSON,
]


def administration(given: Given, service: Service, wiring: Wiring | None = None) -> TriggerAdministration:
    from cuebook.wiring.triggers import administration_of

    return administration_of(wiring or session.wiring_of(given), service)


def duration_of(flag: str, value: str | None, otherwise: float) -> float:
    if value is None:
        return otherwise
    try:
        seconds = seconds_of(value)
    except ValueError:
        seconds = None
    if seconds is None:
        raise BadInput(f"{flag}: expected a time such as 90s, 30m, 12h or 7d, got '{value}'.", fix="Correct it.")
    return seconds


# --- adding ---


def target_of(given: Given, playbook: Playbook, wiring: Wiring, mapped: Sequence[str] = ()) -> Target:
    """The target of a new trigger. `mapped` are the inputs that its events fill in."""
    if playbook.path is None:
        raise BadInput("The playbook of a trigger must be a file, which is read at each firing.", fix="Pass its path.")
    chosen = options.chosen(given)
    document = playbook.adapted(chosen)
    inputs = gather_inputs(given, document, playbook.dialect)
    declared = {one.name for one in document.inputs}
    unknown = [one for one in mapped if one not in declared and not playbook.dialect.takes(document, one)]
    if unknown:
        names = ", ".join(sorted(declared)) or "none"
        raise BadInput(f"--map: the playbook declares no input '{unknown[0]}'.", fix=f"It declares: {names}.")
    if mapped:
        lacking = [one.name for one in document.inputs if one.required and one.name not in {*inputs, *mapped}]
        if lacking:
            fix = f"Pass --input {lacking[0]}=VALUE, or --map {lacking[0]}=PATH."
            raise BadInput(f"The input '{lacking[0]}' is required, and nothing fills it in.", fix=fix)
    else:
        playbook.accept(inputs, chosen)
    edits = options.edits(wiring.config)
    budget = {name.partition(".")[2]: value for name, value in edits.items() if name.startswith("budget.")}
    workspace = wiring.factory.workspace
    return Target(
        os.path.realpath(playbook.path),
        playbook.name,
        inputs=inputs,
        model=given["model"] or "",
        answers=gather_answers(given, playbook),
        unattended=given["unattended"],
        options=chosen,
        budget=Budget(**budget) if budget else None,
        workspace=workspace.label or workspace.path,
    )


def name_of(given: Given, playbook: Playbook, what: str) -> str:
    """The name of a new trigger: as given, or from the name of its file."""
    name = given["name"] or re.sub(r"[^A-Za-z0-9._-]+", "-", Path(playbook.name).name.partition(".")[0]).strip("-._")
    check_trigger_name(name, what)
    return str(name)


Make = Callable[[Service, Target, str, str], Trigger]
"""Makes the trigger, for this owner and tenant."""


def add_trigger(given: Given, playbook: Playbook, make: Make, mapped: Sequence[str] = ()) -> int:
    wiring = session.wiring_of(given)
    target = target_of(given, playbook, wiring, mapped)
    seconds = duration_of("--allow-for", given["allow_for"], LASTS)

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        admin = administration(given, service, wiring)
        trigger = make(service, target, who.name, who.tenant)
        if given["allow"]:
            who.require("approver", "allow in advance what runs ask")
        view = await admin.view(trigger)
        if given["dry_run"]:
            return _report(given, service, view)
        allows = given["allow"] and any(one.allowed for one in view.asks)
        if allows and view.explained is not None:
            admin.permissions.check_giver(trigger, view.explained, who)
        trigger = await admin.add(trigger, who)
        if allows:
            view = await admin.allow(trigger, who, seconds, seen=view.digest)
        else:
            view = await admin.view(trigger)
        return _report(given, service, view, added=True)

    return session.with_service(given, act, wiring=wiring, looking=given["dry_run"])


def _report(given: Given, service: Service, view: TriggerView, *, added: bool = False) -> int:
    if given["as_json"]:
        sys.stdout.write(views.json_line(view_object(view, service.clock())))
    elif added:
        first = next(iter(view_lines(view, service.clock())))
        say(f"Added {first}")
        for line in [*view_lines(view, service.clock())][1:]:
            if not line.startswith("history"):
                say(line)
    else:
        say("\n".join(asking_lines(view)))
    return 0


# --- everything else ---

Kinds = Sequence[type[Trigger]]


async def find(admin: TriggerAdministration, kinds: Kinds, name: str, who: Any) -> Trigger:
    """The trigger with this name, of any of these kinds."""
    for kind in kinds:
        try:
            return await admin.triggers.get(kind, name, who)
        except NotFound:
            if kind is kinds[-1]:
                await _point_elsewhere(admin, kinds, name, who)
                raise
    raise AssertionError


async def _point_elsewhere(admin: TriggerAdministration, kinds: Kinds, name: str, who: Any) -> None:
    """Raises `NotFound` with the command to use, if there is a trigger with this name of another kind."""
    every: Kinds = (Schedule, *EVENT_TRIGGERS)
    for kind in (one for one in every if one not in kinds):
        try:
            found = await admin.triggers.get(kind, name, who)
        except NotFound:
            continue
        raise NotFound(
            f"There is no {kinds[0].COMMAND} named '{found.name}', but a {found.COMMAND} ({when(found)}).",
            fix=f"`cuebook {found.COMMAND} show {found.name}` shows it.",
        )


def list_command(kinds: Kinds, help: str, none: str) -> click.Command:
    """The command that lists triggers of these kinds. `none` is what it says if there are none."""

    @command("list", [options.AS_USER, options.STORE, options.AS_JSON])
    def _list(given: Given) -> int:
        async def act(service: Service) -> int:
            who = await session.acting(service, given)
            triggers = administration(given, service).triggers
            found: list[Trigger] = [one for kind in kinds for one in await triggers.page(kind, who)]
            if given["as_json"]:
                sys.stdout.write(views.json_line([trigger_object(one, service.clock()) for one in found]))
                return 0
            for one in found:
                say(trigger_line(one))
            if not found:
                say(none)
            return 0

        return session.with_service(given, act, looking=True)

    _list.help = _list.short_help = help
    return _list


def managing(word: str, kinds: Kinds) -> list[click.Command]:
    """The commands that look at and change triggers of these kinds. `word` is what they are called."""

    def changing(verb: str, said: str) -> Callable[[Given], int]:
        def run(given: Given) -> int:
            async def act(service: Service) -> int:
                who = await session.acting(service, given)
                admin = administration(given, service)
                trigger = await find(admin, kinds, given["name"], who)
                made = await getattr(admin, verb)(type(trigger), trigger.name, who)
                say(said.format(name=made.name))
                if verb == "resume":
                    _warn(await admin.view(made))
                return 0

            return session.with_service(given, act, looking=True)

        return run

    @command("show", [NAME, options.AS_USER, options.STORE, options.AS_JSON])
    def show(given: Given) -> int:
        async def act(service: Service) -> int:
            who = await session.acting(service, given)
            admin = administration(given, service)
            view = await admin.view(await find(admin, kinds, given["name"], who))
            if given["as_json"]:
                sys.stdout.write(views.json_line(view_object(view, service.clock())))
            else:
                say("\n".join(view_lines(view, service.clock())))
            return 0

        return session.with_service(given, act, looking=True)

    show.help = f"Show a {word}: what fires it, what became of its firings, and what its runs would ask."

    @command("run", [NAME, options.AS_USER, options.STORE, options.AS_JSON])
    def run_now(given: Given) -> int:
        return _run_now(given, kinds)

    run_now.help = (
        f"Fire a {word} now.\n\nThe run is started here if this is the workspace of the {word}, and driven by a server or a"
        " worker. The overlap policy applies."
    )

    @command(
        "allow",
        [
            NAME,
            click.Option(
                ["--digest"],
                metavar="DIGEST",
                help="Allow what `show` printed with this digest, without asking; nothing if it has changed.",
            ),
            *(one for one in ALLOW if one.name not in ("allow", "dry_run")),
        ],
    )
    def allow(given: Given) -> int:
        seconds = duration_of("--allow-for", given["allow_for"], LASTS)

        async def act(service: Service) -> int:
            who = await session.acting(service, given)
            admin = administration(given, service)
            trigger = await find(admin, kinds, given["name"], who)
            view = await admin.view(trigger)
            if view.explained is not None:
                admin.permissions.check_giver(trigger, view.explained, who)
            seen = given["digest"] or view.digest
            if not given["digest"] and any(one.allowed for one in view.asks):
                _confirm(given, view)
            return _report(given, service, await admin.allow(trigger, who, seconds, seen=seen))

        return session.with_service(given, act, looking=True)

    allow.help = (
        f"Allow in advance exactly what the runs of a {word} would ask today.\n\nOn a terminal, the command shows the actions and asks."
        " Elsewhere, it needs --digest, and allows nothing if anything has changed since `show` printed that digest. The permission"
        " lists single actions. It ends when it expires, and does not apply while the playbook or the policy differs from today's:"
        " then a schedule is suspended, the runs of other triggers wait for approval, and a notice says why. Allowing needs the role"
        " approver."
    )

    @command("disallow", [NAME, options.AS_USER, options.STORE])
    def disallow(given: Given) -> int:
        async def act(service: Service) -> int:
            who = await session.acting(service, given)
            admin = administration(given, service)
            trigger = await find(admin, kinds, given["name"], who)
            done = await admin.permissions.withdraw(trigger, who)
            say(
                f"Withdrew what was allowed in advance to {trigger.name}."
                if done
                else f"Nothing was allowed in advance to {trigger.name}."
            )
            return 0

        return session.with_service(given, act, looking=True)

    disallow.help = f"Withdraw what was allowed in advance to a {word}. Its runs in progress ask from then on, too."

    pause = command("pause", [NAME, options.AS_USER, options.STORE])(changing("pause", "{name} is paused."))
    pause.help = f"Pause a {word}. What it had queued is skipped; runs in progress continue."
    resume = command("resume", [NAME, options.AS_USER, options.STORE])(changing("resume", "{name} is active."))
    resume.help = f"Resume a {word} that is paused or suspended. Firings in the meantime are not made up for."
    remove = command("remove", [NAME, options.AS_USER, options.STORE])(changing("remove", "Removed {name}."))
    remove.help = f"Remove a {word} and what it was allowed in advance. Its runs stay."
    made = [show, run_now, allow, disallow, pause, resume, remove]
    for one in made:
        one.short_help = " ".join((one.help or "").partition("\n\n")[0].split())
    return made


def _warn(view: TriggerView) -> None:
    """Says why a trigger that was resumed will not do what it did before."""
    trigger = view.trigger
    how = f"`cuebook {trigger.COMMAND} {{}} {trigger.name}`".format
    if view.problem:
        complain(f"cuebook: its runs would not start. {view.problem}")
    if view.standing is not None and view.standing_problem:
        again = " Its next firing is skipped, and suspends it again." if view.suspends else ""
        complain(f"cuebook: what it was allowed in advance no longer holds. {view.standing_problem}{again}")
        complain(
            f"  {how('allow')} shows what its runs ask now, and allows it; {how('disallow')} lets them wait for approval."
        )


def _confirm(given: Given, view: TriggerView) -> None:
    """Shows what would be allowed, and asks the person at the terminal."""
    if not someone_is_there(given):
        name = f"{view.trigger.COMMAND} {{}} {view.trigger.name}".format
        raise BadInput(
            f"Nothing was allowed: without a terminal, --digest is required. The digest is now {view.digest}.",
            fix=f"Look at it with `cuebook {name('show')}`, then run `cuebook {name('allow')} --digest {view.digest}`.",
        )
    if not any(one.allowed for one in view.waits_for):
        return
    for one in view.asks:
        for each in one.allowed:
            complain(f"step {one.step}: {each.domain} {each.pattern}" if one.step else f"{each.domain} {each.pattern}")
    if not click.confirm(f"Allow this in advance to the runs of {view.trigger.name}?", default=False, err=True):
        raise BadInput("Nothing was allowed.", fix="Its runs wait for approval.")


def _run_now(given: Given, kinds: Kinds) -> int:
    async def act(service: Service) -> int:
        wiring = session.wiring_of(given)
        who = await session.acting(service, given)
        admin = administration(given, service, wiring)
        trigger = await find(admin, kinds, given["name"], who)
        key = f"by {who.name} {uuid.uuid4().hex[:12]}"
        workspace = trigger.target.workspace
        if workspace and workspace not in wiring.factory.workspace.names:
            await admin.run(type(trigger), trigger.name, who, key)
            complain(f"A server or a worker in {workspace} starts it.")
            return 0
        firing = await admin.run_here(type(trigger), trigger.name, who, key)
        if given["as_json"]:
            sys.stdout.write(views.json_line(firing_object(firing)))
        elif firing.run:
            say(firing.run)
            complain("A server or a worker continues it.")
            view = await admin.view(trigger)
            if view.standing is not None and view.standing_problem:
                complain(f"What it was allowed in advance no longer holds. {view.standing_problem}")
        else:
            complain(f"cuebook: no run was started ({firing.state}): {firing.reason}")
        return 0 if firing.state in ("started", "queued") else 1

    return session.with_service(given, act, looking=True)
