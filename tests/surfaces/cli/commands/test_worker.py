"""`cuebook worker`: its options, what it says, and how it stops."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.command_line import CommandLine, finished
from tests.support.runtime import GATED

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it is stopped by signals")


@pytest.fixture
def worker(cli: CommandLine) -> Iterator[subprocess.Popen[str]]:
    process = cli.begin("worker", "--workspace-label", "shop")
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_says_what_it_offers_and_stops_on_a_signal(
    worker: subprocess.Popen[str], cli: CommandLine, number: signal.Signals
) -> None:
    said = first_line(worker)
    assert f"workspace:{cli.work}, workspace:shop" in said
    assert "Press Ctrl-C to stop" in said
    worker.send_signal(number)
    ran = finished(worker)
    assert ran.code == 0
    assert ran.err.splitlines()[-1] == "cuebook: stopped."
    assert ran.out == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--at-once", "0"), "--at-once: "),
        (("--at-once", "many"), "--at-once: "),
        (("--drain", "-1"), "--drain: "),
        (("--drain", "soon"), "--drain: "),
        (("--workspace", "nowhere"), "is not a folder"),
        (("--workspace-label", "a/b"), "--workspace-label: "),
    ],
)
def test_options_that_cannot_be_used_are_one_line(cli: CommandLine, args: tuple[str, str], said: str) -> None:
    before = cli.files()
    refused = cli.call("worker", *args)
    assert refused.code == 2
    assert len(refused.err.splitlines()) == 1
    assert said in refused.err
    assert cli.files() == before


def test_its_options_can_be_configured(cli: CommandLine) -> None:
    with cli.config.open("a") as file:
        file.write("\n[worker]\nat_once = 0\n")
    refused = cli.call("worker")
    assert refused.code == 2
    assert "worker.at_once" in refused.err


def test_it_says_which_runs_it_drives_and_how_it_leaves_them(cli: CommandLine) -> None:
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    held = "cli sh -c 'touch up; until test -e go; do sleep 0.05; done'"
    cli.write("held.yml", f"name: H\nsteps:\n  - {{id: a, command: {held}}}\n  - {{id: b, command: cli true}}\n")
    cli.write("gated.yml", GATED)
    asking, held_run = [cli.call("run", name, "--detach").out.strip() for name in ("gated.yml", "held.yml")]
    process = cli.begin("worker")
    assert process.stderr is not None
    assert "offers" in process.stderr.readline(), "what it offers comes first"
    said: list[str] = []
    while len(said) < 3:
        line = process.stderr.readline().rstrip().partition(" ")[2]
        said += [line] if line.startswith(("info run.driving", "info run.released")) else []
    assert sorted(re.sub(r" machine=\S+", "", line) for line in said) == sorted(
        [
            f"info run.driving run={asking} playbook=gated.yml",
            f"info run.driving run={held_run} playbook=held.yml",
            f'info run.released run={asking} result="awaiting approval"',
        ]
    )
    while not (cli.work / "up").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert "stopping" in process.stderr.readline()
    (cli.work / "go").touch()
    ran = finished(process)
    assert ran.code == 0
    assert f'info run.released run={held_run} result="handed over"' in ran.err
