"""Surfaces call the service: neither they nor the shipped test helpers access the store or the engine through it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cuebook

SOURCE = Path(cuebook.__file__).parent
OUTSIDE = [path for room in ("surfaces", "testing", "wiring") for path in sorted((SOURCE / room).rglob("*.py"))]
INSIDE = {"_store", "_engine", "store", "engine"}


def reaches(tree: ast.AST) -> list[str]:
    """The places that use private attributes of a service."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in INSIDE and ast.unparse(node.value).endswith("service")
    ]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_outside_reaches_through_the_service(path: Path) -> None:
    assert reaches(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("line", ["service._store.run(x)", "site.service.engine.clock()", "self._service._engine"])
def test_access_through_the_service_is_detected(line: str) -> None:
    assert reaches(ast.parse(line))
