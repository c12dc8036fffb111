"""A program as a Mermaid flowchart: the control flow of its playbooks, and who calls whom. Pure: the same gives the same text.

With the projection of a run, colours say which lines were gone through and where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuebook.dialects.mermaid import coloured, escaped, titled
from cuebook.dialects.program.listing import END, Listing
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.observe import Projection
from cuebook.dialects.program.shape import Shaped, shape_of

_BREAK = "<br/>"
_KINDS = {"react": "a model works it out", "raw": "asks a model once", "python": "Python"}
_SHAPES = {
    "CND": ('{"', '"}'),
    "RET": ('(["', '"])'),
    "waits": ('[/"', '"/]'),
    "python": ('[["', '"]]'),
    "": ('["', '"]'),
}


def mermaid(program: ProgramText, run: Projection | None = None, *, title: bool = False) -> str:
    """Each playbook is a part of the chart, its lines are boxes; dotted lines are calls.

    Diamonds are conditions, slanted boxes wait for the user, boxes with double sides are Python, round ones return.
    """
    return "\n".join(_lines(program, run, title)) + "\n"


def _lines(program: ProgramText, run: Projection | None, title: bool) -> Iterator[str]:
    if title:
        yield from titled(program.title)
    yield "flowchart TD"
    shaped = shape_of(program)
    names = {one.id: f"p{number}" for number, one in enumerate(shaped, start=1)}
    visits = run.visits if run is not None else {}
    for one in shaped:
        yield from _playbook(one, names[one.id], visits)
    yield '    start(["start"])'
    for agent, playbook in program.beginning:
        yield f"    start --> {names[f'{agent.name}.{playbook.name}']}_0"
    for one in shaped:
        yield from _calls(one, names)
    if run is not None:
        yield from coloured(_states(shaped, names, run))


def _playbook(one: Shaped, name: str, visits: Mapping[str, int]) -> Iterator[str]:
    yield f'    subgraph {name}["{escaped(f"{one.agent.name}.{one.signature}")}"]'
    if not one.lines:
        kind = _KINDS.get(one.playbook.kind, "")
        words = [one.playbook.name + _times(visits.get(one.playbook.name, 0)), *([kind] if kind else [])]
        opens, closes = _SHAPES["python" if one.playbook.kind == "python" else ""]
        yield f"        {name}_0{opens}{_BREAK.join(map(escaped, words))}{closes}"
    for index, shaped in enumerate(one.lines):
        line = shaped.line
        label = f"{line.number} {line.title}{_times(visits.get(f'{one.playbook.name}:{line.number}', 0))}"
        opens, closes = _SHAPES["waits" if shaped.waits else line.code if line.code in _SHAPES else ""]
        yield f"        {name}_{index}{opens}{escaped(label)}{closes}"
    yield from _flow(Listing.of(one.playbook), name)
    yield "    end"


def ways(listing: Listing) -> Iterator[tuple[int, int, str]]:
    """Where each line may lead, and in which case. What only applies behind a branch that was taken leads where the line
    itself does.
    """
    lines = listing.lines
    for index in range(len(lines)):
        found = dict.fromkeys(
            to % len(lines)
            for node in listing.nodes_of(lines[index].number)
            if node % len(lines) == index
            for to in listing.successors(node)
            if to != END
        )
        for to in found:
            yield index, to, _way(listing, index, to)


def _flow(listing: Listing, name: str) -> Iterator[str]:
    for index, to, word in ways(listing):
        arrow = f'-->|"{word}"|' if word else "-->"
        yield f"        {name}_{index} {arrow} {name}_{to}"


def _way(listing: Listing, index: int, to: int) -> str:
    if listing.lines[index].code != "CND" or len(listing.successors(index)) < 2:
        return ""
    return "yes" if to == listing.successors(index)[0] else "no"


def _calls(one: Shaped, names: Mapping[str, str]) -> Iterator[str]:
    own = names[one.id]
    in_lines: set[str] = set()
    for index, line in enumerate(one.lines):
        for callee in line.calls:
            in_lines.add(callee)
            yield f"    {own}_{index} -.-> {names[callee]}_0"
    for callee in one.calls:
        if callee not in in_lines:
            yield f"    {own}_0 -.-> {names[callee]}_0"


def _times(times: int) -> str:
    return f" ×{times}" if times > 1 else ""


def _states(shaped: list[Shaped], names: Mapping[str, str], run: Projection) -> dict[str, str]:
    """What became of each box: gone through, or where a frame stands."""
    standing = {(frame.agent, frame.playbook, frame.line) for frame in run.stack}
    states: dict[str, str] = {}
    visits = run.visits
    for one in shaped:
        agent, playbook = one.agent.name, one.playbook.name
        boxes = [(line.line.number, f"{playbook}:{line.line.number}") for line in one.lines] or [("", playbook)]
        for index, (number, label) in enumerate(boxes):
            if (agent, playbook, number) in standing:
                states[f"{names[one.id]}_{index}"] = "failed" if run.failed else "current"
            elif visits.get(label):
                states[f"{names[one.id]}_{index}"] = "success"
    return states
