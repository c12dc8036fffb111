"""The guide to programs: its programs have no findings, and every command in it does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from cuebook.dialects.program.check.listing import CODES as LINTED
from cuebook.dialects.program.check.names import CODES as USED
from cuebook.dialects.program.check.program import check
from cuebook.dialects.program.check.unsupported import CODES as UNSUPPORTED
from cuebook.dialects.program.verify.verdicts import RULES
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, Reader, blocks
from tests.support.model_server import ModelServer

GUIDE = DOCS / "guides" / "programs.md"
BLOCKS = blocks(GUIDE)
PROGRAMS = [block for block in BLOCKS if block.language == "markdown"]
(CASES,) = [block for block in BLOCKS if block.language == "yaml"]
SCRIPTS = [block for block in BLOCKS if block.language == "python"]
each = pytest.mark.parametrize("block", PROGRAMS, ids=[f"line {one.line}" for one in PROGRAMS])

SAID = {
    "01:QUE": {"01": ["01:QUE Say", "02:YLD exit"]},
    "02:YLD for user": {"01": ["01:QUE Say", "02:YLD user"], "02": ["$people 2", "03:QUE Say", "04:YLD exit"]},
    "03.08:JMP": {
        "03.01": ["03.01:QUE Say", "03.02:YLD user"],
        "03.02": ["$people 5", "03.03:QUE $price = Price(people=$people)", "03.04:YLD call"],
        "03.06": ["03.06:QUE Say", "03.07:YLD user"],
        "03.07": ["$more false", "04:RET $sum"],
    },
    "03.09:JMP": {
        "03.02": ["03.02:QUE Say", "03.03:YLD user"],
        "03.03": ["$people 10", "03.04:QUE $price = Price(people=$people, off=$off)", "03.05:YLD call"],
        "03.07": ["03.07:QUE Say", "03.08:YLD user"],
        "03.08": ["$more false", "04:RET $sum"],
    },
}
"""The model's replies, by a line that only this version of the program has, and by position."""


def name_of(block: Block) -> str:
    """The file in which its readers save it."""
    return "harbour.pbasm" if "# Harbour\n" in block.text else "ferry.pbasm"


def reply_to(request: dict[str, Any]) -> str:
    """The reply of a model that follows the listing."""
    shown = "\n".join(str(message["content"]) for message in request["messages"])
    asked = re.search(
        r"Execute Main from ([\d.]+)\.|Main:([\d.]+) was executed", str(request["messages"][-1]["content"])
    )
    if asked is None:
        return "Here is some tea."
    version = next(one for line, one in reversed(SAID.items()) if line in shown)
    done = version[asked[1] or asked[2]]
    return "recap – it goes on\nplan – the next lines\n" + "\n".join(written(one) for one in done)


def written(what: str) -> str:
    where, _, does = what.partition(" ")
    if where.startswith("$"):
        return f"`Var[{where}, {does}]`\ntrig? no"
    step = f'`Step["Main:{where}"]`'
    match where[-3:]:
        case "YLD":
            return f"{step} yld {does}"
        case "RET":
            return f'{step} `Return[{does}]` `Var[$__, "Sold tickets."]`\nyld return'
    call = 'Say("user", "Ahoy!")' if does == "Say" else does
    return f"{step} `{call}`\ntrig? no"


@each
def test_nothing_is_wrong_with_a_program_of_the_guide(block: Block) -> None:
    assert [one for one in check(block.text, "ferry.pbasm") if one.severity != "note"] == []


def test_the_guide_lists_every_rule() -> None:
    documented = {found[1]: (found[2].replace(", ", ""), found[3]) for found in _rows(r"([A-Z]+\d*)", "([RFW, ]+)")}
    assert documented == dict(RULES)


def test_the_guide_lists_every_finding() -> None:
    assert {found[1]: (found[2], found[3]) for found in _rows(r"`([A-Z_]+)`", r"(error|warning|note)")} == {
        **LINTED,
        **USED,
        **UNSUPPORTED,
    }


def _rows(name: str, policy: str) -> list[re.Match[str]]:
    text = GUIDE.read_text(encoding="utf-8")
    return list(re.finditer(rf"^\| {name} \| {policy} \| (.+) \|$", text, re.MULTILINE))


@pytest.mark.timeout(300)  # dozens of processes
def test_every_command_of_the_guide_does_what_it_says(cli: CommandLine, server: ModelServer) -> None:
    server.script = reply_to
    reader = Reader(cli, server)
    waiting: list[str] = []
    shown: list[str] = []
    for block in BLOCKS:
        if block in PROGRAMS:
            cli.write(name_of(block), block.text)
        if block == CASES:
            cli.write("ferry.test.yaml", block.text)
        for command in block.commands:
            waiting += reader.types_all([command])
            if command.startswith("cuebook show"):
                shown.append(cli.call("show", cli.call("runs", "--json").object[0]["run"]).out)
    assert waiting == [
        "cuebook run ferry.pbasm",
        "cuebook run ferry.pbasm --lines",
        'cuebook answer RUN "five, please"',
        "cuebook run ferry.pbasm --lines",
        'cuebook answer RUN "there are ten of us"',
    ]
    assert "$people: int = 2" in shown[0]
    assert "$sum: float = 36" in shown[1]


def test_the_python_in_the_guide_runs(cli: CommandLine) -> None:
    cli.write("harbour.pbasm", next(one.text for one in PROGRAMS if name_of(one) == "harbour.pbasm"))
    said = [
        subprocess.run(
            [sys.executable, "-c", one.text],
            cwd=cli.work,
            env=cli.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        for one in SCRIPTS
    ]
    assert [(one.returncode, one.stderr) for one in said] == [(0, ""), (0, "")]
    assert said[1].stdout == "The ferry leaves at ten.\n"
