"""Secret managers: the vendors' programs that fetch the values of the secrets named in the user's own configuration.

Nothing here shows, stores or logs a value, or what a program printed: either may be the secret.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO

import msgspec

from cuebook.kernel.errors import BadInput

PATIENCE = 20.0
"""How many seconds a program has to return a value."""
FRESH = 60.0
"""How many seconds a value is used without asking for it again."""
FAILED_FRESH = 2.0
"""How many seconds a failure is repeated without asking again, so that many waiting runs do not start many programs."""
LARGEST = 64 * 1024

Answer = str | BadInput
"""A value, or why there is none."""


class Source(msgspec.Struct, frozen=True):
    """Where a named secret comes from."""

    written: str
    """As in the configuration. That of `exec:` may hold anything, so it is never shown."""
    argv: tuple[str, ...]
    key: str = ""
    """The key of the value, if the program returns a JSON object."""

    @property
    def kind(self) -> str:
        return self.written.partition(":")[0]

    @property
    def shown(self) -> str:
        return "exec:..." if self.kind == "exec" else self.written


class BadSource(BadInput):
    """The configuration does not say where a secret comes from."""

    code = "secret"


def _vault(place: str) -> Source | None:
    path, _, field = place.partition("#")
    return Source(f"vault:{place}", ("vault", "kv", "get", f"-field={field}", path)) if path and field else None


def _op(place: str) -> Source | None:
    path = place.removeprefix("//")
    known = len(path.split("/")) in (3, 4) and all(path.split("/"))
    return Source(f"op:{place}", ("op", "read", "--no-newline", f"op://{path}")) if known else None


def _aws(place: str) -> Source | None:
    name, _, key = place.partition("#")
    asked = (
        "aws",
        "secretsmanager",
        "get-secret-value",
        f"--secret-id={name}",
        "--query=SecretString",
        "--output=text",
    )
    return Source(f"aws:{place}", asked, key) if name else None


_GCP = re.compile(
    r"(?:projects/(?P<project>[^/]+)/secrets/)?(?P<name>[^/#]+)(?:/versions/(?P<version>[^/]+))?", re.ASCII
)


def _gcp(place: str) -> Source | None:
    found = _GCP.fullmatch(place)
    if found is None:
        return None
    project = (f"--project={found['project']}",) if found["project"] else ()
    asked = ("gcloud", "secrets", "versions", "access", found["version"] or "latest", f"--secret={found['name']}")
    return Source(f"gcp:{place}", (*asked, *project))


def _exec(place: str) -> Source | None:
    try:
        argv = tuple(shlex.split(place))
    except ValueError:
        return None
    return Source(f"exec:{place}", argv) if argv else None


_READERS: Mapping[str, Callable[[str], Source | None]] = {
    "vault": _vault,
    "op": _op,
    "aws": _aws,
    "gcp": _gcp,
    "exec": _exec,
}
KINDS = tuple(_READERS)
_FORMS = {
    "vault": "vault:PATH#FIELD, as in vault:kv/ci#token",
    "op": "op://VAULT/ITEM/FIELD",
    "aws": "aws:NAME, or aws:NAME#KEY for one key of a JSON object",
    "gcp": "gcp:NAME, or gcp:projects/PROJECT/secrets/NAME/versions/VERSION",
    "exec": "exec:PROGRAM ARGUMENTS, as in exec:pass show ci/token",
}


def is_managed(handle: str) -> bool:
    """Whether this is written like the handle of a manager."""
    kind, colon, _ = handle.partition(":")
    return bool(colon) and kind in _READERS


def source(written: str) -> Source:
    """Parses the handle of a manager. Raises `BadSource`, which does not repeat it: it may be a misplaced value."""
    kind, _, place = written.partition(":")
    found = _READERS[kind](place.strip()) if kind in _READERS else None
    if found is None:
        form = _FORMS.get(kind, ", ".join(f"{one}:..." for one in _FORMS))
        raise BadSource("This does not say where a secret comes from.", fix=f"Write it as {form}.")
    return found


class Managers:
    """Fetches the values of named secrets, and keeps each for a short time."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        environ: Mapping[str, str],
        *,
        patience: float = PATIENCE,
        fresh: float = FRESH,
    ) -> None:
        self._sources = sources
        self._environ = environ
        self._patience = patience
        self._fresh = fresh
        self._kept: dict[str, tuple[float, Answer]] = {}
        self._locks = {name: threading.Lock() for name in sources}

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __repr__(self) -> str:
        return "<Managers>"

    def shown(self, name: str) -> str:
        """Where a secret comes from, without anything that could be a value."""
        return self._sources[name].shown

    def has(self, name: str) -> bool:
        """Whether `answer` would return without asking the manager."""
        until, _ = self._kept.get(name, (0.0, ""))
        return time.monotonic() < until

    def answer(self, name: str) -> Answer:
        """The value, or why there is none. Blocks while the manager is asked; many threads ask only once."""
        with self._locks[name]:
            if not self.has(name):
                found = self._ask(name, self._sources[name])
                fresh = self._fresh if isinstance(found, str) else FAILED_FRESH
                self._kept[name] = time.monotonic() + fresh, found
            return self._kept[name][1]

    def forget(self, name: str) -> None:
        """Asks again at the next use, for example because the value was refused."""
        self._kept.pop(name, None)

    def _ask(self, name: str, one: Source) -> Answer:
        program, words = one.argv[0], f"The secret '{name}' ({one.shown}) cannot be read"
        try:
            code, output = _output(one.argv, self._environ, self._patience)
        except FileNotFoundError:
            fix = (
                f"Install {program}, or correct the path."
                if one.kind == "exec"
                else f"Install the program `{program}`."
            )
            return BadSource(f"{words}: the program {program} was not found.", fix=fix)
        except OSError as error:
            return BadSource(f"{words}: {program} could not be started: {error.strerror}.", fix="Correct the path.")
        except subprocess.TimeoutExpired:
            return BadSource(
                f"{words}: {program} did not return it within {self._patience:g} s, so it was ended.",
                fix="Run it in a terminal: it may ask for a sign-in, or its server may be unreachable.",
            )
        if code != 0:
            how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
            asked = "the command of this secret" if one.kind == "exec" else f"`{shlex.join(one.argv)}`"
            return BadSource(
                f"{words}: {program} {how}.", fix=f"Run {asked} in a terminal to see why, or sign in again."
            )
        if len(output) > LARGEST:
            return BadSource(f"{words}: the value is larger than {LARGEST // 1024} KiB.", fix="Name a smaller secret.")
        return _value(words, one, output)


