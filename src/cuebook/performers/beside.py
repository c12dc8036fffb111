"""Reads the files that lie beside a playbook, for those that import some. It knows files, and nothing of playbooks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cuebook.kernel.errors import BadInput
from cuebook.performers.paths import read_inside

LARGEST = 1_048_576
"""Bytes of one file."""


def reader(file: str | os.PathLike[str], workspace: Path | None = None) -> Callable[[str], str]:
    """Reads a file by its path from the folder of `file`. Only what lies below the workspace, which is the working folder,
    can be read; for a playbook from elsewhere, what lies below its own folder.
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
            raise BadInput(f"{path} is no UTF-8 text.", fix="Save it as UTF-8.") from None

    return read
