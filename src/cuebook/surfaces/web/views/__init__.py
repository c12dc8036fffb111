"""What a run's page shows besides, by dialect: a graph that lights up, a timeline, a conversation.

A dialect's view is a module of its name here with two functions: `view(document)` gives the panels of a run, and
`about(document)` what a playbook's page shows of it. A dialect without one has the common pages and nothing besides.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol

import msgspec

from cuebook.dialects import registry
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.drawing import Drawing
from cuebook.surfaces.web.picture import Picture


class Need(msgspec.Struct, frozen=True):
    """Something that a playbook needs besides its inputs."""

    kind: str
    """A word for people: tool, command, host, secret, skill, model, person."""
    name: str


class About(msgspec.Struct, frozen=True):
    """What a playbook looks like before it runs."""

    drawing: Drawing = Drawing((), ())
    needs: tuple[Need, ...] = ()
    calls: int = 1
    """How often a model is asked, where nothing goes wrong."""


class DialectView(Protocol):
    """The panels of one run. It sees every entry, in order, once, and draws from what it saw: so the page and the stream
    show the same.
    """

    def see(self, entry: Entry, run: Picture) -> Sequence[str]:
        """Takes an entry in, after the picture did; gives the names of the parts that it changed. Called often."""

    def part(self, name: str, run: Picture) -> str:
        """One part as HTML: elements with `id` and `data-part`."""

    def panels(self, run: Picture) -> str:
        """Everything as HTML, for the page."""


class NoView:
    """Of a dialect that shows nothing besides."""

    def see(self, entry: Entry, run: Picture) -> Sequence[str]:
        return ()

    def part(self, name: str, run: Picture) -> str:
        return ""

    def panels(self, run: Picture) -> str:
        return ""


def view_of(dialect: str, text: str, name: str) -> DialectView:
    """The view of a run of this playbook; none where it cannot be read any more."""
    module = _module(dialect)
    if module is None:
        return NoView()
    try:
        document: Any = registry.named(dialect).parse(text, name)
    except CuebookError:
        return NoView()
    made: DialectView = module.view(document)
    return made


def about_of(dialect: str, document: Any) -> About:
    """What the page of a playbook shows of it."""
    module = _module(dialect)
    if module is None:
        return About()
    made: About = module.about(document)
    return made


def _module(dialect: str) -> ModuleType | None:
    name = f"{__name__}.{dialect}"
    if not dialect.isidentifier() or importlib.util.find_spec(name) is None:
        return None
    return importlib.import_module(name)
