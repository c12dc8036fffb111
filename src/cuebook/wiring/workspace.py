"""The folder in which runs work: whether it can be used, and which paths in it commands may not see or change."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cuebook.config import Config, config_folder
from cuebook.kernel.outcomes import Failed
from cuebook.wiring.stores import store_files

_REACH = {"The workspace": "commands and file tools", "The playbook's folder": "its file prompts"}
_ELSEWHERE = {
    "The workspace": "Work in a folder of the project, or set `workspace` (CUEBOOK_WORKSPACE) to one.",
    "The playbook's folder": "Move the playbook and its files into a separate folder.",
}


class Workspace:
    """The workspace of one configuration."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self.folder: Path = config.get("workspace")

    @property
    def path(self) -> str:
        """The real path of the folder to which commands and file tools are confined."""
        return os.path.realpath(self.folder)

    @property
    def label(self) -> str:
        """The name under which other machines know this folder; empty if it has none."""
        return self._config.get("workspace_label") or ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which runs refer to this folder."""
        return (self.path, self.label) if self.label else (self.path,)

    @property
    def problem(self) -> Failed | None:
        """Why nothing can run in the workspace; None if it can be used."""
        return self.unfit(self.folder)

    @property
    def holds_store(self) -> bool:
        files = store_files(self._config)
        return bool(files) and Path(os.path.realpath(files[0])).is_relative_to(self.path)

    def hidden_paths(self) -> list[Path]:
        """The store and its files. A process that could write them could approve anything."""
        return store_files(self._config)

    def fixed_paths(self) -> list[Path]:
        """Folders that are read-only even inside the workspace, because code written there would run as part of Cuebook."""
        return [Path(sys.prefix), Path(__file__).parents[1], config_folder(self._environ)]

    def unfit(self, folder: Path, what: str = "The workspace") -> Failed | None:
        """Why a folder cannot be a workspace: commands can write to it, so it must not contain the home folder."""
        real = Path(os.path.realpath(folder))
        home = Path(os.path.realpath(self._environ.get("HOME", "") or os.path.expanduser("~")))
        own = Path(os.path.realpath(config_folder(self._environ)))
        where = ""
        if real == home or real in home.parents:
            where = "your home folder" if real == home else f"{real}, which contains your home folder"
        elif real == own or real in own.parents:
            where = f"{real}, which contains your Cuebook configuration"
        if where:
            return Failed(
                "no_workspace",
                f"{what} is {where}: {_REACH[what]} could access everything in it.",
                fix=_ELSEWHERE[what],
            )
        if not real.is_dir():
            return Failed(
                "no_workspace", f"{what} {folder} is not a folder.", fix="Create it or choose another folder."
            )
        return None
