"""Configuration: the user's `cuebook.toml`, then the project's, then the environment, then flags; later sources win.

Every value remembers where it came from. Nothing here calls a provider, opens a store or stores a key.
"""

from __future__ import annotations

from cuebook.config.load import Config, checked_flag, load
from cuebook.config.providers import Provider
from cuebook.config.source import DEFAULT
from cuebook.system.folders import config_folder, project_file

__all__ = ["DEFAULT", "Config", "Provider", "checked_flag", "config_folder", "load", "project_file"]
