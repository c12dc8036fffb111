"""A PLAYBOOK.md document: its steps and branches as a drawing that lights up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuebook.dialects.markdown.model import Book, Branch, Step
from cuebook.dialects.markdown.tools import tool_name
from cuebook.kernel.journal import Entry
from cuebook.surfaces.reading.foreseeing import answers_only, condition_words, reaches_branches
from cuebook.surfaces.web.drawing import Arrow, Box, Drawing
from cuebook.surfaces.web.lit import Lit
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.rendering import piece
from cuebook.surfaces.web.views import About, DialectView, Need

_START, _END = "\0start", "\0end"


def about(book: Book) -> About:
    steps = list(book.walk())
    return About(drawing(book), tuple(_needs(steps)), sum(_asks_model(book, step) for step in steps))


def view(book: Book) -> MarkdownView:
    return MarkdownView(book)


class MarkdownView(DialectView):
    def __init__(self, book: Book) -> None:
        self._lit = Lit(drawing(book), f"The steps of {book.title}")
        self._shows = any(step.branches for step in book.steps)

    def see(self, entry: Entry, run: Picture) -> Sequence[str]:
        return self._lit.see(entry, run) if self._shows else ()

    def part(self, name: str, run: Picture) -> str:
        return self._lit.part(name)

    def panels(self, run: Picture) -> str:
        return str(piece("view-drawing.html", drawing=self._lit.picture())) if self._shows else ""


def drawing(book: Book) -> Drawing:
    """Boxes in the order of the document; each hangs on the ends that are still loose."""
    boxes, arrows = [Box(_START, (book.title,), "start")], list[Arrow]()
    loose = [(_START, "", "way")]

    def box(made: Box) -> None:
        nonlocal loose
        boxes.append(made)
        arrows.extend(Arrow(before, made.id, words, kind) for before, words, kind in loose)
        loose = [(made.id, "", "way")]

    def branch(step: Step, taken: Branch) -> list[tuple[str, str, str]]:
        nonlocal loose
        loose = [(step.label, condition_words(taken), "way")]
        for sub in taken.steps:
            box(_box(sub))
        return loose

    for step in book.steps:
        box(_box(step))
        if reaches_branches(book, step):
            ends = [end for taken in step.branches for end in branch(step, taken)]
            if all(taken.condition is not None for taken in step.branches):
                ends.append((step.label, "otherwise", "otherwise"))
            loose = ends
    box(Box(_END, (f"artifact: {book.artifact_type}" if book.artifact_type else "end",), "end"))
    return Drawing(tuple(boxes), tuple(arrows))


def _box(step: Step) -> Box:
    heading = f"{step.label}  {step.title}"
    gives = (f"gives {step.output.name}",) if step.output is not None else ()
    if step.tool is not None:
        return Box(step.label, (heading, tool_name(step.tool), *gives), "tool")
    if step.elicitation is not None:
        return Box(step.label, (heading, "asks you", *gives), "person")
    return Box(step.label, (heading, *gives), "choice" if step.branches else "step")


def _needs(steps: Sequence[Step]) -> Iterator[Need]:
    tools = dict.fromkeys(tool_name(step.tool) for step in steps if step.tool is not None)
    yield from (Need("tool", name) for name in tools)
    prompts = dict.fromkeys(step.prompt.argument for step in steps if step.prompt is not None)
    yield from (Need("text", name) for name in prompts)
    asked = sum(step.elicitation is not None for step in steps)
    if asked:
        yield Need("you", "answer a question" if asked == 1 else f"answer {asked} questions")


def _asks_model(book: Book, step: Step) -> bool:
    return step.tool is None and not answers_only(step) and not (step.branches and reaches_branches(book, step))
