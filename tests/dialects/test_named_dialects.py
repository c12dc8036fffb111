"""Nothing outside of `dialects/` names a dialect: neither code that compares or tabulates names, nor templates.

The words `graph`, `program` and so on have other meanings too, so only uses as the name of a dialect are found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cuebook
from cuebook.dialects import registry

ROOT = Path(cuebook.__file__).parent
NAMES = frozenset(registry._BUILT_IN)
OWN_SUFFIXES = frozenset((".pbasm", ".pb", ".playbook.md"))
"""Suffixes that only one dialect has."""
MODULE = re.compile(rf"cuebook[./]dialects[./]({'|'.join(NAMES)})\b")
IN_TEMPLATES = re.compile(
    rf"dialect[\w.]*\s*(==|!=|in)\s*[(\[]?\s*[\"']({'|'.join(NAMES)})|[\"']({'|'.join(NAMES)})[\"']\s*(==|!=)\s*[\w.]*dialect"
)


def _files(*suffixes: str) -> list[Path]:
    outside = [path for path in ROOT.rglob("*") if (ROOT / "dialects") not in path.parents]
    return sorted(path for path in outside if path.suffix in suffixes)


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """The lines that name a dialect, and the name in each."""
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(_names, (left, *others))):
                if any("dialect" in ast.unparse(one) for one in (left, *others)):
                    yield line, "a comparison"
            case ast.Dict(keys=keys) if len([key for key in keys if key is not None and _names(key)]) > 1:
                yield line, "a table"
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                if len([one for one in items if isinstance(one, ast.Constant) and _names(one)]) > 1:
                    yield line, "a list"
            case ast.Call(func=func, args=[ast.Constant(value=value), *_]) if value in NAMES:
                if ast.unparse(func).endswith("named"):
                    yield line, "a call"
            case ast.MatchValue(value=ast.Constant(value=value)) if value in NAMES:
                yield line, "a case"
            case ast.Constant(value=str(value)) if value in OWN_SUFFIXES or MODULE.search(value):
                yield line, "a suffix or a module"
            case ast.ImportFrom(module=str(module)) if MODULE.match(module):
                yield line, "an import"
            case _:
                pass


def _names(node: ast.expr) -> bool:
    """Whether the node is the name of a dialect, or a list that contains one."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return any(map(_names, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES


def test_no_code_names_a_dialect() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {how}"
        for path in _files(".py")
        for line, how in found_in(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_page_names_a_dialect() -> None:
    pages = _files(".html", ".js", ".css")
    assert pages
    assert [str(path) for path in pages if IN_TEMPLATES.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "text",
    [
        'if run.dialect == "graph": pass',
        'found = row.dialect in ("pipeline", "other")',
        'NAMES = {"graph": 1, "program": 2}',
        'NAMES = ["markdown", "pipeline"]',
        'registry.named("program")',
        'match kind:\n    case "markdown":\n        pass',
        'import_module("cuebook.dialects.graph.check")',
        "from cuebook.dialects.program.model import ProgramText",
        'SUFFIX = ".pbasm"',
    ],
)
def test_each_way_to_name_one_is_found(text: str) -> None:
    assert list(found_in(text))


@pytest.mark.parametrize("text", ['{% if run.dialect == "program" %}', "{% if dialect in ('graph', 'x') %}"])
def test_each_way_to_name_one_in_a_page_is_found(text: str) -> None:
    assert IN_TEMPLATES.search(text)
