"""Committed files name no particular machine: no URL of a package registry, no path of an author."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PINS = sorted((ROOT / "requirements").glob("*.txt"))

# Written so that this file does not match itself.
HOMES = re.compile(r"(?<![\w.])/(?:home|Users|r[o]ot)/\w")
REGISTRY = re.compile(r"(?<!no-emit)-(?:index[-]url|find[-]links|trusted[-]host)\b|file:/{2}|_authToken")
INSTALLATION = ("requirements/", "scripts/", ".ci/", "Containerfile", "Makefile", "pyproject.toml", "bench/peers/")


def test_no_committed_file_names_a_path_of_one_machine() -> None:
    names = [str(ROOT), *([str(Path.home())] if len(Path.home().parts) > 1 else [])]
    places = [re.compile(rf"(?<![\w.]){re.escape(name)}/") for name in names]
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, number, line in committed_lines()
        if HOMES.search(line) or any(place.search(line) for place in places)
    ]
    assert not found, "\n".join(found)


def test_no_file_of_the_installation_names_a_registry() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, number, line in committed_lines()
        if name.startswith(INSTALLATION) and REGISTRY.search(line)
    ]
    assert not found, "\n".join(found)


def test_pin_files_contain_only_versions_and_hashes() -> None:
    allowed = re.compile(r"#.*|[a-z0-9.-]+==\S+(?: ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}(?: \\)?")
    assert PINS
    for path in PINS:
        for line in path.read_text().splitlines():
            assert allowed.fullmatch(line), f"{path.name}: {line}"


def test_run_time_and_development_pins_agree() -> None:
    development = versions(ROOT / "requirements/dev.txt")
    for name in ("run.txt", "build.txt", "container.txt"):
        pinned = versions(ROOT / "requirements" / name)
        assert pinned.items() <= development.items()


def versions(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", path.read_text(), flags=re.MULTILINE))


def committed_lines() -> Iterator[tuple[str, int, str]]:
    for path in committed():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield path.relative_to(ROOT).as_posix(), number, line


def committed() -> list[Path]:
    """Files git tracks or would track; in a source archive, without git, every file of the project."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    with suppress(FileNotFoundError, subprocess.CalledProcessError):
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    folders = ("src", "tests", "docs", "examples", "bench", "scripts", "requirements", "deploy")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]


def test_every_promise_of_the_security_page_names_an_existing_test() -> None:
    promises = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("| ")]
    named = [re.findall(r"`(tests/[\w/]+\.py)`", line) for line in promises if not line.startswith("| Promise")]
    assert len(named) > 20
    assert all(named), "a promise without a test"
    assert [path for paths in named for path in paths if not (ROOT / path).is_file()] == []
    for line in promises:
        held = "".join((ROOT / path).read_text() for path in re.findall(r"`(tests/[\w/]+\.py)`", line))
        assert [name for name in re.findall(r"`(test_\w+)`", line) if f"def {name}(" not in held] == []
