"""The links of pages: every link has a target, and every path on the architecture page exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)?(#[^)\s]+)?\)")
_FENCE = re.compile(r"^(`{3,}).*?^\1$", re.DOTALL | re.MULTILINE)
_PATH = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`")


def links(page: Path) -> list[tuple[str, str]]:
    return [(found[1] or "", found[2] or "") for found in _LINK.finditer(_FENCE.sub("", page.read_text()))]


def anchors(page: Path) -> set[str]:
    """The ids of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    for target, anchor in links(page):
        if "://" in target:
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{page.name}: {target}"
        if anchor and place.suffix == ".md":
            assert anchor.removeprefix("#") in anchors(place), f"{page.name}: {target}{anchor}"


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    led_to = {(index.parent / target).resolve() for target, _ in links(index)}
    assert {page for page in (ROOT / "docs").rglob("*.md") if page != index} <= led_to


def test_nothing_is_installed_from_an_index_by_the_name_alone() -> None:
    """The package is not on an index, where another one could have its name."""
    for place in [*PAGES, *(ROOT / "src").rglob("*.py")]:
        assert not re.search(r"pip install '?cuebook(\[|'|$)", place.read_text(), re.MULTILINE), place


def test_the_architecture_page_names_only_what_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = _PATH.findall(page)
    assert len(named) > 40
    for path in named:
        place = (ROOT if path.startswith("tests/") else ROOT / "src/cuebook") / path
        assert place.exists(), path


def test_the_page_on_installation_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert set(extras) <= set(listed)
