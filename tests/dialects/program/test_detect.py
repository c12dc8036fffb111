"""Which texts are programs, broken ones among them, and which are left to others."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cuebook
from cuebook.dialects import registry
from cuebook.kernel.errors import BadInput
from tests.dialects.program.samples import DESK, SOURCE


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (DESK, "desk.pbasm"),
        (SOURCE, "HELP.PB"),
        ("", "broken.pb"),
        ("# A\n## STEP 1: this would be Markdown\n", "a.pbasm"),
        (DESK, "stdin"),
        (DESK.replace("\n", "\r\n"), "-"),
        ("# A\n```python\n@playbook\ndef f(): ...\n```\n", ""),
    ],
)
def test_a_program_is_known_by_its_file_or_by_what_it_holds(text: str, name: str) -> None:
    assert registry.detect(text, name).name == "program"


@pytest.mark.parametrize(
    ("text", "name", "dialect"),
    [
        (DESK, "desk.md", "markdown"),
        ("# Tea\n## STEP 1: Brew\nBrew it.\n", "stdin", "markdown"),
        ("id: a\nentry: b\n", "a.yml", "graph"),
    ],
)
def test_other_texts_are_left_to_others(text: str, name: str, dialect: str) -> None:
    assert registry.detect(text, name).name == dialect


def test_a_text_of_no_dialect_is_told_how_a_program_looks() -> None:
    with pytest.raises(BadInput, match=r"a program ends in \.pbasm"):
        registry.detect("words\n", "words.txt")


def test_a_program_can_be_given_as_a_text() -> None:
    playbook = cuebook.Playbook.from_text(DESK)
    assert (playbook.name, playbook.title, playbook.dialect.name) == ("program.pbasm", "The seed desk", "program")
    assert [one.name for one in playbook.inputs] == ["name", "count"]


def test_knowing_a_program_loads_nothing_that_reads_or_runs_one() -> None:
    code = (
        "import sys; from cuebook.dialects import registry; registry.detect('', 'a.pbasm');"
        "loaded = [name for name in sys.modules if name.startswith('cuebook.dialects.program.')];"
        "print(*sorted(loaded)); assert 'ruamel.yaml' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cuebook.dialects.program.dialect"]
