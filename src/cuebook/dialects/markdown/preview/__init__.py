"""The preview of a Markdown run: its steps and branches, and everything it would ask, call and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.markdown.inputs import accept
from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.preview.branches import foresee
from cuebook.dialects.markdown.preview.outline import outline
from cuebook.dialects.markdown.preview.rehearsal import rehearse
from cuebook.dialects.presentation.preview import Preview, declared_inputs
from cuebook.kernel.effects import Program
from cuebook.kernel.run import Settings


def preview(book: Book, given: Mapping[str, Any], settings: Settings) -> Program[Preview]:
    """Previews a run. Missing inputs are assumed; an invalid input raises `BadInput`."""
    inputs = _known(book, given)
    foresight = foresee(book, inputs, settings)
    rehearsal = yield from rehearse(book, inputs, foresight, settings)
    made = Preview(
        title=book.title,
        inputs=inputs,
        declared=declared_inputs(book),
        steps=outline(book, inputs, foresight),
        acts=rehearsal.parts,
        fails=rehearsal.failed,
    )
    return msgspec.structs.replace(made, notes=_notes(made))


def _known(book: Book, given: Mapping[str, Any]) -> dict[str, str]:
    """The inputs as a run would store them, without missing inputs."""
    absent = {
        declared.name
        for declared in book.inputs
        if declared.default is None and given.get(declared.name) in (None, "") and declared.required
    }
    asked = msgspec.structs.replace(book, inputs=tuple(one for one in book.inputs if one.name not in absent))
    return accept(asked, {name: value for name, value in given.items() if name not in absent})


def _notes(made: Preview) -> tuple[str, ...]:
    """The failures and warnings of the run."""
    reports = [(act.label, act.report) for act in made.every_act() if act.report is not None]
    failed = [f"Step {label} would fail: {words}" for label, (kind, words) in reports if kind == "failed"]
    return tuple(dict.fromkeys([*failed, *(words for _, (kind, words) in reports if kind == "warning")]))
