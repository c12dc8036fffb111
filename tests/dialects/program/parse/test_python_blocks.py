"""Python blocks: their playbooks are parsed, and nothing is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.dialects.program.model import Param, Playbook, Trigger
from cuebook.dialects.program.parse import parse
from tests.dialects.program.samples import DESK, line_of, problem, problems


def playbooks(code: str) -> dict[str, Playbook]:
    return parse(f"# A\n```python\n{code}\n```\n", "a.pbasm").agents["A"].playbooks


def test_a_function_is_a_playbook_by_its_decorator() -> None:
    agent = parse(DESK, "desk.pbasm").agents["SeedDesk"]
    price = agent.playbooks["Price"]
    assert (price.kind, price.returns, price.description) == ("python", "float", "Works out a price.")
    assert price.params == (
        Param("grams", "float"),
        Param("kind", "str", "pea", True),
        Param("tax", "float", 0.1, True),
    )
    line = line_of(DESK, "async def Price")
    assert price.triggers == (Trigger("T1", "CND", "When a price is needed", line),)
    assert (price.line, price.metadata, price.source) == (line, {"public": True, "rate": 2}, agent.python[0])
    assert "helper" not in agent.playbooks


def test_a_decorator_may_omit_its_parentheses() -> None:
    found = playbooks("@playbook\ndef A(x): ...\n@playbook()\nasync def B(): ...\n@other\ndef C(): ...")
    assert list(found) == ["A", "B"]
    assert found["A"].params == (Param("x"),)


def test_functions_that_accept_further_arguments_are_recognised() -> None:
    found = playbooks("@playbook\ndef A(x, /, y=[1], **more): ...\n@playbook\ndef B(x=len('a')): ...")
    assert (found["A"].open, found["B"].open) == (True, False)
    assert found["A"].params == (Param("x"), Param("y", "", [1], True))
    assert found["B"].params == (Param("x", "", None, True),)


def test_types_are_kept_as_they_are_written() -> None:
    (found,) = playbooks("@playbook\ndef A(x: 'list[Bed]', y: dict[str, int] | None) -> list [ str ]: ...").values()
    assert [param.type for param in found.params] == ["list[Bed]", "dict[str, int] | None"]
    assert found.returns == "list[str]"


def test_parsing_a_block_does_not_execute_it(tmp_path: Path) -> None:
    place = tmp_path / "written"
    code = (
        f"open({str(place)!r}, 'w').write('x')\n"
        f"@playbook(public=True)\ndef A(x=open({str(place)!r}, 'w')):\n    '''a \\d'''\nraise SystemExit\n"
    )
    assert list(playbooks(code)) == ["A"]
    assert not place.exists()


def test_the_arguments_of_a_decorator_must_be_literals() -> None:
    text = "# A\n```python\n@playbook(\n    public=x,\n    triggers='When',\n    **more)\ndef P(): ...\n```\n"
    assert problems(text) == [(4, "DECORATOR"), (5, "DECORATOR"), (6, "DECORATOR")]


@pytest.mark.parametrize("code", ["def (", "x = '", "@playbook\ndef f(:", "\x00", "if 1:\nx"])
def test_invalid_python_is_refused_with_its_line(code: str) -> None:
    found = problem(f"# A\nText.\n```python\n{code}\n```\n")
    assert found.code == "PYTHON"
    assert found.line in (3, 4, 5)


@pytest.mark.parametrize(
    "code", ["(" * 5_000, "-" * 50_000 + "1", "x = " + "+".join("a" * 20_000), "[" * 150 + "]" * 150]
)
def test_no_depth_of_nesting_breaks_the_reader(code: str) -> None:
    assert problems(f"# A\n```python\n{code}\n```\n") in ([], [(2, "PYTHON")], [(3, "PYTHON")])


def test_two_functions_with_the_same_name_are_refused() -> None:
    code = "@playbook\ndef A(): ...\n@playbook\ndef A(): ..."
    assert problems(f"# A\n```python\n{code}\n```\n") == [(6, "TWICE")]
