"""How long it takes to parse Markdown playbooks of the maximum size, compared with the public parser `playbook-md`.

    python -m bench.markdown [--rounds 5] [--no-peers] [--peer-python PATH] [--json]

The peer runs in its own environment, created from requirements/bench-playbook-md.txt; `--peer-python` selects a different one.
This file also runs there, so it imports only the standard library until it knows where it is. `bench/run.py` shows the
same figures together with all the others.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers import PARSER, ensure_env

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 200_000
MOST = 50.0
"""Maximum milliseconds for parsing."""

HEAD = """\
# A long playbook

For measuring.

## SYSTEM

Be brief and exact.

## INPUTS

- `topic` (string): What it is about
- `depth` (enum: quick, thorough): How deep to go
- `words` (number: 500): How long

"""
STEP = """\
## STEP {n}: Part {n}

Write about {{{{topic}}}} in about {{{{words}}}} words. Consider what was said before, and do not repeat it:

- what is known, and from where
- what is doubtful, and why
- what a reader should do next

```json
{{"part": {n}, "of": ["a", "b"]}}
```

@output(part_{n}, extract:"part")

"""
BRANCHING = """\
## STEP {n}: Decide {n}

Look at part {{{{part_{m}}}}} again.

```if depth == "thorough"```

### STEP {n}a: Look closer

Look closer at every claim, and name the weakest one.

@output(weak_{n})

```else```

### STEP {n}b: Go on

Summarise it in a sentence.

```endif```

## STEP {q}: Ask {q}

@elicit(select, "Which part should be longer?", "the first", "the last", "none")
@output(choice_{q})

"""


def long_playbook() -> str:
    """A typical playbook, up to the size limit."""
    parts, size, number = [HEAD], len(HEAD), 1
    while True:
        part = STEP.format(n=number) + BRANCHING.format(n=number + 1, m=number, q=number + 2)
        if size + len(part) > LIMIT:
            return "".join(parts)
        parts.append(part)
        size, number = size + len(part), number + 3


def dense_playbook() -> str:
    """A playbook with as many steps as fit."""
    parts, size = ["# Dense\n"], len("# Dense\n")
    for number in range(1, LIMIT):
        part = f"## STEP {number}: A\n"
        if size + len(part) > LIMIT:
            break
        parts.append(part)
        size += len(part)
    return "".join(parts)


TEXTS: dict[str, Callable[[], str]] = {"long": long_playbook, "dense": dense_playbook}


def _readers(package: str) -> dict[str, Callable[[str], Any]]:
    if package == PARSER:
        return {"parse": importlib.import_module("playbook_md").parse_playbook}
    from cuebook.dialects.markdown.check import check
    from cuebook.dialects.markdown.parse import read

    return {"parse": read, "check": lambda text: check(text, "bench")}


def timings(package: str, repeat: int) -> dict[str, float]:
    """Milliseconds of CPU for each operation on each playbook, as the median of several attempts."""
    taken = {}
    for what, reader in _readers(package).items():
        for kind, text_of in TEXTS.items():
            text = text_of()
            reader(text)
            tries = []
            for _ in range(repeat):
                started = time.process_time()
                reader(text)
                tries.append(time.process_time() - started)
            taken[f"{what} {kind}"] = median(tries) * 1000
    return taken


def _measured(python: str, package: str) -> dict[str, float]:
    command = [python, "-m", "bench.markdown", "--measure", package]
    # Cuebook itself is next to the benchmarks; the peer's environment must not see it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or package != PARSER}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compared(rounds: int, peers: bool, peer_python: str | None = None) -> dict[str, float]:
    """Cuebook's parser and the peer's, measured alternately; the medians of the rounds."""
    peer = (peer_python or str(ensure_env(PARSER))) if peers else None
    seen: dict[str, list[float]] = {}
    for _ in range(rounds):
        for package, python in (("cuebook", sys.executable), (PARSER, peer)):
            if python is not None:
                for what, figure in _measured(python, package).items():
                    seen.setdefault(f"{package} {what}", []).append(figure)
    return {what: median(figures) for what, figures in seen.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--no-peers", action="store_true", help="leave out the other parser")
    options.add_argument("--peer-python", help="the Python of an environment in which playbook-md is installed")
    options.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        print(json.dumps(timings(chosen.measure, 5)))
        return
    figures = compared(chosen.rounds, not chosen.no_peers, chosen.peer_python)
    for what, figure in figures.items():
        target = f"under {MOST:.0f} ms" if what.startswith("cuebook parse") else ""
        verdict = ("met" if figure < MOST else "MISSED") if target else ""
        print(f"{what:<24} {figure:>10,.2f} ms of CPU  {target:<14} {verdict}".rstrip())
    if chosen.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
