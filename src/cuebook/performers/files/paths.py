"""The one place that decides whether a path stays below its root, and that opens files there.

A path is walked folder by folder, and each folder stays open while the next is looked up in it, so that a link swapped in
during the walk cannot lead elsewhere.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from cuebook.kernel.engine.descriptors import NoDescriptors, lacks_descriptors
from cuebook.kernel.errors import BadInput, NotFound

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK, because a pipe without a writer would block the reader forever. It has no effect on files.
_ALWAYS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# The errors that systems raise for a link that must not be followed.
_PERHAPS_A_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
_MOST_LINKS = 40
_DELETED = " (deleted)"
"""The suffix that Linux adds to the path of a deleted file."""
_CHUNK = 1 << 16


class OutsideRoot(BadInput):
    """The path leads out of the folder that it must stay in."""

    code = "outside_root"


class Unusable(BadInput):
    """The path stays below its root, but cannot be read or written as a file."""

    code = "unusable"


class TooLarge(BadInput):
    """The file is too large to be read."""

    code = "too_large"


def parts_of(given: str) -> tuple[str, ...]:
    """The names in a relative path; empty for the root itself. Raises `OutsideRoot` if it is not relative."""
    if not given:
        raise OutsideRoot("The path is empty.", fix="Use the path of a file, relative to its root.")
    shown = _shown(given)
    if "\0" in given:
        raise OutsideRoot(f"The path {shown} contains a NUL character.", fix="Remove it.")
    if given.startswith("/"):
        raise OutsideRoot(f"The path {shown} is absolute.", fix="Use a path relative to its root.")
    if given.startswith("~"):
        raise OutsideRoot(f"The path {shown} begins with '~'.", fix="Use a path relative to its root.")
    parts = tuple(part for part in given.split("/") if part not in ("", "."))
    if ".." in parts:
        raise OutsideRoot(f"The path {shown} contains '..'.", fix="Use a path below its root, without '..'.")
    try:
        os.fsencode(given)
    except UnicodeEncodeError:
        raise OutsideRoot(f"The path {shown} contains a character that is not allowed in file names.") from None
    return parts


def real(path: str | Path) -> str:
    """Like `os.path.realpath`, but asks the system if possible, which avoids checking each folder along the way."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError, AttributeError):
        return os.path.realpath(path)
    try:
        found = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        found = ""
    finally:
        os.close(fd)
    plain = found.startswith("/") and not found.endswith(_DELETED)
    return found if plain else os.path.realpath(path)


def inside(root: Path, given: str) -> Path:
    """The real path below the root that `given` refers to, with links resolved. It may not exist yet.

    The result may change at any time; `open_inside`, `read_inside` and `write_inside` check again while they open.
    """
    with _walking(root, given) as walk:
        return Path(walk.root, *walk.real_names())


def name_inside(root: Path, given: str) -> str:
    """Like `inside`, but in the form that policies use: relative to the root, with `/`; `.` for the root itself."""
    with _walking(root, given) as walk:
        return "/".join(walk.real_names()) or "."


def open_inside(root: Path, given: str, flags: int) -> int:
    """Opens a file, or with `O_DIRECTORY` a folder, and returns the descriptor. When reading, links are followed if
    they stay below the root; when writing, the last name must not be a link.
    """
    with _walking(root, given) as walk:
        return walk.open(flags)


def read_inside(root: Path, given: str, limit: int) -> bytes:
    """The whole file. Raises `TooLarge` above `limit` bytes, or `NotFound`, `OutsideRoot` or `Unusable`."""
    return read_named_inside(root, given, limit)[0]


def read_named_inside(root: Path, given: str, limit: int) -> tuple[bytes, str]:
    """The whole file, and the name below the root that was actually opened."""
    with _walking(root, given) as walk:
        with os.fdopen(walk.open(os.O_RDONLY), "rb", buffering=0) as file:
            data = _read(file.fileno(), limit + 1)
        if len(data) > limit:
            raise TooLarge(f"The file {_shown(given)} has more than {limit} bytes.", fix="Use a smaller file.")
        return data, "/".join(walk.names)


def write_inside(root: Path, given: str, data: bytes | IO[bytes], *, parents: bool = False) -> None:
    """Writes the file atomically, and keeps the mode of an existing file. `data` is its content, or a file to copy.

    The last name must not be a link; a link swapped in while writing is replaced, never followed. With `parents`,
    missing folders are created.
    """
    with _walking(root, given, make=parents) as walk:
        name = walk.to_last()
        mode = walk.mode_to_keep(name)
        temporary = f".{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o666, dir_fd=walk.folder)
        try:
            with os.fdopen(fd, "wb") as file:
                if isinstance(data, bytes):
                    file.write(data)
                else:
                    shutil.copyfileobj(data, file)
                file.flush()
                if mode is not None:
                    os.fchmod(fd, mode)
                os.fsync(fd)
            os.rename(temporary, name, src_dir_fd=walk.folder, dst_dir_fd=walk.folder)
        except BaseException:
            os.unlink(temporary, dir_fd=walk.folder)
            raise


@contextmanager
def _walking(root: Path, given: str, *, make: bool = False) -> Iterator[_Walk]:
    walk = _Walk(root, given, make=make)
    try:
        yield walk
    except OSError as error:
        _raise_for(error, given)
    finally:
        walk.close()