def _value(words: str, one: Source, output: bytes) -> Answer:
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return BadSource(f"{words}: it is not UTF-8 text.", fix="Store it as base64.")
    if one.key:
        try:
            found = json.loads(text)
        except ValueError:
            return BadSource(f"{words}: it is not a JSON object.", fix="Leave out the part after '#'.")
        value = found.get(one.key) if isinstance(found, dict) else None
        if not isinstance(value, str):
            return BadSource(f"{words}: its JSON has no text with this key.", fix="Correct the part after '#'.")
        return value
    return text.removesuffix("\n").removesuffix("\r")


def _output(argv: tuple[str, ...], environ: Mapping[str, str], patience: float) -> tuple[int, bytes]:
    """The exit code and what the program printed. Ends it, with everything that it started, when it takes too long."""
    until = time.monotonic() + patience
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environ),
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        reader = _Reader(process.stdout)
        reader.start()
        reader.join(patience)
        try:
            return process.wait(max(0.1, until - time.monotonic()) if not reader.is_alive() else 0), reader.data
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            reader.join(1.0)
            raise


class _Reader(threading.Thread):
    """Reads the output of a program to its end, and keeps as much as a secret can be long."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.data = b""

    def run(self) -> None:
        with suppress(OSError, ValueError):
            self.data = self._stream.read(LARGEST + 1)
            while self._stream.read(1 << 16):
                pass
