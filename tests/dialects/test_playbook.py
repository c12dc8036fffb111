"""A playbook: its text with imports, which is parsed once and identified by a content hash."""

from __future__ import annotations

import pytest

from cuebook.dialects import playbook
from cuebook.dialects.playbook import Playbook, cached, read, recorded
from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import BadInput

TEXTS = {
    "sky.md": "# Sky\n\n## STEP 1: Look\n\nUp.\n",
    "sky.yml": "id: sky\nname: Sky\nentry: a\nnodes: {a: {name: A, instruction: Look up.}}\nedges: []\n",
    "steps.yml": "name: Sky\nsteps:\n  - {id: look, command: cli ls}\n",
    "sky.pbasm": "# Sky\n\n## Look\n\n### Triggers\n- T1:BGN At the beginning\n\n### Steps\n- 01:RET 1\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_parsed_once_wherever_its_file_is(name: str) -> None:
    text = TEXTS[name]
    first, second = read(text, name), read(text, name, where=f"elsewhere/{name}")
    assert first.document is second.document
    assert recorded(first.dialect.name, text, name).document is first.document


@pytest.mark.parametrize("name", TEXTS)
def test_a_playbook_of_a_run_is_found_by_its_digest(name: str) -> None:
    made = read(TEXTS[name], name)
    assert made.digest == digest_of(TEXTS[name])
    found = cached(made.dialect.name, made.digest, name)
    assert found == made
    assert cached(made.dialect.name, digest_of("another text"), name) is None


def test_the_digest_covers_what_is_imported() -> None:
    text = TEXTS["sky.pbasm"].replace("- 01:RET 1", "!import steps.txt")
    one = read(text, "sky.pbasm", neighbour=lambda path: "- 01:RET 1")
    other = read(text, "sky.pbasm", neighbour=lambda path: "- 01:RET 2")
    assert one.text == TEXTS["sky.pbasm"].rstrip("\n") + "\n"
    assert one.digest != other.digest


def test_only_recently_used_documents_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playbook, "_CACHE", playbook._Cache())
    first = read(TEXTS["sky.md"], "sky.md")
    for number in range(100):
        read(TEXTS["sky.md"], "sky.md")
        read(f"{TEXTS['sky.md']}{number}", "sky.md")
    assert read(TEXTS["sky.md"], "sky.md").document is first.document, "it was used all the time"
    assert cached("markdown", digest_of(f"{TEXTS['sky.md']}0"), "sky.md") is None


def test_a_very_long_text_is_not_cached() -> None:
    text = f"{TEXTS['sky.pbasm']}<!-- {'x' * 1_000_000} -->\n"
    assert read(text, "sky.pbasm").document is not read(text, "sky.pbasm").document


def test_inputs_are_accepted_for_options() -> None:
    made = Playbook.from_text("# T\n\n## INPUTS\n\n- `a` (string): x\n\n## STEP 1: A\n\n{{a}}\n")
    assert made.accept({"a": "b"}, {}).values == {"a": "b"}
    with pytest.raises(BadInput):
        made.accept({}, {})
