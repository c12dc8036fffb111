"""Starts runs for REST and MCP: checks the request and adds the configured settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Budget, RunRow, Settings
from cuebook.service.service import Principal, Service
from cuebook.wiring.wiring import Wiring


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a caller chooses for a run."""

    inputs: Mapping[str, Any] = {}
    sensitive: Sequence[str] = ()
    """The inputs whose values are shown nowhere, in addition to those that the playbook marks."""
    model: str = ""
    breakpoints: Sequence[str | int] | str = ""
    """Step labels, as a list or as a comma-separated string."""
    answers: Mapping[str, str | tuple[str, ...]] = {}
    unattended: bool = False
    options: dict[str, Any] = {}
    budget: Budget | None = None
    """Limits for this run; limits that are not set stay as configured."""
    folder: Path | None = None
    """The folder for the files of a playbook that was passed as text."""


async def start_run(
    wiring: Wiring,
    service: Service,
    playbook: Playbook,
    request: RunRequest,
    who: Principal,
    *,
    key: str = "",
    trigger: str = "",
) -> RunRow:
    """Creates a run, which no process is driving yet. If the key was used before, returns the run with that key.

    `trigger` says what started it, if it was not a person or a program.
    """
    settings = _settings(wiring, playbook, request)
    inputs = typed_inputs(playbook, request.inputs)
    return await service.start(playbook, inputs, settings, who, key=key, trigger=trigger, sensitive=request.sensitive)


def _settings(wiring: Wiring, playbook: Playbook, request: RunRequest) -> Settings:
    breakpoints = _steps(request.breakpoints, playbook)
    folder = request.folder if playbook.path is None else playbook.path.parent
    settings = wiring.settings(breakpoints, folder=folder, document=playbook.document, model=request.model)
    wiring.check_models(playbook.dialect, playbook.document, settings)
    return msgspec.structs.replace(
        settings,
        from_text=playbook.path is None,
        answers=dict(request.answers),
        unattended=request.unattended,
        options={**settings.options, **request.options},
        budget=_budget(settings.budget, request.budget),
    )


def _budget(configured: Budget, wanted: Budget | None) -> Budget:
    """The configured budget with the request's limits."""
    named = {} if wanted is None else {name: getattr(wanted, name) for name in Budget.__struct_fields__}
    return msgspec.structs.replace(configured, **{name: one for name, one in named.items() if one is not None})


def check_settings(wiring: Wiring, settings: Mapping[str, Any]) -> None:
    """Raises `BadInput` if a run's new model cannot be called."""
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
    """Converts strings to the types that the playbook declares, because the fields on a page contain only strings."""
    dialect = playbook.dialect
    texts = {one.name for one in playbook.inputs if one.type != "string"}
    return {
        name: dialect.typed(playbook.document, name, value) if isinstance(value, str) and name in texts else value
        for name, value in given.items()
    }
