"""Follows a documentation page as a reader would: saves its files and types its commands in order."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_line import CommandLine, Ran, finished
from tests.support.model_server import ModelServer

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^(`{3,})(\w+)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
_ENDED = ("restart", "fork", "replay", "diff")
"""Commands that need a run that has ended."""


@dataclass(frozen=True)
class Block:
    """A fenced block. Complete playbooks use four backticks if they contain fences of three."""

    language: str
    text: str
    line: int
    ticks: int

    @property
    def commands(self) -> list[str]:
        """The Cuebook commands in a shell block."""
        if self.language != "sh":
            return []
        return [line for line in self.text.splitlines() if line.startswith("cuebook ")]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[2], found[3], text.count("\n", 0, found.start()) + 2, len(found[1]))
        for found in _BLOCK.finditer(text)
    ]


class Reader:
    """Follows a page: saves its files and types its commands."""

    def __init__(self, cli: CommandLine, server: ModelServer) -> None:
        self.cli = cli
        self._server = server
        self._run = ""
        self._ended: list[str] = []

    def types(self, command: str) -> Ran:
        """Types a command. RUN is the last run shown, or one that ended, failed or was killed if the command needs that."""
        words = shlex.split(command.partition(" #")[0])
        assert words.pop(0) == "cuebook"
        if words[0] == "retry":
            self._fail()
        if words == ["resume", "RUN"]:
            self._kill()
        ids = iter(reversed(self._ended) if words[0] in _ENDED else [self._run])
        ran = self.cli.call(*(next(ids) if word == "RUN" else word for word in words))
        found = re.search(r"^run: (\w+)$", ran.err, re.MULTILINE)
        if found:
            self._run = found[1]
        if found and "status: completed" in ran.err:
            self._ended.append(self._run)
        return ran

    def _fail(self) -> None:
        self._server.replies = [400]
        assert self.types("cuebook run tea.md").code == 1

    def _kill(self) -> None:
        self._server.hold_at = len(self._server.requests) + 1
        process = self.cli.begin("run", "tea.md")
        assert self._server.holding.wait(30)
        process.kill()
        finished(process)
        self._server.release()
        self._run = self.cli.call("runs", "--json").object[0]["run"]

    def types_all(self, commands: list[str]) -> list[str]:
        """Types the commands; returns those that left a run waiting or paused. None may end in another way."""
        waiting = []
        for command in commands:
            ran = self.types(command)
            assert ran.code in (0, 3, 4), f"{command}\n{ran.err}"
            if ran.code:
                waiting.append(command.partition("#")[0].strip())
        return waiting
