"""A process that has imported what `cuebook` imports, and forks a child for every program that it is asked to run.

Requests arrive on a socket from `fork_server.py`. It is a program, and its functions are also
used by other fork servers.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import sys
import termios
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TextIO

# What `cuebook` imports of others when it runs a playbook. Not in it: `keyring`, which looks for the user's home when it
# is imported, and `xllamacpp`, which starts threads.
OTHERS = (
    "anyio._backends._asyncio",
    "httpcore2",
    "httpx2",
    "importlib.metadata",
    "importlib.readers",
    "jsonschema",
    "mimetypes",
    "ruamel.yaml",
)


def main() -> None:
    # What comes before is our own: the folder of this file, and what the path of a call says instead.
    places = sys.path[sys.path.index(os.environ["PYTHONPATH"]) + 1 :]
    del sys.path[0]
    line = socket.socket(fileno=int(sys.argv[1]))
    line.sendall(json.dumps(sorted(loaded())).encode() + b"\n")
    gc.collect()
    gc.freeze()
    while True:
        asked, streams = next_call(line)
        if asked is None:
            line.close()
            return
        child = os.fork()
        if "program" not in asked:  # a second server, which has everything loaded at once
            if not child:
                line.close()
                line = socket.socket(fileno=streams[0])
            else:
                os.close(streams[0])
        else:
            if not child:
                line.close()
                live(asked, streams, places)
            for stream in streams:
                os.close(stream)
            _tell(line, child)
            _, status = os.waitpid(child, 0)
            _tell(line, os.waitstatus_to_exitcode(status))


def _tell(line: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the tests were killed
        line.sendall(b"%d\n" % number)


def live(asked: dict[str, Any], streams: list[int], places: list[str]) -> NoReturn:
    """The life of a child: it becomes the program and ends as the program ends."""
    _become(asked, streams, places)
    try:
        _run(asked["program"])
        code: Any = None
    except SystemExit as ended:
        code = ended.code
    if code is None or isinstance(code, int):
        _end(code or 0)
    sys.exit(code)


def _run(program: str) -> None:
    """Runs a script by path, or a module by name."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    if _is_script(program):
        main.__file__ = program
        exec(compile(Path(program).read_bytes(), program, "exec"), vars(main))
    else:
        runpy._run_module_as_main(program)  # type: ignore[attr-defined]  # what `python -m` calls


def _is_script(program: str) -> bool:
    return program.endswith(".py")


def loaded() -> set[str]:
    """Loads everything; returns the environment variables that were read in the meantime."""
    import cuebook

    looked_up: set[str] = set()
    kind = type(os.environ)
    get = kind.__getitem__

    def told(self: os._Environ[str], name: str) -> str:
        looked_up.add(name)
        return get(self, name)

    kind.__getitem__ = told  # type: ignore[method-assign]
    for found in pkgutil.walk_packages(cuebook.__path__, "cuebook."):
        if found.name != "cuebook.__main__":
            importlib.import_module(found.name)
    for name in OTHERS:
        importlib.import_module(name)
    kind.__getitem__ = get  # type: ignore[method-assign]
    return looked_up


def next_call(line: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next call and its standard streams; no call if there are no more requests."""
    try:
        head, streams, _, _ = socket.recv_fds(line, 8, 3)
    except KeyboardInterrupt:  # from the person who runs the tests
        return None, []
    if not head:
        return None, []
    while len(head) < 8:
        head += line.recv(8 - len(head))
    length = int.from_bytes(head, "big")
    body = b""
    while len(body) < length:
        body += line.recv(length - len(body))
    return json.loads(body), streams


def _become(asked: dict[str, Any], streams: list[int], places: list[str]) -> None:
    """Sets everything that a new process would find: streams, folder, environment, arguments and path."""
    for number, given in enumerate(streams):
        os.dup2(given, number)
    os.closerange(3, max(streams) + 1)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if asked.get("terminal"):
        TERMINALS[asked["terminal"]]()
    os.chdir(asked["folder"])
    own = {
        name: value for name, value in os.environ.items() if name == "LC_CTYPE"
    }  # set by Python itself if it is not set
    os.environ.clear()
    os.environ.update(asked["environ"] | own)
    time.tzset()
    program = asked["program"]
    sys.argv = [program, *asked["args"]]
    first = os.path.dirname(program) if _is_script(program) else os.getcwd()
    sys.path[:] = [first, *os.environ["PYTHONPATH"].split(os.pathsep), *places]


def take_terminal() -> None:
    """Makes the pseudo-terminal on stdin the controlling terminal, for Ctrl-C and for reading answers."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def to_the_background() -> None:
    """Like `&` in a shell: another process has the keyboard."""
    take_terminal()
    shell = os.getpgrp()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status))
    os.setpgid(0, 0)
    assert os.tcgetpgrp(0) == shell


TERMINALS = {"own": take_terminal, "background": to_the_background}
"""What a process may be to the terminal that it was given as its standard streams."""


def _stream(number: int, old: TextIO) -> TextIO:
    """Creates a standard stream as Python does."""
    mode = "w" if number else "r"
    made: Any = open(number, f"{mode}b", closefd=False)  # noqa: SIM115
    made.raw.name = old.name
    lines = number == 2 or made.isatty()
    stream: Any = io.TextIOWrapper(made, old.encoding, old.errors, newline="\n", line_buffering=lines)
    stream.mode = mode
    return stream  # type: ignore[no-any-return]


def _end(code: int) -> None:
    """Ends like Python, except that only the main module is torn down: tearing down all of them would take too long."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    vars(sys.modules["__main__"]).clear()
    gc.collect()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return  # Python itself will try again and report it
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
