"""Secret handles, and the vault that looks up their values at the last moment.

A handle says where a value is stored and is safe to write anywhere. Nothing here displays or stores a value or puts it
into an error; every value is added to the redactor before it is returned.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Protocol

from cuebook.gate.secret_managers import Answer, Managers, is_managed
from cuebook.kernel.effects import SecretUse
from cuebook.kernel.errors import BadInput

log = logging.getLogger("cuebook")

KINDS = ("env", "keyring", "file")
SHORTEST = 8
"""A shorter value could not be masked without masking unrelated text."""
LARGEST_FILE = 64 * 1024
MANAGED = "secret:"
"""How the handle of a secret from a manager begins; its name in the configuration follows."""
WHAT_A_HANDLE_IS = "A handle says where the value is found: env:NAME, keyring:NAME or file:PATH."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SecretProblem(BadInput):
    """A secret cannot be used."""

    code = "secret"


class SecretUnknown(SecretProblem):
    """There is no secret with this name."""

    code = "secret_unknown"


class SecretMissing(SecretProblem):
    """A secret has no value."""

    code = "secret_missing"


class SecretTooShort(SecretProblem):
    """A secret's value is too short."""

    code = "secret_too_short"


class SecretUnreadable(SecretProblem):
    """A secret's value cannot be read."""

    code = "secret_unreadable"


class SecretNoFile(SecretUnreadable):
    """The path of a secret is not a file."""


class Learner(Protocol):
    """The redactor, which learns every value before it is returned."""

    def add(self, name: str, value: str) -> None: ...


def is_direct(handle: str) -> bool:
    """Whether this is a handle, as opposed to a name for a handle."""
    kind, colon, _ = handle.partition(":")
    return bool(colon) and kind in KINDS


def check_name(name: str) -> str:
    """Returns the name if it is valid. The error does not repeat it, because it may be a misplaced value."""
    if ":" in name:
        raise SecretProblem(
            "Expected a name, got what looks like a handle.", fix="The name comes first, as in github env:GITHUB_TOKEN."
        )
    if not _NAME.fullmatch(name):
        raise SecretProblem(
            "Invalid secret name.",
            fix="Use up to 64 letters, digits, and . _ @ -, as in github.",
        )
    return name


def check_handle(handle: str, home: str | None = None) -> str:
    """Returns a direct handle in canonical form, without `~` and `..`. The error does not repeat an invalid handle."""
    if is_managed(handle):
        raise SecretProblem(
            f"A handle cannot begin with '{handle.partition(':')[0]}:' here.",
            fix="Name the secret in the table [secrets] of your own cuebook.toml, and use that name.",
        )
    if not is_direct(handle):
        raise SecretProblem(
            "Invalid handle.",
            fix=f"{WHAT_A_HANDLE_IS} If you typed a value here, replace it: the shell may have saved it.",
        )
    kind, _, place = handle.partition(":")
    if kind == "env" and not _VARIABLE.fullmatch(place):
        raise SecretProblem(
            "An env: handle needs a variable name after the colon.", fix="Write it like env:GITHUB_TOKEN."
        )
    if kind == "keyring" and (not place.strip() or not place.isprintable()):
        raise SecretProblem("A keyring: handle needs a name after the colon.", fix="Write it like keyring:github.")
    return f"file:{_absolute(place, home)}" if kind == "file" else handle


