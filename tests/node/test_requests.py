"""Requests: performed once, within the allow-list of the node, whatever the server says, and never lost."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.node.capabilities import files
from cuebook.node.capabilities.files import Root
from cuebook.performers.nodes.protocol import (
    MAX_MESSAGE,
    Ask,
    Began,
    Call,
    Finished,
    Forget,
    Known,
    Output,
    Refused,
    Stop,
)
from tests.node.conftest import Started
from tests.node.scripted_server import Peer, ScriptedServer

Start = Callable[..., Started]
FREE: dict[str, Any] = {"sandbox": "none", "allow": ("*",)}


def run(*argv: str, id: str = "r1", seconds: float = 60.0, max_output: int = 32_768, **more: Any) -> Call:
    arguments = {"argv": list(argv), **more}
    return Call(id=id, capability="command", action="run", arguments=arguments, seconds=seconds, max_output=max_output)


def script(text: str, **more: Any) -> Call:
    return run("sh", "-c", text, **more)


async def ended(peer: Peer, call: Call) -> Finished | Refused:
    """The outcome of a request."""
    await peer.send(call)
    return await outcome(peer, call.id)


async def outcome(peer: Peer, id: str) -> Finished | Refused:
    async with asyncio.timeout(60):
        while True:
            message = await peer.receive(object)  # type: ignore[type-var]
            if isinstance(message, Finished | Refused) and message.id == id:
                return message


async def test_a_command_shows_its_output_while_it_runs_and_is_performed_once(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    started(**FREE)
    peer = await server.peer()
    assert [one.name for one in peer.hello.capabilities] == ["command"]
    text = "echo one >> count; echo out; echo oops >&2; while [ ! -e go ]; do sleep 0.02; done; echo more; exit 3"
    await peer.send(script(text))
    assert await peer.receive(Began) == Began(id="r1")
    seen = {(await peer.receive(Output)).stream, (await peer.receive(Output)).stream}
    assert seen == {"stdout", "stderr"}
    await peer.send(script(text), Ask(id="r1"))
    assert [(await peer.receive(Known)).state for _ in range(2)] == ["running", "running"]
    (tmp_path / "work/go").touch()
    done = Finished(id="r1", text="out\nmore\n", stderr="oops\n", exit_code=3)
    assert await outcome(peer, "r1") == done
    assert await ended_known(peer, script(text)) == done
    await peer.send(Forget(ids=("r1", "unheard-of")), Ask(id="r1"))
    assert (await peer.receive(Known)).state == "unknown"
    assert (tmp_path / "work/count").read_text() == "one\n"


async def ended_known(peer: Peer, call: Call) -> Finished | Refused | None:
    await peer.send(call)
    known = await peer.receive(Known)
    assert known.state == "ended"
    return known.outcome


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"argv": ["make", "deploy"]}, "not_allowed"),
        ({"argv": ["sh", "-c", "echo fine; touch made"]}, "not_allowed"),
        ({"argv": ["echo", "fine"], "env": {"LD_PRELOAD": "x.so"}}, "not_allowed"),
        ({"argv": ["./echo", "fine"]}, "not_allowed"),
        ({"argv": ["echo", "fine"], "folder": "below"}, None),
        ({"argv": ["git", "status"], "folder": "below"}, "not_allowed"),
        ({"argv": ["python3"], "stdin": "open('made', 'w')"}, "not_allowed"),
        ({"argv": ["echo", "fine"], "folder": ".."}, "outside_workspace"),
        ({"argv": ["echo", "fine"], "folder": "out"}, "outside_workspace"),
        ({"argv": []}, "bad_arguments"),
        ({"argv": "echo fine"}, "bad_arguments"),
        ({"argv": ["echo"], "shell": True}, "bad_arguments"),
        ({"argv": ["echo", "fine"], "env": {"A": 1}}, "bad_arguments"),
        ({}, "bad_arguments"),
    ],
)
async def test_what_the_allow_list_does_not_permit_is_refused_before_it_begins(
    server: ScriptedServer, started: Start, tmp_path: Path, given: dict[str, Any], code: str | None
) -> None:
    work = tmp_path / "work"
    started(sandbox="none", allow=("echo *", "git *", "python3", "cd below && echo *"))
    for name in ("below",):
        (work / name).mkdir()
    (work / "out").symlink_to(tmp_path)
    (work / "echo").write_text("#!/bin/sh\ntouch made\n")
    (work / "echo").chmod(0o755)
    peer = await server.peer()
    found = await ended(peer, Call(id="r1", capability="command", action="run", arguments=given))
    if code is None:
        assert isinstance(found, Finished)
        return
    assert isinstance(found, Refused)
    assert (found.code, found.began) == (code, False), found
    assert not any(isinstance(one, Began) for one in peer.received)
    await peer.send(Ask(id="r1"))
    assert (await peer.receive(Known)).state == "unknown"
    assert not (work / "made").exists()


async def test_what_is_not_offered_is_refused_with_what_is(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    started(files=(Root(tmp_path / "work"),))
    peer = await server.peer()
    for name, action in (("command", "run"), ("files", "delete"), ("files", "write"), ("", "")):
        found = await ended(peer, Call(id="r1", capability=name, action=action))
        assert isinstance(found, Refused)
        assert (found.code, found.began, found.fix) == ("not_offered", False, "It offers files read, files list.")


@pytest.mark.needs("bubblewrap")
async def test_a_command_is_confined_to_its_folder(server: ScriptedServer, started: Start, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("private")
    started(sandbox="bubblewrap", allow=("*",))
    peer = await server.peer()
    found = await ended(peer, script(f"touch made; cat {tmp_path}/outside"))
    assert isinstance(found, Finished)
    assert found.exit_code != 0
    assert found.text == ""
    assert (tmp_path / "work/made").exists()


async def test_files_are_read_listed_and_written_below_the_folders_only(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    read, both = tmp_path / "read", tmp_path / "both"
    for folder in (read, both, tmp_path / "other"):
        folder.mkdir()
    (tmp_path / "other/secret").write_text("secret")
    (read / "notes.txt").write_text("Grüße\n")
    (read / "raw").write_bytes(b"\xff\0")
    (read / "out").symlink_to(tmp_path / "other")
    (read / "secret").symlink_to(tmp_path / "other/secret")
    (both / "secret").symlink_to(tmp_path / "other/secret")
    started(files=(Root(read), Root(both, writable=True)))
    peer = await server.peer()

    async def asked(action: str, **arguments: Any) -> Any:
        return await ended(peer, Call(id=os.urandom(8).hex(), capability="files", action=action, arguments=arguments))

    assert (await asked("read", path=f"{read}/notes.txt")).text == "Grüße\n"
    assert base64.b64decode((await asked("read", path=f"{read}/raw")).value["base64"]) == b"\xff\0"
    listed = await asked("list", path=str(read))
    assert [(one["name"], one["kind"]) for one in listed.value] == [
        ("notes.txt", "file"),
        ("out", "link"),
        ("raw", "file"),
        ("secret", "link"),
    ]
    written = await asked("write", path=f"{both}/new/report.txt", text="fine")
    assert written.value == {"path": f"{both}/new/report.txt", "size": 4}
    assert (both / "new/report.txt").read_text() == "fine"
    await asked("write", path=f"{both}/raw", base64="/wA=")
    assert (both / "raw").read_bytes() == b"\xff\0"

    refused = {
        "not_allowed": [
            ("read", {"path": f"{read}/secret"}),
            ("read", {"path": f"{read}/out/secret"}),
            ("read", {"path": f"{read}/../other/secret"}),
            ("read", {"path": f"{tmp_path}/other/secret"}),
            ("read", {"path": "/etc/passwd"}),
            ("read", {"path": f"{read}-more/secret"}),
            ("list", {"path": f"{read}/out"}),
            ("list", {"path": str(tmp_path)}),
            ("write", {"path": f"{read}/new", "text": "x"}),
            ("write", {"path": f"{both}/secret", "text": "x"}),
            ("write", {"path": f"{both}/../other/new", "text": "x"}),
        ],
        "bad_arguments": [
            ("read", {"path": "notes.txt"}),
            ("read", {}),
            ("write", {"path": f"{both}/new"}),
            ("write", {"path": f"{both}/new", "base64": "!"}),
            ("write", {"path": f"{both}/new", "text": "x", "base64": "eA=="}),
        ],
    }
    for code, requests in refused.items():
        for action, arguments in requests:
            found = await asked(action, **arguments)
            assert isinstance(found, Refused), (action, arguments)
            assert found.code == code, (action, arguments, found)
    assert (tmp_path / "other/secret").read_text() == "secret"
    assert sorted(one.name for one in (tmp_path / "other").iterdir()) == ["secret"]
    assert not any(one.name.endswith(".tmp") for one in both.rglob("*"))


async def test_a_file_or_a_folder_that_is_too_large_says_so(
    server: ScriptedServer, started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_ENTRIES", 2)
    work = tmp_path / "work"
    for name in "abc":
        (work / name).write_text("x" * 2000)
    started(files=(Root(work),))
    peer = await server.peer()
    call = Call(id="r1", capability="files", action="read", arguments={"path": "a"}, max_output=1000)
    found = await ended(peer, call)
    assert isinstance(found, Refused)
    assert found.code == "too_large"
    found = await ended(peer, Call(id="r2", capability="files", action="list"))
    assert isinstance(found, Finished)
    assert (found.cut, [one["name"] for one in found.value]) == (True, ["a", "b"])


async def test_output_beyond_the_limit_is_cut_and_always_fits_into_a_message(
    server: ScriptedServer, started: Start
) -> None:
    started(**FREE)
    peer = await server.peer()
    found = await ended(peer, script("printf abcdef", max_output=4))
    assert found == Finished(id="r1", text="abcd", exit_code=0, cut=True)
    many = "import sys; [one.write('\\x01' * 600_000) for one in (sys.stdout, sys.stderr)]"
    found = await ended(peer, run(sys.executable, "-c", many, id="r2", max_output=1 << 40))
    assert isinstance(found, Finished)
    assert found.cut
    assert 1000 < len(found.text) < 600_000
    await peer.send(Ask(id="r2"))
    assert (await peer.receive(Known)).outcome == found


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.parametrize("why", ["stopped", "late", "node"])
async def test_ending_a_command_ends_everything_that_it_started(
    server: ScriptedServer, started: Start, tmp_path: Path, why: str
) -> None:
    one = started(**FREE)
    peer = await server.peer()
    pids = tmp_path / "work/pids"
    call = script(
        "setsid sh -c 'echo $$ >> pids; exec sleep 1000' & echo $$ >> pids; echo begun; exec sleep 1000",
        seconds=2.0 if why == "late" else 1000.0,
    )
    await peer.send(call)
    while not pids.exists() or pids.read_text().count("\n") < 2:
        await asyncio.sleep(0.02)
    waiting = script("touch made", id="r2")
    if why == "stopped":
        await peer.receive(Output)
        await peer.send(Stop(id="r1"))
    stopping = asyncio.create_task(one.node.close()) if why == "node" else None
    found = await outcome(peer, "r1")
    assert isinstance(found, Refused)
    assert (found.code, found.began) == ("timeout" if why == "late" else "cancelled", True)
    assert ("node was shut down" in found.message) == (why == "node")
    assert found.text == "begun\n"
    assert not any(map(lives, map(int, pids.read_text().split())))
    if stopping is not None:
        await stopping
        assert "command run" in "\n".join(one.lines)
    else:
        assert isinstance(await ended(peer, waiting), Finished)


async def test_only_so_many_run_at_once_and_a_waiting_one_can_be_stopped(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    started(**FREE, at_once=2)
    peer = await server.peer()
    calls = [script(f"touch began-{n}; while [ ! -e go ]; do sleep 0.02; done", id=f"r{n}") for n in range(4)]
    await peer.send(*calls)
    assert {(await peer.receive(Began)).id for _ in range(2)} == {"r0", "r1"}
    await peer.send(Stop(id="r2"))
    stopped = await outcome(peer, "r2")
    assert isinstance(stopped, Refused)
    assert (stopped.code, stopped.began) == ("cancelled", False)
    assert not (tmp_path / "work/began-3").exists()
    (tmp_path / "work/go").touch()
    found = {(await peer.receive(Finished)).id for _ in range(3)}
    assert found == {"r0", "r1", "r3"}
    assert not (tmp_path / "work/began-2").exists()


async def test_no_message_makes_a_node_do_what_it_does_not_allow(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    started(sandbox="none", allow=("true",))
    frames: list[str | bytes] = [
        "",
        "{}",
        "[]",
        "null",
        '{"is": "Exec", "id": "r1", "argv": ["touch", "made"]}',
        '{"is": "Call"}',
        '{"is": "Call", "id": 7, "capability": "command", "action": "run"}',
        '{"is": "Call", "id": "r1", "capability": "command", "action": "run", "arguments": ["touch", "made"]}',
        '{"is": "Call", "id": "r1", "capability": "command", "action": "run", "seconds": 1e999}',
        '{"is": "Hello", "protocol": 1}',
        "[" * 100_000,
        b"\xff\xfe",
        '{"is": "Forget", "ids": ["' + "x" * MAX_MESSAGE + '"]}',
    ]
    for frame in frames:
        peer = await server.peer()
        await peer.socket.send(frame)
        await peer.closed()
    peer = await server.peer()
    odd = [
        Call(id="", capability="command", action="run", arguments={"argv": ["touch", "made"]}),
        Call(id="x" * 1000, capability="command", action="run", arguments={"argv": ["touch", "made"]}),
        Call(id="../../made", capability="command", action="run", arguments={"argv": ["touch", "made"]}),
        Call(id="r1", capability="command\n", action="__class__", arguments={"argv": ["touch", "made"]}),
    ]
    for call in odd:
        await peer.send(call)
        assert not (await peer.receive(Refused)).began
    late = Call(id="r2", capability="command", action="run", arguments={"argv": ["true"]}, seconds=-5, max_output=-1)
    found = await ended(peer, late)
    assert isinstance(found, Refused)
    assert found.code == "timeout"
    assert isinstance(await ended(peer, run("true", id="../../made")), Finished)
    assert os.listdir(tmp_path / "work") == []
    assert sorted(os.listdir(tmp_path)) == ["data", "work"]


async def test_the_outcome_of_a_cut_call_is_fetched_over_the_next_connection(
    server: ScriptedServer, started: Start, tmp_path: Path
) -> None:
    started(**FREE)
    peer = await server.peer()
    await peer.send(script("echo one >> count; while [ ! -e go ]; do sleep 0.02; done; echo done"))
    await peer.receive(Began)
    peer.socket.transport.abort()
    again = await server.peer()
    await again.send(Ask(id="r1"))
    assert (await again.receive(Known)).state == "running"
    again.socket.transport.abort()
    (tmp_path / "work/go").touch()
    third = await server.peer()
    async with asyncio.timeout(60):
        while True:
            await third.send(Ask(id="r1"))
            known = await third.receive(Known)
            if known.state == "ended":
                break
    assert known.outcome == Finished(id="r1", text="done\n", exit_code=0)
    assert (tmp_path / "work/count").read_text() == "one\n"
