"""Secret managers: the vendors' programs that fetch the values of the secrets named in the user's own configuration.

Nothing here shows, stores or logs a value, or what a program printed: either may be the secret.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress

import msgspec

from cuebook.kernel.errors import BadInput

PATIENCE = 20.0
"""How many seconds a program has to return a value."""
FRESH = 60.0
"""How many seconds a value is used without asking for it again."""
STILL_USED = 30.0
"""For how many seconds more a value is used by what was about to use it, so that nothing else waits for a slow manager."""
AFTER_EXIT = 1.0
"""How many seconds the output of a program is read after it has ended, if something that it started still has it open."""
FAILED_FRESH = 2.0
"""How many seconds a failure is repeated without asking again, so that many waiting runs do not start many programs."""
LARGEST = 64 * 1024
_LOOK = 0.05
"""Seconds between two looks whether a program that prints nothing has ended."""

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
    # A path that begins in the current folder would be a file of whatever project Cuebook is started in.
    program = os.path.expanduser(argv[0]) if argv else ""
    is_clear = bool(program) and ("/" not in program or program.startswith("/"))
    return Source(f"exec:{place}", (program, *argv[1:])) if is_clear else None


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
    "exec": "exec:PROGRAM ARGUMENTS, as in exec:pass show ci/token; a path must be absolute or begin with ~/",
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
        self._asking: dict[str, Future[Answer]] = {}
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __repr__(self) -> str:
        return "<Managers>"

    def shown(self, name: str) -> str:
        """Where a secret comes from, without anything that could be a value."""
        return self._sources[name].shown

    def answer(self, name: str) -> Answer:
        """The value, or why there is none. Blocks while the manager is asked, unless `answered` has just returned the value."""
        return self._answer(name, min(self._fresh, STILL_USED)).result()

    async def answered(self, name: str) -> Answer:
        """The value, or why there is none. However many ask at once, the manager is asked once, in a thread of its own: those
        that others use are not held up.
        """
        return await asyncio.wrap_future(self._answer(name))

    def _answer(self, name: str, longer: float = 0.0) -> Future[Answer]:
        with self._lock:
            until, found = self._kept.get(name, (0.0, ""))
            if time.monotonic() < until + (longer if isinstance(found, str) else 0.0):
                done: Future[Answer] = Future()
                done.set_result(found)
                return done
            asking = self._asking.get(name)
            if asking is None:
                asking = self._asking[name] = Future()
                asking.set_running_or_notify_cancel()  # who gives up ends nobody else's wait
                threading.Thread(target=self._fetch, args=(name, asking), daemon=True).start()
            return asking

    def _fetch(self, name: str, asking: Future[Answer]) -> None:
        try:
            found = self._ask(name, self._sources[name])
        except BaseException as error:
            with self._lock:
                del self._asking[name]
            asking.set_exception(error)
            return
        fresh = self._fresh if isinstance(found, str) else FAILED_FRESH
        with self._lock:
            self._kept[name] = time.monotonic() + fresh, found
            del self._asking[name]
        asking.set_result(found)

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
        if len(output) > LARGEST:
            return BadSource(f"{words}: the value is larger than {LARGEST // 1024} KiB.", fix="Name a smaller secret.")
        if code != 0:
            how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
            asked = "the command of this secret" if one.kind == "exec" else f"`{shlex.join(one.argv)}`"
            return BadSource(
                f"{words}: {program} {how}.", fix=f"Run {asked} in a terminal to see why, or sign in again."
            )
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


_running: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_running() -> None:
    """Programs that were asked end with this process."""
    for process in list(_running):
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program, with everything that it started and that stayed in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def _output(argv: tuple[str, ...], environ: Mapping[str, str], patience: float) -> tuple[int, bytes]:
    """The exit code and what the program printed, as far as a secret can be long. Ends it when it takes too long, or prints too
    much. What it started may keep its output open: that is not waited for.
    """
    until = time.monotonic() + patience
    process = subprocess.Popen(
        argv,
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environ),
        start_new_session=True,
    )
    assert process.stdout is not None
    _running.add(process)
    try:
        with process.stdout:
            data = _read(process, process.stdout.fileno(), until)
        if len(data) > LARGEST:
            _end(process)
        code = process.wait(max(0.1, until - time.monotonic()))
    except BaseException:
        _end(process)
        raise
    finally:
        _running.discard(process)
    return code, data


def _read(process: subprocess.Popen[bytes], descriptor: int, until: float) -> bytes:
    """What a program prints until its end, or a little more than a secret can be long. Raises `TimeoutExpired`."""
    data, ended = b"", False
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(data) <= LARGEST:
            now = time.monotonic()
            if now >= until:
                if ended:
                    break
                raise subprocess.TimeoutExpired(process.args, 0)
            if selector.select(min(_LOOK, until - now)):
                piece = os.read(descriptor, LARGEST)
                if not piece:
                    break
                data += piece
            elif not ended and process.poll() is not None:
                ended, until = True, min(until, now + AFTER_EXIT)
    return data
