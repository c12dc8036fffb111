"""A playbook is detected and parsed once, and its inputs are accepted once, whatever happens to it afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from cuebook.dialects import playbook, registry
from cuebook.performers.models.scripted import ScriptedModel
from tests.support.command_line import CommandLine
from tests.surfaces.web.served_app import ServedApp

COUNTING = """
import atexit, json, pathlib, sys
from collections import Counter
from unittest.mock import patch
from cuebook.dialects import registry
from cuebook.surfaces.cli import main

calls = Counter()

def counted(owner, name, key):
    real = getattr(owner, name)
    def call(*args, **given):
        calls[key] += 1
        return real(*args, **given)
    patch.object(owner, name, call).start()

for dialect in registry.dialects():
    counted(type(dialect), "parse", "parse")
    counted(type(dialect), "accept", "accept")
counted(registry, "detect", "detect")
atexit.register(lambda: pathlib.Path(sys.argv[1]).write_text(json.dumps(calls)))
main(sys.argv[2:])
"""
MARKDOWN = "# Sky\n\n## INPUTS\n\n- `place` (string): where\n\n## STEP 1: Look\n\nWhat is above {{place}}?\n"
GRAPH = """
id: sky
name: Sky
entry: look
nodes: {look: {name: Look, instruction: What is above?}}
edges: []
"""
PIPELINE = 'name: Sky\nargs: {place: {default: here}}\nsteps:\n  - {id: look, command: "cli echo ${place}"}\n'
PROGRAM = "# Sky\n\n## Look\n\n### Triggers\n- T1:BGN At the beginning\n\n### Steps\n- 01:RET 1\n"


@pytest.mark.parametrize(
    ("name", "text", "given"),
    [
        ("sky.playbook.md", MARKDOWN, ["--place", "Rome"]),
        ("sky.yml", GRAPH, []),
        ("sky-pipeline.yml", PIPELINE, ["--place", "Rome"]),
        ("sky.pbasm", PROGRAM, []),
    ],
)
def test_a_run_parses_detects_and_accepts_once(cli: CommandLine, name: str, text: str, given: list[str]) -> None:
    counts = cli.work / "counts.json"
    path = cli.write(name, text)
    command = [sys.executable, "-c", COUNTING, str(counts), "run", str(path), *given, "--no-ask"]
    ran = subprocess.run(command, cwd=cli.work, env=cli.environ, capture_output=True, text=True, timeout=60)
    assert ran.returncode in (0, 3), ran.stderr
    assert json.loads(counts.read_text()) == {"parse": 1, "detect": 1, "accept": 1}


@pytest.fixture
def parses() -> Iterator[Counter[str]]:
    """How often each dialect parses, starting with an empty cache."""
    found: Counter[str] = Counter()

    def counted(dialect: Any) -> Any:
        real = dialect.parse

        def parse(text: str, name: str) -> Any:
            found[dialect.name] += 1
            return real(text, name)

        return patch.object(type(dialect), "parse", lambda self, text, name: parse(text, name))

    patches = [patch.object(playbook, "_CACHE", playbook._Cache()), *map(counted, registry.dialects())]
    for one in patches:
        one.start()
    yield found
    for one in patches:
        one.stop()


ASKS = '# Asks\n\n## STEP 1: Ask\n\n@elicit(input, "What?")\n\n@output(said)\n\n## STEP 2: Go\n\nGo {{said}}.\n'
APPROVED = "name: Made\nsteps:\n  - {id: make, command: cli touch made.txt, approval: required}\n"


@pytest.mark.parametrize(
    ("name", "text", "dialect"), [("asks.md", ASKS, "markdown"), ("made.yml", APPROVED, "pipeline")]
)
async def test_a_server_parses_a_playbook_once_from_its_start_to_its_end(
    web: ServedApp, parses: Counter[str], name: str, text: str, dialect: str
) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await web.begin(playbook=web.book(name, text))
    wait = await web.waiting(run)
    assert (await web.client.get(f"/runs/{run}")).status_code == 200
    if wait["kind"] == "approval":
        await web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="approve")
    else:
        await web.post(f"/api/waits/{wait['wait']}/answer", 200, value="well")
    await web.until(run, "completed", "failed")
    assert [event.event for event in await web.all_events(run)]
    assert parses == {dialect: 1}
