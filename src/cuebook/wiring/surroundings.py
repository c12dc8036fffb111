"""Everything on this machine that a playbook's check can use: neighbouring files, skills, models and the policy."""

from __future__ import annotations

import os
from contextlib import closing
from functools import cached_property
from pathlib import Path

from cuebook.config import config_folder
from cuebook.config import load as load_config
from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.playbook import Playbook
from cuebook.gate.policy import load_policy
from cuebook.kernel.errors import BadInput, CuebookError, NotFound
from cuebook.performers.files.neighbours import reader
from cuebook.performers.files.paths import name_inside
from cuebook.performers.models.providers import UnknownModel
from cuebook.performers.nodes.records import PAIRING
from cuebook.performers.skills import files
from cuebook.performers.skills.settings import SETTINGS
from cuebook.service.playbooks.child_files import find_playbook
from cuebook.service.start import requirement
from cuebook.wiring.stores import inspect_store
from cuebook.wiring.wiring import Wiring


class MachineSurroundings(Surroundings):
    """The surroundings of a playbook's file in the working folder."""

    has_files = True

    def __init__(self, name: str, *, reads_store: bool = False) -> None:
        """`name` is the path of the playbook's file. `reads_store` is for this machine's own user, who sees its nodes."""
        self._reads_store = reads_store
        self._folder = Path(name).parent
        self._roots = [self._folder, Path()]
        self._read = reader(name)

    def read(self, path: str) -> str:
        return self._read(path)

    @property
    def folder(self) -> str:
        return os.path.realpath(self._folder)

    def playbook(self, name: str, folder: str) -> Playbook:
        return find_playbook(name, folder, None if self._wiring is None else self._wiring.stored())

    def file_problem(self, path: str) -> BadInput | None:
        try:
            if not (self._folder / name_inside(self._folder, path)).is_file():
                raise NotFound(f"There is no file {path!a} next to the playbook.", fix="Check the path.")
        except BadInput as error:
            return error
        return None

    def skills(self) -> frozenset[str]:
        return frozenset((*SETTINGS, *files.ids(self._roots)))

    def skill_problem(self, skill: str) -> BadInput | None:
        place = files.find(self._roots, skill) if files.is_id(skill) else None
        try:
            if place is not None:
                files.read(place)
        except BadInput as error:
            return error
        return None

    def model_problem(self, model: str) -> BadInput | None:
        if self._wiring is None:
            return None
        try:
            self._wiring.providers.resolve(model, self._wiring.model)
        except UnknownModel as error:
            return error
        except BadInput:
            pass
        return None

    def browser_problem(self) -> CuebookError | None:
        return None if self._wiring is None else self._wiring.browser_problem

    @cached_property
    def _wiring(self) -> Wiring | None:
        try:
            return Wiring(load_config({}))
        except BadInput:
            return None  # every other command reports a broken configuration

    def nodes(self) -> frozenset[str] | None:
        wiring = self._wiring if self._reads_store else None
        if wiring is None or not wiring.has_store():
            return None
        try:
            store = inspect_store(wiring.config, wiring.factory.vault.resolve)
        except CuebookError:
            return None
        with closing(store):
            known = store.exists and store.version is not None and not store.problem
            return frozenset(store.kept("local", PAIRING)) if known else None

    def postconditions(self) -> str:
        return requirement(load_policy(config_folder(os.environ), Path.cwd(), lambda path, digest: False))
