"""The program of `examples/bill`, and the one that `cuebook new` writes, run as their instructions say."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.program.check.program import check
from cuebook.performers.models.weights import find_weights
from tests.support.command_line import CommandLine, Ran
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import TerminalSession

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "bill"
WEIGHTS = find_weights()
GREETING = "Good evening to you!"
SAID = [
    "BillDesk: How much is the bill?",
    "you: 84.50",
    "BillDesk: How many of you share it?",
    "you: there are three of us",
    "BillDesk: 2 pay 28.17, and 1 pays 28.16.",
    "BillDesk: Is there another bill?",
    "you: yes",
    "BillDesk: How much is the bill?",
    "you: 31,20",
    "BillDesk: How many of you share it?",
    "you: a few",
    "BillDesk: I need a number from 1 on. How many of you share it?",
    "you: 2",
    "BillDesk: Each of you pays 15.60.",
    "BillDesk: Is there another bill?",
    "you: no",
    "BillDesk: And what is the occasion?",
    "you: Ada's birthday",
]
"""The conversation of `answers.txt`, between the greeting and the toast."""


def reply_to(request: dict[str, Any]) -> str:
    if "Execute Main from 01" not in str(request["messages"][-1]["content"]):
        return "Here's to Ada."
    return f'recap – begun\nplan – greet\n`Step["Main:01:QUE"]` `Say("user", "{GREETING}")`\ntrig? no\nyld call'


def demo(cli: CommandLine, answers: str) -> Ran:
    """Run the demo without a terminal, with the `cuebook` under test."""
    command = cli.home / "cuebook"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cuebook "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    ran = subprocess.run(
        ["sh", str(EXAMPLE / "demo.sh")], input=answers, env={**cli.environ, "CUEBOOK": str(command)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_nothing_is_wrong_with_it_and_its_tests_pass(bare_cli: CommandLine) -> None:
    assert check((EXAMPLE / "bill.pbasm").read_text(encoding="utf-8"), "bill.pbasm") == []
    ran = bare_cli.call("test", EXAMPLE / "bill.pbasm")
    assert (ran.code, "2 passed" in ran.out) == (0, True), ran.out


def test_it_asks_loops_and_has_python_compute(cli: CommandLine, server: ModelServer) -> None:
    server.script = reply_to
    ran = demo(cli, (EXAMPLE / "answers.txt").read_text(encoding="utf-8"))
    assert ran.code == 0, ran.err
    first, model, *said = ran.err.splitlines()
    assert first == "There is no terminal, so the answers are read from stdin, one per line."
    assert model.endswith(", test/echo-1)")
    assert said[:20] == [f"BillDesk: {GREETING}", *SAID, "BillDesk: Here's to Ada."]
    assert said[20:22] == ["status: completed", "result: 2"]
    assert len(server.requests) == 2


def test_with_too_few_answers_it_says_how_to_continue(cli: CommandLine, server: ModelServer) -> None:
    server.script = reply_to
    ran = demo(cli, "84.50\n")
    assert ran.code == 3
    run = cli.call("runs", "--json").object[0]["run"]
    assert ran.err.splitlines()[3:6] == SAID[:3]
    assert f"next: cuebook answer {run} VALUE\n" in ran.err
    assert cli.call("answer", run, "two").code == 3
    assert "Each of you pays 42.25." in cli.call("show", run).out


def test_at_a_terminal_it_is_a_chat(cli: CommandLine, server: ModelServer) -> None:
    server.script = reply_to
    with TerminalSession(cli, "run", str(EXAMPLE / "bill.pbasm")) as terminal:
        for question, answer in (
            ("How much is the bill?", "90"),
            ("How many of you share it?", "3"),
            ("Is there another bill?", "n"),
            ("And what is the occasion?", "none"),
        ):
            terminal.until(f"BillDesk: {question}\nyou:")
            terminal.type(f"{answer}\n")
        assert "Each of you pays 30.00." in terminal.until("result  1")
        assert terminal.ended() == 0


@pytest.mark.embedded
@pytest.mark.skipif(WEIGHTS is None, reason="the weights of the embedded model are not installed")
@pytest.mark.timeout(400)
def test_with_no_key_the_embedded_model_runs_it_to_its_end(bare_cli: CommandLine) -> None:
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    ran = demo(bare_cli, (EXAMPLE / "answers.txt").read_text(encoding="utf-8"))
    assert ran.code == 0, ran.err
    _, model, greeting, *said = ran.err.splitlines()
    assert model.endswith(", local/smollm2-135m)")
    assert "evening" in greeting
    assert said[:18] == SAID
    assert said[18].startswith("BillDesk: ")
    assert "Here's to " in said[18]
    assert "refused" not in ran.err


def test_the_starter_program_has_no_findings(bare_cli: CommandLine) -> None:
    for given in (("sums", "--dialect", "program"), ("totals.pbasm",)):
        assert bare_cli.call("new", *given).code == 0
    assert check((bare_cli.work / "sums.pbasm").read_text(encoding="utf-8"), "sums.pbasm") == []
    assert bare_cli.call("validate", "--strict", "sums.pbasm", "totals.pbasm").code == 0
    refused = bare_cli.call("new", "drafted.pbasm", "--from", "count coins")
    assert (refused.code, (bare_cli.work / "drafted.pbasm").exists()) == (2, False)
    assert (
        "--from cannot draft playbooks in the dialect program. Choose one of markdown, graph, pipeline." in refused.err
    )
