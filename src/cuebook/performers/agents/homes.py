"""The private folders of agents, one for each session, kept as long as its run may continue it."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.performers.commands import folders

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_STATE = "session.json"
_SEARCHED = 256 << 20
"""How many bytes of a home folder are searched for secrets that an agent wrote down."""
KEPT_SECONDS = 14 * 24 * 3600.0
"""Folders that were not used for so long are removed."""


class _State(msgspec.Struct):
    session: str
    loads: bool


class Home:
    """The home folder of one agent, and what is known of its session."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.name = place.name
        self.folder = place / "home"
        self.secrets = place / "credentials"
        """Files that the agent may read and not change, while it runs."""
        self.session = ""
        self.loads = False
        """Whether the agent said that its session can be continued."""
        with suppress(OSError, msgspec.DecodeError):
            state = msgspec.json.decode((place / _STATE).read_bytes(), type=_State)
            self.session, self.loads = state.session, state.loads

    def remember(self, session: str, *, loads: bool) -> None:
        """Stores the session before it is prompted, outside the folder that the agent can change."""
        if (session, loads) == (self.session, self.loads):
            return
        self.session, self.loads = session, loads
        made = self._place / f"{_STATE}.new"
        with open(made, "wb") as file:
            file.write(msgspec.json.encode(_State(session, loads)))
            file.flush()
            os.fsync(file.fileno())
        made.replace(self._place / _STATE)

    def forget(self) -> None:
        """The session cannot be continued: the next one begins anew."""
        self.session, self.loads = "", False
        (self._place / _STATE).unlink(missing_ok=True)

    def write(self, name: str, content: str) -> None:
        """Writes a file with credentials beside the home folder, where the agent may only read it, and links to it."""
        link, path = self.folder / name, self.secrets / name
        if ".." in link.parts or not link.is_relative_to(self.folder):
            raise BadInput(f"'{name}' is not a path in the agent's home folder.", fix="Use a relative path.")
        for one in (link, path):
            one.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            one.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        link.symlink_to(path)

    def remove_secrets(self, values: Iterable[str] = ()) -> None:
        """Removes the files with credentials, because the agent has ended, and those in which it wrote down one of `values`."""
        if self.secrets.exists():
            folders.remove(str(self.secrets))
        wanted = [value.encode() for value in values if value]
        if not wanted:
            return
        left = _SEARCHED
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):
                    state = os.lstat(path)
                    if not stat.S_ISREG(state.st_mode) or state.st_size > left:
                        continue
                    left -= state.st_size
                    if _holds(path, wanted):
                        os.unlink(path)


def _holds(path: str, values: list[bytes]) -> bool:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        data = file.read()
    return any(value in data for value in values)


class Homes:
    """All of them, below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def find(self, run: str, name: str) -> Home | None:
        place = self._place(run, name)
        return Home(place) if place.is_dir() else None

    def open(self, run: str, name: str) -> Home:
        """The folder, which is created if it is missing."""
        self._sweep()
        place = self._place(run, name)
        (place / "home").mkdir(parents=True, exist_ok=True, mode=0o700)
        os.utime(place.parent)
        return Home(place)

    def _place(self, run: str, name: str) -> Path:
        if not _NAME.fullmatch(run) or not _NAME.fullmatch(name):
            raise BadInput("This is not the name of a session.", fix="Retry the step from its beginning.")
        return self._root / run / name

    def _sweep(self) -> None:
        if self._swept:
            return
        self._swept = True
        with suppress(OSError), os.scandir(self._root) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - KEPT_SECONDS:
                    folders.remove(entry.path)
