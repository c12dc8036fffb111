"""`cuebook run` as a person or a script calls it: a real process, a real store, a real server."""

from __future__ import annotations

import json

import pytest

from cuebook.dialects.markdown.model import ARTIFACT_TYPES
from cuebook.service.runs.views import ARTIFACT_FILES
from tests.support.command_line import TEA, CommandLine, Ran
from tests.support.model_server import ModelServer

BRANCHED = """\
# Tea

## STEP 1: Choose

Choose.

## STEP 2: Brew

```if milk == ""```

Brew.

```endif```

## STEP 3: Serve

Serve it.
"""


def test_results_go_to_stdout_and_progress_to_stderr(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Sencha.", "Hot.", "Served at last."]
    ran = cli.call("run", cli.tea)
    assert (ran.code, ran.out) == (0, "Served at last.\n")
    assert "step 1: Choose" in ran.err
    assert "status: completed" in ran.err
    assert "steps: 3 of 3" in ran.err
    assert "tokens: 30 in, 15 out" in ran.err
    assert "cost: unknown" in ran.err
    assert server.prompts == ["Choose a green tea.", "Brew the green tea.", "Serve it."]
    assert server.requests[2]["messages"][0]["content"].startswith("Be brief.\n\nOutput of step 1, Choose (7 char")


def test_inputs_are_options_files_and_stdin(cli: CommandLine, server: ModelServer) -> None:
    cli.write("kind.txt", "black\n")
    cli.write("inputs.yaml", "kind: white # not black\n")
    cli.write("inputs.json", '{"kind": "red"}')
    cli.write(
        "tea.md",
        "# Tea\n\n## INPUTS\n\n- `kind` (text): x\n- `model` (string: m): y\n\n## STEP 1: A\n\n{{kind}} {{model}}\n",
    )
    shown = [
        cli.call("run", "tea.md", *args, "--dry-run", "--json", stdin=stdin).object[0]["prompt"]
        for args, stdin in (
            (["--kind", "@kind.txt"], None),
            (["--kind", "-"], "from stdin\r\n"),
            (["--kind", "@@home"], None),
            (["--inputs", "inputs.yaml"], None),
            (["--inputs", "inputs.json", "--input", "model=n"], None),
            (["--inputs", "inputs.json", "--kind=green"], None),
        )
    ]
    assert shown == ["black m", "from stdin m", "@home m", "white m", "red n", "green m"]


def test_help_shows_the_inputs_of_the_playbook(cli: CommandLine) -> None:
    ran = cli.call("run", "tea.md", "--help")
    assert ran.code == 0
    assert "Run Tea." in ran.out
    assert "--kind STRING  Which tea [default: green]" in ran.out
    assert cli.call("run", "--help").code == 0


def test_json_is_one_object_on_stdout(cli: CommandLine, server: ModelServer) -> None:
    ran = cli.call("run", "tea.md", "--json", "--kind", "black", "--max-tokens", "77", "--temperature", "0.5")
    shown = ran.object
    assert (ran.code, shown["status"], shown["output"]) == (0, "completed", "Reply number 3.")
    assert shown["outputs"] == {"1": "Reply number 1.", "2": "Reply number 2.", "3": "Reply number 3."}
    assert [step["status"] for step in shown["steps"]] == ["completed"] * 3
    assert (shown["totals"]["input_tokens"], shown["totals"]["output_tokens"]) == (30, 15)
    assert shown["totals"]["cost"] is None
    assert shown["next"] == f"cuebook show {shown['run']}"
    assert server.requests[0]["max_tokens"] == 77
    assert server.requests[0]["temperature"] == 0.5


def test_events_are_lines_of_json(cli: CommandLine) -> None:
    ran = cli.call("run", "tea.md", "--events")
    kinds = [event["event"] for event in ran.events]
    assert ran.code == 0
    assert kinds[0] == "RunStarted"
    assert kinds[-1] == "RunFinished"
    assert kinds.count("StepFinished") == 3
    chunks = [event for event in ran.events if event["event"] == "TextChunk"]
    assert "".join(chunk["data"]["text"] for chunk in chunks if chunk["data"]["step"] == "1") == "Reply number 1."
    assert all(event["id"] and event["run"] for event in ran.events)


def test_live_events_are_the_same_as_later_ones(cli: CommandLine) -> None:
    live = [event for event in cli.call("run", "tea.md", "--events").events if event["event"] != "TextChunk"]
    ours = ("id", "run", "at", "event", "place", "data")
    later = cli.call("events", live[0]["run"], "--json").events
    assert [{name: event[name] for name in ours} for event in live] == [
        {name: event[name] for name in ours} for event in later
    ]


def test_a_reply_that_begins_again_takes_back_its_content(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Lost words.", "Sencha it is.", "Hot.", "Served."]
    server.drop_at = 1
    ran = cli.call("run", "tea.md", "--events")
    assert ran.code == 0
    named = [event for event in ran.events if event.get("step") == "1" and event.get("type") in ("content", "reset")]
    assert [event["type"] for event in named][:2] == ["content", "reset"]
    kept = ""
    for event in named:
        kept = "" if event["type"] == "reset" else kept + event["content"]
    assert kept == "Sencha it is."


def test_the_type_of_the_artifact_is_shown(cli: CommandLine) -> None:
    cli.write("typed.md", TEA + "\n## ARTIFACTS\n\ntype: mermaid\n")
    ran = cli.call("run", "typed.md", "--json")
    typed = {"type": "mermaid", "suffix": ".mmd", "content_type": "text/plain"}
    assert ran.object["artifact"] == typed
    assert "\nartifact: mermaid\n" in ran.err
    assert cli.call("show", ran.object["run"], "--json").object["artifact"] == typed
    assert "\nartifact:   mermaid\n" in cli.call("show", ran.object["run"]).out
    untyped = cli.call("run", "tea.md", "--json")
    assert untyped.object["artifact"] == {"type": None, "suffix": ".md", "content_type": "text/markdown"}
    assert "artifact:" not in untyped.err
    waiting = cli.call("run", "tea.md", "--break", "1", "--json")
    assert waiting.object["artifact"] is None


def test_every_type_of_artifact_has_a_file() -> None:
    assert set(ARTIFACT_FILES) == {"", *ARTIFACT_TYPES}


def test_a_step_with_a_breakpoint_behind_it_is_done(cli: CommandLine) -> None:
    cli.write("branch.md", BRANCHED)
    ran = cli.call("run", "branch.md", "--break", "2")
    assert "\nsteps: 2 of 3\n" in ran.err
    assert "  2 of 3  " in cli.call("runs").out


def test_events_carry_the_names_of_the_format(cli: CommandLine, server: ModelServer) -> None:
    """The lines with these types are the format's events, in order, and nothing else."""
    server.replies = ["Sencha it is.", "Hot.", 401]
    ran = cli.call("run", "tea.md", "--events")
    named = [event for event in ran.events if "type" in event]
    ours = ("id", "run", "at", "event", "place", "data")
    seeds = [{name: value for name, value in event.items() if name not in ours} for event in named]
    order = list(dict.fromkeys((event["type"], event["step"]) for event in seeds))
    assert order == [("content", "1"), ("done", "1"), ("content", "2"), ("done", "2"), ("error", "3")]
    contents = [event for event in seeds if event["type"] == "content" and event["step"] == "1"]
    assert "".join(event["content"] for event in contents) == "Sencha it is."
    done = next(event for event in seeds if event["type"] == "done")
    assert done.keys() == {"type", "step", "status", "tokens", "latency", "cost"}
    assert (done["status"], done["tokens"]["input"], done["tokens"]["output"]) == ("completed", 10, 5)
    assert seeds[-1].keys() == {"type", "step", "error", "code", "status"}
    assert seeds[-1]["status"] == "failed"
    assert all("event" in event and "id" in event for event in ran.events)


def test_a_dry_run_shows_every_prompt_and_creates_nothing(bare_cli: CommandLine) -> None:
    before = bare_cli.files()
    ran = bare_cli.call("run", "tea.md", "--dry-run", "--kind", "{{kind}}")
    assert ran.code == 0
    assert "=== Step 2: Brew\n--- system\nBe brief.\n\nOutput of step 1, Choose" in ran.out
    assert "--- prompt\nBrew the {{kind}} tea.\n" in ran.out
    assert bare_cli.files() == before
    shown = bare_cli.call("run", "tea.md", "--dry-run", "--json").object
    assert [one["prompt"] for one in shown] == ["Choose a green tea.", "Brew the green tea.", "Serve it."]


def test_a_failed_run_says_why_and_what_next(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["Sencha.", 401]
    ran = cli.call("run", "tea.md")
    assert (ran.code, ran.out) == (1, "")
    assert "status: failed" in ran.err
    assert "next: cuebook retry " in ran.err
    assert "Traceback" not in ran.err


def test_another_attempt_says_which_and_why(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [500, "Sencha.", "Done."]
    ran = cli.call("run", "tea.md")
    assert ran.code == 0
    assert "attempt 2 of 5: test failed (HTTP 500)" in ran.err
    assert "attempt" not in cli.call("run", "tea.md").err, "nothing is said where the first one is enough"


def test_a_spent_budget_pauses_the_run(cli: CommandLine) -> None:
    ran = cli.call("run", "tea.md", "--budget-steps", "1", "--json")
    shown = ran.object
    assert (ran.code, shown["status"], shown["reason"]) == (4, "paused", "budget")
    assert shown["next"] == f"cuebook resume {shown['run']} --budget-steps MORE"
    less = cli.call("resume", shown["run"])
    assert less.code == 2
    assert "larger budget" in less.err
    assert cli.call("resume", shown["run"], "--budget-steps", "2").code == 4
    assert cli.call("resume", shown["run"], "--budget-steps", "9").code == 0


def test_a_warning_is_shown(cli: CommandLine) -> None:
    cli.write("odd.md", "# Odd\n\n## STEP 2: A\n\nHello {{nobody}}.\n")
    ran = cli.call("run", "odd.md")
    assert ran.code == 0
    assert "warning: Line 3: Non-sequential step number: expected 1, got 2" in ran.err
    assert "warning: Step 2: unknown variable 'nobody', so {{nobody}} was not replaced." in ran.err


def test_the_key_of_a_provider_comes_from_the_environment_and_is_never_shown(
    cli: CommandLine, server: ModelServer
) -> None:
    cli.config.write_text(f'[providers.keyed]\nbase_url = "{server.url}"\nkey_env = "MY_SERVER_KEY"\n')
    cli.environ["MY_SERVER_KEY"] = "sk-test-0123456789"
    ran = cli.call("run", "tea.md", "--model", "keyed/echo-1", "--json")
    assert ran.code == 0
    assert server.keys[0] == "Bearer sk-test-0123456789"
    everything = ran.out + ran.err + cli.call("doctor").out + cli.call("keys", "list").out
    assert "sk-test" not in everything
    assert b"sk-test" not in cli.store.read_bytes()
    assert "keyed         MY_SERVER_KEY           environment" in everything
    assert json.loads(cli.call("doctor", "--json").out)["ready"] is False  # the default model is not installed here


# --- answers that are given beforehand ----------------------------------------------------------------------

ASKING = """\
# Asking

## INPUTS

- `often` (string: daily): How often

## STEP 1: Tone

@elicit(select, "How should it sound?", "warm", "plain", default:"plain")
@output(tone)

## STEP 2: Branch

```if tone == "warm"```

### STEP 2a: Extra

@elicit(input, "Anything else?")
@output(extra)

```else```

### STEP 2b: Sure

@elicit(confirm, "Really plain?")
@output(extra)

```endif```

## STEP 3: Write

A {{tone}} letter, {{extra}}.

## STEP 4: Often

@elicit(select, "How often?", "{{often}}", "never")
"""


@pytest.fixture
def asking(cli: CommandLine) -> CommandLine:
    cli.write("asking.md", ASKING)
    return cli


@pytest.mark.parametrize(
    ("args", "prompt", "last"),
    [
        (["--answer", "1=WARM", "--answer", "2a=a=b"], "A warm letter, a=b.", "never"),
        (["--answer", "1=warm", "--answer", "2a=@note.txt"], "A warm letter, from a file.", "never"),
        (["--answer", "1=warm", "--answer", "2a=@@home"], "A warm letter, @home.", "never"),
        (["--answer", "1=plain", "--answer", "2b=n"], "A plain letter, no.", "never"),
        (["--answer", "1=plain", "--answer", "2b=-"], "A plain letter, no.", "never"),
        (["--answers", "answers.yaml"], "A plain letter, yes.", "never"),
        (["--answers", "answers.json", "--answer", "1=warm"], "A warm letter, 7.", "never"),
        (["--unattended"], "A plain letter, yes.", "daily"),
        (["--unattended", "--answer", "1=warm"], "A warm letter, .", "daily"),
    ],
)
def test_answers_can_be_given_beforehand(
    asking: CommandLine, server: ModelServer, args: list[str], prompt: str, last: str
) -> None:
    asking.write("note.txt", "from a file")
    asking.write("answers.yaml", "1: plain # a number is a label, too\n2b: true\n")
    asking.write("answers.json", '{"1": "plain", "2a": 7}')
    others = [] if "--unattended" in args else ["--answer", "4=never"]
    ran = asking.call("run", "asking.md", *args, *others, "--json", stdin="no\n")
    assert (ran.code, server.prompts, ran.object["output"]) == (0, [prompt], last)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--answer", "9=x"], "The answer for step 9: there is no such step. Steps that ask a question: 1, 2a, 2b, 4."),
        (
            ["--answer", "3=x"],
            "The answer for step 3: that step asks no question. Steps that ask a question: 1, 2a, 2b, 4.",
        ),
        (["--answer", "1"], "--answer 1: expected STEP=VALUE. For example: --answer 2=yes."),
        (["--answer", "=x"], "--answer =x: expected STEP=VALUE."),
        (
            ["--answer", "1=loud"],
            "The answer for step 1: 'loud' is not one of the options. Choose one of: warm, plain.",
        ),
        (["--answer", "2b=maybe"], "The answer for step 2b: 'maybe' is neither yes nor no. Answer yes or no."),
        (["--answer", "2=more"], "The answer for step 2 would also answer step 2b, but there 'more' is neither"),
        (["--answer", "1=@nowhere"], "--answer 1: There is no file nowhere."),
        (["--answers", "list.yaml"], "--answers: list.yaml is not a table of names and values."),
        (["--answers", "bad.json"], "--answers: bad.json:1: invalid JSON: "),
        (["--answers", "half.json"], "--answers: half.json:1: half of a surrogate pair is missing."),
        (["--answers", "answers.yaml"], "The answer for step 1: 'loud' is not one of the options."),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_before_the_start(
    asking: CommandLine, args: list[str], words: str
) -> None:
    asking.write("list.yaml", "- a\n")
    asking.write("bad.json", "{")
    asking.write("half.json", '{"1": "\\ud83d"}')
    asking.write("answers.yaml", "1: loud\n")
    ran = asking.call("run", "asking.md", *args)
    assert (ran.code, ran.out, words in ran.err) == (2, "", True), ran.err
    assert not asking.store.exists()


def test_an_answer_of_a_step_fits_its_sub_steps_where_those_have_none_of_their_own(
    asking: CommandLine, server: ModelServer
) -> None:
    ran = asking.call("run", "asking.md", "--answer", "2=yes", "--answer", "1=warm", "--answer", "4=never")
    assert (ran.code, server.prompts) == (0, ["A warm letter, yes."])


def test_options_that_only_the_run_knows_are_checked_when_they_are(asking: CommandLine) -> None:
    ran = asking.call("run", "asking.md", "--unattended", "--answer", "4=hourly", "--json")
    assert (ran.code, ran.object["error"]["code"]) == (1, "bad_answer")
    assert "The answer given in advance for step 4 is not valid" in ran.object["error"]["message"]


def test_a_dry_run_knows_the_answers(asking: CommandLine) -> None:
    assert asking.call("run", "asking.md", "--dry-run", "--answer", "1=loud").code == 2
    ran = asking.call("run", "asking.md", "--dry-run", "--json", "--answer", "1=warm", "--unattended")
    shown = {one["step"]: one for one in ran.object if "step" in one}
    assert (ran.code, shown["1"]["answer"]) == (0, "warm")
    assert "2a" in shown
    assert "2b" not in shown


def test_a_sub_step_can_be_a_breakpoint(asking: CommandLine) -> None:
    ran = asking.call("run", "asking.md", "--answer", "1=plain", "--answer", "2b=y", "--break", "2b", "--json")
    assert (ran.code, ran.object["waits"][0]["prompt"]) == (3, "Paused after step 2b.")
    assert (
        "there is no step 2c. The steps are 1, 2, 2a, 2b, 3, 4." in asking.call("run", "asking.md", "--break", "2c").err
    )


# --- options of a run ---------------------------------------------------------------------------------------


def test_a_strict_run_fails_at_a_warning(cli: CommandLine, server: ModelServer) -> None:
    cli.write("odd.md", "# Odd\n\n## STEP 1: A\n\nHello {{nobody}}.\n")
    ran = cli.call("run", "odd.md", "--strict", "--json")
    assert (ran.code, ran.object["error"]["code"], server.requests) == (1, "strict", [])
    assert cli.call("run", "odd.md", "--strict", "--dry-run").code == 1
    assert cli.call("run", "odd.md").code == 0
    cli.write("odd.md", "# Odd\n\n## STEP 2: A\n\nHello.\n")
    refused = cli.call("run", "odd.md", "--strict")
    assert (refused.code, "Non-sequential step number: expected 1, got 2" in refused.err) == (2, True)


def test_a_no_stops_a_run_with_that_option(asking: CommandLine, server: ModelServer) -> None:
    args = ["run", "asking.md", "--answer", "1=plain", "--answer", "2b=no", "--answer", "4=never"]
    ran = asking.call(*args, "--stop-on-no", "--json")
    assert (ran.code, ran.object["status"], server.requests) == (5, "cancelled", [])
    assert "'Really plain?' was no" in ran.object["error"]["message"]
    assert asking.call(*args).code == 0


# --- waiting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "environ", "seconds"),
    [
        ([], {}, 24 * 3600),
        (["--pause-expiry", "15m"], {}, 900),
        (["--pause-expiry", "7d"], {"CUEBOOK_PAUSE_EXPIRY": "1h"}, 7 * 86400),
        ([], {"CUEBOOK_PAUSE_EXPIRY": "1h"}, 3600),
        (["--pause-expiry", "never"], {}, None),
    ],
)
def test_pauses_and_questions_expire_after_a_day_by_default(
    asking: CommandLine, args: list[str], environ: dict[str, str], seconds: float | None
) -> None:
    asking.environ |= environ
    for command in (["tea.md", "--break", "1"], ["asking.md"]):
        (wait,) = asking.call("run", *command, *args, "--json").object["waits"]
        lasts = None if wait["expires"] is None else round(wait["expires"] - wait["opened"], 3)
        assert lasts == seconds
    wrong = asking.call("run", "tea.md", "--pause-expiry", "soon")
    assert (wrong.code, "--pause-expiry: pause_expiry must be a number of seconds, a duration" in wrong.err) == (
        2,
        True,
    )


def test_an_expired_run_says_how_to_continue(asking: CommandLine) -> None:
    run = asking.call("run", "asking.md", "--pause-expiry", "0.01", "--json").object["run"]
    ran = asking.call("resume", run)
    if ran.code == 2:  # it had expired within the first call
        ran = asking.call("show", run)
    said = ran.out + ran.err
    assert "The question was not answered in time." in said
    assert f"cuebook retry {run}" in said
    again = asking.call("retry", run, "--json")
    assert again.code in (3, 5), "it waits once more, for as short a time"


# --- exit codes ---------------------------------------------------------------------------------------------


def test_every_exit_code_that_is_documented(asking: CommandLine, server: ModelServer) -> None:
    cli = asking
    cli.write("tool.md", '# T\n\n## STEP 1: A\n\n@tool(builtin, Bash, {"command": "ls"})\n')
    documented = cli.call("--help").out
    assert "0 completed, 1 failed, 2 bad input, 3 waiting for a person, 4 out of budget," in " ".join(
        documented.split()
    )
    policy = cli.config.parent / "policy.toml"

    def code(*args: str) -> int:
        return cli.call(*args).code

    assert code("run", "tea.md") == 0
    server.replies = [401]
    assert code("run", "tea.md") == 1
    assert code("run", "nowhere.md") == 2
    assert code("run", "tea.md", "--zork") == 2
    assert code("run", "asking.md") == 3, "a question"
    assert code("run", "tea.md", "--break", "1") == 3, "a breakpoint"
    assert code("run", "tool.md") == 3, "an approval"
    assert code("run", "tea.md", "--budget-steps", "1") == 4
    policy.write_text('[tools]\ndeny = ["*"]\n')
    assert code("run", "tool.md") == 5, "denied by the policy"
    policy.unlink()
    waiting = [wait["run"] for wait in cli.call("inbox", "--json").object if wait["kind"] in ("approval", "question")]
    kinds = {cli.call("show", run, "--json").object["waits"][0]["kind"]: run for run in waiting}
    assert code("decide", kinds["approval"], "deny") == 5, "denied by a person"
    assert code("cancel", kinds["question"]) == 5, "cancelled"
    assert code("run", "tea.md", "--break", "1", "--pause-expiry", "0") in (3, 5)
    expired = cli.call("runs", "--json").object[0]["run"]
    assert code("resume", expired) in (2, 5)
    assert cli.call("show", expired, "--json").object["status"] == "expired"


NEAR = "# Near\n\n## STEP 1: Write\n\n```if include_cta```\n\nWith it.\n\n```endif```\n"


def test_what_validate_calls_an_error_a_run_warns_of(cli: CommandLine, server: ModelServer) -> None:
    cli.write("near.md", NEAR)
    (found, *_) = [line for line in cli.call("validate", "near.md").out.split("\n") if ": error: " in line]
    said = found.partition(": error: ")[2].partition(" Write ")[0]
    ran = cli.call("run", "near.md")
    assert ran.code == 0
    assert f"warning: Line 5: {said}" in ran.err
    assert f"warning: Line 5: {said}" in cli.call("show", run_of(ran)).out
    asked = len(server.requests)
    strict = cli.call("run", "near.md", "--strict")
    assert (strict.code, said in strict.err, len(server.requests)) == (2, True, asked)


def run_of(ran: Ran) -> str:
    return ran.err.partition("(run ")[2].partition(",")[0]


def test_a_detached_run_is_left_to_a_worker(cli: CommandLine) -> None:
    cli.write("note.md", "# Note\n\n## STEP 1: Write\n\nWrite a note.\n")
    ran = cli.call("run", "note.md", "--detach")
    assert ran.code == 0, ran.err
    run = ran.out.strip()
    assert f"cuebook events {run} --follow" in ran.err
    shown = cli.call("show", run, "--json").object
    assert (shown["status"], shown["steps"]) == ("pending", [])
    assert cli.call("run", "note.md", "--detach", "--json").object["status"] == "pending"
