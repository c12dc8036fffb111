"""What a run gives as a file: its type, and how the file is called."""

from __future__ import annotations

import re
from typing import Any

from cuebook.surfaces import wording

_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def declared(document: Any) -> str:
    """The type of the artifact that a playbook says it makes; plain text where its dialect has no such types."""
    type = str(getattr(document, "artifact_type", "text"))
    return "" if "{{" in type else type  # it depends on a value that may not be there


def file_name(playbook: str, type: str, run: str) -> str:
    """A name by the playbook and the artifact's type, which no other run's file has."""
    stem = _NO_FILE_NAME.sub("-", playbook.rpartition("/")[2].partition(".")[0]).strip("-") or "artifact"
    return f"{stem}-{run}" + wording.artifact_file(type)[0]
