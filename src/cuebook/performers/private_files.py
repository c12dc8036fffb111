"""The files that performers keep of a run on this machine, beside the store: until it is deleted, or they are too old."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

AGENTS, JOBS, BROWSERS = "agents", "jobs", "browsers"
"""Folders below that of the user's data: homes of coding agents, output of background jobs, and states of browsers."""
_RUN = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


def jobs_of(run: str) -> str:
    """The name of the folder with the output of a run's jobs."""
    return sha256(run.encode()).hexdigest()[:32]


def remove_private_files(data: Path, run: str) -> None:
    """Removes them. The id is checked, because a run that was imported may have any."""
    if not _RUN.fullmatch(run):
        return
    (data / BROWSERS / f"{run}.json").unlink(missing_ok=True)
    for folder in (data / AGENTS / run, data / JOBS / jobs_of(run)):
        if folder.exists():
            from cuebook.performers.commands import folders

            folders.remove(str(folder))