class Vault:
    """Looks up the values of secrets, by handle or by name."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        keyring: Callable[[str], str | None],
        names: Callable[[], Mapping[str, str]] = dict,
        redactor: Learner | None = None,
        managers: Managers | None = None,
    ) -> None:
        """`managers` fetch the secrets that the user's configuration names."""
        self._environ = environ
        self._keyring = keyring
        self._names = names
        self._redactor = redactor
        self._managers = managers if managers is not None else Managers({}, environ)
        self._learned: dict[str, tuple[tuple[int, ...], bool]] = {}
        """The state of each handle when its value was last read (for a file, its identity and modification time), and
        whether it was found."""
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return "<Vault>"

    def canonical(self, handle: str) -> str:
        """The direct form of a handle or name: one place always has the same handle."""
        if is_direct(handle):
            return check_handle(handle, self._home)
        name = handle.removeprefix(MANAGED)
        if name in self._managers:
            return MANAGED + name
        if is_managed(handle):
            return check_handle(handle)
        names = self._names()
        if handle not in names:
            raise _unknown(name, {*names, *self._managers})
        if not is_direct(names[handle]):
            raise SecretProblem(
                f"The secret '{handle}' refers to another name.",
                fix="Assign it a handle with `cuebook secrets add`: a name cannot refer to another name.",
            )
        return check_handle(names[handle], self._home)

    async def fetch(self, handles: Iterable[str]) -> dict[str, SecretProblem]:
        """Asks the managers for these values, if they are not at hand, so that nothing else waits for a slow one. Returns why
        some are unavailable. Other kinds of secrets are not looked at.
        """
        asked = sorted({handle for handle in handles if handle.startswith(MANAGED)})
        found = await asyncio.gather(*map(self._fetched, asked))
        return {handle: one for handle, one in zip(asked, found, strict=True) if one is not None}

    async def ready(self, handle: str) -> None:
        """Waits until a value is at hand, so that `resolve` returns it at once. Raises `SecretProblem` if a manager has none."""
        direct = self.canonical(handle)
        problem = (await self.fetch([direct])).get(direct)
        if problem is not None:
            raise problem

    async def revealed(self, handle: str) -> str:
        """Like `resolve`, but nothing else waits for a slow manager or keyring."""
        direct = self.canonical(handle)
        await self.ready(direct)
        return self.resolve(direct) if direct.startswith(MANAGED) else await asyncio.to_thread(self.resolve, direct)

    def resolve(self, handle: str) -> str:
        """Returns the value. Call this just before using it."""
        direct = self.canonical(handle)
        found = self._find(direct)
        if isinstance(found, SecretProblem):
            raise found
        concern = self.concern(direct)
        if concern and direct not in self._warned:
            self._warned.add(direct)
            log.warning(concern)
        return found

    def resolve_uses(self, uses: Iterable[SecretUse]) -> dict[str, str]:
        """The values in their forms, by the place where each is used."""
        uses = tuple(uses)
        self.check_uses(uses)
        values: dict[str, str] = {}
        try:
            for use in uses:
                values[use.at] = use.form.replace("{}", self.resolve(use.handle))
        except SecretProblem:
            values.clear()  # the error's traceback would keep them alive
            raise
        return values

    def check_uses(self, uses: Iterable[SecretUse]) -> None:
        """Raises `SecretProblem` for uses that are invalid whatever the value."""
        places: set[str] = set()
        for use in uses:
            if use.form.count("{}") != 1:
                raise SecretProblem(
                    f"The form of the secret at {use.at} must contain exactly one {{}}.",
                    fix="Write it like 'Bearer {}'.",
                )
            if use.at in places:
                raise SecretProblem(f"Two secrets are assigned to {use.at}.", fix="Remove one of them.")
            places.add(use.at)

    def problem(self, handle: str) -> SecretProblem | None:
        """Why the value is unavailable now, or None."""
        try:
            found = self._find(self.canonical(handle))
        except SecretProblem as problem:
            return problem
        return found if isinstance(found, SecretProblem) else None

    def absent(self, handle: str) -> SecretMissing | None:
        """Why there is no value, if that is clear without reading it. If so, asking for approval would be pointless."""
        kind, _, place = self.canonical(handle).partition(":")
        if kind == "env" and not self._environ.get(place):
            return _not_set(place)
        return _no_file(place) if kind == "file" and not os.path.lexists(place) else None

    def concern(self, handle: str) -> str:
        """A warning about where the value is stored, or an empty string."""
        direct = self.canonical(handle)
        kind, _, path = direct.partition(":")
        if kind != "file":
            return ""
        try:
            mode = os.stat(path).st_mode
        except OSError:
            return ""
        if not stat.S_ISREG(mode) or not mode & (stat.S_IRWXG | stat.S_IRWXO):
            return ""
        return (
            f"Other users of this machine can access the secret {direct}. `chmod 600 {shlex.quote(path)}` prevents it."
        )

    def learn(self, handles: Iterable[str] = ()) -> None:
        """Adds these secrets and every declared one that is available now to the redactor, so that they are masked
        everywhere. A value is not read again unless its file has changed.
        """
        for handle in {*self._names().values(), *handles}:
            try:
                direct = self.canonical(handle) if is_direct(handle) else ""
            except SecretProblem:
                continue
            seen = self._seen(direct)
            if seen is not None and self._learned.get(direct, ((-1,), False))[0] != seen:
                self._look(direct, seen)

    def know(self, handle: str) -> SecretProblem | None:
        """Adds a value to the redactor, unless it already has it; returns why the value is unavailable, or None."""
        direct = self.canonical(handle)
        seen = self._seen(direct)
        return None if seen is not None and self._learned.get(direct) == (seen, True) else self._look(direct, seen)

    # --- internal ---

    @property
    def _home(self) -> str | None:
        return self._environ.get("HOME")

    def _look(self, direct: str, seen: tuple[int, ...] | None) -> SecretProblem | None:
        found = self._find(direct)
        # A variable may be set at any time and costs nothing to read, so it is not cached.
        if seen is not None and not direct.startswith("env:"):
            self._learned[direct] = seen, isinstance(found, str)
        return found if isinstance(found, SecretProblem) else None

    def _seen(self, direct: str) -> tuple[int, ...] | None:
        if not direct.startswith("file:"):
            return None if not direct or direct.startswith(MANAGED) else ()
        try:
            status = os.stat(direct.partition(":")[2])
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size

    def _find(self, direct: str) -> str | SecretProblem:
        """The value, after adding it to the redactor, or the problem. Raising would keep a frame with a value alive."""
        kind, _, place = direct.partition(":")
        find = {
            "env": self._in_environment,
            "keyring": self._in_keyring,
            "file": _in_file,
            "secret": self._from_manager,
        }
        return self._accepted(direct, find[kind](place))

    async def _fetched(self, handle: str) -> SecretProblem | None:
        """Why the value of a manager is unavailable, or None."""
        try:
            name = self.canonical(handle).removeprefix(MANAGED)
        except SecretProblem as problem:
            return problem
        found = self._accepted(MANAGED + name, self._of_manager(name, await self._managers.answered(name)))
        return found if isinstance(found, SecretProblem) else None

    def _accepted(self, direct: str, found: str | SecretProblem) -> str | SecretProblem:
        if isinstance(found, SecretProblem):
            return found
        if len(found.strip()) < SHORTEST:
            return SecretTooShort(
                f"The value of the secret {direct} has fewer than {SHORTEST} characters.",
                fix="Use a longer value. A value this short cannot be masked in records and logs.",
            )
        if self._redactor is not None:
            self._redactor.add(direct, found)
        return found

    def _in_environment(self, name: str) -> str | SecretProblem:
        return _without_newline(self._environ.get(name, "")) or _not_set(name)

    def _in_keyring(self, name: str) -> str | SecretProblem:
        try:
            found = self._keyring(name)
        except SecretProblem as problem:
            return problem
        except Exception as error:
            return SecretUnreadable(
                f"The secret keyring:{name} cannot be read: the keyring denied access ({type(error).__name__}).",
                fix="Unlock the system's keyring and try again; `cuebook doctor` shows which one is used.",
            )
        return found or SecretMissing(
            f"The secret keyring:{name} has no value: the keyring has no entry with this name.",
            fix=f"Add one with `keyring set cuebook {name}`.",
        )

    def _from_manager(self, name: str) -> str | SecretProblem:
        return self._of_manager(name, self._managers.answer(name))

    def _of_manager(self, name: str, found: Answer) -> str | SecretProblem:
        if isinstance(found, BadInput):
            return SecretUnreadable(found.message, fix=found.fix)
        return _without_newline(found) or SecretMissing(
            f"The secret '{name}' ({self._managers.shown(name)}) has no value.", fix="Set it in the secret manager."
        )


