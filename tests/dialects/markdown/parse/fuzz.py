"""A long fuzz of parser, converter and checker: any text ends in a document or in `InvalidPlaybook`, and every document
survives the way to JSON and back.

    python -m tests.dialects.markdown.parse.fuzz [--seconds 60] [--seed 1] [--plain]

Led by coverage where `atheris` is installed, by chance alone otherwise or with `--plain`. What fails is kept in a file.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import random
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.dialects.markdown.strategies import DOCUMENTS, HEAD, PIECES

MODULES = ("sections", "directives", "declarations", "branches", "parse", "convert", "check")


def holds(text: str) -> None:
    """Checks everything that must hold for any text, and raises if it does not."""
    # Imported late, so that atheris can instrument the modules as they are loaded.
    from tests.dialects.markdown.check.test_check import assert_checked
    from tests.dialects.markdown.parse.test_parse import assert_read
    from tests.dialects.markdown.test_convert import assert_survives

    assert_read(text)
    assert_checked(text)
    assert_survives(text)


# --- random -----------------------------------------------------------------------------------------------


def mutated(chance: random.Random) -> str:
    lines = chance.choice([*DOCUMENTS, HEAD]).splitlines(keepends=True)
    for _ in range(chance.randint(1, 12)):
        place = chance.randint(0, len(lines))
        match chance.randrange(7):
            case 0 | 1:
                lines.insert(place, chance.choice(PIECES))
            case 2:
                del lines[place : place + chance.randint(1, 5)]
            case 3:
                lines[place:place] = lines[place : place + chance.randint(1, 10)] * chance.randint(1, 3)
            case 4:
                other = chance.choice(DOCUMENTS).splitlines(keepends=True)
                start = chance.randint(0, len(other))
                lines[place:place] = other[start : start + chance.randint(1, 10)]
            case 5 if place < len(lines):
                lines[place] = _scratched(lines[place], chance)
            case 6 if place < len(lines):
                lines.insert(chance.randint(0, len(lines)), lines.pop(place))
    return "".join(lines)


def _scratched(line: str, chance: random.Random) -> str:
    start = chance.randint(0, len(line))
    end = min(len(line), start + chance.randint(0, 4))
    new = chance.choice(["", " ", "\t", chr(chance.randrange(0xD800)), chance.choice(PIECES).strip("\n")])
    return line[:start] + new + line[end:]


def by_chance(seconds: float, seed: int) -> int:
    holds(HEAD)  # imports count for no text
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    tried, slowest, slow_text = 0, 0.0, ""
    while time.monotonic() < end:
        text = mutated(chance)
        started = time.process_time()
        try:
            holds(text)
        except BaseException:
            print(f"Failed after {tried} texts; the text is in {kept(text)}", file=sys.stderr)
            raise
        took = time.process_time() - started
        if took > slowest:
            slowest, slow_text = took, text
        tried += 1
    print(
        f"{tried} texts held (seed {seed}); the slowest took {slowest * 1000:.0f} ms for {len(slow_text)} characters."
    )
    return 0


def kept(text: str) -> Path:
    data = text.encode("utf-8", "surrogatepass")
    path = Path(tempfile.gettempdir(), f"fuzz-{sha256(data).hexdigest()[:12]}.playbook.md")
    path.write_bytes(data)
    return path


# --- coverage-guided ------------------------------------------------------------------------------------------


def by_coverage(seconds: float, seed: int) -> None:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["cuebook.dialects.markdown"]):
        for module in MODULES:
            importlib.import_module(f"cuebook.dialects.markdown.{module}")

    def one(data: bytes) -> None:
        holds(data.decode("utf-8", "surrogateescape"))

    place = Path(tempfile.mkdtemp(prefix="fuzz-corpus-"))
    for number, text in enumerate(DOCUMENTS):
        (place / f"{number}.md").write_bytes(text.encode())
    words = place.with_suffix(".dict")
    words.write_text("".join(f'"{_escaped(piece)}"\n' for piece in PIECES), encoding="ascii")
    limits = [f"-max_total_time={int(seconds)}", "-max_len=20000", "-timeout=20"]
    options = [*limits, f"-seed={seed}", f"-dict={words}", f"-artifact_prefix={place}-failed-"]
    atheris.Setup([sys.argv[0], *options, str(place)], one)
    atheris.Fuzz()


def _escaped(piece: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in piece.encode("utf-8", "surrogateescape"))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--plain", action="store_true", help="by chance, even where atheris is installed")
    chosen = options.parse_args()
    seed = random.randrange(2**31) if chosen.seed is None else chosen.seed
    if chosen.plain or importlib.util.find_spec("atheris") is None:
        return by_chance(chosen.seconds, seed)
    by_coverage(chosen.seconds, seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
