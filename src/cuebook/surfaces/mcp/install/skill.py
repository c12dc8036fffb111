"""The skill that teaches an assistant to drive a playbook: where each assistant keeps it, and how it is written and removed.

The installed file ends with a digest of itself. A file that no longer matches it belongs to the user and is kept.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Literal

from cuebook.kernel.errors import BadInput
from cuebook.surfaces.mcp.install.clients import NAME, Client, replace_file

PLUGIN = Path(__file__).with_name("plugin")
"""A folder with the skill and the entry, which some assistants can also load as a whole."""
_SKILL = PLUGIN / "skills" / NAME / "SKILL.md"
_MARK = re.compile(r"\n<!-- Installed by `cuebook mcp install`\. Digest: ([0-9a-f]{16}) -->\n\Z")

Fate = Literal["written", "same", "kept", "replaced", "removed", "missing"]
"""What became of an installed skill. `kept` means that it was changed by the user."""


def skill_path(client: Client, project: Path, home: Path) -> Path | None:
    """The file of the installed skill; None if the assistant has no folder of skills."""
    if not client.skills:
        return None
    folder = home / client.skills[2:] if client.skills.startswith("~/") else project / client.skills
    return folder / NAME / "SKILL.md"


def install(path: Path, *, force: bool = False) -> Fate:
    """Write the skill. A file that the user has changed is kept, unless `force` is set."""
    content = _marked(_SKILL.read_text("utf-8"))
    before = _read(path)
    if before == content:
        return "same"
    changed = before is not None and not _is_ours(before)
    if changed and not force:
        return "kept"
    try:
        replace_file(path, content.encode())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.", fix="Copy the skill by hand.") from None
    return "replaced" if changed else "written"


def remove(path: Path) -> Fate:
    """Remove the installed skill and its folder, unless the user has changed it."""
    before = _read(path)
    if before is None:
        return "missing"
    if not _is_ours(before):
        return "kept"
    try:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    except OSError as error:
        raise BadInput(f"{path} cannot be removed: {error.strerror}.", fix="Remove it by hand.") from None
    return "removed"


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.", fix="Check the path.") from None


def _marked(text: str) -> str:
    return f"{text}\n<!-- Installed by `cuebook mcp install`. Digest: {_digest(text)} -->\n"


def _is_ours(text: str) -> bool:
    found = _MARK.search(text)
    return found is not None and found[1] == _digest(text[: found.start()])


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
