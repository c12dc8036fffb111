"""The configuration and data folders: the user's, by platform convention, and the project's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cuebook.kernel.errors import BadInput

FILE = "cuebook.toml"


def config_folder(environ: Mapping[str, str]) -> Path:
    """The user's configuration folder."""
    if sys.platform == "darwin":
        return _home(environ) / "Library" / "Application Support" / "cuebook"
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "cuebook"


def data_folder(environ: Mapping[str, str]) -> Path:
    """The user's data folder, for the store and the embedded model's weights."""
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or _home(environ) / "AppData" / "Local") / "cuebook"
    if sys.platform == "darwin":
        return _home(environ) / "Library" / "Application Support" / "cuebook"
    return _xdg(environ, "XDG_DATA_HOME", ".local/share") / "cuebook"


def _xdg(environ: Mapping[str, str], name: str, otherwise: str) -> Path:
    given = environ.get(name, "")
    # The XDG specification says to ignore a relative path.
    return Path(given) if given and Path(given).is_absolute() else _home(environ) / otherwise


def _home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:
        raise BadInput("The home folder is unknown.", fix="Set HOME.") from None


def project_file(folder: Path) -> Path | None:
    """The nearest `cuebook.toml`, from this folder upwards."""
    for place in (folder, *folder.parents):
        try:
            if (place / FILE).is_file():
                return place / FILE
        except PermissionError:
            fix = "Change to a folder that you may read, or correct the permissions."
            raise BadInput(f"{place} cannot be read: permission denied.", fix=fix) from None
    return None


def working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise BadInput("The working folder no longer exists.", fix="Change to a folder that exists.") from None


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path is inside a folder after all links are resolved."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
