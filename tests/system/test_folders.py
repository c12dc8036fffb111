"""The user's folders, by platform convention."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cuebook.performers.models.weights import models_folder
from cuebook.system.folders import config_folder, data_folder

linux = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="other platforms have their own folders")


@linux
def test_data_is_where_xdg_says(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert data_folder(home) == tmp_path / ".local/share/cuebook"
    assert data_folder({**home, "XDG_DATA_HOME": "/data"}) == Path("/data/cuebook")
    assert config_folder({**home, "XDG_CONFIG_HOME": "/etc/me"}) == Path("/etc/me/cuebook")


@linux
def test_a_relative_path_is_ignored_for_the_store_and_the_weights_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "here")
    assert models_folder() == tmp_path / ".local/share/cuebook/models"


def test_each_platform_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = {"HOME": str(tmp_path)}
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_folder(home) == tmp_path / "Library/Application Support/cuebook"
    monkeypatch.setattr(sys, "platform", "win32")
    assert data_folder({**home, "LOCALAPPDATA": str(tmp_path / "local")}) == tmp_path / "local/cuebook"
    assert data_folder(home) == tmp_path / "AppData/Local/cuebook"


READ = """
import os, sys
from pathlib import Path
from cuebook.kernel.errors import BadInput
from cuebook.system.folders import project_file

if os.geteuid() == 0:  # root may read everything
    os.seteuid(65534)
try:
    project_file(Path(sys.argv[1]))
except BadInput as error:
    print(error)
"""


def test_a_folder_below_one_that_is_closed_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "clone").mkdir(parents=True)
    closed.chmod(0)
    try:
        # In a process of its own, because all threads would become another user.
        ran = subprocess.run(
            [sys.executable, "-c", READ, str(closed / "clone")], capture_output=True, text=True, check=True
        )
    finally:
        closed.chmod(0o700)
    assert "clone cannot be read: permission denied" in ran.stdout
