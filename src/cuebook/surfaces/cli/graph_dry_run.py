"""`--dry-run` of a workflow graph: every node's instruction as its model would get it. Nothing is performed.

Which ways a run goes only the run can tell, so each node is shown as if it came first: with the input, and no results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.preparing import Preparation, Prepared, prepare
from cuebook.kernel.context import Text
from cuebook.kernel.effects import All, Program, ReadSource
from cuebook.kernel.outcomes import EffectFailed, Failed, Source
from cuebook.kernel.run import Settings
from cuebook.surfaces.cli import live
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import complain, say
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.cli.texts import LocalTexts, listing_texts
from cuebook.surfaces.reading.workflows import approval_of, edge_words
from cuebook.surfaces.wiring import Wiring


def show(
    given: Given, playbook: Playbook, inputs: Mapping[str, Any], wiring: Wiring, *, options: Mapping[str, Any], **_: Any
) -> int:
    """Exit code 1 where the run could not even begin."""
    workflow: Workflow = playbook.document
    try:
        prepared = prepared_by(playbook, inputs, wiring, options)
    except EffectFailed as error:
        complain(f"cuebook: the run would fail: {error.failed}")
        return 1
    if given["as_json"]:
        sys.stdout.write(live.json_line([_object(workflow, one) for one in prepared.nodes]))
        return 0
    for number, one in enumerate(prepared.nodes):
        say(("\n" if number else "") + "\n".join(_lines(workflow, one)))
    return 0


def prepared_by(
    playbook: Playbook, inputs: Mapping[str, Any], wiring: Wiring, options: Mapping[str, Any]
) -> Preparation:
    texts = listing_texts(wiring, Settings(folder=playbook.folder))
    return played(prepare(playbook.document, inputs, options), texts)


def played(program: Program[Preparation], texts: LocalTexts) -> Preparation:
    """Gives the program the texts that lie on this machine, and stand-ins for all others."""
    send: Any = None
    while True:
        try:
            asked = program.send(send)
        except StopIteration as stop:
            made: Preparation = stop.value
            return made
        send = tuple(_text(texts, one) for one in asked.branches) if isinstance(asked, All) else None


def _text(texts: LocalTexts, asked: Any) -> Source | Failed:
    assert isinstance(asked, ReadSource)
    if asked.server is not None:
        return Failed("not_started", "A tool server is not started to look at a workflow.")
    found = texts(asked.source)
    return Source(Text(f"<text of {asked.source}>")) if found is None else found


def _system(one: Prepared) -> str:
    return "\n\n".join(str(block.text) for block in one.ask.context if block.role == "system")


def _object(workflow: Workflow, one: Prepared) -> dict[str, Any]:
    return {
        "node": one.node.id,
        "name": one.node.name,
        "model": one.ask.model,
        "system": _system(one),
        "prompt": one.ask.prompt,
        "tools": [spec.name for spec in one.ask.tools],
        "output": one.node.output,
        "approval": approval_of(workflow, one.node) or None,
        "warnings": list(one.warnings),
        "then": [edge_words(edge) for edge in workflow.out_edges[one.node.id]],
    }


def _lines(workflow: Workflow, one: Prepared) -> Iterator[str]:
    model = f" ({one.ask.model})" if one.ask.model else ""
    yield f"=== Node {one.node.id}: {one.node.name}{model}"
    yield from (f"warning: {words}" for words in one.warnings)
    if approval_of(workflow, one.node):
        yield f"--- approval\n{approval_of(workflow, one.node)}"
    yield f"--- system\n{_system(one)}"
    yield f"--- prompt\n{one.ask.prompt}"
    if one.ask.tools:
        yield f"--- tools\n{', '.join(spec.name for spec in one.ask.tools)}"
    edges = workflow.out_edges[one.node.id]
    if edges:
        yield "--- then"
        yield from map(edge_words, edges)
