"""The format's published conformance vectors, read where they lie beside the project: those that are linear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.registry import InvalidPlaybook, Problem
from tests.dialects.markdown.test_parse import book_or_problems

VECTORS = Path(__file__).resolve().parents[3].parent / "shared/data/markdown/vectors"
FOUND = sorted(VECTORS.rglob("*.playbook.md")) if VECTORS.is_dir() else []
GALLERY = sorted((VECTORS.parent / "gallery").rglob("*.md")) if FOUND else []
UNSUPPORTED = ("@output(", "@elicit(", "@prompt(", "@tool(", "```if ", "### STEP", "## ARTIFACTS", "## OUTPUT")

pytestmark = pytest.mark.skipif(not FOUND, reason="the conformance vectors are not beside the project")


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.playbook.md')}"


def is_linear(path: Path) -> bool:
    return not any(word in path.read_text(encoding="utf-8") for word in UNSUPPORTED)


@pytest.mark.parametrize("path", [p for p in FOUND if is_linear(p)], ids=name_of)
def test_a_linear_vector_is_read_as_published(path: Path) -> None:
    expected = json.loads(expected_file(path).read_text(encoding="utf-8"))
    try:
        book = parse(path.read_bytes().decode(), path.name)
    except InvalidPlaybook as invalid:
        assert not expected["valid"]
        messages = [problem.message for problem in invalid.problems]
        assert [error["message"] for error in expected["errors"] if error["message"] not in messages] == []
        return
    assert expected["valid"]
    definition = expected["definition"]
    assert (book.title, book.description, book.system) == (
        definition["title"],
        definition["description"],
        definition["system_prompt"],
    )
    assert [as_expected(one) for one in book.inputs] == [input_of(one) for one in definition["inputs"]]
    assert [(s.number, s.label, s.title, s.content, s.line) for s in book.steps] == [
        (s["number"], s["label"], s["title"], s["content"].strip(), s["line"]) for s in definition["steps"]
    ]
    assert told(book.warnings) == {warning["message"] for warning in expected["warnings"]}


@pytest.mark.parametrize("path", [p for p in FOUND if not is_linear(p)], ids=name_of)
def test_every_other_vector_is_refused_and_says_where(path: Path) -> None:
    with pytest.raises(InvalidPlaybook) as caught:
        parse(path.read_bytes().decode(), path.name)
    assert all(problem.line and problem.code == "unsupported" for problem in caught.value.problems)


@pytest.mark.parametrize("path", GALLERY, ids=name_of)
def test_a_playbook_that_people_use_is_read_or_refused_with_lines(path: Path) -> None:
    book = book_or_problems(path.read_bytes().decode())
    if isinstance(book, Book):
        assert book.steps
    else:
        assert all(problem.line and problem.code == "unsupported" for problem in book)


def expected_file(path: Path) -> Path:
    stem = path.name.removesuffix(".playbook.md")
    return next(p for end in ("expected", "errors") if (p := path.with_name(f"{stem}.{end}.json")).exists())


def told(warnings: tuple[Problem, ...]) -> set[str]:
    """Those of the published set; what Cuebook says beyond it has a code of its own."""
    return {warning.message for warning in warnings if warning.code.startswith("W")}


def as_expected(one: Any) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": one.type,
        "default": one.default,
        "options": list(one.options),
        "description": one.description,
        "required": one.required,
        "line": one.line,
    }


def input_of(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "default": one.get("default"), "options": one.get("options") or []}
