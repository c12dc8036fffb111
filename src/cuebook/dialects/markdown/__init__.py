"""The Markdown dialect: a title, inputs and numbered steps that ask models and people, call tools and branch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cuebook.dialects.markdown import interpret_1
from cuebook.dialects.markdown.inputs import accept
from cuebook.dialects.markdown.interpret import interpret
from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.options import Option
from cuebook.kernel.effects import Program
from cuebook.kernel.errors import CuebookError

_TITLE = re.compile(r"^#\s+\S", re.ASCII | re.MULTILINE)
_STEP = re.compile(r"^##\s+STEP\s", re.ASCII | re.MULTILINE)


class Markdown:
    """Implements `registry.Dialect`."""

    name = "markdown"
    interpreter = 2
    options: tuple[Option, ...] = ()

    def recognises(self, text: str, name: str) -> bool:
        if name.lower().endswith((".md", ".markdown")):
            return True
        text = text.removeprefix("\ufeff").replace("\r", "\n")
        return bool(_TITLE.search(text) and _STEP.search(text))

    def parse(self, text: str, name: str) -> Book:
        return parse(text, name)

    def accept(self, document: Book, given: Mapping[str, Any]) -> dict[str, Any]:
        return accept(document, given)

    def start(
        self, document: Book, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        program = _INTERPRETERS.get(interpreter)
        if program is None:
            raise CuebookError(
                f"This run was started by version {interpreter} of the Markdown interpreter, which is not known here.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: program(document, inputs)


_INTERPRETERS = {1: interpret_1.interpret, Markdown.interpreter: interpret}
"""A run keeps the one that it began with."""

MARKDOWN = Markdown()
