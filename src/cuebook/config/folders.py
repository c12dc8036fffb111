"""Where files of configuration and data lie: of the user, by the custom of the platform, and of the project."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cuebook.kernel.errors import BadInput

FILE = "cuebook.toml"


def config_folder(environ: Mapping[str, str]) -> Path:
    """The user's configuration, by the custom of the platform."""
    if sys.platform == "darwin":
        return _home(environ) / "Library" / "Application Support" / "cuebook"
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "cuebook"


def data_folder(environ: Mapping[str, str]) -> Path:
    """The user's data, by the custom of the platform."""
    if sys.platform == "darwin":
        return _home(environ) / "Library" / "Application Support" / "cuebook"
    return _xdg(environ, "XDG_DATA_HOME", ".local/share") / "cuebook"


def _xdg(environ: Mapping[str, str], name: str, otherwise: str) -> Path:
    given = environ.get(name, "")
    # The convention says that a relative path is to be ignored.
    return Path(given) if given and Path(given).is_absolute() else _home(environ) / otherwise


def _home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:
        raise BadInput("Your home folder is not known.", fix="Set HOME.") from None


def project_file(folder: Path) -> Path | None:
    """The nearest `cuebook.toml`, from this folder upwards."""
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
    return None


def working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise BadInput("The working folder does not exist any more.", fix="Change to one that does.") from None


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path leads nowhere else, whatever links there are on the way."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
