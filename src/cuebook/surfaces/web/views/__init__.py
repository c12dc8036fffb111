"""What a run's page shows besides, by dialect: a graph that lights up, a timeline, a conversation.

A dialect's view is a module of its name here with two functions: `view(document)` gives the panels of a run, and
`about(document)` what a playbook's page shows of it. A dialect without one has the common pages and nothing besides.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

import msgspec
from markupsafe import Markup

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
    besides: Markup = Markup("")
    """What the playbook's page shows besides."""
    asked: Markup = Markup("")
    """What the form asks besides that starts it."""


class DialectView(Protocol):
    """The panels of one run. It sees every entry, in order, once, and draws from what it saw: so the page and the stream
    show the same.
    """

    order: Sequence[str] = ()
    """The labels of its steps, where each is shown once, in this order, however often a run comes to it. Otherwise every
    visit is shown, as they come."""
    talks: bool = False
    """Whether a panel asks a run's questions; otherwise they stand where the step is that asks."""
    types: Mapping[str, str] = {}
    """Of variables, by name, as far as it knows them."""

    def see(self, entry: Entry, run: Picture) -> Sequence[str]:
        """Takes an entry in, after the picture did; gives the names of the parts that it changed. Called often."""

    def hear(self, asked: Entry, text: str, sent: int) -> str:
        """The text of a call under way, of which `sent` characters were told before: gives the parts that the rest
        changes. An empty one begins again. The same for the same texts, whatever was heard of them.
        """
        return ""

    def part(self, name: str, run: Picture) -> str:
        """One part as HTML: elements with `id` and `data-part`."""

    def panels(self, run: Picture) -> str:
        """Everything as HTML, for the page."""


class NoView(DialectView):
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