class _Walk:
    """The walk from a root to the target of a path. Every folder along the way stays open until the walk is closed."""

    def __init__(self, root: Path, given: str, *, make: bool) -> None:
        self._given = given
        self._todo = deque(parts_of(given))
        self._make = make
        self._links = 0
        self._root_as_given = os.path.abspath(root)
        self.root = os.path.realpath(root)
        self.names: list[str] = []
        """The current position of the walk, below the root."""
        try:
            self._folders = [os.open(self.root, _FOLDER)]
        except OSError as error:
            if lacks_descriptors(error):
                raise NoDescriptors from None
            raise NotFound(
                f"The folder {root} cannot be opened ({error.strerror}).",
                fix="Create the folder, or use another folder.",
            ) from None

    @property
    def folder(self) -> int:
        return self._folders[-1]

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def to_last(self) -> str:
        """Walks to the folder that contains the last name and returns that name; `.` if the path ends in a folder."""
        while self._todo:
            name = self._todo.popleft()
            if name == "..":
                self._leave()
            elif not self._todo:
                return name
            else:
                self._enter(name)
        return "."

    def real_names(self) -> list[str]:
        """Walks as far as the path exists, and adds the remaining names as they are."""
        try:
            name = self.to_last()
            while name != "." and self._follow(name):
                name = self.to_last()
        except FileNotFoundError:
            if ".." in self._todo:
                self._refuse()
            return [*self.names, *self._todo]
        return self.names if name == "." else [*self.names, name]

    def open(self, flags: int) -> int:
        fd = None
        while fd is None:
            name = self.to_last()
            try:
                fd = os.open(name, flags | _ALWAYS, 0o666, dir_fd=self.folder)
            except OSError as error:
                if error.errno not in _PERHAPS_A_LINK:
                    raise
                if flags & _WRITING:
                    self._refuse_link(name)
                if not self._follow(name):
                    raise
            else:
                self.names.extend(() if name == "." else (name,))
        wanted = stat.S_ISDIR if flags & os.O_DIRECTORY else stat.S_ISREG
        if not wanted(os.fstat(fd).st_mode):
            os.close(fd)
            raise Unusable(f"{_shown(self._given)} is not a file.", fix="Use the path of a file.")
        return fd

    def mode_to_keep(self, name: str) -> int | None:
        """The permissions of the file to be replaced; None for a new file."""
        try:
            found = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(found.st_mode):
            self._refuse_link(name)
        if not stat.S_ISREG(found.st_mode):
            raise Unusable(f"{_shown(self._given)} is not a file.", fix="Use the path of a file.")
        if not found.st_mode & 0o222:
            # Replacing a file needs no permission on the file itself, so its protection would have no effect.
            raise Unusable(f"The file {_shown(self._given)} is write-protected.", fix="Make it writable first.")
        return stat.S_IMODE(found.st_mode) & 0o777

    def _enter(self, name: str) -> None:
        try:
            fd = self._open_folder(name)
        except FileNotFoundError:
            self._todo.appendleft(name)
            raise
        except OSError as error:
            if error.errno in _PERHAPS_A_LINK and self._follow(name):
                return
            raise
        self._folders.append(fd)
        self.names.append(name)

    def _open_folder(self, name: str) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=self.folder)
        except FileNotFoundError:
            if not self._make:
                raise
        try:
            os.mkdir(name, dir_fd=self.folder)
        except FileExistsError:
            pass
        return os.open(name, _FOLDER, dir_fd=self.folder)

    def _leave(self) -> None:
        if len(self._folders) == 1:
            self._refuse()
        os.close(self._folders.pop())
        self.names.pop()

    def _follow(self, name: str) -> bool:
        """Replaces a link with its target. Returns False if the name is not a link."""
        try:
            target = os.readlink(name, dir_fd=self.folder)
        except OSError:
            return False
        self._links += 1
        if self._links > _MOST_LINKS:
            raise Unusable(
                f"The path {_shown(self._given)} goes through too many links.",
                fix="Check for links that point to each other.",
            )
        if target.startswith("/"):
            target = self._below_root(target)
            while len(self._folders) > 1:
                self._leave()
        self._todo.extendleft(part for part in reversed(target.split("/")) if part not in ("", "."))
        return True

    def _below_root(self, target: str) -> str:
        for root in (self.root, self._root_as_given):
            prefix = root.rstrip("/") + "/"
            if target == root or target.startswith(prefix):
                return target[len(prefix) :]
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise OutsideRoot(
            f"The path {_shown(self._given)} leads out of its root through a link.",
            fix="Use the path of a file below the root.",
        )

    def _refuse_link(self, name: str) -> NoReturn:
        raise OutsideRoot(
            f"{_shown(self._given)} is a link, and files are not written through links.",
            fix="Use the path of the file itself.",
        )


def _read(fd: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    left = limit
    while left > 0:
        piece = os.read(fd, min(left, _CHUNK))
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _raise_for(error: OSError, given: str) -> NoReturn:
    if lacks_descriptors(error):
        raise NoDescriptors from None
    if isinstance(error, FileNotFoundError):
        raise NotFound(f"There is no {_shown(given)} below the root.", fix="Check the path.") from None
    raise Unusable(f"{_shown(given)} cannot be used as a file: {error.strerror}.", fix="Check the path.") from None


def _shown(given: str) -> str:
    """The path for a message: short, and without control characters."""
    return ascii(given if len(given) <= 200 else given[:200] + "...")
