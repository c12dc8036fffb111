"""Creates the triggers of a store: what starts runs without a person."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.gate.secrets import is_direct
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.preview.explanation import Explanation, explain
from cuebook.service.service import Service
from cuebook.service.start import options_of
from cuebook.service.triggers import Target, Trigger, Triggers
from cuebook.service.triggers.administration import Secret, Timers, TriggerAdministration
from cuebook.service.triggers.firing import Read
from cuebook.service.triggers.permissions import Permissions
from cuebook.service.triggers.target import playbook_of
from cuebook.service.triggers.watchers import Completions, Watches
from cuebook.system.logs import log_event
from cuebook.wiring.preview import preview_setup
from cuebook.wiring.run_request import RunRequest, start_run, typed_inputs
from cuebook.wiring.wiring import Wiring

log = logging.getLogger("cuebook.triggers")

_LOOK = 5.0
"""Seconds between two looks at the clock."""
_SET_BACK = 1.0
"""Seconds by which a clock that was set back has to differ, so that schedules are corrected."""


def triggers_of(wiring: Wiring, service: Service) -> Triggers:
    """The triggers of a service, whose runs start as runs from the web do."""

    async def start(
        playbook: Playbook, target: Target, inputs: Mapping[str, Any], who: Principal, *, key: str, trigger: str
    ) -> RunRow:
        wanted = request_of(target, inputs)
        return await start_run(wiring, service, playbook, wanted, who, key=key, trigger=trigger)

    async def check(trigger: Trigger, playbook: Playbook, inputs: Mapping[str, Any], who: Principal) -> str:
        adapted = playbook.adapted(trigger.target.options)
        policy = await service.policy_of(adapted, playbook.name, who)
        return await Permissions(service, triggers).check(trigger, playbook, policy.digest)

    triggers = service.triggers(start, reader_of(wiring), check)
    return triggers


def request_of(target: Target, inputs: Mapping[str, Any]) -> RunRequest:
    """The run that a target asks for, with these inputs."""
    return RunRequest(
        inputs=inputs,
        model=target.model,
        answers=target.answers,
        unattended=target.unattended,
        options=target.options,
        budget=target.budget,
    )


def administration_of(wiring: Wiring, service: Service) -> TriggerAdministration:
    """What people may do with the triggers of a service."""

    async def explained(playbook: Playbook, target: Target, who: Principal) -> Explanation:
        setup = await asyncio.to_thread(preview_setup, wiring, target.model)
        adapted = replace(playbook, document=playbook.adapted(target.options))
        options = options_of(adapted.dialect, adapted.document, adapted.where, Settings(options=target.options))
        settings = Settings(
            folder=playbook.folder, answers=target.answers, unattended=target.unattended, options=options
        )
        inputs = typed_inputs(playbook, target.inputs)
        return await explain(service, adapted, inputs, settings, setup, who, every_act=True)

    triggers = triggers_of(wiring, service)
    offer = service.offer
    offers = None if offer is None else frozenset(offer.workspaces)
    return TriggerAdministration(
        service, triggers, reader_of(wiring), explained, secret_of(wiring, service), offers, timers_of(wiring)
    )


def timers_of(wiring: Wiring) -> Timers | None:
    """Temporal's schedules, if it is configured."""
    if wiring.dispatcher is None:
        return None
    from cuebook.service.dispatch.temporal.schedules import TemporalTimers

    return TemporalTimers(wiring.dispatcher)


def secret_of(wiring: Wiring, service: Service) -> Secret:
    """Looks up named secrets: those of `cuebook secrets`, and those of the user's own configuration. A direct handle, as in
    `env:NAME`, is no name.
    """
    vault = wiring.factory.vault

    async def secret(name: str, tenant: str, read: bool) -> str:
        named = await service.kept(tenant, "secret")
        if ":" in name:
            fix = f"`cuebook secrets add NAME {name}` names it." if is_direct(name) else "Use a name."
            raise BadInput("Expected the name of a secret, not a handle.", fix=fix)
        handle = vault.canonical(str(named[name]["handle"]) if name in named else name)
        if not read:
            return ""
        return await vault.revealed(handle)

    return secret


def reader_of(wiring: Wiring) -> Read:
    """Reads the playbook of a target. It may import files of this process's workspace."""
    workspace = Path(wiring.factory.workspace.path)
    return lambda target: playbook_of(target, workspace)


@asynccontextmanager
async def clock_watched(service: Service, refits: Sequence[Callable[[], Awaitable[int]]]) -> AsyncIterator[None]:
    """Corrects what was planned while the clock was ahead: at the start, and when the clock is set back."""

    async def watch() -> None:
        seen = float("inf")
        while True:
            now = service.clock()
            if now < seen - _SET_BACK:
                try:
                    for refit in refits:
                        await refit()
                    seen = now
                except CuebookError as error:  # a lock or a full disk may be temporary
                    log_event(log, "triggers.failed", logging.WARNING, what="clock", code=error.code)
            else:
                seen = now
            await asyncio.sleep(_LOOK)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def events_watched(service: Service, admin: TriggerAdministration) -> AsyncIterator[None]:
    """Watches files, and waits for the ends of runs, as triggers say."""
    watches = Watches(admin.events, admin.triggers)
    completions = Completions(service, admin.events, admin.triggers)
    tasks = [asyncio.create_task(one) for one in (watches.run(), completions.run(), _timers_restored(admin))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _timers_restored(admin: TriggerAdministration) -> None:
    try:
        await admin.restore_timers()
    except CuebookError as error:
        log_event(log, "triggers.failed", logging.WARNING, what="timers", code=error.code)
