"""Postconditions of commands: the exit code, text, a file, and a command that looks."""

from __future__ import annotations

import pytest

from cuebook.dialects.pipeline.parse import parse, read
from tests.dialects.pipeline.harness import PipelineHarness


def step(command: str, wanted: str) -> str:
    args = "{version: {required: false}, number: {required: false}, empty: {required: false}}"
    return f"name: A\nsteps:\n  - id: a\n    command: {command}\n    postcondition: {wanted}\nargs: {args}\n"


@pytest.mark.parametrize(
    ("command", "wanted", "problem"),
    [
        ("cli sh -c 'exit 3'", "{type: exit_code, equals: 3}", ""),
        ("cli sh -c 'exit 3'", "{type: exit_code, equals: 0}", "expected exit code 0, observed 3"),
        ("cli echo all done", "{type: output_contains, text: done}", ""),
        ("cli echo all done", "{type: output_contains, text: failed}", "stdout does not contain the text"),
        ("cli sh -c 'echo x >&2'", "{type: output_contains, text: x, stream: stderr}", ""),
        ("cli touch made", "{type: file, path: made}", ""),
        ("cli true", "{type: file, path: made}", "the file does not exist"),
        ("cli true", "{type: file, path: made, exists: false}", ""),
        ("cli sh -c 'echo hello > made; echo made'", "{type: file, path: '${a.stdout}', contains: hell}", ""),
        ("cli sh -c 'echo hello > made'", "{type: file, path: made, contains: bye}", "does not contain the text"),
        ("cli sh -c 'echo hello > made'", "{type: command, command: cli cat made, contains: hello}", ""),
        ("cli true", "{type: command, command: cli cat made}", "exit code 1"),
        ("cli sh -c 'echo v1.2 | tee made'", "{type: file, path: made, contains: 'v${version}'}", ""),
        ("cli echo v1.3", "{type: output_contains, text: 'v${version}'}", "stdout does not contain the text"),
        ("cli echo v1.2", "{type: command, command: cli echo v1.2, contains: '${a.stdout}'}", ""),
        ("""cli echo '{"n":1.2}'""", "{type: json_path, path: $.n, equals: '${number}'}", ""),
        ("""cli echo '{"n":"1.2"}'""", "{type: json_path, path: $.n, equals: '${number}'}", "has a different value"),
        ("cli true", "{type: output_contains, text: '${empty}'}", "the argument 'empty' has no value"),
    ],
)
async def test_a_command_is_checked(harness: PipelineHarness, command: str, wanted: str, problem: str) -> None:
    harness.pipeline = parse(step(command, wanted), "a.yml")
    row = await harness.do(inputs={"version": "1.2", "number": 1.2})
    assert row.status == ("failed" if problem else "completed"), row.error
    if row.error is not None:
        assert problem in row.error.message


async def test_a_command_that_looks_cannot_change_anything(harness: PipelineHarness) -> None:
    harness.pipeline = parse(step("cli true", "{type: command, command: cli touch probe}"), "a.yml")
    assert (await harness.do()).status == "failed"
    assert not (harness.workspace / "probe").exists()


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("{type: exitcode, equals: 1}", "known assertion type"),
        ("{type: file, pth: x}", "Unknown key 'pth'"),
        ("{type: command, command: http x}", "must be a cli command"),
        ("{type: output_contains, text: x, stream: both}", "cannot be 'both'"),
    ],
)
def test_a_wrong_check_is_found_with_its_line(wanted: str, says: str) -> None:
    found = read(step("cli true", wanted), "a.yml").errors
    assert found
    assert (found[0].code, found[0].line) == ("BAD_POSTCONDITION", 5)
    assert says in found[0].message


def test_strict_mode_knows_what_is_not_in_the_format() -> None:
    (one,) = parse(step("cli true", "{type: exit_code, equals: 0}"), "a.yml").steps
    assert one.beyond == ("postcondition.exit_code",)
