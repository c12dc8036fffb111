"""Which texts are recognised as programs, including broken ones, and which are left to other dialects."""

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
def test_a_program_is_recognised_by_its_file_name_or_its_content(text: str, name: str) -> None:
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


def test_an_unrecognised_text_gets_a_description_of_programs() -> None:
    with pytest.raises(BadInput, match=r"a program ends in \.pbasm"):
        registry.detect("words\n", "words.txt")


def test_a_program_can_be_passed_as_a_string() -> None:
    playbook = cuebook.Playbook.from_text(DESK)
    assert (playbook.name, playbook.title, playbook.dialect.name) == ("program.pbasm", "The seed desk", "program")
    assert [one.name for one in playbook.inputs] == ["name", "count"]


def test_recognising_a_program_does_not_load_the_parser_or_the_machine() -> None:
    code = (
        "import sys; from cuebook.dialects import registry; registry.detect('', 'a.pbasm');"
        "loaded = [name for name in sys.modules if name.startswith('cuebook.dialects.program.')];"
        "print(*sorted(loaded)); assert 'ruamel.yaml' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cuebook.dialects.program.dialect"]
