"""Starts runs for the web: of a playbook of the library, or of a text that came with the request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuebook.dialects import registry
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow
from cuebook.service import Principal
from cuebook.surfaces import starting
from cuebook.surfaces.loading import Playbook
from cuebook.surfaces.reading.answers import check_answers
from cuebook.surfaces.starting import Wanted, playbook_of, start_run
from cuebook.surfaces.web import artifacts
from cuebook.surfaces.web.bodies import Start
from cuebook.surfaces.web.site import Site


async def start(site: Site, asked: Start, who: Principal, key: str = "") -> RunRow:
    """A new run, which is taken up at once; under a key that was used, the run it was used for."""
    wanted = Wanted(
        inputs=asked.inputs,
        model=asked.model,
        breakpoints=asked.breakpoints,
        answers=asked.answers,
        unattended=asked.unattended,
        options=asked.options,
        budget=None if asked.budget is None else asked.budget.budget,
    )
    playbook = await _playbook(site, asked)
    if asked.answers and isinstance(playbook.dialect, registry.Outlining):
        check_answers(asked.answers, playbook.dialect.outline(playbook.document))
    row = await start_run(site.wiring, site.service, playbook, wanted, who, key=key or asked.key)
    await site.drivers.take(row.id)
    return row


async def _playbook(site: Site, asked: Start) -> Playbook:
    if bool(asked.playbook) == bool(asked.text):
        raise BadInput("Either `playbook` or `text` is wanted.", fix="Give the id of one, or the text of one.")
    if asked.text:
        return Playbook.from_text(asked.text, Path(asked.name).name)
    return playbook_of(await site.library.find(asked.playbook))


async def typed_changes(site: Site, row: RunRow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values that a person changes in a run, as its playbook declares them."""
    return await starting.typed_changes(site.service, row, given)


async def declared_artifact(site: Site, row: RunRow) -> str:
    """The type of the artifact that a run's playbook says it makes; plain text where its dialect has no such types."""
    return artifacts.declared(
        registry.named(row.dialect).parse(await site.service.store.playbook(row.playbook), row.name)
    )


def no_artifact(row: RunRow) -> NotFound:
    if row.status in ENDED:
        return NotFound(f"Run {row.id} is {row.status} and has given no output.", fix="Retry or restart it.")
    return NotFound(f"Run {row.id} has given no output yet.", fix="Wait until a step is completed.")
