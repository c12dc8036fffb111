"""The wheel that `make build` creates, installed as a user would install it: by pip and by pipx, in clean environments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import cuebook
from tests.support.sampling import THOROUGH

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "requirements/run.txt"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned run-time packages without the embedded model's runtime, which is an extra and a large download."""
    pinned = re.sub(r"^xllamacpp==.*?(?=^[a-z])", "", RUN.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert "xllamacpp" not in pinned
    path = tmp_path_factory.mktemp("pins") / "run.txt"
    path.write_text(pinned)
    return path


def test_the_wheel_contains_the_package_its_data_and_its_licence_and_no_tests(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"cuebook", f"cuebook-{cuebook.__version__}.dist-info"}
    assert any(name.endswith("/prices.json") for name in names)
    plugin = "cuebook/surfaces/mcp/install/plugin"
    assert {f"{plugin}/.mcp.json", f"{plugin}/.claude-plugin/plugin.json", f"{plugin}/skills/cuebook/SKILL.md"} <= {
        *names
    }
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if "/tests/" in name or name.endswith((".pyc", ".db"))]


def test_pip_installs_the_wheel_with_pinned_packages_and_the_command_answers(
    wheel: Path, requirements: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "clean", symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "clean/bin/python")]
    # With dependencies followed: under --require-hashes pip refuses any that is not pinned.
    run(*pip, "install", "--quiet", "--no-compile", "--require-hashes", "--requirement", requirements)
    run(*pip, "install", "--quiet", "--no-deps", wheel)
    assert "No broken requirements" in run(*pip, "check")
    the_command_answers(tmp_path / "clean/bin/cuebook", tmp_path)
    what_the_embedded_model_lacks_is_said_first(tmp_path / "clean/bin/cuebook", tmp_path)


if THOROUGH:  # it installs the same packages again

    @pytest.mark.skipif(find_spec("ensurepip") is None, reason="pipx makes its environments with ensurepip")
    def test_pipx_installs_the_wheel_and_the_command_answers(wheel: Path, requirements: Path, tmp_path: Path) -> None:
        places = {"PIPX_HOME": tmp_path / "home", "PIPX_BIN_DIR": tmp_path / "bin", "PIPX_MAN_DIR": tmp_path / "man"}
        # pip accepts no hashes next to a wheel without one; the versions are still the pinned ones.
        versions = tmp_path / "versions.txt"
        pins = re.findall(r"^([a-z].*) \\$", requirements.read_text(), flags=re.MULTILINE)
        versions.write_text("\n".join(pins))
        how = f"--pip-args=--no-compile --constraint={versions}"
        run(sys.executable, "-m", "pipx", "install", how, wheel, environment=places)
        the_command_answers(tmp_path / "bin/cuebook", tmp_path)


def what_the_embedded_model_lacks_is_said_first(command: Path, home: Path) -> None:
    """The wheel alone has no engine for the model: nothing is downloaded because it is missing, and a run says the same."""
    (home / "tea.playbook.md").write_text("# Tea\n\n## STEP 1: Ask\n\nSay hello.\n")
    for arguments in (["models", "install", "local"], ["run", str(home / "tea.playbook.md")]):
        ran = subprocess.run(
            [command, *arguments], env={"HOME": str(home), "PATH": ""}, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 2, ran.stderr
        assert f"pip install 'cuebook-{cuebook.__version__}-py3-none-any.whl[local]'" in ran.stderr
    assert not list(home.rglob("*.gguf")) + list(home.rglob("*.whl"))


def the_command_answers(command: Path, home: Path) -> None:
    clean = {"HOME": str(home), "NO_COLOR": "1"}
    assert cuebook.__version__ in run(command, "--version", environment=clean)
    assert "run" in run(command, "--help", environment=clean)
    assert "playbook" in run(command, "run", "--help", environment=clean).lower()


def run(*command: str | Path, environment: Mapping[str, str | Path] | None = None) -> str:
    """The output of the command; a failing command fails the test with its output."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    extra = {name: str(value) for name, value in (environment or {}).items()}
    done = subprocess.run(
        [str(word) for word in command],
        env=inherited | extra,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout
