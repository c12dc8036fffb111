"""Reads files next to a playbook, for playbooks that import them, and suggests names for missing files. It does not
interpret playbooks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from cuebook.kernel.errors import BadInput
from cuebook.performers.files.paths import read_inside

LARGEST = 1_048_576
"""The maximum size of one file, in bytes."""
_MOST_COMPARED = 2000
"""The maximum number of names in a folder to compare a missing name with."""


def reader(file: str | os.PathLike[str], workspace: Path | None = None) -> Callable[[str], str]:
    """Returns a function that reads files by their path relative to the folder of `file`. It can read files below the
    workspace (by default the working folder); for a playbook from elsewhere, files below the playbook's own folder.
    """
    folder = Path(os.path.realpath(os.path.dirname(file) or "."))
    root = Path(os.path.realpath(workspace or "."))
    root = root if folder.is_relative_to(root) else folder

    def read(path: str) -> str:
        given = os.path.normpath(folder.relative_to(root) / path)
        data = read_inside(root, given, LARGEST)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text.", fix="Save it as UTF-8.") from None

    return read


def instead_of(path: str | os.PathLike[str], otherwise: str = "Check the path.") -> str:
    """The fix for a missing file: similar names in its folder, or `otherwise`."""
    folder, name = os.path.split(os.fspath(path))
    try:
        with os.scandir(folder or ".") as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_COMPARED) if not entry.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return f"There is no folder {folder} either: check the path."
    except OSError:  # the folder cannot be listed
        return otherwise
    return did_you_mean(name, names, folder) or otherwise


def did_you_mean(given: str, names: Iterable[str], folder: str = "") -> str:
    """Similar names as a question; first those that differ only by case or by their ending."""
    every, stem = list(names), _stem(given[:200])
    near = [name for name in every if name.casefold() == given.casefold()]
    near = near or [name for name in every if stem and _stem(name) == stem][:3]
    if not near:  # an ending as long as .playbook.md outweighs the name before it
        likely = get_close_matches(stem, dict.fromkeys(map(_stem, every)), n=3, cutoff=0.6)
        near = [name for one in likely for name in every if _stem(name) == one][:3]
    return f"Did you mean {' or '.join(os.path.join(folder, name) for name in near)}?" if near else ""


def _stem(name: str) -> str:
    """The path without its endings: `tea` for `tea.playbook.md`."""
    folder, last = os.path.split(name.casefold())
    return os.path.join(folder, last.partition(".")[0])
