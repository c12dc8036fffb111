"""The parts of the service that are classes of their own, such as budgets, triggers and retention. Each is loaded and made when it
is first used.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cuebook.gate.roles import Principal
from cuebook.gate.tokens import Tokens
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import AlreadyAnswered, WaitClosed, WaitExpired
from cuebook.kernel.ports import Job
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.kernel.spending import Allowance
from cuebook.service.access.visibility import Rule
from cuebook.service.admin import Today
from cuebook.service.queries import Queries

if TYPE_CHECKING:
    from cuebook.config.notifications import Notifications
    from cuebook.performers.nodes.hub import Hub
    from cuebook.service.access.people import People
    from cuebook.service.audit.admin_audit import AdminAudit
    from cuebook.service.audit.signature import Signer
    from cuebook.service.budgets.administration import BudgetAdministration
    from cuebook.service.budgets.calendar import Calendar
    from cuebook.service.comparisons import Comparisons
    from cuebook.service.copies.transfer import Copied
    from cuebook.service.host_steps import HostSteps
    from cuebook.service.job_runner import Handler, JobRunner
    from cuebook.service.nodes.connections import NodeConnections
    from cuebook.service.nodes.nodes import Nodes
    from cuebook.service.notifications.channels import Channel
    from cuebook.service.notifications.channels.channel import Reveal
    from cuebook.service.notifications.notifier import Notifier
    from cuebook.service.retention import Retention
    from cuebook.service.runs.bulk import BulkActs
    from cuebook.service.secrets.key_waits import KeyWaits
    from cuebook.service.secrets.sensitive import Sensitive
    from cuebook.service.service import Service
    from cuebook.service.triggers.firing import Check, Read, Start, Triggers
    from cuebook.service.usage import By, UsageReport


RemoveFiles = Callable[[str], None]
"""Removes what performers keep of a run on this machine, beside the store."""


def no_files(run: str) -> None:
    """Nothing is kept beside the store."""


class Parts(Queries):
    """What a service offers beside runs."""

    def __init__(
        self,
        engine: Engine,
        today: Today,
        tokens: Tokens,
        visible: Rule,
        *,
        time_zone: str,
        host_lease: float,
        notifies: bool,
        remove_private_files: RemoveFiles,
    ) -> None:
        super().__init__(engine, today, tokens, visible)
        self.notifies = notifies
        self._remove_private_files = remove_private_files
        self._time_zone = time_zone
        self._host_lease = host_lease
        self._limited: dict[str, tuple[float, bool]] = {}

    @property
    @abstractmethod
    def _service(self) -> Service:
        """The whole, which some parts start or continue runs with."""

    @cached_property
    def host_steps(self) -> HostSteps:
        """The steps that a connected assistant does."""
        from cuebook.service.host_steps import HostSteps

        return HostSteps(self._engine, self._service._redactor_of, self._service.wake, self._host_lease)

    @cached_property
    def sensitive(self) -> Sensitive:
        """The values of sensitive inputs."""
        from cuebook.service.secrets.sensitive import Sensitive

        engine = self._engine
        return Sensitive(
            self._store, engine.codec, engine.redactor, self.tokens.signer(), engine.clock, self._remove_private_files
        )

    @cached_property
    def nodes(self) -> Nodes:
        """The machines that are paired with this store."""
        from cuebook.service.nodes.nodes import Nodes

        return Nodes(self._store, self._clock, self.record_act)

    def job_runner(self, handlers: Mapping[str, Handler]) -> JobRunner:
        """Does the jobs of these kinds that are due in the store."""
        from cuebook.service.job_runner import JobRunner

        return JobRunner(self._store, handlers)

    def triggers(self, start: Start, read: Read, check: Check | None = None) -> Triggers:
        """The triggers of this store. `start` starts the runs of playbooks that `read` reads, unless `check` says why not."""
        from cuebook.service.triggers.firing import Triggers, no_check

        return Triggers(self._store, self._service, start, read, check or no_check)

    def notifier(
        self, settings: Notifications, channels: Mapping[str, Channel], reveal: Reveal, public_url: str
    ) -> Notifier:
        """Plans and delivers messages about the runs of this store."""
        from cuebook.service.notifications.notifier import Notifier

        return Notifier(self._store, self._service, settings, channels, reveal, public_url)

    async def notify(self, notice: Job) -> None:
        """Stores a notice, as `notices.notice` makes it, unless no notifications are configured."""
        if self.notifies:
            await self._store.put_job(notice)

    @cached_property
    def budgets(self) -> BudgetAdministration:
        """The budgets of people and playbooks."""
        from cuebook.service.budgets.administration import BudgetAdministration
        from cuebook.service.budgets.allowance import Budgets

        made = Budgets(self._store, self._clock, self.calendar, self.notify, self._limited.clear)
        return BudgetAdministration(self._store, made, self._service, self._clock, self._go_on)

    async def spent_budgets(self, playbook: str, who: Principal = Principal()) -> Sequence[str]:
        """The budgets that are spent for a run that this person would start, each as a sentence."""
        return await self.budgets.warnings(playbook, who) if await self._store.kept(who.tenant, "budget") else ()

    @cached_property
    def people(self) -> People:
        """The users whom an identity provider signs in."""
        from cuebook.service.access.people import People

        return People(self._store, self._service, self.clock)

    @cached_property
    def calendar(self) -> Calendar:
        """The days and months for which use is counted."""
        from cuebook.service.budgets.calendar import Calendar

        return Calendar(self._time_zone)

    def _day(self, at: float) -> str:
        return self.calendar.day(at)

    async def usage(
        self,
        who: Principal = Principal(),
        *,
        since: str = "",
        until: str = "",
        playbook: str = "",
        parts: Sequence[By] | None = None,
    ) -> UsageReport:
        """What runs used from the first to the last of these days: a person's own, or everyone's for an admin."""
        from cuebook.service.usage import BY, usage_report

        today = self.calendar.day(self._clock())
        return await usage_report(self._store, who, today, since, until, playbook, parts or BY)

    async def _allowance(self, row: RunRow) -> Allowance | None:
        """The budgets, if there are any. Looked at again after a second, because other processes may set one."""
        known = self._limited.get(row.tenant)
        now = time.monotonic()
        if known is None or now - known[0] > 1.0:
            limited = bool(await self._store.kept(row.tenant, "budget"))
            known = self._limited[row.tenant] = (now, limited)
        return self.budgets.budgets if known[1] else None

    async def _go_on(self, wait: WaitRow, who: Principal) -> None:
        """Ends a pause. Someone else may have ended it, or its run, in the meantime."""
        with suppress(AlreadyAnswered, WaitClosed, WaitExpired):
            await self._service._complete(wait, {}, who)

    @cached_property
    def key_waits(self) -> KeyWaits:
        """The runs that wait because a provider rejected their key."""
        from cuebook.service.secrets.key_waits import KeyWaits

        return KeyWaits(self._store, self._go_on)

    def node_connections(self, hub: Hub) -> NodeConnections:
        """Lets nodes connect to this process, and continues the runs that wait for them."""
        from cuebook.service.nodes.connections import NodeConnections

        hub.changed = self._engine.offers_changed
        return NodeConnections(self.nodes, hub, self._engine.driver, self._clock)

    @cached_property
    def retention(self) -> Retention:
        """Deletes runs, and erases data."""
        from cuebook.service.retention import Retention

        return Retention(
            self._engine,
            self.record_act,
            self.visibility.is_limited,
            self.sensitive.digest,
            self._remove_private_files,
        )

    @cached_property
    def bulk(self) -> BulkActs:
        """Acts on many runs at once."""
        from cuebook.service.runs.bulk import BulkActs

        return BulkActs(self._service)

    @cached_property
    def comparisons(self) -> Comparisons:
        """The comparisons of models and playbooks."""
        from cuebook.service.comparisons import Comparisons

        return Comparisons(self._store, self)

    @cached_property
    def admin_audit(self) -> AdminAudit:
        """The audit of administrative acts, for admins."""
        from cuebook.service.audit.admin_audit import AdminAudit

        return AdminAudit(self._store)

    async def export_runs(
        self, runs: Sequence[str], path: Path, who: Principal = Principal(), signer: Signer | None = None, **more: bool
    ) -> list[str]:
        """Writes runs to a file for another installation, with the runs that they need; returns all of them."""
        from cuebook.service.copies.exchange import export_runs

        runs = [(await self.get(run, who)).id for run in runs]
        return await export_runs(self._store, runs, path, who, signer, **more)

    async def import_runs(self, path: Path, who: Principal, see: Callable[[Copied], None]) -> list[Copied]:
        """Adds the runs of an exported file."""
        from cuebook.service.copies.exchange import import_runs

        results = await import_runs(path, self._store, who, see)
        added = sum(one.result == "copied" for one in results)
        if added:
            await self.record_act("runs.import", path.name, who, {"runs": added})
        return results
