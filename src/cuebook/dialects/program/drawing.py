"""A program as boxes and arrows: the control flow of its playbooks, their calls, and the position of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuebook.dialects.presentation.drawing import Arrow, Box, BoxKind, Drawing, Group
from cuebook.dialects.program.conversation import ProgramConversation
from cuebook.dialects.program.listing import END, Listing
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.static_view import KINDS, StaticPlaybook, static_playbooks

_BOXES: dict[str, BoxKind] = {"CND": "choice", "RET": "end"}


def drawing(program: ProgramText, run: ProgramConversation | None = None) -> Drawing:
    """Each playbook is a group, and its lines are boxes."""
    playbooks = static_playbooks(program)
    names = {one.id: f"p{number}" for number, one in enumerate(playbooks, start=1)}
    begins = [names[f"{agent.name}.{playbook.name}"] for agent, playbook in program.beginning]
    return Drawing(
        program.title,
        (*(box for one in playbooks for box in _boxes(one, names[one.id], run)), Box("start", ("start",), "start")),
        (
            *(arrow for one in playbooks for arrow in _flow(Listing.of(one.playbook), names[one.id])),
            *(Arrow("start", f"{name}_0") for name in begins),
            *(arrow for one in playbooks for arrow in _calls(one, names)),
        ),
        tuple(Group(names[one.id], f"{one.agent.name}.{one.signature}") for one in playbooks),
    )


def _boxes(one: StaticPlaybook, name: str, run: ProgramConversation | None) -> Iterator[Box]:
    playbook = one.playbook
    if not one.lines:
        does = KINDS.get(playbook.kind, "")
        kind: BoxKind = "tool" if playbook.kind == "python" else "step"
        yield _box(one, f"{name}_0", "", (playbook.name, *([does] if does else [])), kind, run)
    for index, static in enumerate(one.lines):
        line = static.line
        kind = "person" if static.waits else _BOXES.get(line.code, "step")
        more = ("asks a model",) if static.asks else ()
        yield _box(one, f"{name}_{index}", line.number, (f"{line.number} {line.title}", *more), kind, run)


def _box(
    one: StaticPlaybook, id: str, line: str, lines: tuple[str, ...], kind: BoxKind, run: ProgramConversation | None
) -> Box:
    label = f"{one.playbook.name}:{line}" if line else one.playbook.name
    visits = run.times.get(label, 0) if run is not None else 0
    status = "completed" if visits else ""
    if run is not None and any(
        (frame.agent, frame.playbook, frame.line) == (one.agent.name, one.playbook.name, line) for frame in run.stack
    ):
        status = "failed" if run.failed else "running"
    return Box(id, lines, kind, label, id.rpartition("_")[0], status, visits)


def _flow(listing: Listing, name: str) -> Iterator[Arrow]:
    """The arrows between lines. A node that applies only after a branch was taken leads to the same places as its line."""
    lines = listing.lines
    for index in range(len(lines)):
        found = dict.fromkeys(
            to % len(lines)
            for node in listing.nodes_of(lines[index].number)
            if node % len(lines) == index
            for to in listing.successors(node)
            if to != END
        )
        yield from (Arrow(f"{name}_{index}", f"{name}_{to}", _case(listing, index, to)) for to in found)


def _case(listing: Listing, index: int, to: int) -> str:
    if listing.lines[index].code != "CND" or len(listing.successors(index)) < 2:
        return ""
    return "yes" if to == listing.successors(index)[0] else "no"


def _calls(one: StaticPlaybook, names: Mapping[str, str]) -> Iterator[Arrow]:
    own = names[one.id]
    in_lines: set[str] = set()
    for index, line in enumerate(one.lines):
        in_lines.update(line.calls)
        yield from (Arrow(f"{own}_{index}", f"{names[called]}_0", kind="call") for called in line.calls)
    yield from (Arrow(f"{own}_0", f"{names[called]}_0", kind="call") for called in one.calls if called not in in_lines)
