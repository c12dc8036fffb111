"""`cuebook graph`: a playbook or a run as a Mermaid flowchart."""

from __future__ import annotations

import os

import click

from cuebook.dialects import playbook as playbooks
from cuebook.dialects.presentation.drawing import Progress, mermaid
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.performers.files.neighbours import instead_of, reader
from cuebook.service.service import Service
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command, read_playbook
from cuebook.surfaces.cli.terminal.output import hand_over


@command(
    "graph",
    [
        click.Argument(["file"], required=False, shell_complete=completion.any_file),
        click.Option(
            ["--run"], metavar="RUN", help="Draw a run with its progress so far.", shell_complete=completion.runs()
        ),
        click.Option(["--mermaid"], is_flag=True, help="The same as --format mermaid."),
        options.STORE,
        click.Option(
            ["--format", "form"],
            type=click.Choice(["mermaid"]),
            default="mermaid",
            show_default=True,
            help="The output format.",
        ),
    ],
)
def graph_command(given: Given) -> int:
    """Draw a playbook as a Mermaid flowchart.

    FILE is a playbook, - for stdin, or the id of a run, as with --run. The drawing of a run also shows the status of each
    step, the number of visits and, if known, the arrows that were followed. Boxes are model calls and actions, slanted
    boxes are questions, boxes with double sides are tools and Python, and diamonds are branches and conditions. A dotted
    arrow is a call, or leads to a step that uses the result of another step.

    Paste the output into a fenced `mermaid` block on a page that renders Mermaid, or render it with the Mermaid tools.
    """
    name = given["run"] or given["file"]
    if name is None:
        raise BadInput("The argument FILE is missing.", fix="Pass a playbook, or --run RUN.")
    if given["run"] or not (name == "-" or os.path.exists(name) or os.path.splitext(name)[1]):
        return session.with_service(given, lambda service: _draw_run(service, name, bool(given["run"])), looking=True)
    place = "stdin" if name == "-" else name
    playbook = playbooks.read(read_playbook(name), place, neighbour=reader(place))
    hand_over(mermaid(playbook.dialect.drawing(playbook.document)))
    return 0


async def _draw_run(service: Service, run: str, sure: bool) -> int:
    """Draws the playbook of a run with its progress. Unless `sure`, the name may have been meant as a file."""
    try:
        row = await service.get(run)
    except NotFound as error:
        if sure:
            raise
        raise NotFound(f"There is no file or run {run}.", fix=instead_of(run, error.fix)) from None
    source = await session.playbook_of(service, row)
    if source is None:
        raise BadInput(f"Run {row.id} has no playbook to draw.", fix="Choose a run of a playbook.")
    entries = tuple([entry async for entry in service.entries(row.id)])
    progress = Progress(tuple(await service.steps(row.id)), entries)
    hand_over(mermaid(source.dialect.drawing(source.document, progress), titled=True))
    return 0
