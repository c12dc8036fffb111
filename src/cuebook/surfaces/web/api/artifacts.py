"""The type and the file name of a run's artifact."""

from __future__ import annotations

import re

from cuebook.dialects.dialect import Document
from cuebook.service.runs import objects as run_objects

_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def declared(document: Document) -> str:
    """The artifact type that a playbook declares; empty if it is not known before the run."""
    return "" if "{{" in document.artifact_type else document.artifact_type  # a value may be missing


def file_name(playbook: str, type: str, run: str) -> str:
    """A file name from the playbook, the artifact's type and the run, unique to the run."""
    stem = _NO_FILE_NAME.sub("-", playbook.rpartition("/")[2].partition(".")[0]).strip("-") or "artifact"
    return f"{stem}-{run}" + run_objects.artifact_file(type)[0]
