"""A forked call finds the same as a new process and ends in the same way."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Ran
from tests.support.fork_server import restore_signals

LOOK = """
import atexit, json, locale, os, signal, sys, threading, time, warnings

def seen(stream):
    buffers = [stream.line_buffering, stream.write_through]
    return [stream.encoding, stream.errors, *buffers, stream.fileno(), stream.name, stream.mode]

file = __file__

def at_exit():
    print(json.dumps({
        "environ": dict(os.environ),
        "folder": os.getcwd(),
        "arguments": sys.argv,
        "path": sys.path,
        "main": [__name__, file, sys.executable],
        "files": [number for number in range(256) if os.path.exists(f"/dev/fd/{number}")],
        "streams": [seen(sys.stdin), seen(sys.stdout), seen(sys.stderr)],
        "signals": [str(signal.getsignal(number)).partition(" at ")[0] for number in signal.valid_signals()],
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "group": [os.getpgrp(), os.getsid(0), os.nice(0)],
        "umask": os.umask(0),
        "flags": list(sys.flags),
        "warnings": [str(one) for one in warnings.filters if one[0] == "error"],
        "threads": [one.name for one in threading.enumerate()],
        "zone": [time.tzname, time.localtime(0).tm_hour],
        "locale": [locale.setlocale(locale.LC_CTYPE), sys.getfilesystemencoding(), sys.getdefaultencoding()],
        "given": sys.stdin.read(),
    }))

atexit.register(at_exit)
"""


def both(cli: CommandLine, code: str, *args: str, stdin: str | None = None) -> tuple[Ran, Ran]:
    """Runs it in a fork and in a new process."""
    script = cli.write("script.py", code)
    forked = cli.fork(*args, stdin=stdin, program=script)
    assert forked is not None
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    started = subprocess.run(
        [sys.executable, str(script), *args],
        cwd=cli.work, env=cli.environ, capture_output=True, encoding="utf-8", check=False,
        preexec_fn=restore_signals, **given
    )  # fmt: skip
    return forked, Ran(started.returncode, started.stdout, started.stderr)


@pytest.mark.parametrize("stdin", [None, "tea\r\nä" + "x" * 200_000], ids=["nothing to read", "much to read"])
def test_a_forked_process_finds_the_same_as_a_new_one(bare_cli: CommandLine, stdin: str | None) -> None:
    bare_cli.environ.update({"TZ": "Asia/Tokyo", "COLUMNS": "50", "NO_COLOR": "1", "ODD": "a\nb \udcff"})
    forked, started = both(bare_cli, LOOK, "--one", "ä", "\udcfe", stdin=stdin)
    assert (forked.code, forked.err) == (started.code, started.err) == (0, "")
    assert forked.object["given"] == (stdin or "")
    assert forked.object == started.object


ENDS = {
    "at its end": "",
    "with a code": "import sys; sys.exit(3)",
    "with a large code": "import sys; sys.exit(259)",
    "with words": "import sys; sys.exit('no more')",
    "by an error": "import sys; sys.tracebacklimit = 0; raise ValueError('bad')",
    "at once": "import os; print('lost'); os._exit(4)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "interrupted": "import os, signal, sys; sys.tracebacklimit = 0; os.kill(os.getpid(), signal.SIGINT)",
    "with a thread that has something to do": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('last'))).start()",
    "with something that is not closed": "import socket\nclass A: pass\na = A(); a.a = a; a.b = socket.socket()",
    "with an output that cannot be written": "import os; print('x'); os.close(1)",
}


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_a_process_ends_as_a_new_one_does(bare_cli: CommandLine, code: str) -> None:
    forked, started = both(bare_cli, code)
    assert (forked.code, forked.out) == (started.code, started.out)
    assert _last(forked.err) == _last(started.err)


def _last(err: str) -> str:
    """The last line, without the traceback, whose positions differ."""
    return (err.splitlines() or [""])[-1]


def test_calls_share_neither_a_process_nor_random_numbers(bare_cli: CommandLine) -> None:
    code = (
        "import json, os, random, tempfile, uuid\nprint(json.dumps([os.getpid(), random.random(), str(uuid.uuid4())]))"
    )
    script = bare_cli.write("script.py", code + "\nos.environ['LEFT'] = '1'; os.chdir('/'); os.umask(0)")
    calls = [bare_cli.fork(program=script) for _ in range(2)]
    first, second = (call.object for call in calls if call is not None)
    assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [("PYTHONPATH", "/elsewhere"), ("PYTHONUTF8", "0"), ("LANG", "de_DE.UTF-8")],
)
def test_a_variable_read_before_a_call_forces_a_new_process(bare_cli: CommandLine, name: str, value: str) -> None:
    script = bare_cli.write("script.py", "")
    assert bare_cli.fork(program=script) is not None
    bare_cli.environ[name] = value
    assert bare_cli.fork(program=script) is None
