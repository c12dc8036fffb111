"""What a person sees when something goes wrong in a Markdown run: real commands, a real model server, real tools."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.performers.mcp.harness import BY_HAND, GOOD
from tests.support.command_line import CommandLine, Ran
from tests.support.model_server import ModelServer

TWO = "# Two\n\n## STEP 1: First\n\nDo it.\n\n## STEP 2: Second\n\nDo more.\n"


def book(cli: CommandLine, *steps: str, head: str = "") -> Path:
    numbered = (f"## STEP {number}: S{number}\n\n{body}\n" for number, body in enumerate(steps, 1))
    return cli.write("book.md", "\n".join(["# Book\n", head, *numbered]))


def run_of(ran: Ran) -> str:
    """The id in the closing lines."""
    return next(line.removeprefix("run: ") for line in ran.err.splitlines() if line.startswith("run: "))


def statuses(cli: CommandLine, run: str) -> dict[str, str]:
    return {step["label"]: step["status"] for step in cli.call("show", run, "--json").object["steps"]}


def values(cli: CommandLine, run: str) -> dict[str, str]:
    found: dict[str, str] = cli.call("show", run, "--json").object["values"]
    return found


# --- the format's table of errors ---------------------------------------------------------------------------


def test_a_model_that_fails_fails_its_step_and_the_run(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Fine", 400]
    ran = cli.call("run", cli.write("two.md", TWO))
    run = run_of(ran)
    assert ran.code == 1
    why = "Change the request as the provider says, or choose another model. (step 2)"
    assert f"why: test refused the request: refused by the test. {why}" in ran.err
    assert f"next: cuebook retry {run}" in ran.err
    assert statuses(cli, run) == {"1": "completed", "2": "failed"}
    printed = [event for event in cli.call("events", run, "--json").events if event.get("type") == "error"]
    assert [(event["step"], event["code"], event["status"]) for event in printed] == [
        ("2", "model_bad_request", "failed")
    ]


def test_a_tool_that_fails_fails_its_step_and_what_follows_is_skipped(cli: CommandLine, server: ModelServer) -> None:
    configure(cli, "good", GOOD)
    ran = approved(cli, book(cli, '@tool(good, fail, {"why": "it rains"})', "Go on."))
    assert ran.code == 1
    why = "Error executing tool fail. Correct its arguments, or retry the run. (step 1)"
    assert f"why: Step 1: the tool 'good.fail' reports an error: {why}" in ran.err
    assert statuses(cli, run_of(ran)) == {"1": "failed", "2": "skipped"}
    assert server.requests == []


def test_a_prompt_a_variable_and_a_branch_that_are_not_there_are_no_errors(
    cli: CommandLine, server: ModelServer
) -> None:
    branch = '```if nobody == "x"```\n\nNever.\n\n```elif nobody == ""```\n\nNobody.\n\n```endif```'
    ran = cli.call("run", book(cli, "@prompt(library:tone)\n\nWrite to {{friend}}.", branch))
    assert ran.code == 0
    assert server.prompts == ["Write to {{friend}}.", "Nobody."]
    assert "warning: Step 1: @prompt(library:tone) was left out, and the step continues without it: " in ran.err
    assert "warning: Step 1: unknown variable 'friend', so {{friend}} was not replaced." in ran.err
    assert 'warning: Line 12: Undeclared branch variable: "nobody"' in ran.err


# --- documents ----------------------------------------------------------------------------------------------


def test_a_document_of_one_byte_too_many_is_refused(cli: CommandLine, server: ModelServer) -> None:
    path = cli.write("book.md", TWO.ljust(200_000, "x"))
    assert cli.call("run", path).code == 0
    path.write_text(TWO.ljust(200_001, "x"))
    for command in ("run", "validate"):
        ran = cli.call(command, "book.md")
        assert (ran.code, len(server.requests)) == (2, 2)
        assert "Document exceeds 200KB size limit. Split it." in ran.err + ran.out


def test_other_line_ends_and_marks_make_no_difference(cli: CommandLine, server: ModelServer) -> None:
    text = "\ufeff# Odd\r\n\r\n## INPUTS\r\n\r\n- `a` (string: x\x0cy): d\r\n\r\n## STEP 1: A\r\n\r\nOne\x0ctwo\r\n{{a}}.\r\n"
    path = cli.work / "odd.md"
    path.write_bytes(text.encode())
    assert cli.call("run", path).code == 0
    assert server.prompts == ["One\x0ctwo\nx\x0cy."]


def test_a_block_that_is_not_closed_ends_with_its_step_and_is_named(cli: CommandLine, server: ModelServer) -> None:
    open_block = 'Before.\n\n```if kind == "a"```\n\nInside.\n'
    path = book(cli, open_block, "After.", head="## INPUTS\n\n- `kind` (string: a): K\n")
    assert cli.call("run", path).code == 0
    assert server.prompts == ["Before.\n\nInside.", "After."]
    checked = cli.call("validate", path)
    assert checked.code == 2
    assert "book.md:11:1: error: The branch block is not closed; it ends with the step. Add ```endif```" in checked.out


# --- replies ------------------------------------------------------------------------------------------------


def test_a_field_is_taken_out_of_whatever_json_a_model_writes(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [
        'I think {"level": "draft"}.\n```json\n{"why": {"level": 1}, "list": [{"level": 2}], "level": ["a", {"b": 1}]}\n```',
        '[{"level": "one"}, {"level": "two"}]',
        "No idea.",
    ]
    bodies = [f'Judge.\n\n@output(v{number}, extract:"level")' for number in (1, 2, 3)]
    ran = cli.call("run", book(cli, *bodies))
    assert values(cli, run_of(ran)) == {"v1": '["a",{"b":1}]', "v2": "two", "v3": "No idea."}
    warned = (
        'warning: Step 3, @output(v3): no JSON object in the reply has a field "level", so the whole reply is kept.'
    )
    assert warned in ran.err


def test_a_reply_that_was_cut_is_kept_and_the_step_and_the_way_out_are_named(
    cli: CommandLine, server: ModelServer
) -> None:
    server.finish = "length"
    ran = cli.call("run", book(cli, "Write."), "--max-tokens", "5")
    assert (ran.code, ran.out) == (0, "Reply number 1.\n")
    cut = "warning: Step 1: The reply of test/echo-1 was cut at 5 tokens. Raise max_tokens, or ask for less."
    assert cut in ran.err


def test_a_context_that_outgrows_the_window_fails_with_its_sizes(cli: CommandLine, server: ModelServer) -> None:
    prices = '[models."test/echo-1"]\ninput = 1.0\noutput = 1.0\nwindow = 2000\n'
    (cli.config.parent / "prices.toml").write_text(prices)
    cli.config.write_text(f'prices = "prices.toml"\n{cli.config.read_text()}')
    server.replies = ["tea " * 3_000]
    ran = cli.call("run", cli.write("two.md", TWO))
    assert (ran.code, len(server.requests)) == (1, 1)
    assert "why: The input has about 3,0" in ran.err
    assert "but test/echo-1 has room for only 2,000, including its reply." in ran.err
    assert "Shorten the step's input, or choose a model with a larger window. (step 2)" in ran.err


# --- people, files and tools --------------------------------------------------------------------------------


def test_an_answer_that_is_not_an_option_is_refused_and_the_run_keeps_waiting(
    cli: CommandLine, server: ModelServer
) -> None:
    ran = cli.call("run", book(cli, '@elicit(select, "Which?", "one", "two")\n@output(way)', "Go {{way}}."))
    run = run_of(ran)
    assert (ran.code, f"next: cuebook answer {run} one|two" in ran.err) == (3, True)
    refused = cli.call("answer", run, "three")
    assert (refused.code, refused.err) == (2, "cuebook: 'three' is not one of the options. Choose one of: one, two.\n")
    assert cli.call("answer", run, "TWO").code == 0
    assert server.prompts == ["Go two."]


def test_a_prompt_that_leads_out_of_the_folder_by_a_link_fails_the_step(cli: CommandLine, server: ModelServer) -> None:
    secret = cli.home / "secret.md"
    secret.write_text("A secret.")
    (cli.work / "tone.md").symlink_to(secret)
    ran = cli.call("run", book(cli, "@prompt(file:tone.md)\n\nWrite."))
    assert (ran.code, server.requests) == (1, [])
    words = (
        "why: The path 'tone.md' leads out of its root through a link. Use the path of a file below the root. (step 1)"
    )
    assert words in ran.err


def test_a_tool_that_hangs_is_given_up_on_and_in_doubt(cli: CommandLine, server: ModelServer) -> None:
    configure(cli, "deaf", BY_HAND, "deaf")
    assert re.search(r"^  limits\.seconds +60 s +default$", cli.call("doctor").out, re.MULTILINE)
    cli.environ["CUEBOOK_LIMITS_SECONDS"] = "2"
    ran = approved(cli, book(cli, "@tool(deaf, t)", "Go on."))
    assert ran.code == 3
    assert "The tool server 'deaf' did not answer within 2 seconds." in ran.err
    assert statuses(cli, run_of(ran)) == {"1": "in_doubt", "2": "pending"}
    assert cli.call("decide", run_of(ran), "stop").code == 1
    assert statuses(cli, run_of(ran)) == {"1": "in_doubt", "2": "skipped"}


def configure(cli: CommandLine, name: str, *command: str) -> None:
    """A tool server whose tools the policy allows."""
    words = ", ".join(f'"{word}"' for word in (sys.executable, *command))
    cli.config.write_text(f"{cli.config.read_text()}\n[mcp.{name}]\ncommand = [{words}]\n")
    (cli.config.parent / "policy.toml").write_text(f'version = 1\n\n[tools]\nallow = ["{name}.*"]\n')


def approved(cli: CommandLine, path: Path) -> Ran:
    """A run whose tool server a person approves, as for every new server."""
    ran = cli.call("run", path)
    assert (ran.code, "approval: Start the tool server" in ran.err) == (3, True)
    return cli.call("decide", run_of(ran), "approve")
