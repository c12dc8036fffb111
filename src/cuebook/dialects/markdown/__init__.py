"""The Markdown dialect: a title, inputs and numbered steps, run in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cuebook.dialects.markdown.inputs import accept
from cuebook.dialects.markdown.interpret import interpret
from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.parse import parse
from cuebook.kernel.effects import Program

_TITLE = re.compile(r"^#\s+\S", re.ASCII | re.MULTILINE)
_STEP = re.compile(r"^##\s+STEP\s", re.ASCII | re.MULTILINE)


class Markdown:
    """Implements `registry.Dialect`."""

    name = "markdown"
    interpreter = 1

    def recognises(self, text: str, name: str) -> bool:
        if name.lower().endswith((".md", ".markdown")):
            return True
        text = text.removeprefix("\ufeff").replace("\r", "\n")
        return bool(_TITLE.search(text) and _STEP.search(text))

    def parse(self, text: str, name: str) -> Book:
        return parse(text, name)

    def accept(self, document: Book, given: Mapping[str, Any]) -> dict[str, Any]:
        return accept(document, given)

    def start(self, document: Book, inputs: Mapping[str, Any], interpreter: int) -> Callable[[Any], Program[Any]]:
        return lambda state: interpret(document, inputs)


MARKDOWN = Markdown()
