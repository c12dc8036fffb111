"""Reads the playbook that a trigger starts, as its file says now."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cuebook.dialects import registry
from cuebook.dialects.playbook import Playbook, read
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.performers.files.neighbours import instead_of, reader
from cuebook.service.playbooks.library import beginning_of
from cuebook.service.triggers.trigger import Target


def check_fills_no_secret(playbook: Playbook, names: Iterable[str]) -> None:
    """Raises `BadInput` if one of these inputs, which an event fills in, takes the handle of a secret: the sender of the event
    would choose the secret.
    """
    needed = {one.argument for one in playbook.dialect.secrets(playbook.document)}
    for name in names:
        if name in needed:
            raise BadInput(
                f"The input '{name}' takes the handle of a secret, which no event may choose.",
                fix=f"Set it with --input {name}=secret:NAME.",
            )


def playbook_of(target: Target, workspace: Path | None = None) -> Playbook:
    """The playbook of a target. Raises `NotFound` if its file is gone, and `InvalidPlaybook` if it cannot be run.

    It may import files below the workspace, or else below its own folder.
    """
    path = Path(target.path)
    try:
        text = registry.text_of(beginning_of(path, registry.LARGEST + 1))
    except FileNotFoundError:
        raise NotFound(f"The playbook {path} is gone.", fix=instead_of(path)) from None
    except UnicodeDecodeError:
        raise BadInput(f"The playbook {path} is not UTF-8 text.", fix="Save it as UTF-8.") from None
    except OSError as error:
        raise BadInput(f"The playbook {path} cannot be read: {error.strerror}.", fix="Check the path.") from None
    return read(text, target.name, path=path, neighbour=reader(os.fspath(path), workspace))
