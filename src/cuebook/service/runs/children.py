"""Child runs as the service sees them: what they start with, and who controls them."""

from __future__ import annotations

import msgspec

from cuebook.dialects import playbook as playbooks
from cuebook.dialects.playbook import Playbook
from cuebook.gate.limits import Ceilings
from cuebook.gate.policy import Policy
from cuebook.kernel.engine.children import ChildRequest, ChildStart
from cuebook.kernel.errors import BadInput, CuebookError, NotFound, Refused
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.run import WORKTREE, RunRow
from cuebook.service.start import check_limits, check_postconditions, options_of
from cuebook.stores.refusals import PURGED_RUN


def no_children(name: str, folder: str) -> Playbook:
    """For a service that cannot look up playbooks."""
    raise NotFound(f"Playbooks cannot be looked up here, so '{name}' cannot be started.")


async def child_start(asked: ChildRequest, ceilings: Ceilings | None, now: float) -> ChildStart | Failed:
    """What a child run starts with. It inherits the tenant, the owner, the settings and the policy of its parent."""
    parent, pinned = asked.parent, asked.playbook
    try:
        playbook = playbooks.recorded(pinned.dialect, str(pinned.text), pinned.name)
        dialect, document = playbook.dialect, playbook.document
        settings = msgspec.structs.replace(
            asked.settings, breakpoints=(), answers={}, folder=pinned.folder, from_text=False, options={}
        )
        inputs = playbook.accept(typed(playbook, asked.inputs), {}).values
        options = options_of(dialect, document, pinned.name, settings)
        check_limits(dialect, document, pinned.name, ceilings)
        policy = None if asked.policy is None else Policy.from_snapshot(asked.policy)
        if policy is not None:
            policy = policy if document.policy is None else policy.with_playbook(document.policy, pinned.name)
            check_postconditions(dialect, document, pinned.name, policy)
    except BadInput as error:
        words = f"The playbook '{pinned.name}' cannot be started: {error.message}"
        return Failed("bad_inputs" if not isinstance(error, NotFound) else error.code, words, error.fix)
    except CuebookError as error:
        return Failed(error.code, f"The playbook '{pinned.name}' cannot be started: {error.message}", error.fix)
    worktree = asked.settings.options.get(WORKTREE)
    settings = msgspec.structs.replace(settings, options={**options, **({WORKTREE: worktree} if worktree else {})})
    row = RunRow(
        id=asked.id,
        tenant=parent.tenant,
        owner=parent.owner,
        dialect=dialect.name,
        interpreter=dialect.interpreter,
        playbook=asked.digest,
        name=pinned.name,
        created=now,
        updated=now,
        model=settings.model,
        caller=parent.id,
    )
    snapshot = None if policy is None else policy.snapshot()
    below = asked.pinned if pinned.uses else {}
    return ChildStart(row, playbook.text, inputs, settings, snapshot, pinned.uses, below, document.sensitive)


def typed(playbook: Playbook, given: dict[str, object]) -> dict[str, object]:
    """The inputs with the types that the playbook declares, if they were given as text."""
    texts = {one.name for one in playbook.inputs if one.type != "string"}
    return {
        name: playbook.dialect.typed(playbook.document, name, value)
        if isinstance(value, str) and name in texts
        else value
        for name, value in given.items()
    }


def check_not_child(row: RunRow, what: str) -> None:
    """Refuses to control a child run directly: its parent drives it and waits for its end."""
    if row.caller:
        raise Refused(
            f"Run {row.id} was started by run {row.caller}, which drives it, so it cannot be {what} on its own.",
            fix=f"`cuebook show {row.caller}` shows the run to use instead.",
        )


def is_purged(row: RunRow) -> bool:
    """Whether the contents of a run are gone."""
    return row.reason == PURGED_RUN


def check_not_purged(row: RunRow, what: str) -> None:
    """Refuses to continue a run whose contents are gone."""
    if is_purged(row):
        raise Refused(
            f"The contents of run {row.id} were purged, so it cannot be {what}.", fix="Start a new run instead."
        )
