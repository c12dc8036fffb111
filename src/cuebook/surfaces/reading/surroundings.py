"""What a workflow names besides its own text, looked for on this machine: models, files of skills, and texts in files.

Nothing is asked and nothing is fetched: a key that is missing here is no mistake of the workflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cuebook.config import load as load_config
from cuebook.dialects.graph.check import named_models
from cuebook.dialects.graph.material import FILE_CODES, FILE_UNREADABLE, named_sources
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.registry import Problem
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.performers.models.providers import UnknownModel
from cuebook.performers.paths import name_inside
from cuebook.performers.skills import files
from cuebook.surfaces.wiring import Wiring


def problems(workflow: Workflow, name: str) -> Iterator[Problem]:
    """`name` is the path of the workflow's file."""
    folder = Path(name).parent
    yield from _models(workflow)
    yield from _skills(workflow, [folder, Path()])
    yield from _texts(workflow, folder)


def _models(workflow: Workflow) -> Iterator[Problem]:
    named = list(named_models(workflow))
    if not named:
        return
    try:
        wiring = Wiring(load_config({}))
    except BadInput:
        return  # of a broken configuration every other command tells
    for one in named:
        try:
            wiring.providers.resolve(one.name, wiring.model)
        except UnknownModel as error:
            yield Problem(f"{one.at}: {error.message}", one.line, error.fix, "UNKNOWN_MODEL")
        except BadInput:
            pass


def _skills(workflow: Workflow, roots: list[Path]) -> Iterator[Problem]:
    told: set[str] = set()
    for node in workflow.nodes.values():
        for skill in node.skills:
            place = files.find(roots, skill) if skill not in told and files.is_id(skill) else None
            told.add(skill)
            try:
                if place is not None:
                    files.read(place)
            except BadInput as error:
                message = f"The node '{node.id}' names the skill '{skill}', which cannot be read: {error.message}"
                yield Problem(message, node.line, error.fix, "BROKEN_SKILL")


def _texts(workflow: Workflow, folder: Path) -> Iterator[Problem]:
    for field, source in named_sources(workflow, {}):
        if source.kind != "file":
            continue
        try:
            if not (folder / name_inside(folder, source.value)).is_file():
                raise NotFound(f"There is no file {source.value!a} beside the workflow.", fix="Check the path.")
        except BadInput as error:
            code = FILE_CODES.get(error.code, FILE_UNREADABLE)
            yield Problem(f"{field.removeprefix('workflow.')}: {error.message}", source.line, error.fix, code)
