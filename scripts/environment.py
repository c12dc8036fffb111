"""Creates or updates a virtual environment from pinned requirement files; does nothing if they have not changed.

    python3 scripts/environment.py [--project] ENVIRONMENT REQUIREMENTS...

With `--project`, this repository's package is also installed, as editable. Needs only the standard library, and
either `ensurepip` or pip in the Python that runs it (Debian packages them separately).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VERSION = ".".join(map(str, sys.version_info[:3]))
NO_PIP = f"""\
This Python ({sys.executable}) cannot create an environment with pip (it lacks `ensurepip`), and does not have pip itself.
  Debian, Ubuntu:  apt install python3-venv
  Fedora:          dnf install python3-pip
  elsewhere:       install a complete Python 3.11 or newer, or select one: make PYTHON=/path/to/python3 ..."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("environment", type=Path)
    options.add_argument("requirements", type=Path, nargs="+")
    options.add_argument("--project", action="store_true")
    chosen = options.parse_args()

    environment: Path = chosen.environment
    stamp = environment / "installed.json"
    present = read_stamp(stamp)
    if present is None:
        create(environment)
        present = {"python": VERSION}

    pip = pip_for(environment)
    install = [*pip, "install", "--no-deps", "--no-user", "--no-input", "--disable-pip-version-check"]
    wanted = {path.name: digest(path) for path in chosen.requirements}
    if not wanted.items() <= present.items():
        pinned = [word for path in chosen.requirements for word in ("--requirement", str(path))]
        # Wheels only: building from source would run the package's code.
        run_pip(
            [*install, "--progress-bar", "off", "--require-hashes", "--only-binary=:all:", *pinned],
            f"Installing {count(chosen.requirements)} pinned packages into {shown(environment)}",
        )
        present |= wanted
        stamp.write_text(json.dumps(present, indent=1, sort_keys=True))

    project = {"project": digest(ROOT / "pyproject.toml")}
    if chosen.project and not project.items() <= present.items():
        run_pip([*install, "--no-build-isolation", "--editable", str(ROOT)], "Installing cuebook itself, editable")
        stamp.write_text(json.dumps(present | project, indent=1, sort_keys=True))


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def read_stamp(stamp: Path) -> dict[str, str] | None:
    """The fingerprint of the installed packages, or None if this Python has no usable environment."""
    try:
        present: dict[str, str] = json.loads(stamp.read_text())
        subprocess.run([stamp.parent / "bin/python", "-c", ""], check=True, capture_output=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    return present if present.get("python") == VERSION else None


def create(environment: Path) -> None:
    own_pip = ["--without-pip"] if importlib.util.find_spec("ensurepip") is None else []
    if own_pip and importlib.util.find_spec("pip") is None:
        stop(NO_PIP)
    say(f"Creating {shown(environment)} with Python {VERSION}")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", *own_pip, str(environment)], capture_output=True, text=True
    )
    if made.returncode:
        stop(f"{made.stdout}{made.stderr}")


def pip_for(environment: Path) -> list[str]:
    """The environment's own pip, or else this Python's pip, pointed at the environment."""
    python = str(environment / "bin/python")
    if list(environment.glob("lib/python*/site-packages/pip/__main__.py")):
        return [python, "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", python]


def run_pip(command: list[str], what: str) -> None:
    say(what)
    started = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line.rstrip())
            show(line)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if pip.returncode:
        stop("\n".join(lines[-25:]) + "\nThe installation failed; the lines above are the end of pip's output.")
    print(f"    done in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def show(line: str) -> None:
    """On a terminal, shows what is being fetched, on a single line that is overwritten each time."""
    if sys.stderr.isatty() and line.startswith(("Collecting ", "  Downloading ", "Installing ")):
        what = line.partition(" (from")[0].strip()[:70]
        print(f"\r\x1b[K    {what}", end="", file=sys.stderr, flush=True)


def count(files: Iterable[Path]) -> int:
    return sum("==" in line for path in files for line in path.read_text().splitlines())


def shown(path: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def say(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


def stop(text: str) -> NoReturn:
    sys.exit(text.rstrip())


if __name__ == "__main__":
    main()
