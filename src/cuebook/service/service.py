"""`Service`, which every surface calls to start, drive, resume, answer, decide, cancel, retry, restart, fork and show
runs.

It combines dialects, performers, the gate and a store, and depends on no surface. Surfaces never use the store or the
engine. Every call acts for a user, with the roles of that user and within their tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.config.settings import Rate
from cuebook.dialects.children import Find, Pins, pins_of
from cuebook.dialects.dialect import Document
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.playbook import Accepted, Playbook
from cuebook.formats.forms import filled_in
from cuebook.gate.limits import Ceilings
from cuebook.gate.policy import Policy, Preset
from cuebook.gate.roles import NotAllowed, Principal, check_may_cancel
from cuebook.gate.tokens import Tokens
from cuebook.kernel.answers import fitting
from cuebook.kernel.capabilities import moved
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import Effect, SecretNeed
from cuebook.kernel.engine.children import ChildRequest, ChildStart
from cuebook.kernel.engine.engine import Engine, Programs, WatchFunction
from cuebook.kernel.engine.waits import asker_of
from cuebook.kernel.errors import (
    AlreadyAnswered,
    AtLimit,
    BadInput,
    Busy,
    Conflict,
    CuebookError,
    NotFound,
    Refused,
    RunExists,
    WaitClosed,
)
from cuebook.kernel.events import ENDED, PAUSES, WAITING, Moved, RunStarted, TextEdit
from cuebook.kernel.journal import without_void
from cuebook.kernel.notices import notices_of
from cuebook.kernel.outcomes import SUPERSEDED_RUN, Failed
from cuebook.kernel.ports import Gate, KeptRecord, Outbox, Performer, Redactor, RunFilter, Store
from cuebook.kernel.run import WORKTREE, RunRow, Settings, Signal, WaitRow
from cuebook.kernel.spending import utc_day
from cuebook.kernel.triggers import checked_trigger
from cuebook.kernel.votes import rule_of
from cuebook.service import worker
from cuebook.service.access.visibility import Rule
from cuebook.service.admin import Today, no_policy
from cuebook.service.parts import Parts, RemoveFiles, no_files
from cuebook.service.runs.children import check_not_child, check_not_purged, child_start, no_children
from cuebook.service.runs.views import RunView
from cuebook.service.secrets.run_secrets import Handles, declared_by, named_in
from cuebook.service.start import (
    check_limits,
    check_postconditions,
    chosen_in,
    continuing_id,
    id_for,
    new_id,
    options_of,
    programs_of,
)
from cuebook.service.stream import TENANT_SLOTS
from cuebook.service.waits.decisions import (
    ABOUT,
    Decision,
    approval,
    check_may_answer,
    check_promise,
    checked_outcome,
    checked_settings,
    checked_values,
    how_to,
    meant_visit,
    raised,
    too_late,
)
from cuebook.service.waits.expiry import settle
from cuebook.service.waits.lasting_approvals import Lasts, lasting
from cuebook.service.worker import PYTHON
from cuebook.stores.refusals import no_wait

if TYPE_CHECKING:
    from cuebook.service.dispatch.dispatcher import Dispatcher
    from cuebook.service.runs.edits import EditPlan
    from cuebook.service.secrets.sensitive import Hidden

__all__ = ["PYTHON", "Principal", "RunView", "Service"]


def _no_worktrees() -> Failed:
    return Failed("no_repository", "Runs cannot have worktrees here.", fix="Run without a worktree.")


class Service(Parts):
    """Cuebook without a surface."""

    def __init__(
        self,
        store: Store,
        performers: Mapping[type[Effect], Performer],
        *,
        gate: Gate | None = None,
        redactor: Redactor | None = None,
        today: Today = no_policy,
        learn: Callable[[Iterable[str]], None] | None = None,
        on_close: Callable[[], Awaitable[None]] | None = None,
        watches: Mapping[str, Callable[..., WatchFunction]] | None = None,
        key_file: Path | None = None,
        signing_key: bytes | None = None,
        ceilings: Ceilings | None = None,
        rate: Rate | None = None,
        tenant_runs: int | None = None,
        host_lease: float = 600.0,
        visible: Rule = "all",
        worktree_problem: Callable[[], Failed | None] = _no_worktrees,
        programs: Programs | None = None,
        find: Find | None = None,
        dispatcher: Dispatcher | None = None,
        notifies: bool = False,
        outboxes: Sequence[Outbox] = (),
        time_zone: str = "UTC",
        remove_private_files: RemoveFiles = no_files,
        **engine: Any,
    ) -> None:
        """`tenant_runs` is how many runs of a tenant all processes on the store may drive at the same time. `host_lease` is for
        how many seconds a step is kept for the assistant that took it. `visible` says whose runs users see. `programs` returns the functions of the Python programs
        that this service can drive. `find` finds the playbooks that others start as children. With a dispatcher, workers drive
        all other runs, in their own processes. `notifies` says whether anyone is to be notified of anything. What runs
        use is counted by day in this `time_zone`. `remove_private_files` removes what performers keep of a run on this machine.
        """
        self.dispatcher = dispatcher
        self._own_programs = programs is not None
        made = Engine(
            store,
            programs_of(programs),
            performers,
            gate=gate,
            redactor=redactor,
            watches=watches,
            prepare=self._prepare,
            fill_in=filled_in,
            children=self._child,
            outboxes=(notices_of, *outboxes) if notifies else outboxes,
            allowance=self._allowance,
            conceals=lambda claim: self.sensitive.of(claim),
            ended=lambda row: self.sensitive.ended(row),
            day=utc_day if time_zone == "UTC" else self._day,
            **engine,
        )
        tokens = Tokens(key_file, signing_key)
        super().__init__(
            made,
            today,
            tokens,
            visible,
            time_zone=time_zone,
            host_lease=host_lease,
            notifies=notifies,
            remove_private_files=remove_private_files,
        )
        self._find = find or no_children
        self._rate = rate
        self._tenant_runs = tenant_runs
        self.worktree_problem = worktree_problem
        self.ceilings = ceilings
        self._learn_handles = learn
        self._handles = Handles(store, made.codec)
        self._on_close = on_close
        self._starting = asyncio.Lock()

    @property
    def _service(self) -> Service:
        return self

    # --- starting ---

    async def start(
        self,
        playbook: Playbook,
        inputs: Mapping[str, Any] | Accepted,
        settings: Settings,
        who: Principal = Principal(),
        *,
        key: str = "",
        preset: Preset = "",
        trigger: str = "",
        sensitive: Iterable[str] = (),
    ) -> RunRow:
        """Creates a run of a playbook; `drive` continues it. Bad input creates nothing.

        The values of the inputs that are `sensitive`, or that the playbook marks so, are shown nowhere.

        `trigger` says what started it, if it was not a person or a program: see `kernel.triggers`. `preset` adds rules to the policy for this run; only an approver may choose one. Inputs that the playbook has already
        accepted for these options are not checked again. A second call with the same `key` returns the same run.
        """
        dialect, name = playbook.dialect, playbook.name
        given = inputs.values if isinstance(inputs, Accepted) else inputs
        await self._check_start(given, playbook.text, name, who)
        if not isinstance(inputs, Accepted) or inputs.options != settings.options:
            inputs = playbook.accept(given, settings.options, tuple(sensitive))
        document = playbook.adapted(settings.options)
        settings = msgspec.structs.replace(settings, options=options_of(dialect, document, name, settings))
        check_limits(dialect, document, name, self.ceilings)
        row = self._row(dialect.name, dialect.interpreter, playbook.digest, name, who)
        row.trigger = checked_trigger(trigger)
        if key:
            row.id = id_for(who, key)
        settings = await self._with_worktree(settings, document, row)
        if preset:
            who.require("approver", "choose a policy for a run")
        policy = (await self.policy_of(document, name, who)).for_run(preset)
        check_postconditions(dialect, document, name, policy)
        named = named_in(declared_by(dialect, document), inputs.values)
        await self._learn_of(row, named, (), policy.snapshot())  # the driver will wait for missing secrets
        pins = await self._pins(playbook, settings)
        values, hidden = inputs.values, None
        if document.sensitive or sensitive:
            values, hidden = self.sensitive.hidden(values, document.sensitive, tuple(sensitive))
            settings = msgspec.structs.replace(settings, answers=self.sensitive.masked(settings.answers, hidden))
        return await self._create(row, playbook.text, values, settings, policy, who, key, pins, hidden)

    async def _pins(self, playbook: Playbook, settings: Settings) -> Pins:
        """The playbooks that a run may start. Raises `InvalidPlaybook` if one is unknown, broken or starts itself."""
        if not playbook.dialect.children(playbook.document):
            return Pins()
        pins = await asyncio.to_thread(pins_of, playbook, settings.folder or settings.workspace or ".", self._find)
        self._check_secrets({}, "input", "started", text="".join(str(one.text) for one in pins.pinned.values()))
        return pins

    async def _child(self, asked: ChildRequest) -> ChildStart | Failed:
        made = await child_start(asked, self.ceilings, self._engine.clock())
        return made if isinstance(made, Failed) else await self.sensitive.of_child(made)

    async def _with_worktree(self, settings: Settings, document: Document, row: RunRow) -> Settings:
        """The settings with the name of the run's worktree, if it is to have one. Raises `BadInput` if it cannot."""
        if not settings.options.get(WORKTREE) and not document.own_worktree:
            return settings
        problem = await asyncio.to_thread(self.worktree_problem)
        if problem is not None:
            raise BadInput(problem.message, fix=problem.fix)
        return msgspec.structs.replace(settings, options={**settings.options, WORKTREE: row.id})

    async def start_program(
        self, source: str, name: str, inputs: Mapping[str, Any], settings: Settings, who: Principal = Principal()
    ) -> RunRow:
        """Creates a run of a Python program. Only a service that has its function can drive it."""
        await self._check_start(inputs, source, name, who)
        row = self._row(PYTHON, 1, digest_of(source), name, who)
        return await self._create(row, source, dict(inputs), settings, await self.policy(who), who)

    async def _check_start(self, inputs: Mapping[str, Any], text: str, name: str, who: Principal) -> None:
        who.require("runner", "start runs")
        await self._learn(who.tenant)
        self._check_secrets(inputs, "input", "started", text=text, name=name)
        self.tokens.make_key()

    async def _create(
        self,
        row: RunRow,
        text: str,
        accepted: dict[str, Any],
        settings: Settings,
        policy: Policy,
        who: Principal,
        key: str = "",
        pins: Pins | None = None,
        hidden: Hidden | None = None,
    ) -> RunRow:
        row.model = settings.model
        chosen = {"settings": chosen_in(msgspec.to_builtins(settings))}
        self._check_secrets({**accepted, **chosen}, "input", "started", text=text, name=row.name)
        if key:
            row.id = id_for(who, key)
        try:
            if key and (known := await self._known(row.id)) is not None:
                return await self._same(known, row, accepted, settings)
            snapshot = None if self._engine.gate is None else policy.snapshot()
            found = pins or Pins()
            async with self._within_rate(who):
                if hidden:
                    await self.sensitive.keep(row.tenant, row.id, hidden)
                await self._engine.start(row, text, accepted, settings, snapshot, found.uses, found.pinned)
            await self._dispatch(row)
        except RunExists:  # another process was faster
            return await self._same(await self._store.run(row.id), row, accepted, settings)
        return row

    async def restart(self, run: str, step: str, *, visit: int | None = None, who: Principal = Principal()) -> RunRow:
        """Creates a run that keeps everything before this step and repeats the rest."""
        return await self.fork(run, step, visit=visit, who=who)

    async def fork(
        self,
        run: str,
        step: str,
        *,
        visit: int | None = None,
        path: str | None = None,
        values: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        who: Principal = Principal(),
    ) -> RunRow:
        """Creates a run like `restart`, with values and settings that are changed from this step on.

        `path` is the step's branch; without it, all branches are searched.
        """
        who.require("runner", "start runs")
        parent = await self.get(run, who)
        check_not_purged(parent, "restarted")
        await self._learn_run(parent, values)
        self._check_secrets({**dict(values or {}), **dict(settings or {})}, "input", "started")
        planned: frozenset[str] = frozenset()
        playbook = await self.playbook_of(parent)
        if playbook is not None:
            planned = frozenset(one.label for one in playbook.steps)
            check_limits(playbook.dialect, playbook.document, parent.name, self.ceilings)
            check_postconditions(playbook.dialect, playbook.document, parent.name, await self.policy(who))
        begin = meant_visit(parent.id, await self._store.steps(parent.id), step, visit, path, planned)
        changed = await self._changed(parent, values, begin.seq)
        row = self._row(parent.dialect, parent.interpreter, parent.playbook, parent.name, who)
        row.parent = parent.id
        async with self._within_rate(who):
            changed = await self.sensitive.inherited(parent, row.id, changed)
            await self._engine.fork(row, begin, changed, checked_settings(settings))
        await self._dispatch(row)
        return row

    async def edit_plan(self, run: str, playbook: Playbook, who: Principal = Principal()) -> EditPlan:
        """What becomes of each step if a run continues with a changed text. Changes nothing."""
        return (await self._edited(run, playbook, who))[1]

    async def continue_with(
        self, run: str, playbook: Playbook, who: Principal = Principal(), *, plan: str = ""
    ) -> RunRow:
        """Continues a failed, paused or waiting run with a changed text, in a new run that supersedes it.

        `plan` is the id of the plan that was shown; if the run or the text has changed since, nothing happens.
        """
        who.require("runner", "continue runs")
        parent, found = await self._edited(run, playbook, who)
        if plan and plan != found.id:
            raise Conflict(f"Run {parent.id} has changed since the plan was made.", fix="Look at the new plan first.")
        dialect, document = playbook.dialect, playbook.document
        first, current = await self.settings(parent.id, who)
        settings = msgspec.structs.replace(current, options=first.options)
        unfit = dialect.unfit(document, settings.options)
        if unfit:
            raise InvalidPlaybook(playbook.name, unfit)
        check_limits(dialect, document, playbook.name, self.ceilings)
        check_postconditions(dialect, document, playbook.name, await self.policy(who))
        view = await self.view(parent.id, who)
        declared = {one.name for one in playbook.inputs}
        given = {name: one for name, one in view.inputs.items() if name in declared or dialect.takes(document, name)}
        inputs = playbook.accept(given, settings.options).values
        self._check_secrets(inputs, "input", "continued", text=playbook.text, name=playbook.name)
        pins = await self._pins(playbook, settings)
        # It stays a run of the same playbook, whatever the file with the correction is called.
        same = not playbook.name or PurePath(playbook.name).suffix == PurePath(parent.name).suffix
        name = parent.name if same else playbook.name
        row = self._row(parent.dialect, parent.interpreter, playbook.digest, name, who)
        row.id, row.parent = continuing_id(parent.id), parent.id
        kept = {one.step for one in found.verdicts if one.verdict == "kept"}
        paused = {wait.prompt for wait in view.waits if wait.kind == "breakpoint"}
        passed = {one for one in settings.breakpoints if one in kept and f"Paused after step {one}." in paused}
        changed = {"breakpoints": tuple(one for one in settings.breakpoints if one not in passed)} if passed else {}
        edit = TextEdit(playbook.digest, inputs, playbook.steps, pins.uses, pins.pinned, found.later)
        async with self._within_rate(who):
            for child in found.children:
                await self._engine.end_child(child)
            await self.sensitive.inherited(parent, row.id, {})
            try:
                await self._engine.supersede(row, found.point, changed, edit, playbook.text)
            except RunExists:  # someone else was faster
                await self._check_not_superseded(parent, who)
                raise
            for ended in (parent.id, *found.children):
                await self.sensitive.ended(await self._store.run(ended))
        await self._dispatch(row)
        return row

    async def _edited(self, run: str, playbook: Playbook, who: Principal) -> tuple[RunRow, EditPlan]:
        """The run and the plan. Raises `Refused` if the run cannot be continued with another text."""
        who.require("viewer", "view runs")
        row = await self.get(run, who)
        check_not_child(row, "edited")
        check_not_purged(row, "edited")
        old = await self.playbook_of(row)
        if old is None:
            raise Refused(f"Run {row.id} belongs to a Python program, which is edited as such.")
        await self._check_not_superseded(row, who)
        if row.status == "completed":
            raise Refused(f"Run {row.id} is completed: there is nothing to continue.", fix="Start a new run.")
        if await self._store.alive(row.id):
            raise Busy(f"Run {row.id} is being driven.", fix="Wait until it waits or ends, or cancel it.")
        below = await self._store.runs(caller=row.id, limit=None)
        below = [one for one in below if one.status not in ENDED]
        for one in below:
            if await self._store.alive(one.id):
                raise Busy(f"Run {one.id}, a child of it, is being driven.", fix="Wait until it waits or ends.")
        if old.digest == playbook.digest:
            raise Refused("The text is the same; nothing was changed.", fix=f"`cuebook resume {row.id}` continues it.")
        entries = without_void([entry async for entry in self._engine.entries(row.id)])
        from cuebook.service.runs.edits import plan_of  # most runs keep their text

        return row, plan_of(row, old, playbook, await self._store.steps(row.id), entries, below)

    # --- driving ---

    async def drive(self, run: str, waits: Callable[[str], None] | None = None) -> RunRow:
        """Drives a run until it waits for someone or ends. Follows it while another process is driving it. `waits` is called
        with the reason if the run has to wait because its tenant is at its limit.

        With a dispatcher, a worker drives it, and this process only follows it.
        """
        if self.is_dispatched(await self._store.run(run)):
            from cuebook.service.dispatch.follow import follow_to_rest

            return await follow_to_rest(self, run)
        return await worker.drive(self, run, waits)

    async def connect(self) -> None:
        """Connects to the dispatcher, if there is one. Raises `Unreachable` if that is impossible."""
        if self.dispatcher is not None:
            await self.dispatcher.connect()

    def is_dispatched(self, row: RunRow) -> bool:
        """Whether workers in other processes drive a run. A Python program is driven by the process that has it."""
        return self.dispatcher is not None and row.dialect != PYTHON

    async def is_left_to_workers(self, run: str) -> bool:
        if self.is_dispatched(await self._store.run(run)):
            return True
        return await super().is_left_to_workers(run)

    async def wake(self, run: str, *, ending: bool = False) -> bool:
        """Makes the process that drives a run, or the next one, look at what has arrived for it. Returns False if the
        dispatcher could not be reached.
        """
        await self._engine.hear(run)
        return self.dispatcher is None or await self._dispatch(await self._store.run(run), ending=ending)

    async def _dispatch(self, row: RunRow, *, ending: bool = False) -> bool:
        if self.dispatcher is None or not self.is_dispatched(row):
            return True
        return await self.dispatcher.wake(row, ending=ending)

    async def take_up(self, run: str, *, reserved: bool = False) -> RunRow:
        """Drives a run until it waits or ends. Raises `Busy` if another process is driving it, and `AtLimit` if its tenant
        has no free slot. With `reserved`, the caller has reserved one.
        """
        row = await self._store.run(run)
        self.check_program(row)
        if reserved or self._tenant_runs is None or self.drives(run):
            return await self._engine.drive(run)
        slot = await self.reserve(row.tenant)
        if slot is None:
            return await self._at_limit(row)
        try:
            return await self._engine.drive(run)
        finally:
            await asyncio.shield(self.give_back(slot))

    @property
    def limits_tenants(self) -> bool:
        return self._tenant_runs is not None

    async def is_first(self, task: str, lasts: float) -> bool:
        """Whether no other process has begun a task of the whole store in the last seconds; if so, this one has."""
        return await self._store.take_slot(task, 1, self._engine.driver, lasts) is not None

    async def reserve(self, tenant: str) -> int | None:
        """Reserves a slot to drive a run of this tenant; None if all are taken, in this and other processes."""
        assert self._tenant_runs is not None
        return await self._engine.slots.take(f"{TENANT_SLOTS}{tenant}", self._tenant_runs)

    def give_back(self, slot: int) -> asyncio.Task[None]:
        return self._engine.slots.free(slot)

    async def _at_limit(self, row: RunRow) -> RunRow:
        """The row of a run that has nothing to do now. Raises `AtLimit` if it has, or `Busy` if it is being driven."""
        if await self._store.alive(row.id):
            raise Busy(f"Run {row.id} is being driven by another process.", fix="Follow it, or signal it.")
        if not await self.is_due(row.id):
            return await self._store.run(row.id)
        raise AtLimit(self._full(row.tenant), fix=f"Run {row.id} continues when one of them waits or ends.")

    async def limit_reached(self, run: str) -> str:
        """Why a run that could be driven has to wait, if its tenant is at its limit; otherwise empty. Takes no slot."""
        if self._tenant_runs is None or not await self.is_due(run):
            return ""
        tenant = (await self._store.run(run)).tenant
        taken = await self._store.taken_slots(f"{TENANT_SLOTS}{tenant}")
        return self._full(tenant) if taken >= self._tenant_runs else ""

    def _full(self, tenant: str) -> str:
        return f"{self._tenant_runs} of {self._tenant_runs} runs of tenant {tenant} are being driven"

    def hand_over(self) -> None:
        """Stops driving, because this process is about to end: each run is released before its next effect."""
        self._engine.hand_over()

    def check_program(self, row: RunRow) -> None:
        """Refuses to drive the run of a Python program that this service does not have."""
        if row.dialect == PYTHON and not self._own_programs:
            raise Refused(
                f"Run {row.id} belongs to a Python program and continues when that program drives it.",
                fix="Decisions are stored until then.",
            )

    async def expire(self, run: str | None = None) -> None:
        """Ends the expired waits of one run or of all runs."""
        await self._store.expire(self._clock(), run)

    async def settle(self) -> None:
        """Ends the runs whose only wait has expired, unless workers do that."""
        if self.dispatcher is None:
            await settle(self._engine)

    async def follow(self, run: str) -> RunRow:
        """Waits until the process that drives a run releases it. This one may still be busy after its claim is gone."""
        while self.drives(run) or await self._store.alive(run):  # noqa: ASYNC110 - the driver may be another process
            await asyncio.sleep(0.1)
        return await self._store.run(run)

    # --- decisions by users ---

    async def answer(self, wait: str, value: Any, who: Principal = Principal(), *, token: str | None = None) -> WaitRow:
        """Answers a question, once. An invalid value leaves it open. The answer to a form is JSON text, or a value."""
        row = await self._wait(wait, token, who)
        if token is None:
            who.require("runner", "answer questions")
        if row.kind == "question":
            check_may_answer(row, who, by_token=token is not None)
        if row.kind != "question":
            raise BadInput(f"{row.id} is not a question: it is about {ABOUT[row.kind]}.", fix=how_to(row))
        await self._learn_run(await self._store.run(row.run))
        self._check_secrets({"answer": value}, "value", "answered")
        said = fitting(row.type, row.options, value, row.details.get("schema"), filled_in)
        return await self._complete(row, {"value": said}, who)

    async def resume(
        self,
        run: str,
        who: Principal = Principal(),
        *,
        overrides: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        wait: WaitRow | None = None,
    ) -> RunRow:
        """Ends one or all pauses (breakpoints, spent budgets, missing secrets), and can change values and settings."""
        who.require("runner", "resume runs")
        row = await self.get(run, who)
        check_not_child(row, "resumed")
        waits = await self._store.waits(run=row.id) if wait is None else [wait]
        if any(one.kind == "budget" and one.expires is not None and one.expires <= self._clock() for one in waits):
            await self.expire(row.id)  # its period is over, so it continues anyway
            waits = await self._store.waits(run=row.id)
        pauses = [wait for wait in waits if wait.kind in PAUSES]
        checked = checked_settings(settings)
        changes = [raised(wait, checked) if wait.kind == "budget" else checked for wait in pauses]
        await self._learn_run(row, overrides)
        values = await self._changed(row, overrides)
        values = await self.sensitive.changed(row, values)
        self._check_secrets({**values, **checked}, "value", "changed")
        for wait, changed in zip(pauses, changes, strict=True):
            await self._complete(wait, {"overrides": values, "settings": changed}, who)
        stuck = bool(waits) if row.status in WAITING else row.status in ENDED
        stuck = stuck and row.reason != "non_determinism"
        stuck = stuck and not (await self.is_interrupted(row.id) or await self.is_due(row.id))
        if not pauses and (values or checked or stuck):
            doubted = next((wait for wait in waits if wait.kind == "in_doubt"), None)
            status = "in doubt" if doubted is not None else row.status.replace("_", " ")
            fix = how_to(doubted) if doubted is not None else self._next(row)
            raise Refused(f"Run {row.id} is {status}: there is no pause to end.", fix=fix)
        return row

    async def decide(
        self,
        wait: str,
        decision: Decision,
        who: Principal = Principal(),
        *,
        reason: str = "",
        outcome: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        lasts: Lasts = "once",
        offer: int = 1,
        to: str = "",
        token: str | None = None,
    ) -> WaitRow:
        """Decides on an approval or an effect in doubt, once. If an approval needs several votes, this is one of them.

        `changes` sends the run back to the step `to`, with the reason as feedback, where the approval allows it.

        An approval may last for the run or for all runs (`lasts`): it then also allows what `offer` is the number of, among
        the offers shown with it. `done` needs the outcome of the effect. Changed settings apply from now on and require the
        runner role.
        """
        row = await self._wait(wait, token, who)
        if token is None:
            who.require("approver", "decide this")
        elif lasts != "once":
            raise NotAllowed("A token decides once; only an approver can allow more.", fix="Sign in as an approver.")
        changed = await self._settings_with(row, settings, who)
        if row.kind == "approval":
            answered = approval(row, decision, reason, who, to=to, by_token=token is not None)
            allowed, kept = lasting(row, decision, lasts, offer, who, self._engine.clock())
            done = await self._complete(row, {**answered, **allowed, **changed}, who, kept)
            for one in kept:
                details = {"domain": one.body["domain"], "pattern": one.body["pattern"], "run": row.run}
                await self.record_act("override.add", one.name, who, details)
            return done
        if lasts != "once":
            raise BadInput("Only an approval can last.", fix="Leave out how long it lasts.")
        if row.kind != "in_doubt":
            raise BadInput(f"{row.id} does not need a decision: it is about {ABOUT[row.kind]}.", fix=how_to(row))
        answer: dict[str, Any] = {"decision": decision, "reason": reason, **changed}
        if decision == "done":
            answer["outcome"] = checked_outcome(row, outcome)
            if outcome is not None:  # a late outcome of the performer itself is not checked
                await self._check_promise(row, answer["outcome"])
        elif decision not in ("repeat", "stop"):
            raise BadInput(f"Unknown decision '{decision}'.", fix="Use repeat, stop or done.")
        return await self._complete(row, answer, who)

    async def move(self, run: str, workspace: str, label: str = "", who: Principal = Principal()) -> RunRow:
        """Records that the folder of a run is somewhere else now; the playbook's folder moves with it."""
        who.require("runner", "move runs")
        row = await self.get(run, who)
        check_not_child(row, "moved")
        if row.workspace == (label or workspace):
            return row
        current = (await self.settings(row.id, who))[1]
        folder = moved(current.folder, current.workspace, workspace) if current.workspace else current.folder
        await self._engine.move(row.id, Moved(workspace, label, folder, who.name))
        await self.wake(row.id)
        return await self.get(row.id, who)

    async def cancel(self, run: str, reason: str = "", who: Principal = Principal()) -> RunRow:
        """Cancels a run, which then undoes what it can; a second call stops it immediately. The policy decides who may
        do so."""
        row = await self.get(run, who)
        await self.check_cancel(row, who)
        await self._signal(Signal(row.id, "cancel", {"reason": reason}, who.name))
        if self._store.shared and row.epoch == 0 and not row.parent and row.dialect != PYTHON:
            with suppress(CuebookError):  # a worker that was faster ends it
                await self._engine.drive(row.id, prepared=True)  # it has done nothing, so any process can end it
        return row

    async def check_cancel(self, row: RunRow, who: Principal) -> None:
        """Raises the reason why this user may not cancel a run."""
        check_not_child(row, "cancelled")
        for policy in await self._held_to(row):
            check_may_cancel(who, policy.cancel, row.owner)

    async def check_retry(self, row: RunRow, who: Principal) -> None:
        """Raises the reason why a run cannot be retried."""
        check_not_child(row, "retried")
        check_not_purged(row, "retried")
        await self._check_not_superseded(row, who)

    async def retry(self, run: str, *, whole_step: bool = False, who: Principal = Principal()) -> RunRow:
        """Continues a failed run at the effect that failed, or at the start of its step."""
        who.require("runner", "retry runs")
        row = await self.get(run, who)
        await self.check_retry(row, who)
        await self._signal(Signal(row.id, "retry", {"whole_step": whole_step}, who.name))
        return row

    async def _check_not_superseded(self, row: RunRow, who: Principal) -> None:
        if await self.superseded_by(row):
            later = await self.superseded_by(row, who)
            named, fix = (f"run {later}", self._next(row, later)) if later else ("another run", "Ask its owner.")
            raise Refused(f"Run {row.id} is continued by {named}, with a changed text.", fix=fix)

    async def send(self, run: str, channel: str, value: Any, who: Principal = Principal()) -> RunRow:
        """Sends a message to a run, which may be waiting for it now or wait for it later."""
        who.require("runner", "send messages")
        row = await self.get(run, who)
        check_not_child(row, "messaged")
        await self._signal(Signal(row.id, "message", {"channel": channel, "value": value}, who.name))
        return row

    def token(self, wait: str) -> str:
        """A token that lets someone without an account decide this wait, once."""
        return self.tokens.of(wait)

    async def close(self) -> None:
        try:
            if self._on_close is not None:
                await self._on_close()
            await self.stream.close()
            await self._engine.close()
            await self._store.close()
        finally:
            if self.dispatcher is not None:
                await self.dispatcher.close()

    # --- inside ---

    def _row(self, dialect: str, interpreter: int, playbook: str, name: str, who: Principal) -> RunRow:
        now = self._engine.clock()
        return RunRow(
            id=new_id(),
            tenant=who.tenant,
            owner=who.name,
            dialect=dialect,
            interpreter=interpreter,
            playbook=playbook,
            name=name,
            created=now,
            updated=now,
        )

    async def policy_of(self, document: Document | None, name: str, who: Principal) -> Policy:
        """The current policy with the playbook's own rules, which can only make it stricter."""
        today = await self.policy(who)
        own = None if document is None else document.policy
        return today if own is None else today.with_playbook(own, name)

    async def _held_to(self, row: RunRow) -> list[Policy]:
        """The policies that apply to a run: its policy at the start, if any, and the current policy."""
        today = await self._today(row.tenant)
        async for entry in self._engine.entries(row.id):
            if isinstance(entry.event, RunStarted) and entry.event.policy is not None:
                return [Policy.from_snapshot(str(entry.event.policy)), today]
            break
        return [today]

    async def _known(self, run: str) -> RunRow | None:
        try:
            return await self._store.run(run)
        except NotFound:
            return None

    async def _same(self, known: RunRow, row: RunRow, inputs: Mapping[str, Any], settings: Settings) -> RunRow:
        """Returns the run started with a key if its playbook, inputs and settings are the same. Raises `Conflict` if
        not."""
        given = self._engine.redactor.value((dict(inputs), chosen_in(msgspec.to_builtins(settings))))
        async for entry in self._engine.entries(known.id):
            event = entry.event
            same = isinstance(event, RunStarted) and (event.inputs, chosen_in(event.settings)) == given
            if same and known.playbook == row.playbook:
                return known
            break
        raise Conflict(f"Another run was started with this key: {known.id}.", fix="Use another key.")

    async def _settings_with(self, row: WaitRow, settings: Mapping[str, Any] | None, who: Principal) -> dict[str, Any]:
        """A decision's settings, as part of its answer."""
        if not settings:
            return {}
        who.require("runner", "change the settings of a run")
        checked = checked_settings(settings)
        await self._learn_run(await self._store.run(row.run))
        self._check_secrets(checked, "setting", "decided")
        return {"settings": checked}

    async def _check_promise(self, wait: WaitRow, outcome: Mapping[str, Any]) -> None:
        run, step = asker_of(wait)
        playbook = await self.playbook_of(await self._store.run(run))
        if playbook is not None:
            check_promise(playbook, step, outcome)

    async def _changed(self, row: RunRow, given: Mapping[str, Any] | None, before: int = 0) -> dict[str, Any]:
        """Checks changed values against the playbook; a Python program has no playbook."""
        playbook = await self.playbook_of(row) if given else None
        if not given or playbook is None:
            return dict(given or {})
        entries = without_void([entry async for entry in self._engine.entries(row.id)])
        return checked_values(playbook, entries, given, before)

    @asynccontextmanager
    async def _within_rate(self, who: Principal) -> AsyncIterator[None]:
        """Checks the rate limit and holds a lock, so each start is counted before the next one."""
        if self._rate is None:
            yield
            return
        from cuebook.service.rate_limit import check_rate

        async with self._starting:
            now = self._engine.clock()
            which = RunFilter(tenant=who.tenant, owner=who.name, caller="", since=now - self._rate.seconds)
            check_rate(self._rate, await self._store.runs(limit=self._rate.starts, **which), now)
            yield

    async def _learn(self, tenant: str) -> None:
        """Makes the redactor mask all named secrets, even in a process that never resolves them."""
        if self._learn_handles is not None:
            self._learn_handles([str(body["handle"]) for body in (await self._store.kept(tenant, "secret")).values()])

    async def without_secrets(self, values: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        """Values in which those of named secrets are masked, to be stored before a run exists."""
        await self._learn(tenant)
        return self.masked(dict(values))

    async def _prepare(self, row: RunRow) -> Failed | None:
        """Returns the missing secret, if any, of a run that is about to be driven. Checks its workspace first."""
        found = await self._handles.of(row, {})
        lacking = await self._learn_of(row, found.declared, found.used, found.policy)
        if lacking is not None and self._engine.gate is not None:
            self._engine.gate.check_place(row)
        return lacking

    async def _learn_run(self, row: RunRow, given: Mapping[str, Any] | None = None) -> Failed | None:
        """Makes the redactor mask the secrets of a run and in `given`. Returns a failure if one cannot be resolved."""
        found = await self._handles.of(row, given or {})
        return await self._learn_of(row, found.declared, found.used, found.policy)

    async def _redactor_of(self, row: RunRow) -> Redactor:
        """Masks the secrets of a run and what is sensitive in it."""
        await self._learn_run(row)
        return await self.sensitive.redactor_of(row)

    async def _learn_of(
        self, row: RunRow, declared: Iterable[SecretNeed], used: Iterable[SecretNeed], policy: str | None
    ) -> Failed | None:
        await self._learn(row.tenant)
        declared, used = tuple(declared), tuple(used)
        gate = self._engine.gate
        return None if gate is None or not (declared or used) else await gate.learn(declared, used, row, policy)

    def _check_secrets(self, given: Mapping[str, Any], kind: str, done: str, *, text: str = "", name: str = "") -> None:
        """Rejects text and values that contain the value of a secret."""
        masked = self._engine.redactor.value
        found = [name] if masked(text) is not text else []
        found += ["the playbook's name"] if masked(name) is not name else []
        found += [f"the {kind} '{one}'" for one, value in given.items() if masked(value) is not value]
        if found:
            raise BadInput(
                f"The value of a secret is in {masked(' and in '.join(found))}; nothing was {done}.",
                fix="Remove it and use the secret's handle instead, for example env:NAME.",
            )

    async def _wait(self, wait: str, token: str | None, who: Principal) -> WaitRow:
        if token is not None and not self.tokens.fits(token, wait):
            raise Refused("This token is for another wait.")
        row = await self._store.wait(wait)
        if token is None and not await self.visibility.sees_wait(row, who):
            raise no_wait(wait)
        return row

    async def _complete(
        self, row: WaitRow, answer: dict[str, Any], who: Principal, keep: Sequence[KeptRecord] = ()
    ) -> WaitRow:
        for concerned in dict.fromkeys((row.run, asker_of(row)[0])):
            await self._learn_run(await self._store.run(concerned))
        masked = (await self.sensitive.redactor_of(await self._store.run(row.run))).value
        kept = masked({**answer, "through": who.through} if who.through else answer)
        now = self._engine.clock()
        try:
            if row.kind == "approval" and rule_of(row.details).counts:
                done = await self._store.vote(row.id, kept, who.name, now)
            else:
                done = await self._store.complete_wait(row.id, kept, who.name, now, keep)
        except (AlreadyAnswered, WaitClosed) as late:
            run = await self._store.run(row.run)
            onward = self._next(run) if isinstance(late, WaitClosed) and run.status in ENDED else ""
            if await self.is_interrupted(run.id):
                onward = f"`cuebook resume {run.id}` continues the run."
            raise type(late)(late.message, fix=too_late(await self._store.wait(row.id), onward)) from None
        from cuebook.service.insight.decision_log import log_decided  # most runs never wait for a person

        log_decided(done, kept, who)
        await self.wake(row.run)
        return done

    async def _signal(self, signal: Signal) -> None:
        run = await self._store.run(signal.run)
        await self._store.signal((await self._redactor_of(run)).value(signal))
        from cuebook.service.insight.decision_log import log_requested

        log_requested(signal)
        await self.wake(signal.run, ending=signal.kind == "cancel")

    def _next(self, row: RunRow, later: str = "") -> str:
        if later or row.reason == SUPERSEDED_RUN:
            return f"`cuebook show {later or row.id}` shows it."
        return {
            "completed": f"`cuebook restart {row.id} STEP` repeats a step and all later steps in a new run.",
            "failed": f"`cuebook retry {row.id}` continues where it failed.",
            "cancelled": f"`cuebook retry {row.id}` continues where it was cancelled.",
            "expired": f"`cuebook retry {row.id}` waits again.",
            "running": f"`cuebook restart {row.id} STEP --set NAME=VALUE` changes it from a step on, in a new run.",
            "awaiting_input": "A connected assistant continues it."
            if row.reason == "model"
            else f"`cuebook answer {row.id} VALUE` answers it.",
            "awaiting_approval": f"`cuebook decide {row.id} ...` decides it.",
        }.get(row.status, "")
