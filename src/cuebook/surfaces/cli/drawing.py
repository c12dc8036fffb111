"""`cuebook graph`: a playbook as a Mermaid flowchart. The same playbook gives the same text, whatever stands in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from cuebook.dialects.graph import draw, observe
from cuebook.dialects.markdown.model import Book, Branch, Step
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.markdown.tools import tool_name
from cuebook.dialects.mermaid import escaped
from cuebook.dialects.pipeline import draw as pipeline_draw
from cuebook.dialects.pipeline.model import Pipeline
from cuebook.dialects.program import draw as program_draw
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.observe import seen
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.performers.beside import instead_of
from cuebook.service import Service
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command, read_playbook
from cuebook.surfaces.cli.plain import hand_over
from cuebook.surfaces.reading.foreseeing import answers_only, branches_on_itself, condition_words, reaches_branches
from cuebook.surfaces.reading.pipelines import pipeline_of
from cuebook.surfaces.reading.programs import program_of
from cuebook.surfaces.reading.workflows import workflow_of

_LINE_BREAK = "<br/>"

SHAPES = {
    "round": ('(["', '"])'),
    "model": ('["', '"]'),
    "tool": ('[["', '"]]'),
    "person": ('[/"', '"/]'),
    "choice": ('{"', '"}'),
}


@command(
    "graph",
    [
        click.Argument(["file"], required=False, shell_complete=completion.any_file),
        click.Option(
            ["--run"], metavar="RUN", help="Draw what a run has done so far.", shell_complete=completion.runs()
        ),
        click.Option(["--mermaid"], is_flag=True, help="The same as --format mermaid."),
        options.STORE,
        click.Option(
            ["--format", "form"],
            type=click.Choice(["mermaid"]),
            default="mermaid",
            show_default=True,
            help="What to draw with.",
        ),
    ],
)
def graph_command(given: Given) -> int:
    """Draw a playbook as a Mermaid flowchart.

    FILE is a playbook, a workflow graph, a pipeline or a program, - for stdin, or the id of a run, as with --run: then a
    workflow shows which nodes were visited, how they ended, and which edges were followed, a pipeline what became of its
    steps, and a program the lines it went through and where it stands. A program's playbooks are parts of the chart, and
    dotted lines their calls. Boxes are what models are asked and what steps do, slanted boxes questions to a person, boxes with double sides tools, and
    diamonds branches and conditions. Paste it into a fenced block of the kind `mermaid`, where pages show such blocks
    as pictures, or draw it with Mermaid's own tools.
    """
    name = given["run"] or given["file"]
    if name is None:
        raise BadInput("Nothing is named that could be drawn.", fix="Name a playbook, or give --run RUN.")
    if given["run"] or not (name == "-" or os.path.exists(name) or os.path.splitext(name)[1]):
        return session.with_service(given, lambda service: _draw_run(service, name, bool(given["run"])), looking=True)
    text = read_playbook(name)
    place = "stdin" if name == "-" else name
    program = program_of(text, place)
    if program is not None:
        hand_over(program_draw.mermaid(program))
        return 0
    pipeline = pipeline_of(text, place)
    if pipeline is not None:
        hand_over(pipeline_draw.mermaid(pipeline))
        return 0
    workflow = workflow_of(text, place)
    hand_over(mermaid(parse(text, name)) if workflow is None else draw.mermaid(workflow))
    return 0


async def _draw_run(service: Service, run: str, sure: bool) -> int:
    """What the run was started with; of a workflow, with all that became of it so far. Unless it is `sure` that a run is
    meant, it may be a file that is not there.
    """
    try:
        row = await service.get(run)
    except NotFound as error:
        if sure:
            raise
        raise NotFound(f"There is no file and no run {run}.", fix=instead_of(run, error.fix)) from None
    source = await session.source_of(service, row)
    if source is None:
        raise BadInput(f"Run {row.id} has no playbook that could be drawn.", fix="Name a run of a playbook.")
    if isinstance(source.document, Book):
        hand_over(mermaid(source.document))
        return 0
    if isinstance(source.document, Pipeline):
        states = {step.label: step.status for step in await service.store.steps(row.id)}
        hand_over(pipeline_draw.mermaid(source.document, states, title=True))
        return 0
    entries = [entry async for entry in service.engine.entries(row.id)]
    if isinstance(source.document, ProgramText):
        hand_over(program_draw.mermaid(source.document, seen(entries, source.document), title=True))
        return 0
    state = draw.state_of(source.document, observe.events(source.document, entries))
    hand_over(draw.mermaid(source.document, state, title=True))
    return 0


def mermaid(book: Book) -> str:
    return "\n".join(["flowchart TD", *(f"    {line}" for line in _Drawing(book).lines())]) + "\n"


End = tuple[str, str]
"""A box that the next one hangs on, and the words on the way; empty where there are none."""


class _Drawing:
    """Boxes in the order of the document; each hangs on the ends that are still loose."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._lines: list[str] = []
        self._loose: list[End] = []

    def lines(self) -> list[str]:
        self._box("start", "round", [self._book.title, *self._inputs()])
        self._loose = [("start", "")]
        for position, step in enumerate(self._book.steps, start=1):
            self._step(f"s{position}", step)
        kind = f"artifact: {self._book.artifact_type}" if self._book.artifact_type else "end"
        self._next("finish", "round", [kind])
        return self._lines

    def _inputs(self) -> list[str]:
        names = [declared.name for declared in self._book.inputs]
        return [f"inputs: {', '.join(names)}"] if names else []

    def _step(self, id: str, step: Step) -> None:
        heading = f"Step {step.label}: {step.title}"
        branching = reaches_branches(self._book, step)
        by_itself = branching and branches_on_itself(self._book, step)
        if step.tool is not None:
            self._next(
                id, "tool", [heading, f"calls {tool_name(step.tool)}", *_gives(step, not branching or by_itself)]
            )
        elif answers_only(step):
            self._next(id, "person", [heading, *_asks(step), *_gives(step, True)])
        else:
            if step.elicitation is not None:
                self._next(f"{id}_q", "person", [heading, *_asks(step)])
            if not branching or by_itself:
                self._next(id, "model", [heading, *_begins(step), *_gives(step, True)])
        if branching:
            chosen = f"{id}_b"
            words = [_variables(step)] if by_itself else [heading, _variables(step), *_gives(step, True)]
            self._next(chosen, "choice", words)
            self._branches(id, chosen, step.branches)

    def _branches(self, id: str, chosen: str, branches: Sequence[Branch]) -> None:
        ends: list[End] = []
        for number, branch in enumerate(branches, start=1):
            self._loose = [(chosen, condition_words(branch))]
            for place, sub in enumerate(branch.steps, start=1):
                self._step(f"{id}_{number}_{place}", sub)
            ends += self._loose
        if all(branch.condition is not None for branch in branches):
            ends.append((chosen, "otherwise"))
        self._loose = ends

    def _next(self, id: str, shape: str, words: Sequence[str]) -> None:
        self._box(id, shape, words)
        for before, way in self._loose:
            self._lines.append(f'{before} -->|"{escaped(way)}"| {id}' if way else f"{before} --> {id}")
        self._loose = [(id, "")]

    def _box(self, id: str, shape: str, words: Sequence[str]) -> None:
        opens, closes = SHAPES[shape]
        self._lines.append(f"{id}{opens}{_LINE_BREAK.join(map(escaped, words))}{closes}")


def _asks(step: Step) -> Iterator[str]:
    asked = step.elicitation
    if asked is None:
        return
    yield f"asks: {asked.prompt}" if asked.prompt else "asks a person"
    if asked.type == "select" and asked.options:
        yield f"one of: {', '.join(asked.options)}"


def _begins(step: Step) -> Iterator[str]:
    if step.prompt is not None:
        yield f"begins with {step.prompt.argument}"


def _gives(step: Step, own: bool) -> Iterator[str]:
    if own and step.output is not None:
        yield f"gives {step.output.name}"


def _variables(step: Step) -> str:
    names = dict.fromkeys(branch.condition.variable for branch in step.branches if branch.condition is not None)
    return f"which {', '.join(names)}?"
