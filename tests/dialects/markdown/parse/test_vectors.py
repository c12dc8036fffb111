"""Test vectors for parsing: our own, and the format's published ones if they are next to the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.markdown.check import check
from cuebook.dialects.markdown.convert import result_object
from cuebook.dialects.markdown.parse import read

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT.parent / "shared/data/markdown"
PUBLISHED = sorted((DATA / "vectors").rglob("*.playbook.md"))
GALLERY = sorted((DATA / "gallery").rglob("*.md"))
OWN = sorted((ROOT / "tests/vectors/markdown/parse").rglob("*.playbook.md"))

beside = pytest.mark.skipif(not PUBLISHED, reason="the format's own vectors and gallery are not beside the project")


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.md').removesuffix('.playbook')}"


def text_of(path: Path) -> str:
    return path.read_bytes().decode()


def expected(path: Path) -> dict[str, Any]:
    stem = path.name.removesuffix(".playbook.md")
    files = (path.with_name(f"{stem}.{end}.json") for end in ("expected", "errors"))
    wanted: dict[str, Any] = json.loads(next(file for file in files if file.exists()).read_text(encoding="utf-8"))
    return wanted


@beside
@pytest.mark.parametrize("path", PUBLISHED, ids=name_of)
def test_a_published_vector_is_read_as_published(path: Path) -> None:
    wanted, got = expected(path), result_object(read(text_of(path)))
    assert got["valid"] is wanted["valid"]
    assert_same(wanted["definition"], got["definition"], "definition")
    assert {w["message"] for w in got["warnings"]} == {w["message"] for w in wanted["warnings"]}
    assert {e["message"] for e in got["errors"]} >= {e["message"] for e in wanted["errors"]}


@pytest.mark.parametrize("path", OWN, ids=name_of)
def test_a_vector_of_ours_is_read_to_the_letter(path: Path) -> None:
    assert result_object(read(text_of(path))) == expected(path)


def test_our_vectors_are_found() -> None:
    assert len(OWN) >= 30


@beside
@pytest.mark.parametrize("path", GALLERY, ids=name_of)
def test_a_playbook_that_people_use_is_read_without_a_warning(path: Path) -> None:
    parsed = read(text_of(path))
    assert parsed.definition is not None
    assert parsed.warnings == ()


@beside
@pytest.mark.parametrize("path", GALLERY, ids=name_of)
def test_the_one_defect_of_the_gallery_is_found_and_no_other(path: Path) -> None:
    found = [f for f in check(text_of(path), path.name) if f.severity != "note"]
    if path.name == "blog-to-newsletter.md":
        (defect,) = found
        assert (defect.code, defect.severity, defect.line) == ("branch_marker", "error", 90)
        assert defect.fix == 'Write ```if include_cta == "true"```.'
    else:
        assert found == []


def assert_same(wanted: Any, got: Any, where: str) -> None:
    """The format's rules of comparison: an absent field is empty, and lines are compared only if both have one."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in {*wanted, *got}:
            assert_same(wanted.get(key), got.get(key), f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(got, list):
        assert len(wanted) == len(got), where
        for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
            assert_same(one, other, f"{where}[{index}]")
    elif where.endswith(".line") and not (wanted and got):
        return
    elif where.endswith(".content"):
        assert (wanted or "").strip() == got, where
    else:
        assert wanted == got or not (wanted or got), where
