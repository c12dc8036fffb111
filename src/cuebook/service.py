"""What every surface calls: start, resume, answer, decide, cancel, retry, restart, fork, and look.

It joins dialects, performers, the gate and a store into one thing, and knows no surface. Everything is done on
someone's behalf: by their roles, and within their tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from cuebook.administration import Administration, Today, no_policy
from cuebook.beginnings import check_limits, check_postconditions, chosen_in, id_for, new_id, options_of, programs_of
from cuebook.decisions import (
    ABOUT,
    Decision,
    approval,
    check_promise,
    checked_outcome,
    checked_settings,
    checked_values,
    how_to,
    meant_visit,
    raised,
    too_late,
)
from cuebook.dialects import registry
from cuebook.exports import Audited, Export, audited_from, export_of
from cuebook.gate.limits import Ceilings
from cuebook.gate.people import Principal, check_may_cancel
from cuebook.gate.policy import Policy
from cuebook.gate.tokens import Tokens
from cuebook.handles import Handles, declared_by, named_in
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import Effect, SecretNeed
from cuebook.kernel.engine import Engine, Observer, Programs, WatchFunction
from cuebook.kernel.errors import AlreadyAnswered, BadInput, Busy, Conflict, NotFound, Refused, RunExists, WaitClosed
from cuebook.kernel.events import ENDED, FOR_PEOPLE, PAUSES, WAITING, ModelAsked, RunStarted, TextChunk, TextReset
from cuebook.kernel.journal import Entry, Verdict, without_void
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Gate, Performer, Redactor, Store
from cuebook.kernel.questions import fitting
from cuebook.kernel.rates import Rate
from cuebook.kernel.rehearsal import Rehearsal
from cuebook.kernel.replay import Recorded
from cuebook.kernel.run import RunRow, Settings, Signal, WaitRow
from cuebook.kernel.waits import in_full
from cuebook.listening import Listening
from cuebook.stores.rules import ALIKE, no_run, no_wait
from cuebook.views import RunView, Sent, sent, view_of, with_results

PYTHON = "python"
"""The dialect of runs whose program was handed in as Python: only whoever has it can drive them."""

_LONGEST_SLEEP = 1.0
"""Seconds between two looks at the clock while a timer runs: it may jump, as over a sleep of the machine."""

_NAMED = 5
"""Ids that are named where the beginning of one fits more."""

SHORTEST_NAME = 5
"""Characters of a wait's id that may stand for it."""


__all__ = ["Principal", "RunView", "Service"]


