"""Python playbooks: real functions in real confined processes, which act only through calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate.sandbox import choose
from cuebook.kernel.effects import RunPython
from cuebook.kernel.outcomes import Returned
from cuebook.performers.python.performer import PythonPerformer
from tests.dialects.program.harness import Played, ProgramHarness
from tests.gate.sandbox.sandboxes import SANDBOXES
from tests.performers.commands.harness import call


def program(python: str, steps: str = "- 01:QUE $x = F()\n- 02:YLD for call\n- 03:RET $x") -> str:
    return f"""# Desk
Works.

```python
{python}
```

## Main() -> Any
### Triggers
- T1:BGN At the beginning
### Steps
{steps}

## Half($n:float) -> float
### Steps
- 01:RET $n / 2
"""


async def called(python: str, call: str = "F()", answers: tuple[str, ...] = ()) -> Played:
    return await ProgramHarness().play(program(python), [], answers, call=call)


async def test_it_accepts_and_returns_plain_values() -> None:
    played = await called(
        "@playbook\nasync def F(a: list, b: dict = {'k': 1}) -> dict:\n    return {'a': a[::-1], **b}", "F([1, 2])"
    )
    assert played.result["value"] == {"a": [2, 1], "k": 1}


async def test_a_plain_function_will_do() -> None:
    played = await called("@playbook\ndef F(*n: int, **more) -> int:\n    return sum(n) + len(more)", "F(1, 2, 3)")
    assert played.result["value"] == 6


async def test_it_calls_listings_sequentially_and_concurrently() -> None:
    played = await called(
        "import asyncio\n\n@playbook\nasync def F():\n    one = await Half(n=8)\n"
        "    both = await asyncio.gather(Half(n=one), Half(n=100))\n    await asyncio.sleep(3600)\n    return [one, *both]"
    )
    assert played.result["value"] == [4.0, 2.0, 50.0]
    assert played.seen.calls == ["F", "Half", "Half", "Half"]


async def test_its_other_functions_are_its_own_and_its_playbooks_are_called() -> None:
    played = await called(
        "def twice(n):\n    return 2 * n\n\n@playbook\nasync def G(n):\n    return twice(n)\n\n"
        "@playbook\nasync def F():\n    return await G(twice(3)) + await Desk.G(1)"
    )
    assert played.result["value"] == 14
    assert played.seen.calls == ["F", "G", "G"]


async def test_a_call_that_fails_is_an_exception_that_can_be_caught() -> None:
    played = await called(
        "@playbook\nasync def F():\n    try:\n        await Half(n='many')\n    except PlaybookError as error:\n"
        "        return str(error)"
    )
    assert "Half expects n to be of type float" in played.result["value"]


async def test_what_it_raises_fails_the_call_and_names_the_line_of_the_program() -> None:
    text = program("@playbook\nasync def G():\n    pass\n```\n\n```python\n@playbook\nasync def F():\n    return 1 / 0")
    played = await ProgramHarness().play(text, [], call="F()")
    assert played.status == "failed"
    assert played.error.code == "python_error"
    assert "ZeroDivisionError" in played.error.message
    line = text.split("\n").index("    return 1 / 0") + 1
    assert played.error.message.endswith(f"(line {line})")


async def test_ending_the_process_is_reported_with_a_fix() -> None:
    played = await called("@playbook\nasync def F():\n    __import__('os')._exit(3)")
    assert "F exited its process (exit code 3)" in played.error.message
    assert "return or raise" in played.error.fix


async def test_an_error_in_a_variable_is_not_a_string_and_the_model_is_asked() -> None:
    text = program("@playbook\nasync def F():\n    raise ValueError('no')")
    says = ['recap – r\nplan – p\n`Step["Main:03:RET"]` `Return[$x.error]` `Var[$__, "It failed"]`\nyld return']
    played = await ProgramHarness().play(text, says)
    assert played.result["value"] == "python_error"
    assert played.variables()["x"]["error"] == "python_error"
    assert "F() failed: F raised ValueError: no" in played.prompt(0)


async def test_it_does_the_same_thing_each_time() -> None:
    played = await called(
        "import random, time, uuid, datetime, secrets\n\n@playbook\nasync def F():\n"
        "    seen = [random.random(), uuid.uuid4().hex, secrets.token_hex(4), time.time(), str(datetime.datetime.now())]\n"
        "    await Half(n=1)\n    return seen + [random.random()]"
    )
    first = await called(
        "import random, time, uuid, datetime, secrets\n\n@playbook\nasync def F():\n"
        "    seen = [random.random(), uuid.uuid4().hex, secrets.token_hex(4), time.time(), str(datetime.datetime.now())]\n"
        "    return seen + [random.random()]"
    )
    assert played.result["value"][:3] == first.result["value"][:3]
    assert played.result["value"][3] > 1.7e9


async def test_a_function_that_does_something_else_the_second_time_is_stopped() -> None:
    played = await called(
        "@playbook\nasync def F():\n    await Half(n=float(id(object())))\n    return await Half(n=1)"  # an address in memory
    )
    assert played.error.code == "non_determinism"
    assert "F is not deterministic: its call 1 was Half" in played.error.message


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("__import__('pathlib').Path('/tmp/written').write_text('x')", "Error"),
        ("__import__('socket').create_connection(('127.0.0.1', 80), 1)", "Error"),
        ("__import__('os').environ['HOME']", "KeyError"),
    ],
)
async def test_it_has_no_access_to_the_outside(code: str, words: str) -> None:
    played = await called(f"@playbook\nasync def F():\n    {code}\n    return 'reached'")
    assert played.status == "failed"
    assert words in played.error.message


SEEN = """import asyncio, os

