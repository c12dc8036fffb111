"""The browser that the other tests here need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.web.browser.chromium import NoBrowser, find_chromium


def test_a_browser_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "chromium"
    made.touch(0o755)
    monkeypatch.setenv("CHROMIUM", str(made))
    assert find_chromium() == str(made)


def test_without_a_browser_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(NoBrowser, match="apt-get install chromium"):
        find_chromium()
    monkeypatch.delenv("CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBrowser, match="apt-get install chromium"):
        find_chromium()