class Service(Administration):
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
        ceilings: Ceilings | None = None,
        rate: Rate | None = None,
        programs: Programs | None = None,
        **engine: Any,
    ) -> None:
        """With `programs`, what is started are programs of one's own; runs of playbooks go on as they are."""
        self._own_programs = programs is not None
        self.engine = Engine(
            store,
            programs_of(programs),
            performers,
            gate=gate,
            redactor=redactor,
            watches=watches,
            prepare=self._prepare,
            **engine,
        )
        super().__init__(store, today, self.engine.clock)
        self.tokens = Tokens(key_file)
        self._rate = rate
        self.ceilings = ceilings
        self._learn_handles = learn
        self._handles = Handles(store, self.engine.codec)
        self._on_close = on_close
        self._listening = Listening(self.engine)
        self._starting = asyncio.Lock()

    # --- beginning ---

    async def start(
        self,
        text: str,
        name: str,
        inputs: Mapping[str, Any],
        settings: Settings,
        who: Principal = Principal(),
        *,
        key: str = "",
    ) -> RunRow:
        """Creates a run of a playbook's text; `drive` takes it from there. Bad input creates nothing.

        Whoever comes twice with the same `key` gets the run that the first time created.
        """
        who.require("runner", "start runs")
        await self._learn(who.tenant)
        self._check_secrets(inputs, "input", "started", text=text, name=name)
        self.tokens.make_key()
        if self._own_programs:
            document, accepted = None, dict(inputs)
            row = self._row(PYTHON, 1, digest_of(text), name, who)
        else:
            dialect = registry.detect(text, name)
            document = registry.adapted(dialect, dialect.parse(text, name), settings.options)
            accepted = dialect.accept(document, inputs)
            settings = msgspec.structs.replace(settings, options=options_of(dialect, document, name, settings))
            check_limits(dialect, document, name, self.ceilings)
            row = self._row(dialect.name, dialect.interpreter, digest_of(text), name, who)
        row.model = settings.model
        policy = await self._policy_of(document, name, who)
        if not self._own_programs:
            dialect = registry.named(row.dialect)
            check_postconditions(dialect, document, name, policy)
            named = named_in(declared_by(dialect, document), accepted)
            await self._learn_of(row, named, (), policy.snapshot())  # what cannot be had is waited for by its driver
        chosen = {"settings": chosen_in(msgspec.to_builtins(settings))}
        self._check_secrets({**accepted, **chosen}, "input", "started", text=text, name=name)
        if key:
            row.id = id_for(who, key)
        try:
            if key and (known := await self._known(row.id)) is not None:
                return await self._same(known, row, accepted, settings)
            snapshot = None if self.engine.gate is None else policy.snapshot()
            async with self._within_rate(who):
                await self.engine.start(row, text, accepted, settings, snapshot)
        except RunExists:  # another process was faster
            return await self._same(await self.store.run(row.id), row, accepted, settings)
        return row

    async def restart(self, run: str, step: str, *, visit: int | None = None, who: Principal = Principal()) -> RunRow:
        """A new run that keeps what the old one did before this step, and does the rest again."""
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
        """A restart with edits: values and settings that hold from this step on.

        `path` is that of the branch that the step is in; without one, it is found wherever it is.
        """
        who.require("runner", "start runs")
        parent = await self.get(run, who)
        await self._learn_run(parent, values)
        self._check_secrets({**dict(values or {}), **dict(settings or {})}, "input", "started")
        planned: frozenset[str] = frozenset()
        if _has_dialect(parent):
            dialect = registry.named(parent.dialect)
            document = dialect.parse(await self.store.playbook(parent.playbook), parent.name)
            planned = frozenset(one.label for one in document.plan)
            check_limits(dialect, document, parent.name, self.ceilings)
            check_postconditions(dialect, document, parent.name, await self.policy(who))
        begin = meant_visit(parent.id, await self.store.steps(parent.id), step, visit, path, planned)
        changed = await self._changed(parent, values, begin.seq)
        row = self._row(parent.dialect, parent.interpreter, parent.playbook, parent.name, who)
        row.parent = parent.id
        async with self._within_rate(who):
            await self.engine.fork(row, begin, changed, checked_settings(settings))
        return row

    # --- driving ---

    async def drive(self, run: str) -> RunRow:
        """Goes on with a run until it waits for someone or ends. Where another process has it, follows that one."""
        while True:
            try:
                row = await self.take_up(run)
            except Busy:
                row = await self.follow(run)
                if await self.is_due(run):
                    continue  # whoever drove it is gone
            if row.status != "paused" or row.reason != "timer":
                return row
            expiry = min((w.expires for w in await self.store.waits(run=run) if w.expires is not None), default=0.0)
            while (left := expiry - self.engine.clock()) > 0:  # noqa: ASYNC110 - the clock may jump
                await asyncio.sleep(min(left, _LONGEST_SLEEP))

    async def take_up(self, run: str) -> RunRow:
        """Goes on with a run until it waits or ends. `Busy` where somebody has it."""
        row = await self.store.run(run)
        self.check_program(row)
        return await self.engine.drive(run)

    def check_program(self, row: RunRow) -> None:
        """Refuses to drive a run whose program is not here. It would come to nothing, or to something else."""
        if row.dialect == PYTHON and not self._own_programs:
            raise Refused(
                f"Run {row.id} is a Python program's: it goes on when that program drives it.",
                fix="What was decided is kept until then.",
            )

    async def is_due(self, run: str) -> bool:
        """Whether something is to be done for a run, and no live driver has it."""
        return bool(await self.store.ready(self.engine.clock(), self.engine.driver, run))

    async def follow(self, run: str) -> RunRow:
        """Waits until a run that another process drives is let go."""
        while await self.store.alive(run):  # noqa: ASYNC110 - the driver is another process
            await asyncio.sleep(0.1)
        return await self.store.run(run)

    # --- what people do ---

    async def answer(self, wait: str, value: str, who: Principal = Principal(), *, token: str | None = None) -> WaitRow:
        """Answers a question, once. A value that does not fit leaves it waiting."""
        row = await self._wait(wait, token, who)
        if token is None:
            who.require("runner", "answer questions")
        if row.kind != "question":
            raise BadInput(f"{row.id} is no question: it is about {ABOUT[row.kind]}.", fix=how_to(row))
        await self._learn_run(await self.store.run(row.run))
        self._check_secrets({"answer": value}, "value", "answered")
        return await self._complete(row, {"value": fitting(row.type, row.options, value)}, who)

    async def resume(
        self,
        run: str,
        who: Principal = Principal(),
        *,
        overrides: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        wait: WaitRow | None = None,
    ) -> RunRow:
        """Ends a pause (a breakpoint, a spent budget or a missing secret), with values and settings to change: this one, or all."""
        who.require("runner", "resume runs")
        row = await self.get(run, who)
        waits = await self.store.waits(run=row.id) if wait is None else [wait]
        pauses = [wait for wait in waits if wait.kind in PAUSES]
        checked = checked_settings(settings)
        changes = [raised(wait, checked) if wait.kind == "budget" else checked for wait in pauses]
        await self._learn_run(row, overrides)
        values = await self._changed(row, overrides)
        self._check_secrets({**values, **checked}, "value", "changed")
        for wait, changed in zip(pauses, changes, strict=True):
            await self._complete(wait, {"overrides": values, "settings": changed}, who)
        stands = bool(waits) if row.status in WAITING else row.status in ENDED
        stands = stands and row.reason != "non_determinism"
        stands = stands and not (await self.is_interrupted(row.id) or await self.is_due(row.id))
        if not pauses and (values or checked or stands):
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
        token: str | None = None,
    ) -> WaitRow:
        """Decides what needs someone with the role for it, once: an approval, or an effect that is in doubt.

        `done` needs the effect's outcome. The settings hold from here on, and need the role that they need anywhere.
        """
        row = await self._wait(wait, token, who)
        if token is None:
            who.require("approver", "decide this")
        changed = await self._settings_with(row, settings, who)
        if row.kind == "approval":
            return await self._complete(row, {**approval(row, decision, reason, who), **changed}, who)
        if row.kind != "in_doubt":
            raise BadInput(f"{row.id} is not to be decided: it is about {ABOUT[row.kind]}.", fix=how_to(row))
        answer: dict[str, Any] = {"decision": decision, "reason": reason, **changed}
        if decision == "done":
            answer["outcome"] = checked_outcome(row, outcome)
            if outcome is not None:  # what came late from whoever performed it is taken as it is
                await self._check_promise(row, answer["outcome"])
        elif decision not in ("repeat", "stop"):
            raise BadInput(f"'{decision}' is no decision.", fix="Say repeat, stop or done.")
        return await self._complete(row, answer, who)

    async def cancel(self, run: str, reason: str = "", who: Principal = Principal()) -> RunRow:
        """Asks a run to stop and undo; a second time, at once. The policy says who may."""
        row = await self.get(run, who)
        for policy in await self._held_to(row):
            check_may_cancel(who, policy.cancel, row.owner)
        await self._signal(Signal(row.id, "cancel", {"reason": reason}, who.name))
        return row

    async def retry(self, run: str, *, whole_step: bool = False, who: Principal = Principal()) -> RunRow:
        """Goes on with a failed run at the effect that failed, or at the beginning of its step."""
        who.require("runner", "retry runs")
        row = await self.get(run, who)
        await self._signal(Signal(row.id, "retry", {"whole_step": whole_step}, who.name))
        return row

    async def send(self, run: str, channel: str, value: Any, who: Principal = Principal()) -> RunRow:
        """Sends a message to a run that waits for one, or will."""
        who.require("runner", "send messages")
        row = await self.get(run, who)
        await self._signal(Signal(row.id, "message", {"channel": channel, "value": value}, who.name))
        return row

    def token(self, wait: str) -> str:
        """What lets someone without an account decide this wait: only this one, and only once."""
        return self.tokens.of(wait)

    # --- looking ---

    async def get(self, run: str, who: Principal = Principal()) -> RunRow:
        """A run by its id or the beginning of it."""
        who.require("viewer", "look at runs")
        try:
            return _of_tenant(await self.store.run(run), who)
        except NotFound:
            alike = await self.store.runs_called(who.tenant, run) if run else []
            if len(alike) == 1:
                return alike[0]
            if alike:
                raise _ambiguous(run, "runs", [row.id for row in alike]) from None
            raise

    async def runs(
        self,
        *,
        name: str | None = None,
        status: Sequence[str] = (),
        among: Collection[str] | None = None,
        limit: int | None = 100,
        who: Principal = Principal(),
    ) -> list[RunRow]:
        """Newest first; `name` is a playbook's. Those `among` these ids are listed whatever their status."""
        who.require("viewer", "look at runs")
        return await self.store.runs(tenant=who.tenant, name=name, status=status, among=among, limit=limit)

    async def runs_called(self, beginning: str, who: Principal = Principal()) -> list[RunRow]:
        """Those whose id begins so, newest first; of very many, some."""
        who.require("viewer", "look at runs")
        found = await self.store.runs_called(who.tenant, beginning)
        return sorted(found, key=lambda row: row.created, reverse=True)

    async def is_interrupted(self, run: str) -> bool:
        """Whether a run would go on if a process drove it, and none does."""
        return bool(await self.store.undriven(self.engine.clock(), run))

    async def interrupted(self, who: Principal = Principal()) -> list[RunRow]:
        """The runs of which this is so, newest first."""
        return await self.runs(among=await self.store.undriven(self.engine.clock()), limit=None, who=who)

    async def view(self, run: str, who: Principal = Principal()) -> RunView:
        row = await self.get(run, who)
        entries = without_void([entry async for entry in self.engine.entries(row.id)])
        view = view_of(row, await self.store.steps(row.id), await self.store.waits(run=row.id), entries)
        return with_results(view, await self.store.playbook(row.playbook), entries)

    async def sent(self, run: str, asked: int | str, who: Principal = Principal()) -> list[Sent]:
        """Everything that a model was sent: with the call of this record, or with the last call of the step of this label."""
        row = await self.get(run, who)
        calls = [entry async for entry in self.engine.entries(row.id) if isinstance(entry.event, ModelAsked)]
        found = [entry.event for entry in calls if asked in (entry.seq, entry.place.step)]
        if not found:
            known = ", ".join(dict.fromkeys(entry.place.step for entry in calls)) or "none"
            raise NotFound(f"Run {row.id} asked no model at {asked}.", fix=f"Steps that asked one: {known}.")
        assert isinstance(found[-1], ModelAsked)
        return sent(found[-1], self.store.text)

    async def settings(self, run: str, who: Principal = Principal()) -> tuple[Settings, Settings]:
        """What a run was started with, and what it has by now."""
        entries = [entry async for entry in self.engine.entries((await self.get(run, who)).id)]
        return Recorded(entries[:1], 0).settings, Recorded(without_void(entries), 0).settings

    async def inbox(self, who: Principal = Principal(), *, limit: int | None = None, offset: int = 0) -> list[WaitRow]:
        """Everything that waits for a person, oldest first, or a part of it."""
        who.require("viewer", "look at runs")
        return await self.store.waits(tenant=who.tenant, kinds=FOR_PEOPLE, limit=limit, offset=offset)

    async def inbox_ids(self, who: Principal = Principal()) -> list[str]:
        """The ids of everything that waits for a person."""
        who.require("viewer", "look at runs")
        return await self.store.wait_ids(who.tenant, FOR_PEOPLE)

    async def waiting(self, name: str, who: Principal = Principal()) -> WaitRow:
        """A wait by its resume token, by its id, or by the beginning of its id: one that is open rather than one that was
        decided, of which only that can be said.
        """
        who.require("viewer", "look at runs")
        wait = self.tokens.wait_of(name)
        try:
            row = await self.store.wait(wait)
        except NotFound:
            if len(wait) < SHORTEST_NAME or "." in name:
                raise
            named = [one for one in await self.store.waits_called(who.tenant, wait) if one.kind in FOR_PEOPLE]
            alike = [one for one in named if one.state == "open"] or named
            if not alike:
                raise
            if len(alike) > 1:
                raise _ambiguous(wait, "waits", [one.id for one in alike]) from None
            row = alike[0]
        if row.tenant != who.tenant:
            raise no_wait(wait)
        return row

    def in_full(self, wait: WaitRow) -> WaitRow:
        """A wait with the whole of what is decided about, where otherwise a part of it is shown."""
        return in_full(wait, self.store.text)

    async def audit(self, run: str, who: Principal = Principal()) -> Audited:
        """The evidence of everything that was done, with what a check of the chain found."""
        row = await self.get(run, who)
        verdict = await self.engine.verify(row.id)
        records = [record async for record in self.store.records(row.id)]
        return audited_from(row.id, row.name, row.owner, records, verdict, self.engine.codec)

    async def export(self, run: str, who: Principal = Principal()) -> Export:
        """A run as one file that can be verified without the store."""
        row = await self.get(run, who)
        verdict = await self.engine.verify(row.id)
        if verdict.broken_at is not None:
            raise Refused(f"Run {row.id} is broken at record {verdict.broken_at}: {verdict.problem}.")
        records = [record async for record in self.store.records(row.id)]
        return export_of(row.name, row.owner, records, self.store.text, await self.store.playbook(row.playbook))

    async def verify(self, run: str, who: Principal = Principal()) -> Verdict:
        return await self.engine.verify((await self.get(run, who)).id)

    async def replay(self, run: str, who: Principal = Principal()) -> Rehearsal:
        return await self.engine.replay((await self.get(run, who)).id)

    def observe(self, observer: Observer) -> Callable[[], None]:
        return self.engine.observe(observer)

    async def events(
        self, run: str, after: str = "0", *, follow: bool = True, who: Principal = Principal()
    ) -> AsyncIterator[Entry | TextChunk | TextReset]:
        """Everything that happened after an event id, then what happens, until the run waits or ends.

        An id is a record's number, or `number.offset` within the text that the record's call streams.
        """
        run = (await self.get(run, who)).id
        async for event in self._listening.events(run, after, follow=follow):
            yield event

    async def close(self) -> None:
        if self._on_close is not None:
            await self._on_close()
        await self.engine.close()
        await self.store.close()

    # --- inside ---

    def _row(self, dialect: str, interpreter: int, playbook: str, name: str, who: Principal) -> RunRow:
        now = self.engine.clock()
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

    async def _policy_of(self, document: Any, name: str, who: Principal) -> Policy:
        """Today's policy, with what the playbook itself says: it can only make it stricter."""
        today = await self.policy(who)
        own = getattr(document, "policy", None)
        return today if own is None else today.with_playbook(own, name)

    async def _held_to(self, row: RunRow) -> list[Policy]:
        """The policy that the run began with, where it has one, and today's."""
        today = await self._today(row.tenant)
        async for entry in self.engine.entries(row.id):
            if isinstance(entry.event, RunStarted) and entry.event.policy is not None:
                return [Policy.from_snapshot(str(entry.event.policy)), today]
            break
        return [today]

    async def _known(self, run: str) -> RunRow | None:
        try:
            return await self.store.run(run)
        except NotFound:
            return None

    async def _same(self, known: RunRow, row: RunRow, inputs: Mapping[str, Any], settings: Settings) -> RunRow:
        """The run that was started under a key, if the same is asked for again: of what playbook, with what, and how."""
        given = self.engine.redactor.value((dict(inputs), chosen_in(msgspec.to_builtins(settings))))
        async for entry in self.engine.entries(known.id):
            event = entry.event
            same = isinstance(event, RunStarted) and (event.inputs, chosen_in(event.settings)) == given
            if same and known.playbook == row.playbook:
                return known
            break
        raise Conflict(f"Under this key another run was started: {known.id}.", fix="Take another key.")

    async def _settings_with(self, row: WaitRow, settings: Mapping[str, Any] | None, who: Principal) -> dict[str, Any]:
        """The settings that come with a decision, as its answer keeps them."""
        if not settings:
            return {}
        who.require("runner", "change the settings of a run")
        checked = checked_settings(settings)
        await self._learn_run(await self.store.run(row.run))
        self._check_secrets(checked, "setting", "decided")
        return {"settings": checked}

    async def _check_promise(self, wait: WaitRow, outcome: Mapping[str, Any]) -> None:
        row = await self.store.run(wait.run)
        if _has_dialect(row):
            check_promise(row, await self.store.playbook(row.playbook), wait.place.step, outcome)

    async def _changed(self, row: RunRow, given: Mapping[str, Any] | None, before: int = 0) -> dict[str, Any]:
        """The values that a person changes, checked by what the run's playbook says; a program of one's own says nothing."""
        if not given or not _has_dialect(row):
            return dict(given or {})
        entries = without_void([entry async for entry in self.engine.entries(row.id)])
        return checked_values(row, await self.store.playbook(row.playbook), entries, given, before)

    @asynccontextmanager
    async def _within_rate(self, who: Principal) -> AsyncIterator[None]:
        """Where a rate is set, one run is begun after the other: each is counted before the next."""
        if self._rate is None:
            yield
            return
        async with self._starting:
            newest = await self.store.runs(tenant=who.tenant, owner=who.name, limit=self._rate.starts)
            self._rate.check(newest, self.engine.clock())
            yield

    async def _learn(self, tenant: str) -> None:
        """Whatever is written from here on is masked, also by a process that never resolves the secret itself."""
        if self._learn_handles is not None:
            self._learn_handles([str(body["handle"]) for body in (await self.store.kept(tenant, "secret")).values()])

    async def _prepare(self, row: RunRow) -> Failed | None:
        """What a run lacks where it is about to be driven. What lacks in the wrong folder may be there in the right one."""
        found = await self._handles.of(row, {})
        lacking = await self._learn_of(row, found.declared, found.used, found.policy)
        if lacking is not None and self.engine.gate is not None:
            self.engine.gate.check_place(row.id, found.workspace)
        return lacking

    async def _learn_run(self, row: RunRow, given: Mapping[str, Any] | None = None) -> Failed | None:
        """The same for the secrets of a run, also those that it is given now. What cannot be had here, or None."""
        found = await self._handles.of(row, given or {})
        return await self._learn_of(row, found.declared, found.used, found.policy)

    async def _learn_of(
        self, row: RunRow, declared: Iterable[SecretNeed], used: Iterable[SecretNeed], policy: str | None
    ) -> Failed | None:
        await self._learn(row.tenant)
        declared, used = tuple(declared), tuple(used)
        gate = self.engine.gate
        return None if gate is None or not (declared or used) else await gate.learn(declared, used, row, policy)

    def _check_secrets(self, given: Mapping[str, Any], kind: str, done: str, *, text: str = "", name: str = "") -> None:
        """A secret belongs into no text. What a playbook needs of one is its handle."""
        masked = self.engine.redactor.value
        found = [name] if masked(text) is not text else []
        found += ["the playbook's name"] if masked(name) is not name else []
        found += [f"the {kind} '{one}'" for one, value in given.items() if masked(value) is not value]
        if found:
            raise BadInput(
                f"The value of a secret stands in {masked(' and in '.join(found))}; nothing was {done}.",
                fix="Take it out and give the secret's handle instead, as in env:NAME.",
            )

    async def _wait(self, wait: str, token: str | None, who: Principal) -> WaitRow:
        if token is not None and not self.tokens.fits(token, wait):
            raise Refused("This token belongs to something else.")
        row = await self.store.wait(wait)
        if token is None and row.tenant != who.tenant:
            raise no_wait(wait)
        return row

    async def _complete(self, row: WaitRow, answer: dict[str, Any], who: Principal) -> WaitRow:
        await self._learn_run(await self.store.run(row.run))
        kept = self.engine.redactor.value({**answer, "through": who.through} if who.through else answer)
        try:
            done = await self.store.complete_wait(row.id, kept, who.name, self.engine.clock())
        except (AlreadyAnswered, WaitClosed) as late:
            run = await self.store.run(row.run)
            onward = self._next(run) if isinstance(late, WaitClosed) and run.status in ENDED else ""
            if await self.is_interrupted(run.id):
                onward = f"`cuebook resume {run.id}` goes on."
            raise type(late)(late.message, fix=too_late(await self.store.wait(row.id), onward)) from None
        await self.engine.hear(row.run)
        return done

    async def _signal(self, signal: Signal) -> None:
        await self._learn_run(await self.store.run(signal.run))
        await self.store.signal(self.engine.redactor.value(signal))
        await self.engine.hear(signal.run)

    def _next(self, row: RunRow) -> str:
        return {
            "completed": f"`cuebook restart {row.id} STEP` does a step and what follows it again, in a new run.",
            "failed": f"`cuebook retry {row.id}` goes on where it failed.",
            "cancelled": f"`cuebook retry {row.id}` goes on where it was cancelled.",
            "expired": f"`cuebook retry {row.id}` waits once more.",
            "running": f"`cuebook fork {row.id} STEP` changes it from a step on.",
            "awaiting_input": f"`cuebook answer {row.id} VALUE` answers it.",
            "awaiting_approval": f"`cuebook decide {row.id} ...` decides it.",
        }.get(row.status, "")


def _has_dialect(row: RunRow) -> bool:
    """Whether it is a run of a playbook, and of no program of one's own."""
    return row.dialect in [dialect.name for dialect in registry.dialects()]


def _ambiguous(name: str, what: str, found: Sequence[str]) -> BadInput:
    fitting = f"at least {ALIKE}" if len(found) == ALIKE else str(len(found))
    shown = ", ".join(found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
    return BadInput(f"'{name}' fits {fitting} {what}: {shown}.", fix="Give more of the id.")


def _of_tenant(row: RunRow, who: Principal) -> RunRow:
    if row.tenant != who.tenant:
        raise no_run(row.id)
    return row
