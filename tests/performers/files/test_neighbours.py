"""Suggestions for missing files next to a playbook."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuebook.performers.files.neighbours import did_you_mean, instead_of


@pytest.mark.parametrize(
    ("given", "names", "meant"),
    [
        ("tee.playbook.md", ["tea.playbook.md", "zoo.playbook.md"], "Did you mean tea.playbook.md?"),
        ("TEA.md", ["tea.md", "tea.yml"], "Did you mean tea.md?"),
        ("tea", ["tea.md", "tea.yml", "toe.md"], "Did you mean tea.md or tea.yml?"),
        ("none.md", ["tea.md"], ""),
        ("v1.0/notse.md", ["v1.0/aaa.md", "v1.0/bbb.md", "v1.0/notes.md"], "Did you mean v1.0/notes.md?"),
        ("a.b/tea.md", ["a.c/x.md", "a.zzz/unrelated.txt"], ""),
    ],
)
def test_names_are_compared_without_their_endings(given: str, names: list[str], meant: str) -> None:
    assert did_you_mean(given, names) == meant


def test_a_missing_folder_is_named_and_one_that_may_not_be_listed_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tea.md").write_text("x")
    assert instead_of(tmp_path / "tee.md") == f"Did you mean {tmp_path / 'tea.md'}?"
    assert instead_of(tmp_path / "gone" / "tee.md") == f"There is no folder {tmp_path / 'gone'} either: check the path."
    assert instead_of(tmp_path / "tea.md" / "x.md").startswith("There is no folder")

    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refused)
    assert instead_of(tmp_path / "tee.md", "Look there.") == "Look there."