def seen(path):
    try:
        return bool(os.listdir(path) if os.path.isdir(path) else open(path).read(1))
    except OSError:
        return False

@playbook
async def F(paths: list):
    await asyncio.sleep(1)
    try:
        import msgspec
    except ImportError:
        msgspec = None
    import sqlite3, ssl, zoneinfo
    return [path for path in paths if seen(path)] + [msgspec is not None]
"""


@pytest.mark.parametrize("name", SANDBOXES)
async def test_it_can_read_only_the_standard_library(name: Any, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("mine")
    paths = ["/etc/passwd", "/usr/bin", "/usr/share/doc", str(tmp_path / "own"), str(Path(msgspec.__file__).parent)]
    effect = RunPython("F", {"args": [paths], "named": {}}, (), SEEN, (), 0.0)
    assert await PythonPerformer(choose(name)).perform(effect, call()) == Returned([False])


async def test_a_value_that_cannot_be_stored_is_refused() -> None:
    played = await called("@playbook\nasync def F():\n    return object()")
    assert played.error.code == "python_error"
    assert "cannot be stored" in played.error.message


async def test_printed_output_is_not_a_result() -> None:
    played = await called("@playbook\nasync def F():\n    print('{}')\n    return 1")
    assert played.result["value"] == 1


async def test_a_dialogue_with_the_user() -> None:
    python = (
        "@playbook\nasync def F():\n    await Say('user', 'one?')\n    [first] = await WaitForMessage('human')\n"
        "    await Say('user', 'two?')\n    [second] = await WaitForMessage('*')\n    return int(first) + int(second)"
    )
    played = await called(python, answers=("4", "5"))
    assert played.result["value"] == 9
    assert [one.text for one in played.seen.said] == ["one?", "4", "two?", "5"]


async def test_artifacts_and_files_are_reached_by_calls(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("hello")
    python = (
        "@playbook\nasync def F():\n    text = await Loadfile('a.txt')\n    await SaveArtifact('greeting', 'A text', text)\n"
        "    return await LoadArtifact('greeting')"
    )
    played = await ProgramHarness(tmp_path).play(program(python), [], call="F()")
    assert played.result["value"] == "hello"
