"""Finds the playbook that another one names as its child: a file next to it, or a playbook by its id."""

from __future__ import annotations

import os
from pathlib import Path

from cuebook.dialects.playbook import Playbook, read
from cuebook.formats.suggestions import meant
from cuebook.kernel.errors import NotFound
from cuebook.performers.files.neighbours import instead_of, reader
from cuebook.service.playbooks.library import Stored, suffixes


def find_playbook(name: str, folder: str, stored: Stored | None) -> Playbook:
    """A file below the folder if the name has the suffix of one, otherwise the playbook with this id: in the folder, or
    stored. Raises `NotFound` if there is none, and `BadInput` if it cannot be read.
    """
    if name.lower().endswith(suffixes()):
        return _in_file(name, folder)
    near = Stored([Path(folder)])
    found = near.named(name) or (None if stored is None else stored.named(name))
    if found is not None:
        path = os.path.realpath(found.path)
        return read(found.text, os.path.basename(path), path=Path(path), neighbour=reader(path, Path(folder)))
    broken = near.left_out(Path(name)) or (None if stored is None else stored.left_out(Path(name)))
    if broken is not None:
        return _in_file(os.path.relpath(broken.path, folder), folder)
    known = [one.id for one in (*near.all(), *(stored.all() if stored is not None else ()))]
    fix = meant(name, known) or "Name a file next to the playbook, or the id of a stored playbook."
    raise NotFound(f"There is no playbook '{name[:100]}' in {folder} or among the stored playbooks.", fix=fix)


def _in_file(name: str, folder: str) -> Playbook:
    path = Path(os.path.normpath(os.path.join(folder, name)))
    try:
        text = reader(os.path.join(folder, "playbook"), Path(folder))(name)
    except NotFound as error:
        raise NotFound(error.message, fix=instead_of(path)) from None
    return read(text, path.name, path=path, neighbour=reader(path, Path(folder)))
