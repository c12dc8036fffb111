"""Starts runs from the web: of a playbook in the library, or of text in the request."""

from __future__ import annotations

from pathlib import Path

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow
from cuebook.service.service import Principal
from cuebook.service.start import check_answers
from cuebook.surfaces.web.api import artifacts
from cuebook.surfaces.web.api.bodies import Start
from cuebook.surfaces.web.site import Site
from cuebook.wiring.run_request import RunRequest, start_run


async def start(site: Site, asked: Start, who: Principal, key: str = "", trigger: str = "") -> RunRow:
    """Start a run at once. `trigger` says what started it, if it was not a person or a program. If the idempotency key was used before, return the run that it started."""
    wanted = RunRequest(
        inputs=asked.inputs,
        sensitive=asked.sensitive,
        model=asked.model,
        breakpoints=asked.breakpoints,
        answers=asked.answers,
        unattended=asked.unattended,
        options=asked.options,
        budget=None if asked.budget is None else asked.budget.budget,
    )
    playbook = await _playbook(site, asked)
    if asked.answers and playbook.outline:
        check_answers(asked.answers, playbook.outline)
    key = key or asked.key
    row = await start_run(site.wiring, site.service, playbook, wanted, who, key=key, trigger=trigger)
    await site.worker.take(row.id)
    return row


async def _playbook(site: Site, asked: Start) -> Playbook:
    if bool(asked.playbook) == bool(asked.text):
        raise BadInput("Expected either `playbook` or `text`.", fix="Pass the id of a playbook, or its text.")
    if asked.text:
        return Playbook.from_text(asked.text, Path(asked.name).name)
    return (await site.library.find(asked.playbook)).playbook


async def declared_artifact(site: Site, row: RunRow) -> str:
    """The artifact type that a run's playbook declares; plain text for a run without a playbook."""
    playbook = await site.service.playbook_of(row)
    return "text" if playbook is None else artifacts.declared(playbook.document)


def no_artifact(row: RunRow) -> NotFound:
    if row.status in ENDED:
        return NotFound(f"Run {row.id} is {row.status} and has no output.", fix="Retry or restart it.")
    return NotFound(f"Run {row.id} has no output yet.", fix="Wait until a step is completed.")
