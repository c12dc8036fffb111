"""Steps in sequence: their inputs, their results, and how a run ends."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from cuebook.dialects.pipeline.model import (
    Arg,
    ArgRef,
    Constant,
    JsonPath,
    Llm,
    Mcp,
    Operation,
    Output,
    Postcondition,
    Secret,
    Step,
)
from cuebook.dialects.pipeline.parse import parse
from cuebook.dialects.pipeline.run.action import Given, acting
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.kernel.effects import CallTool
from cuebook.kernel.events import Performing
from tests.dialects.pipeline.harness import (
    ANYTHING,
    PipelineHarness,
    cli,
    good_server,
    http,
    pipeline,
    python,
    ref,
    shell,
    words,
)
from tests.support.http_servers import Server, answer, redirect

SHOUT = "import sys; print(sys.stdin.read().upper(), end='')"
ARGV = "import json, sys; print(json.dumps(sys.argv[1:]))"


# --- what goes in -------------------------------------------------------------------------------------------------


async def test_a_step_reads_the_output_of_another(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "printf hello"), python("b", SHOUT, stdin=words(ref("a", "stdout"))))
    assert row.status == "completed", row.error
    assert await harness.outputs(row.id) == {"a": "hello", "b": "HELLO"}
    made = (await harness.service.view(row.id)).artifact
    assert made is not None
    assert str(made.content) == "HELLO"
    assert await harness.result(row.id) == {"step": "b", "digest": made.content.digest, "steps": 2}


async def test_json_keeps_its_type_between_steps(harness: PipelineHarness) -> None:
    data = {"list": [1, {"x": "y z"}], "no": None}
    row = await harness.do(
        cli("a", "printf", "%s", json.dumps(data)),
        python("b", SHOUT.replace(".upper()", ""), stdin=words(ref("a", "json"))),
        python("c", ARGV, words(ref("a", "json", "list", 1, "x")), words("n=", ref("a", "json", "list", 0))),
        python("d", ARGV, words(ref("a", "exit_code")), words(ref("a", "error"))),
        cli("e", "cat", stdin=words(ref("a", "json", "no"))),
    )
    outputs = await harness.outputs(row.id)
    assert json.loads(outputs["b"]) == data
    assert json.loads(outputs["c"]) == ["y z", "n=1"]
    assert json.loads(outputs["d"]) == ["0", "false"]
    assert outputs["e"] == "null"


async def test_a_path_finds_the_name_that_was_written_and_no_other_number(harness: PipelineHarness) -> None:
    data = {"a": {"1": "one", "01": "zero-one"}, "list": ["x", "y"]}
    harness.pipeline = parse(
        "name: A\nsteps:\n"
        "  - {id: a, command: cli cat data}\n"
        "  - {id: b, command: 'cli echo ${a.json.a.01} ${a.json.a.1} ${a.json.list.1}'}\n"
        "  - {id: c, command: 'cli echo ${a.json.list.01}', on_error: continue}\n",
        "a.yml",
    )
    (harness.workspace / "data").write_text(json.dumps(data))
    row = await harness.do()
    assert (await harness.outputs(row.id))["b"] == "zero-one one y\n"
    assert (await harness.statuses(row.id))["c"] == "failed"


async def test_a_whole_number_is_exact_however_many_digits_it_has(harness: PipelineHarness) -> None:
    most, other = "1234567890" * 4 + "1", "1234567890" * 4 + "2"
    harness.pipeline = parse(
        f"name: A\nargs: {{n: {most}}}\nsteps:\n"
        f"  - {{id: a, command: cli cat, stdin: '${{n}}', postcondition: {{type: json_path, path: $, equals: {most}}}}}\n"
        f"  - {{id: same, command: 'cli echo ${{n}} ${{a.json}}', condition: $a.json == {most}}}\n"
        f"  - {{id: not, command: cli echo, condition: '$a.json == {other} || $a.json != {most}'}}\n"
        f"  - {{id: fails, command: cli cat, stdin: '${{n}}', on_error: continue,"
        f" postcondition: {{type: json_path, path: $, equals: {other}}}}}\n",
        "a.yml",
    )
    row = await harness.do(inputs={"n": int(most)})
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["same"] == f"{most} {most}\n"
    assert await harness.statuses(row.id) == {
        "a": "completed",
        "same": "completed",
        "not": "skipped",
        "fails": "failed",
    }


async def test_an_argument_stays_one_word_whatever_it_contains(harness: PipelineHarness) -> None:
    evil = "x; touch made $(touch made) `touch made` ' \" && touch made"
    row = await harness.do(
        python("a", ARGV, words("--message=", ArgRef("text"))),
        inputs={"text": evil},
        args=[Arg("text", "string")],
    )
    assert json.loads((await harness.outputs(row.id))["a"]) == [f"--message={evil}"]
    assert not harness.made("made")


async def test_commands_find_arguments_in_their_environment(harness: PipelineHarness) -> None:
    row = await harness.do(
        shell("a", 'echo "$CUEBOOK_ARG_TO_WHOM/$CUEBOOK_ARG_COUNT/$CUEBOOK_ARG_TOKEN"'),
        inputs={"to-whom": "all", "count": 3, "token": "env:TOKEN"},
        args=[Arg("to-whom"), Arg("count", "integer"), Arg("token", secret=True)],
    )
    assert await harness.outputs(row.id) == {"a": "all/3/\n"}


async def test_arguments_leave_the_rules_about_commands_as_they_are(tmp_path: Path) -> None:
    """A variable set by a step could make a harmless command run another; the variable of an argument cannot."""
    harness = PipelineHarness(tmp_path, {"commands": {"allow": ["true"]}})
    row = await harness.do(cli("a", "true"), inputs={"x": "y"}, args=[Arg("x")])
    assert row.status == "completed"
    row = await harness.do(cli("a", "true", env={"LD_PRELOAD": words("x.so")}), inputs={"x": "y"}, args=[Arg("x")])
    assert row.status == "awaiting_approval"
    await harness.close()


async def test_the_environment_contains_only_declared_variables(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "AKIA-nobody-should-see-this")
    row = await harness.do(cli("a", "env", env={"MINE": words("its ", ArgRef("x"))}), inputs={"x": "own"})
    seen = dict(line.partition("=")[::2] for line in (await harness.outputs(row.id))["a"].splitlines())
    assert seen["MINE"] == "its own"
    assert set(seen) <= {
        *("PATH", "HOME", "TMPDIR", "LANG", "TERM", "TZ", "PWD", "MINE"),
        *("CUEBOOK_IDEMPOTENCY_KEY", "CUEBOOK_ARG_X"),
        *("CUEBOOK_PROCESS", "GIT_CONFIG_NOSYSTEM"),  # Landlock: a mark to find orphans by, and git may not read /etc
    }
    assert set(seen).isdisjoint(set(os.environ) - {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "TZ", "PWD"})


async def test_a_secret_is_passed_by_its_handle(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, environ={"TOKEN": "s3cret-of-the-test"})
    async with Server() as server:
        row = await harness.do(
            shell(
                "a",
                'test ${#T} = 25 && echo "$T"',
                env={"T": Secret(arg="t", form="Bearer {}")},
            ),
            shell("b", "test $(wc -c) = 18", stdin=Secret("env:TOKEN")),
            http("c", server.url(), more={"headers": {"Authorization": Secret("secret:env:TOKEN", form="Bearer {}")}}),
            http("d", server.url(), "POST", more={"body": Secret("env:TOKEN")}),
            inputs={"t": "env:TOKEN"},
            args=[Arg("t", secret=True)],
        )
    assert row.status == "completed", row.error
    assert server.requests[0].headers["authorization"] == "Bearer s3cret-of-the-test"
    assert server.requests[1].body == b"s3cret-of-the-test"
    assert "s3cret" not in str(await harness.entries(row.id))
    await harness.close()


async def test_the_field_of_a_missing_secret_is_omitted(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, servers=good_server(tmp_path))
    missing = Secret(arg="t", form="Bearer {}")
    async with Server() as server:
        row = await harness.do(
            shell("a", "echo ${T-none}", env={"T": missing}),
            http("b", server.url(), more={"headers": {"Authorization": missing}}),
            Step("c", Mcp("good.add", {"a": 1, "b": 1, "token": missing})),
            inputs={"t": None},
            args=[Arg("t", secret=True)],
        )
        row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["a"] == "none\n"
    assert "authorization" not in server.requests[0].headers
    await harness.close()


@pytest.mark.parametrize(
    "step",
    [
        cli("a", "cat", stdin=Secret(arg="t", line=4)),
        http("a", "http://127.0.0.1:1/", "POST", more={"body": Secret(arg="t", line=4)}),
    ],
)
async def test_a_secret_that_is_a_whole_input_is_required(harness: PipelineHarness, step: Step) -> None:
    row = await harness.do(step, inputs={"t": None}, args=[Arg("t", secret=True)])
    assert row.error is not None
    assert row.error.code == "missing_argument"
    assert "line 4: the secret argument 't' is missing" in row.error.message
    assert "--t HANDLE" in row.error.fix
    assert await harness.events(row.id, Performing) == []


@pytest.mark.parametrize(
    "step",
    [
        http("a", "http://127.0.0.1:1/", "POST", more={"json": {"k": [Secret("env:TOKEN")]}, "has_json": True}),
        Step("a", Mcp("good.say", {"text": [Secret("env:TOKEN")]})),
        Step("a", Mcp("good.say", {"te.xt": Secret("env:TOKEN")})),
    ],
)
async def test_a_secret_with_an_ambiguous_place_is_not_sent(tmp_path: Path, step: Step) -> None:
    harness = PipelineHarness(tmp_path, environ={"TOKEN": "s3cret-of-the-test"})
    row = await harness.do(step)
    assert row.error is not None
    assert row.error.code == "secret_misplaced"
    assert await harness.events(row.id, Performing) == []
    await harness.close()


async def test_a_pipeline_as_it_is_written(harness: PipelineHarness) -> None:
    """From its text to its end: both forms of an action, references, a condition, and an argument."""
    async with Server(answer('{"id": 7}', 201)) as server:
        harness.pipeline = parse(
            f"""