def _not_set(name: str) -> SecretMissing:
    return SecretMissing(
        f"The secret env:{name} has no value: {name} is not set.",
        fix=f"Set {name} in the environment of the process that runs this.",
    )


def _no_file(path: str) -> SecretMissing:
    return SecretMissing(f"The secret file:{path} has no value: there is no such file.", fix="Check the path.")


def _without_newline(text: str) -> str:
    """A secret that was written to a file, by an editor or `echo`, ends with a newline that is not part of it. Kubernetes makes
    such files into variables, so the same holds for those.
    """
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _in_file(path: str) -> str | SecretProblem:
    handle = f"file:{path}"
    try:
        data = _content(path)
    except (FileNotFoundError, NotADirectoryError):
        return _no_file(path)
    except OSError as error:
        why = error.strerror or type(error).__name__
        return SecretUnreadable(
            f"The secret {handle} cannot be read: {why}.", fix="Check the path and its permissions."
        )
    if data is None:
        return SecretNoFile(f"The secret {handle} cannot be read: it is not a file.", fix="Use the path of a file.")
    if len(data) > LARGEST_FILE:
        return SecretUnreadable(
            f"The secret {handle} cannot be read: the file is larger than {LARGEST_FILE // 1024} KiB.",
            fix="Use a file that contains only the secret.",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return SecretUnreadable(
            f"The secret {handle} cannot be read: it is not UTF-8 text.", fix="Store it in the file as base64."
        )
    return _without_newline(text) or SecretMissing(
        f"The secret {handle} has no value: the file is empty.", fix="Write the value into it."
    )


def _content(path: str) -> bytes | None:
    """The beginning of a file; None if it is not a regular file, which might block or never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(LARGEST_FILE + 1)
    finally:
        os.close(descriptor)


def _absolute(path: str, home: str | None) -> str:
    if path == "~" or path.startswith("~/"):
        path = (home or os.path.expanduser("~")) + path[1:]
    if not path.startswith("/") or "\0" in path:
        raise SecretProblem(
            "A file: handle needs an absolute path after the colon, or one that begins with ~/.",
            fix="Write it like file:~/.config/token.",
        )
    return "/" + os.path.normpath(path).lstrip("/")


def _unknown(handle: str, names: Collection[str]) -> SecretProblem:
    # A value passed instead of a handle must not be repeated; few names have this many digits.
    plain = _NAME.fullmatch(handle) and len(handle) <= 32 and sum(char.isdigit() for char in handle) < 4
    close = get_close_matches(handle, names, n=3)
    fix = f"Did you mean {' or '.join(close)}?" if close else WHAT_A_HANDLE_IS
    return SecretUnknown(
        f"There is no secret '{handle}'." if plain else "This is neither a handle nor the name of a secret.",
        fix=f"{fix} `cuebook secrets add NAME HANDLE` assigns a name to a handle.",
    )
