"""Configuration: `cuebook.toml` of the user, then of the project, then the environment, then flags, in rising order.

Every value remembers where it came from. It asks no provider, opens no store, and never holds a key.
"""

from __future__ import annotations

from cuebook.config.folders import config_folder, project_file
from cuebook.config.loading import Config, load
from cuebook.config.origins import DEFAULT
from cuebook.config.providers import Provider

__all__ = ["DEFAULT", "Config", "Provider", "config_folder", "load", "project_file"]