name: Written
args:
  version: {{type: string, required: true}}
steps:
  - id: count
    command: cli sh -c 'echo "[1, 2, 3]"'
    output: json
  - id: none
    command: cli touch made
    condition: $count.json.0 > 1
  - id: post
    command: http POST {server.url("/releases")}
    with:
      headers: {{X-Version: "v${{version}}"}}
      json: {{items: $count.json, note: "has ${{count.json.2}}"}}
    postcondition: {{type: http_status, equals: 201}}
  - id: show
    command: cli echo "${{version}} is ${{post.json.id}}" $$5
    condition: $none.skipped && $post.status == 201
""",
            "written.yml",
        )
        row = await harness.do(inputs={"version": "1 2"})
    assert row.status == "completed", row.error
    assert json.loads(server.requests[0].body) == {"items": [1, 2, 3], "note": "has 3"}
    assert server.requests[0].headers["x-version"] == "v1 2"
    assert (await harness.outputs(row.id))["show"] == "1 2 is 7 $5\n"
    assert not (harness.workspace / "made").exists()


# --- what does not lead anywhere ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("no_json", ("json",)),
        ("no_json", ("json", "x")),
    ],
)
async def test_a_reference_to_json_of_a_step_without_json_fails(
    harness: PipelineHarness, code: str, path: tuple[str, ...]
) -> None:
    row = await harness.do(cli("a", "echo", "plain words"), cli("b", "touch", "made", stdin=words(ref("a", *path))))
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.code == code
    assert "Step b failed: line 3" in row.error.message
    assert "$a.stdout" in row.error.fix
    assert await harness.statuses(row.id) == {"a": "completed", "b": "failed"}
    assert not harness.made("made")


async def test_a_path_that_does_not_exist_fails_the_step(harness: PipelineHarness) -> None:
    row = await harness.do(cli("a", "echo", '{"x": [1]}'), cli("b", "echo", words(ref("a", "json", "x", 1))))
    assert row.error is not None
    assert row.error.code == "missing_value"


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (cli("b", "rm", "-r", words("dir/", ArgRef("o"))), "missing_argument"),
        (cli("b", "echo", words(ArgRef("o"))), "missing_argument"),
        (cli("b", "echo", words("x", ref("a", "errorMessage"))), "missing_value"),
        (cli("b", "echo", words(ref("a", "json", "no"))), "missing_value"),
        (cli("b", "env", env={"O": words(ArgRef("o"))}), "missing_argument"),
        (cli("b", "cat", stdin=words(ArgRef("o"))), "missing_argument"),
        (cli("b", "cat", stdin=words(ref("a", "status"))), "missing_value"),
        (http("b", words("https://x.y/", ArgRef("o"))), "missing_argument"),
        (http("b", "https://x.y/", more={"query": {"o": words(ArgRef("o"))}}), "missing_argument"),
        (http("b", "https://x.y/", more={"headers": {"O": words(ArgRef("o"))}}), "missing_argument"),
        (Step("b", Llm("default", words("Say ", ArgRef("o"))), output=Output("json")), "missing_argument"),
        (Step("b", Mcp("good.echo", {"text": words("a ", ArgRef("o"))})), "missing_argument"),
    ],
)
async def test_null_is_never_inserted_into_text(harness: PipelineHarness, step: Step, code: str) -> None:
    row = await harness.do(cli("a", "echo", '{"no": null}'), step, inputs={"o": None}, args=[Arg("o")])
    assert row.error is not None
    assert (row.error.code, "line 3" in row.error.message) == (code, True)
    assert "!= null`" in row.error.fix
    assert len(await harness.events(row.id, Performing)) == 1


def test_null_is_passed_as_a_typed_value() -> None:
    made = pipeline(Step("b", Mcp("x.y", {"o": words(ArgRef("o")), "in": [words(ArgRef("o"))]})))
    effect = acting(made.steps[0], Scope(made, {"o": None}), Given(), {}, "")
    assert isinstance(effect, CallTool)
    assert effect.arguments == {"o": None, "in": [None]}


@pytest.mark.parametrize("deep", [101, 500, 700, 20_000])
async def test_json_that_is_nested_too_deeply_is_not_json(harness: PipelineHarness, deep: int) -> None:
    """Any use of it fails the step, and the run continues as the document says."""
    nested = "[" * deep + "]" * deep
    row = await harness.do(
        python("a", f"print('[' * {deep} + ']' * {deep})", postcondition=Postcondition((JsonPath((), 1),))),
        cli("b", "echo", condition=Operation("==", (ref("a", "json"), ref("a", "json"))), on_error="continue"),
        cli("c", "printf", nested, output=Output("json"), on_error="continue"),
        cli("d", "echo", "done"),
    )
    row = await harness.decide(row.id, "approve") if row.status == "awaiting_approval" else row
    assert row.status == "completed", row.error
    assert await harness.statuses(row.id) == {"a": "completed", "b": "failed", "c": "failed", "d": "completed"}


async def test_json_may_be_nested_as_deeply_as_arguments(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "printf", "[" * 100 + "]" * 100, postcondition=Postcondition((JsonPath((), 1),)), on_error="continue"),
        cli("b", "echo", condition=Operation("==", (ref("a", "json"), ref("a", "json")))),
    )
    assert await harness.statuses(row.id) == {"a": "failed", "b": "completed"}


async def test_a_skipped_step_is_null_to_a_condition_and_a_failure_to_a_text(harness: PipelineHarness) -> None:
    never = Constant(False)
    row = await harness.do(
        cli("a", "echo", "1", condition=never, condition_text="false"),
        cli("b", "echo", "null it is", condition=Operation("==", (ref("a", "json", "x"), Constant(None)))),
        cli("c", "echo", words(ref("a", "stdout"))),
    )
    assert row.error is not None
    assert row.error.code == "skipped_reference"
    assert await harness.statuses(row.id) == {"a": "skipped", "b": "completed", "c": "failed"}
    assert await harness.notes(row.id, "condition") == [
        {"text": "false", "held": False},
        {"text": "", "held": True},
    ]


async def test_a_condition_reads_only_as_far_as_it_must(harness: PipelineHarness) -> None:
    """`$a.json` would fail the step, since `a` has no JSON; the condition is decided before it."""
    row = await harness.do(
        shell("a", "exit 3", on_error="continue"),
        cli("b", "echo", condition=Operation("&&", (Operation("!", (ref("a", "error"),)), ref("a", "json", "ok")))),
        cli("c", "echo", words(ref("a", "exit_code"), " ", ref("a", "errorMessage"))),
    )
    assert await harness.statuses(row.id) == {"a": "failed", "b": "skipped", "c": "completed"}
    assert (await harness.outputs(row.id))["c"] == "3 The command failed (exit code 3).\n"


# --- how it ends ----------------------------------------------------------------------------------------------------


async def test_a_failure_says_how_to_undo_what_was_done_and_nothing_else(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "touch", "made", rollback_hint="Remove made."),
        cli("b", "echo", condition=ref("a", "skipped"), rollback_hint="Never done."),
        cli("c", "no-such-program", rollback_hint="Not begun."),
    )
    assert row.error is not None
    assert (row.error.code, row.error.details["rollback_hints"]) == ("no_such_command", {"a": "Remove made."})
    assert row.error.fix.endswith(" To undo what was done: a: Remove made.")
    row = await harness.do(cli("c", "no-such-program", rollback_hint="Not begun."))
    assert row.error is not None
    assert ("rollback_hints" in row.error.details, "undo" in row.error.fix) == (False, False)


async def test_a_step_that_fails_ends_the_run(harness: PipelineHarness) -> None:
    row = await harness.do(
        shell("a", "echo so far; echo broken >&2; exit 7", rollback_hint="git reset"), cli("b", "touch", "made")
    )
    assert row.status == "failed"
    assert row.error is not None
    assert (row.error.code, row.error.message) == (
        "exit_code",
        "Step a failed: The command failed (exit code 7): broken",
    )
    assert row.error.fix == "To undo what was done: git reset"
    assert row.error.details["rollback_hints"] == {"a": "git reset"}
    assert await harness.outputs(row.id) == {"a": "so far\n"}
    assert await harness.statuses(row.id) == {"a": "failed", "b": "skipped"}
    assert not harness.made("made")


async def test_a_run_can_continue_after_a_failed_step(harness: PipelineHarness) -> None:
    row = await harness.do(
        shell("a", "exit 7", on_error="continue"),
        cli("b", "echo", "mended", condition=ref("a", "error")),
    )
    assert row.status == "completed"
    assert await harness.statuses(row.id) == {"a": "failed", "b": "completed"}


async def test_a_failed_step_can_skip_the_rest(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "exit 7", on_error="skip_rest"), cli("b", "touch", "made"), cli("c", "true"))
    assert row.status == "completed"
    assert await harness.statuses(row.id) == {"a": "failed", "b": "skipped", "c": "skipped"}
    assert not harness.made("made")


async def test_the_rest_is_skipped_only_if_the_step_failed(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "exit 0", on_error="skip_rest"), cli("b", "touch", "made"))
    assert await harness.statuses(row.id) == {"a": "completed", "b": "completed"}
    assert (harness.workspace / "made").exists()


async def test_a_retry_by_a_person_does_the_failed_step_again(harness: PipelineHarness) -> None:
    row = await harness.do(shell("a", "echo a >> made"), shell("b", "echo b >> made; test -e there"))
    assert row.status == "failed"
    (harness.workspace / "there").touch()
    await harness.service.retry(row.id)
    assert (await harness.service.drive(row.id)).status == "completed"
    assert harness.made("made") == ["a", "b", "b"]


async def test_a_fork_can_change_the_result_of_a_step(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "echo", "old"), python("b", SHOUT, stdin=words(ref("a", "stdout"))), cli("c", "true")
    )
    fork = await harness.service.fork(row.id, "b", values={"a": "new"})
    await harness.service.drive(fork.id)
    assert (await harness.outputs(fork.id))["b"] == "NEW"


async def test_a_value_changed_during_a_pause_applies_from_then_on(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "printf", "old"),
        cli("b", "echo", words(ref("a", "stdout"), " ", ArgRef("x"))),
        inputs={"x": "1"},
        args=[Arg("x")],
        breakpoints=("a",),
    )
    assert row.status == "paused"
    await harness.service.resume(row.id, overrides={"a": "new", "x": "2"})
    assert (await harness.service.drive(row.id)).status == "completed"
    assert (await harness.outputs(row.id))["b"] == "new 2\n"


async def test_a_name_shared_by_a_step_and_an_argument_changes_the_argument(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "printf", "old"),
        cli("b", "echo", words(ref("a", "stdout"), " ", ArgRef("a"))),
        inputs={"a": "1"},
        args=[Arg("a")],
    )
    fork = await harness.service.fork(row.id, "b", values={"a": "2"})
    assert (await harness.service.drive(fork.id)).status == "completed"
    assert (await harness.outputs(fork.id))["b"] == "old 2\n"


# --- approval -------------------------------------------------------------------------------------------------------


async def test_nothing_is_done_before_a_person_has_approved(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("draft", "echo", "the notes"),
        cli("tag", "touch", "made", name="Tag it", approval=True, rollback_hint="rm made"),
        cli("after", "echo", words(ref("tag", "approved"))),
    )
    assert row.status == "awaiting_approval"
    assert not (harness.workspace / "made").exists()
    wait = await harness.wait(row.id)
    assert wait.prompt == "Step tag, Tag it, asks for approval. (Run touch made)"
    assert wait.details["purpose"] == "step"
    assert wait.details["preview"]["output of draft"] == "the notes\n"
    assert wait.details["preview"]["to undo it"] == "rm made"
    assert wait.details["preview"]["command"] == "touch made"
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert (harness.workspace / "made").exists()
    assert (await harness.outputs(row.id))["after"] == "true\n"


async def test_an_approver_sees_the_outputs_that_the_step_refers_to(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("draft", "echo", "the notes"),
        cli("other", "echo", "something else"),
        cli("post", "cat", stdin=words(ref("draft", "stdout")), approval=True),
    )
    preview = (await harness.wait(row.id)).details["preview"]
    assert preview["output of draft"] == "the notes\n"
    assert "output of other" not in preview


async def test_an_approver_sees_how_much_of_an_output_is_not_shown(harness: PipelineHarness) -> None:
    row = await harness.do(cli("many", "seq", "1000"), cli("post", "touch", "made", approval=True))
    shown = (await harness.wait(row.id)).details["preview"]["output of many"]
    first, remark, last = re.split(r"\n(\[[^]]+\])\n", shown)
    whole = "".join(f"{number}\n" for number in range(1, 1001))
    assert whole.startswith(first)
    assert whole.endswith(last)
    assert remark == f"[... {len(whole) - len(first) - len(last):,} more characters ...]"


async def test_a_denial_cancels_the_run_regardless_of_on_error(harness: PipelineHarness) -> None:
    row = await harness.do(cli("a", "touch", "made", approval=True, on_error="continue"), cli("b", "true"))
    row = await harness.decide(row.id, "deny", reason="not today")
    assert row.status == "cancelled"
    assert row.error is not None
    assert row.error.code == "denied"
    assert "not today" in row.error.message
    assert await harness.statuses(row.id) == {"a": "failed", "b": "skipped"}
    assert not (harness.workspace / "made").exists()


@pytest.mark.parametrize(
    ("on_expiry", "status"), [("cancel", "expired"), ("deny", "cancelled"), ("hold", "awaiting_approval")]
)
async def test_an_unanswered_approval_ends_as_the_policy_says(tmp_path: Path, on_expiry: str, status: str) -> None:
    policy = {**ANYTHING, "approvals": {"expires_after": 60, "on_expiry": on_expiry}}
    harness = PipelineHarness(tmp_path, policy)
    row = await harness.do(cli("a", "touch", "made", approval=True))
    row = await harness.later(61, row.id)
    assert row.status == status
    assert not (harness.workspace / "made").exists()
    await harness.close()


async def test_the_journal_has_the_resolved_action_and_the_ruling_also_of_what_only_reads(
    harness: PipelineHarness,
) -> None:
    async with Server() as server:
        row = await harness.do(cli("a", "echo", "hi", effect="read"), http("b", server.url("/x")))
    first, second = await harness.events(row.id, Performing)
    assert first.effect.argv == ("echo", "hi")
    assert first.ruling["decision"] == "allow"
    assert second.effect.url == server.url("/x")
    assert second.ruling["rules"]


# --- the workspace --------------------------------------------------------------------------------------------------


async def test_the_folder_of_a_run_and_of_a_step(harness: PipelineHarness) -> None:
    (harness.workspace / "sub" / "below").mkdir(parents=True)
    row = await harness.do(cli("a", "pwd"), cli("b", "pwd", cwd="below"), options={"cwd": "sub"})
    outputs = await harness.outputs(row.id)
    assert [text.strip().partition("workspace/")[2] for text in outputs.values()] == ["sub", "sub/below"]


async def test_a_link_out_of_the_workspace_is_refused(harness: PipelineHarness, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (harness.workspace / "link").symlink_to(tmp_path / "outside")
    row = await harness.do(cli("a", "touch", "made", cwd="link"))
    assert row.error is not None
    assert row.error.code == "outside_workspace"
    assert list((tmp_path / "outside").iterdir()) == []


# --- requests -------------------------------------------------------------------------------------------------------


async def test_a_request_with_headers_query_and_json(harness: PipelineHarness) -> None:
    async with Server(answer('{"id": 5}')) as server:
        row = await harness.do(
            cli("a", "echo", '{"n": [1, 2]}'),
            http(
                "b",
                words(server.url("/items/"), ref("a", "json", "n", 0)),
                "POST",
                more={
                    "headers": {"X-Count": words(ref("a", "json", "n", 1))},
                    "json": {"text": words("n is ", ref("a", "json", "n")), "n": words(ref("a", "json", "n"))},
                    "has_json": True,
                },
            ),
            cli("c", "echo", words(ref("b", "status"), " ", ref("b", "json", "id"))),
        )
    assert row.status == "completed", row.error
    (seen,) = server.requests
    assert (seen.method, seen.target) == ("POST", "/items/1")
    assert seen.headers["x-count"] == "2"
    assert seen.headers["content-type"] == "application/json"
    assert json.loads(seen.body) == {"text": "n is [1,2]", "n": [1, 2]}
    assert (await harness.outputs(row.id))["c"] == "200 5\n"


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_status_of_400_and_above_fails(harness: PipelineHarness, status: int) -> None:
    async with Server(answer("no such thing", status)) as server:
        row = await harness.do(http("a", server.url()))
    assert row.error is not None
    assert (row.error.code, row.error.message) == (
        "http_status",
        f"Step a failed: The server answered with status {status}: no such thing",
    )
    assert "postcondition" in row.error.fix


async def test_loopback_is_reached_only_where_a_rule_names_it(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"egress": {"default": "allow"}})
    async with Server() as server:
        row = await harness.do(http("a", server.url()))
    assert row.status == "failed"
    assert server.connections == 0
    await harness.close()


async def test_a_denied_host_is_never_asked(tmp_path: Path) -> None:
    async with Server() as server:
        harness = PipelineHarness(
            tmp_path, {"egress": {"allow": [f"* {server.url('/*')}"], "deny": [f"* {server.url('/admin/*')}"]}}
        )
        row = await harness.do(http("a", server.url("/admin/keys")))
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert server.connections == 0
    await harness.close()


async def test_a_redirect_to_a_host_without_a_rule_is_not_followed(tmp_path: Path) -> None:
    """The first URL is allowed; the second is on this machine, with a port that no rule names."""
    async with Server() as inner, Server(redirect(inner.url("/metadata"))) as outer:
        harness = PipelineHarness(tmp_path, {"egress": {"allow": [f"GET {outer.url('/*')}"]}})
        row = await harness.do(http("a", outer.url("/")))
    assert row.status == "failed"
    assert outer.connections == 1
    assert inner.connections == 0
    await harness.close()


# --- tools ----------------------------------------------------------------------------------------------------------


async def test_a_tool_of_a_real_server(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, servers=good_server(tmp_path))
    row = await harness.do(
        cli("a", "echo", '{"n": 40}'),
        Step(
            "b", Mcp("good.add", {"a": words(ref("a", "json", "n")), "b": 2}), output=Output("json", {"type": "object"})
        ),
        Step("c", Mcp("good.say", {"text": "hi"})),
        cli("d", "echo", words(ref("b", "json"), ref("c", "stdout"))),
        Step("e", Mcp("good.fail", {"why": "it rains"}), on_error="continue"),
        Step("f", Mcp("good.nothing", {}), on_error="continue"),
        Step("g", Mcp("good.add", {"a": "x", "b": 2})),
    )
    assert "good" in (await harness.wait(row.id)).prompt  # nobody has agreed to the server yet
    row = await harness.decide(row.id, "approve")
    outputs = await harness.outputs(row.id)
    assert outputs["d"] == '{"result":42}hi\nhi\n'
    assert row.error is not None
    assert row.error.code == "bad_arguments"
    finished = {step.label: step.reason for step in await harness.store.steps(row.id)}
    assert finished["e"] == "The tool failed: Error executing tool fail"
    assert "nothing" in finished["f"]
    await harness.close()


# --- conditions that could only be wrong ---


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("$a.json.items.length > 1", "failed"),
        ("$a.json.items.length", "failed"),
        ("$a.json.n.more == 1", "failed"),
        ("$a.json.nothing > 1", "failed"),
        ("$a.json.nothing != null", "skipped"),
        ("$a.json.nothing", "skipped"),
        ("$a.json.items.7 == 1", "skipped"),
        ("$a.json.empty > 1", "skipped"),
        ("$a.json.items.0 == 4", "completed"),
    ],
)
async def test_a_condition_is_never_false_by_mistake(harness: PipelineHarness, condition: str, status: str) -> None:
    text = (
        f"name: C\nsteps:\n  - {{id: a, command: cli true}}\n  - {{id: b, command: cli true, condition: '{condition}'}}"
    )
    given = cli("a", "echo", '{"items": [4, 5], "n": 3, "empty": null}')
    row = await harness.do(given, parse(text, "c.yml").steps[1])
    assert (await harness.statuses(row.id))["b"] == status


async def test_an_approver_sees_the_hint_with_the_arguments_of_the_run(harness: PipelineHarness) -> None:
    text = """
name: Tag
args: {version: {type: string}}
steps:
  - {id: tag, command: 'cli touch v${version}', approval: required, rollback_hint: 'git tag -d v${version}'}
  - {id: then, command: cli false}
"""
    made = parse(text, "tag.yml")
    row = await harness.do(*made.steps, args=list(made.args.values()), inputs={"version": "1.2"})
    assert (await harness.wait(row.id)).details["preview"]["to undo it"] == "git tag -d v1.2"
    row = await harness.decide(row.id, "approve")
    assert row.error is not None
    assert "git tag -d v1.2" in row.error.fix
