"""The values of sensitive inputs, beside the journals of the runs that have them, until the runs have ended.

A run's journal has a mark with a keyed digest of each value. So the value can be removed, and the run of a value can still be
found afterwards by someone who knows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from cuebook.gate.redaction.logs import guard_logs
from cuebook.gate.sensitive import BEGINNING, RunSensitive, check_value, is_mark, marked, marks_in
from cuebook.kernel.engine.children import ChildStart
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import ENDED, Forked, RunStarted
from cuebook.kernel.journal import PURGED, Codec
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Claim, Redactor, Store
from cuebook.kernel.run import RunRow
from cuebook.service.parts import RemoveFiles, no_files

T = TypeVar("T")

INDEX = "sensitive"
"""The kind of the records that name the runs with sensitive inputs."""
_STARTS = (RunStarted.__name__, Forked.__name__)
AT_ONCE = ("completed", "cancelled")
"""The states of runs whose values are purged as soon as they are in them; others may be retried."""

Hidden = dict[str, tuple[str, str]]
"""The name and the value for each digest."""


def payload(run: str) -> str:
    """The kind of the record that has the values of a run."""
    return f"sensitive:{run}"


class Sensitive:
    """The sensitive inputs of the runs of one store."""

    def __init__(
        self,
        store: Store,
        codec: Codec,
        redactor: Redactor,
        sign: Callable[[str], str],
        clock: Callable[[], float],
        remove_private_files: RemoveFiles = no_files,
    ) -> None:
        """`remove_private_files` removes what performers keep of a run on this machine: it may have the values."""
        self._store = store
        self._codec = codec
        self._redactor = redactor
        self._sign = sign
        self._clock = clock
        self._remove_private_files = remove_private_files

    # --- hiding ---

    def digest(self, value: str) -> str:
        return self._sign(f"sensitive {value}")[:12]

    def hide(self, values: Mapping[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], Hidden]:
        """The inputs with marks, and the values that they stand for. Raises `BadInput` for one that cannot be hidden."""
        shown, hidden = dict(values), Hidden()
        for name in names:
            value = shown.get(name)
            if value is None or is_mark(value):
                continue
            text = check_value(name, value)
            digest = self.digest(text)
            shown[name], hidden[digest] = marked(name, digest, text), (name, text)
        return self.masked(shown, hidden), hidden  # another input may have the value too, or contain it

    def masked(self, value: T, hidden: Hidden) -> T:
        """The value with marks in place of what is hidden."""
        return RunSensitive(hidden, self._redactor).own.value(value) if hidden else value

    def hidden(
        self, values: dict[str, Any], declared: Iterable[str], given: Sequence[str]
    ) -> tuple[dict[str, Any], Hidden]:
        """Like `hide`, for a new run. Raises `BadInput` if one that was named when it was started is not there."""
        for name in given:
            if name not in values:
                raise BadInput(f"There is no input '{name}'.", fix=f"The inputs are: {', '.join(values) or 'none'}.")
        names = dict.fromkeys((*declared, *given))
        return self.hide(values, names) if names else (values, {})

    async def changed(self, row: RunRow, values: dict[str, Any]) -> dict[str, Any]:
        """Values that were changed in a run, with marks for its sensitive inputs."""
        marked = await self.marked(row.id) if values else {}
        values, hidden = self.hide(values, marked)
        await self.keep(row.tenant, row.id, hidden)
        return self.masked(values, await self._of_line(row)) if marked else values

    async def of_child(self, made: ChildStart) -> ChildStart | Failed:
        """What a child run starts with, with marks for what its playbook says is sensitive."""
        if not made.sensitive:
            return made
        try:
            inputs, hidden = self.hide(made.inputs, made.sensitive)
        except BadInput as error:
            return Failed("bad_inputs", error.message, error.fix)
        await self.keep(made.row.tenant, made.row.id, hidden)
        return made._replace(inputs=inputs)

    async def marked(self, run: str) -> dict[str, str]:
        """The inputs of a run that are marks, by name."""
        found: dict[str, str] = {}
        async for record in self._store.records(run, kinds=_STARTS):
            if record.body.startswith(PURGED) or BEGINNING.encode() not in record.body:
                continue
            event = self._codec.entry(record).event
            if isinstance(event, RunStarted):
                found.update({name: one for name, one in event.inputs.items() if is_mark(one)})
            elif isinstance(event, Forked):
                changes = {**event.values, **(event.edit.inputs if event.edit is not None else {})}
                found.update({name: one for name, one in changes.items() if is_mark(one)})
        return found

    # --- keeping ---

    async def keep(self, tenant: str, run: str, hidden: Hidden) -> None:
        """Keeps the values of a run, with those that it has."""
        if not hidden:
            return
        await self._store.keep(tenant, INDEX, run, {"at": self._clock()})
        kept = {**await self._kept(tenant, run), **hidden}
        body = {digest: list(one) for digest, one in kept.items()}
        await self._store.keep(tenant, payload(run), "inputs", {"values": body})

    async def inherited(self, parent: RunRow, run: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Keeps the values of a run for one that continues it; returns the changed values with marks. Raises `BadInput` if one
        was purged and is not given again.
        """
        marked = await self.marked(parent.id)
        if not marked:
            return changes
        changes, hidden = self.hide(changes, marked)
        kept = {**await self._of_line(parent), **hidden}
        changes = self.masked(changes, kept)
        current = {**marked, **{name: one for name, one in changes.items() if name in marked}}
        gone = [name for name, one in current.items() if not all(digest in kept for _, digest in marks_in(str(one)))]
        if gone:
            given = " ".join(f"--set {name}=VALUE" for name in gone)
            raise BadInput(
                f"The sensitive input{'s' if len(gone) > 1 else ''} {', '.join(gone)} of run {parent.id} {'were' if len(gone) > 1 else 'was'}"
                " purged when it ended.",
                fix=f"Give {'them' if len(gone) > 1 else 'it'} again: {given}.",
            )
        await self.keep(parent.tenant, run, kept)
        return changes

    async def ended(self, row: RunRow) -> None:
        """Purges the values of a run that has ended, unless it may be retried."""
        if row.status in AT_ONCE and await self._store.is_kept(row.tenant, INDEX, row.id):
            await self.forget(row.tenant, row.id)

    async def forget(self, tenant: str, run: str) -> bool:
        """Purges the values of a run; its marks stay."""
        await asyncio.to_thread(self._remove_private_files, run)
        await self._store.forget(tenant, payload(run), "inputs", overwrite=True)
        return await self._store.forget(tenant, INDEX, run)

    async def sweep(self, older_than: float | None = None) -> int:
        """Purges the values of runs that are gone, have completed or were cancelled, and of those that ended otherwise and have
        not changed for so many seconds.
        """
        purged, now = 0, self._clock()
        for tenant in await self._store.tenants(INDEX):
            for run, body in (await self._store.kept(tenant, INDEX)).items():
                try:
                    row = await self._store.run(run)
                except NotFound:
                    if now - float(body["at"]) > 3600:  # it may be about to be created
                        purged += await self.forget(tenant, run)
                    continue
                late = row.status in ENDED and older_than is not None and now - row.updated > older_than
                if row.status in AT_ONCE or late:
                    purged += await self.forget(tenant, run)
        return purged

    # --- using ---

    async def of(self, claim: Claim) -> RunSensitive:
        """The sensitive inputs of a run that is about to be driven."""
        return self._used(await self._of_line(claim.row))

    async def redactor_of(self, row: RunRow) -> Redactor:
        """Masks secrets and what is sensitive in a run."""
        kept = await self._of_line(row)
        return self._used(kept).redactor if kept else self._redactor

    def _used(self, values: Hidden) -> RunSensitive:
        made = RunSensitive(values, self._redactor)
        guard_logs(made.own)  # as long as it exists
        return made

    async def _of_line(self, row: RunRow) -> Hidden:
        """The values of a run and of the runs that started it."""
        found: Hidden = {}
        while True:
            found = {**await self._kept(row.tenant, row.id), **found}
            if not row.caller:
                return found
            row = await self._store.run(row.caller)

    async def _kept(self, tenant: str, run: str) -> Hidden:
        body = (await self._store.kept(tenant, payload(run))).get("inputs", {})
        return msgspec.convert(body.get("values", {}), Hidden)
