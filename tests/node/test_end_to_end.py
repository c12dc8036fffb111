"""`cuebook serve` and `cuebook node` as processes: steps that run on another machine, through crashes and cut connections."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cuebook.system.process import surely_gone
from tests.support.command_line import CommandLine, finished
from tests.support.tcp_proxy import TcpProxy

SECONDS = 60


class Site:
    """A server, and the machines that connect to it."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self.processes: list[subprocess.Popen[str]] = []
        policy = cli.home / "config/cuebook/policy.toml"
        policy.parent.mkdir(parents=True, exist_ok=True)
        policy.write_text('[tools]\nallow = ["node:*"]\n')
        self.machine = cli.home.parent / "machine"
        self.machine.mkdir()
        self.serve()

    def serve(self, port: int = 0, *more: str) -> None:
        """Starts the server."""
        self.server = self._begin("serve", "--port", str(port), "--folder", str(self.cli.work), *more)
        assert self.server.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.server.stdout.readline())
        assert found is not None
        self.url, self.port = found[0], int(found[1])

    def _begin(self, *args: str | Path) -> subprocess.Popen[str]:
        self.processes.append(self.cli.begin(*args))
        return self.processes[-1]

    def token(self, name: str) -> str:
        return str(self.cli.call("nodes", "add", name, "--json").object["token"])

    def node(self, token: str, *args: str, url: str = "", data: str = "data") -> subprocess.Popen[str]:
        """A machine that runs one script, and reads the files in its folder."""
        usual = ("--connect", url or self.url, "--token", token, "--sandbox", "none", "--no-desktop")
        offered = args or ("--allow", "sh work.sh", "--files", str(self.machine))
        where = ("--folder", str(self.machine), "--data", str(self.cli.home.parent / data))
        return self._begin("node", *usual, *where, *offered)

    def connected(self, process: subprocess.Popen[str]) -> None:
        """Waits until a machine is connected."""
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "is connected" in line:
                return
        raise AssertionError("".join(said))

    def script(self, text: str) -> str:
        """Starts a run that executes this text on the machine, and returns its id."""
        (self.machine / "work.sh").write_text(text)
        return self.run("command run", {"argv": ["sh", "work.sh"]}, "    timeout_ms: 200000\n")

    def run(self, command: str, arguments: dict[str, Any], more: str = "") -> str:
        """Starts a run of one step, and returns its id."""
        given = f"    with: {json.dumps({'arguments': arguments})}\n" if arguments else ""
        text = f"name: One\nsteps:\n  - id: one\n    command: node {command}\n    node: laptop\n{given}{more}"
        file = self.cli.write("one.yml", text)
        before = self._runs()
        self._begin("run", file, "--no-ask")
        self.wait_for(lambda: len(self._runs()) > len(before))
        return next(iter(self._runs() - before))

    def _runs(self) -> set[str]:
        return {str(one["run"]) for one in self.cli.call("runs", "--json").object}

    def output(self, run: str) -> str:
        return self.cli.call("show", run, "--output").out.strip()

    def until(self, run: str, *statuses: str) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        found: dict[str, Any] = {}
        while time.monotonic() < end:
            found = self.cli.call("show", run, "--json").object
            if found["status"] in statuses:
                return found
            time.sleep(0.1)
        raise AssertionError(found)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.02)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            with suppress(ValueError):  # its streams were read to the end
                process.communicate()


@pytest.fixture
def site(bare_cli: CommandLine) -> Iterator[Site]:
    made = Site(bare_cli)
    yield made
    made.close()


def test_steps_run_there_within_what_the_machine_allows(site: Site) -> None:
    node = site.node(site.token("laptop"))
    site.connected(node)
    (site.machine / "notes.txt").write_text("from the machine\n")
    (site.machine / "out").symlink_to(site.cli.work)
    run = site.script("pwd; echo oops >&2; touch made")
    site.until(run, "completed")
    assert site.output(run) == str(site.machine)
    assert (site.machine / "made").exists()
    read = site.run("files read path=notes.txt", {})
    site.until(read, "completed")
    assert site.output(read) == "from the machine"
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("command run", {"argv": ["reboot"]}, "does not allow the command `reboot`"),
        ("command run", {"argv": ["sh", "-c", "touch more"]}, "does not allow the command"),
        ("files read", {"path": "out/one.yml"}, "through a link"),
        ("files read", {"path": "../data"}, "contains '..'"),
        ("lights switch", {}, "does not offer"),
        ("files write", {"path": "new", "text": "x"}, "does not offer"),
    ]
    for command, arguments, words in refused:
        run = site.run(command, arguments)
        site.until(run, "failed")
        assert words in site.cli.call("show", run).out
    assert sorted(one.name for one in site.machine.iterdir()) == ["made", "notes.txt", "out", "work.sh"]


def test_a_killed_node_leaves_the_step_in_doubt_and_nothing_runs_twice(site: Site) -> None:
    token = site.token("laptop")
    first = site.node(token)
    site.connected(first)
    pid = site.machine / "pid"
    run = site.script("echo $$ >> pid; exec sleep 1000")
    site.wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    first.kill()
    finished(first)
    site.connected(site.node(token))
    site.until(run, "awaiting_approval", "awaiting_input")
    assert "ended while it was under way" in site.cli.call("show", run).out
    assert pid.read_text().count("\n") == 1


def test_the_outcome_of_a_cut_call_is_fetched(site: Site) -> None:
    proxy = TcpProxy(site.port)
    try:
        site.server.terminate()
        finished(site.server)
        site.serve(site.port, "--allow-host", f"127.0.0.1:{proxy.port}")
        node = site.node(site.token("laptop"), url=f"http://127.0.0.1:{proxy.port}")
        site.connected(node)
        script = "echo once >> count; while [ ! -e go ]; do sleep 0.05; done; echo done"
        run = site.script(script)
        site.wait_for((site.machine / "count").exists)
        proxy.cut()
        (site.machine / "go").touch()
        proxy.heal()
        site.until(run, "completed")
        assert site.output(run) == "done"
        assert (site.machine / "count").read_text() == "once\n"
    finally:
        proxy.close()


def test_a_killed_server_fetches_the_outcome_when_it_is_back(site: Site) -> None:
    node = site.node(site.token("laptop"))
    site.connected(node)
    script = "echo once >> count; while [ ! -e go ]; do sleep 0.05; done; echo done"
    run = site.script(script)
    site.wait_for((site.machine / "count").exists)
    site.server.kill()
    finished(site.server)
    (site.machine / "go").touch()
    site.serve(site.port)
    site.until(run, "completed")
    assert site.output(run) == "done"
    assert (site.machine / "count").read_text() == "once\n"


def test_a_token_pairs_one_machine_and_revoking_ends_it_with_what_it_does(site: Site) -> None:
    token = site.token("laptop")
    first = site.node(token)
    site.connected(first)
    other = finished(site.node(token, data="another-machine"))
    assert other.code == 5
    assert "used" in other.err
    assert "cuebook nodes token laptop" in other.err
    pid = site.machine / "pid"
    run = site.script("echo $$ > pid; exec sleep 1000")
    site.wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    assert site.cli.call("nodes", "revoke", "laptop").code == 0
    assert first.wait(SECONDS) == 5
    assert surely_gone(int(pid.read_text()), "")
    site.until(run, "awaiting_approval", "awaiting_input")
    again = finished(site.node(token))
    assert again.code == 5
