"""Arguments and outputs that are too long to pass to a program."""

from __future__ import annotations

import pytest

from cuebook.dialects.pipeline.model import Arg, ArgRef, Output, Retry
from cuebook.kernel.events import Warned
from tests.dialects.pipeline.harness import PipelineHarness, cli, python, ref, shell, words


@pytest.mark.parametrize("value", ["x" * 300_000, "a\0b", ["x" * 60_000] * 5])
async def test_an_argument_too_long_for_a_variable_is_passed_only_by_reference(
    harness: PipelineHarness, value: str | list[str]
) -> None:
    row = await harness.do(
        shell("a", 'echo "${CUEBOOK_ARG_LONG-none} $CUEBOOK_ARG_SHORT"'),
        python("b", "import sys; print(len(sys.stdin.read()) > 2)", stdin=words(ArgRef("long"))),
        inputs={"long": value, "short": "s"},
        args=[Arg("long"), Arg("short")],
    )
    assert row.status == "completed", row.error
    assert await harness.outputs(row.id) == {"a": "none s\n", "b": "True\n"}
    (warned,) = await harness.events(row.id, Warned)
    assert "The argument long" in warned.message
    assert "stdin" in warned.message


async def test_many_arguments_do_not_keep_a_command_from_running(harness: PipelineHarness) -> None:
    names = [f"n{number}" for number in range(60)]
    row = await harness.do(
        shell("a", 'echo "${#CUEBOOK_ARG_N0} ${#CUEBOOK_ARG_N59}"'),
        inputs=dict.fromkeys(names, "x" * 90_000),
        args=[Arg(name) for name in names],
    )
    assert await harness.outputs(row.id) == {"a": "90000 0\n"}


async def test_an_output_that_is_too_long_for_a_word_fails_the_step_with_a_way_out(harness: PipelineHarness) -> None:
    row = await harness.do(
        python("a", "print('x' * 300_000)", output=Output("text", max_bytes=400_000)),
        cli("b", "true", words(ref("a", "stdout")), retry=Retry(3, 0.0)),
    )
    assert row.error is not None
    assert row.error.code == "too_long"
    assert "stdin" in row.error.fix
    assert await harness.notes(row.id, "attempt") == []
