"""Starts runs for whoever asks over a wire: what was given becomes what the playbook declares, and is checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.registry import Tracing, Typed
from cuebook.kernel.errors import BadInput
from cuebook.kernel.journal import without_void
from cuebook.kernel.run import Budget, RunRow, Settings
from cuebook.service import Principal, Service
from cuebook.surfaces.library import Listed
from cuebook.surfaces.loading import Playbook
from cuebook.surfaces.wiring import Wiring


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How a playbook is to be run."""

    inputs: Mapping[str, Any] = {}
    model: str = ""
    breakpoints: Sequence[str | int] | str = ""
    """Labels of steps: a list, or a text with commas."""
    answers: dict[str, str] = {}
    unattended: bool = False
    options: dict[str, Any] = {}
    budget: Budget | None = None
    """Limits of its own; those that it does not name stay as they are configured."""
    folder: Path | None = None
    """Where the files are that a playbook without a place of its own refers to."""


async def start_run(
    wiring: Wiring, service: Service, playbook: Playbook, wanted: Wanted, who: Principal, *, key: str = ""
) -> RunRow:
    """A new run, which nobody drives yet; under a key that was used, the run it was used for."""
    settings = _settings(wiring, playbook, wanted)
    inputs = typed_inputs(playbook, wanted.inputs)
    return await service.start(playbook.text, playbook.name, inputs, settings, who, key=key)


def playbook_of(one: Listed) -> Playbook:
    return Playbook(one.text, one.name, one.document, registry.named(one.dialect), one.path)


def _settings(wiring: Wiring, playbook: Playbook, wanted: Wanted) -> Settings:
    breakpoints = _steps(wanted.breakpoints, playbook)
    folder = wanted.folder if playbook.path is None else playbook.path.parent
    settings = wiring.settings(breakpoints, folder=folder, document=playbook.document, model=wanted.model)
    wiring.check_models(playbook.dialect, playbook.document, settings)
    return msgspec.structs.replace(
        settings,
        from_text=playbook.path is None,
        answers=wanted.answers,
        unattended=wanted.unattended,
        options={**settings.options, **wanted.options},
        budget=_budget(settings.budget, wanted.budget),
    )


def _budget(configured: Budget, wanted: Budget | None) -> Budget:
    """What was named holds, and for the rest what is configured."""
    named = {} if wanted is None else {name: getattr(wanted, name) for name in Budget.__struct_fields__}
    return msgspec.structs.replace(configured, **{name: one for name, one in named.items() if one is not None})


def check_settings(wiring: Wiring, settings: Mapping[str, Any]) -> None:
    """`BadInput` for a model that a run is to go on with and that could not be asked."""
    model = settings.get("model")
    if isinstance(model, str) and model:
        wiring.providers.check(model)


def _steps(given: Sequence[str | int] | str, playbook: Playbook) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else [str(one) for one in given]
    wanted = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    missing = [one for one in wanted if one not in playbook.labels]
    if missing:
        known = ", ".join(playbook.labels)
        raise BadInput(f"breakpoints: there is no step {', '.join(missing)}.", fix=f"The steps are {known}.")
    return wanted


def typed_inputs(playbook: Playbook, given: Mapping[str, Any]) -> dict[str, Any]:
    """Texts become what the playbook declares, where that is no text: fields of a page only have texts."""
    dialect = playbook.dialect
    if not isinstance(dialect, Typed):
        return dict(given)
    texts = {one.name for one in playbook.inputs if one.type != "string"}
    return {
        name: dialect.typed(playbook.document, name, value) if isinstance(value, str) and name in texts else value
        for name, value in given.items()
    }


async def typed_changes(service: Service, row: RunRow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for values that a person changes in a run."""
    try:
        dialect = registry.named(row.dialect)
    except BadInput:
        return dict(given)
    if not given or not isinstance(dialect, Typed):
        return dict(given)
    document = dialect.parse(await service.store.playbook(row.playbook), row.name)
    entries = without_void([entry async for entry in service.engine.entries(row.id)])
    results = dialect.values(document, entries) if isinstance(dialect, Tracing) else {}
    return {
        name: dialect.changed(document, results, name, value) if isinstance(value, str) else value
        for name, value in given.items()
    }
