"""The Containerfile, without a container engine: what it downloads, who it runs as, and whether its commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cuebook import __version__
from tests.deploy.commands import check_command
from tests.deploy.files import ROOT, Instruction, in_image, instructions
from tests.support.sampling import THOROUGH

LAST = max(one.stage for one in instructions())


def named(name: str, stage: int | None = None) -> list[Instruction]:
    return [one for one in instructions() if one.name == name and stage in (None, one.stage)]


def test_both_engines_ignore_the_same_files() -> None:
    assert (ROOT / ".containerignore").read_text() == (ROOT / ".dockerignore").read_text()


def test_everything_that_is_copied_exists_and_is_part_of_the_context() -> None:
    copied = [word for one in named("COPY") if not one.text.startswith("--from=") for word in one.words[:-1]]
    assert {"src", "pyproject.toml", "requirements/container.txt"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name
        assert in_image(f"{name}/__init__.py" if (ROOT / name).is_dir() else name), name
    for name in (".env", "models.env", ".git/config", "tests/conftest.py", "compose.yaml", ".venv/bin/python"):
        assert not in_image(name), name


def test_the_build_downloads_only_packages() -> None:
    assert not named("ADD")
    for one in named("RUN"):
        assert not re.search(r"\b(curl|wget|git|ftp|scp)\b|https?:", one.text), one.text
        for command in re.split(r"&&|;", one.text):
            if " install " in command and "pip" in command.split("install")[0]:
                assert "--no-index" in command or "--require-hashes --only-binary=:all:" in command, command
                for path in re.findall(r"--requirement (\S+)", command):
                    assert (ROOT / path).is_file(), path
            elif "apt-get" in command:
                assert re.search(r"apt-get (update|install --yes --no-install-recommends( [a-z0-9.-]+)+ *$)", command)


def test_base_images_have_a_version() -> None:
    (base,) = [one.text.partition("=")[2] for one in named("ARG") if one.text.startswith("BASE=")]
    assert re.fullmatch(r"[\w./-]+:\d[\w.-]*", base)
    assert {one.words[0] for one in named("FROM")} == {"${BASE}"}


def test_it_does_not_run_as_root() -> None:
    users = named("USER", LAST)
    assert users, "the image has no user"
    user, _, group = users[-1].text.partition(":")
    assert int(user) > 0
    assert int(group) > 0
    made = next(one.text for one in named("RUN", LAST) if "useradd" in one.text)
    assert f"--uid {user} --gid {group}" in made


def test_signals_reach_cuebook_and_its_default_command_exists() -> None:
    (entry,), (command,) = named("ENTRYPOINT", LAST), named("CMD", LAST)
    assert entry.is_exec
    assert command.is_exec
    assert entry.words == ["cuebook"]
    assert check_command(command.words)["host"] == "0.0.0.0"


def test_labels_say_what_it_is() -> None:
    labels = " ".join(one.text for one in named("LABEL", LAST))
    for name in ("title", "description", "licenses", "version"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert f"VERSION={__version__}" in [one.text for one in named("ARG", LAST)]


if THOROUGH:  # it installs sixty packages

    @pytest.mark.timeout(600)
    def test_the_commands_of_the_build_give_a_working_cuebook(tmp_path: Path) -> None:
        """Each command of the first stage, in a folder that has only the context, with Python's own prefix moved there."""
        context, prefix, base = tmp_path / "build", tmp_path / "cuebook", tmp_path / "base"
        (context / "requirements").mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
        for one in instructions():
            if one.stage == 0 and one.name == "COPY":
                *sources, target = one.words
                for name in sources:
                    subprocess.run(["cp", "-r", str(ROOT / name), str(context / target)], check=True)
            elif one.stage == 0 and one.name == "RUN":
                script = one.text.replace("/opt/cuebook", str(prefix))
                environ = {"PATH": f"{base}/bin:/usr/bin:/bin", "MODEL": "no", "PIP_NO_DEPS": "1", **_pip_settings()}
                subprocess.run(["sh", "-euc", script], cwd=context, env=environ, check=True)
        said = subprocess.run(
            [str(prefix / "bin" / "cuebook"), "--version"], capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == f"cuebook {__version__}"
        modules = "import psycopg, psycopg_pool, temporalio, xllamacpp"
        subprocess.run([str(prefix / "bin" / "python"), "-c", modules], check=True)


def _pip_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "HOME"}
