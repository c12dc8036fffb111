"""`cuebook node` as a process: killed, stopped, and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cuebook.performers.nodes.protocol import CLOSE_CODES, Ask, Began, Call, Finished, Goodbye, Known, Refused
from cuebook.system.process import surely_gone
from tests.node.scripted_server import TOKEN, ScriptedServer
from tests.support.command_line import PYTHON

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
async def begin(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Begin]:
    (tmp_path / "work").mkdir()
    processes: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        usual = ["--connect", server.url, "--token", TOKEN, "--allow", "*", "--sandbox", "none", "--no-desktop"]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "cuebook", "node", *usual, *args],
                cwd=tmp_path / "work",
                env={**PYTHON, "HOME": str(tmp_path / "home")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def script(id: str, text: str) -> Call:
    return Call(id=id, capability="command", action="run", arguments={"argv": ["sh", "-c", text]}, seconds=1000)


async def ended(process: subprocess.Popen[str]) -> str:
    """The error output of a process that ends."""
    return (await asyncio.to_thread(process.communicate, None, 60))[1]


async def pid_in(path: Path) -> int:
    while not (text := read(path)).endswith("\n"):
        await asyncio.sleep(0.02)
    return int(text.split()[-1])


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_a_killed_node_says_that_the_request_was_interrupted_and_never_repeats_it(
    server: ScriptedServer, begin: Begin, tmp_path: Path
) -> None:
    first = begin()
    peer = await server.peer()
    long = script("r1", "echo $$ >> pid; exec sleep 1000")
    await peer.send(script("r0", "echo fine"))
    done = await peer.receive(Finished)
    await peer.send(long)
    await peer.receive(Began)
    pid = await pid_in(tmp_path / "work/pid")
    first.kill()
    await ended(first)
    second = begin()
    peer = await server.peer()
    await peer.send(Ask(id="r1"), long, Ask(id="r0"), Ask(id="r2"))
    states = [await peer.receive(Known) for _ in range(4)]
    assert [one.state for one in states] == ["interrupted", "interrupted", "ended", "unknown"]
    assert states[2].outcome == done
    # The next command ends what the killed process left behind.
    await peer.send(script("r3", "echo again"))
    await peer.receive(Finished)
    assert surely_gone(pid, "")
    assert read(tmp_path / "work/pid") == f"{pid}\n"
    second.send_signal(signal.SIGTERM)
    assert "stopping" in await ended(second)
    assert second.returncode == 0


async def test_a_stopped_node_ends_its_requests_says_which_and_records_it(
    server: ScriptedServer, begin: Begin, tmp_path: Path
) -> None:
    first = begin()
    peer = await server.peer()
    await peer.send(script("r1", "echo $$ > pid; exec sleep 1000"))
    pid = await pid_in(tmp_path / "work/pid")
    first.send_signal(signal.SIGINT)
    refused = await peer.receive(Refused)
    assert (refused.code, refused.began) == ("cancelled", True)
    said = await ended(first)
    assert first.returncode == 0
    assert "cuebook: ended what was under way: command run." in said
    assert surely_gone(pid, "")
    begin()
    peer = await server.peer()
    await peer.send(Ask(id="r1"))
    assert (await peer.receive(Known)).outcome == refused


async def test_it_ends_with_a_code_of_its_own_and_one_line_that_cannot_be_forged(
    server: ScriptedServer, begin: Begin, tmp_path: Path
) -> None:
    first = begin()
    peer = await server.peer()
    second = begin()
    assert "already this node" in await ended(second)
    assert second.returncode == 2
    await peer.send(Goodbye(code="revoked", message="Gone.\n\x1b[2Jcuebook: all is well."))
    await peer.socket.close(CLOSE_CODES["revoked"])
    last = (await ended(first)).splitlines()[-1]
    assert first.returncode == 5
    assert last == "cuebook: Gone. [2Jcuebook: all is well."
    server.keys.clear()
    third = begin()
    assert "no node with this key" in await ended(third)
    assert third.returncode == 5
    lines = await ended(begin("--files", str(tmp_path / "home")))
    assert "would offer the node's own key" in lines
    assert os.stat(tmp_path / "home").st_mode
