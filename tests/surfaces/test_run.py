"""`cuebook run` as a person or a script calls it: a real process, a real store, a real server."""

from __future__ import annotations

import json

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer


def test_results_go_to_stdout_and_progress_to_stderr(desk: Desk, server: ModelServer) -> None:
    server.replies = ["Sencha.", "Hot.", "Served at last."]
    ran = desk.call("run", desk.tea)
    assert (ran.code, ran.out) == (0, "Served at last.\n")
    assert "step 1: Choose" in ran.err
    assert "status: completed" in ran.err
    assert "steps: 3 of 3" in ran.err
    assert "tokens: 30 in, 15 out" in ran.err
    assert "cost: unknown" in ran.err
    assert server.prompts == ["Choose a green tea.", "Brew the green tea.", "Serve it."]
    assert server.requests[2]["messages"][0]["content"].startswith("Be brief.\n\nOutput of step 1, Choose (7 char")


def test_inputs_are_options_files_and_stdin(desk: Desk, server: ModelServer) -> None:
    desk.write("kind.txt", "black\n")
    desk.write("inputs.yaml", "kind: white # not black\n")
    desk.write("inputs.json", '{"kind": "red"}')
    desk.write(
        "tea.md",
        "# Tea\n\n## INPUTS\n\n- `kind` (text): x\n- `model` (string: m): y\n\n## STEP 1: A\n\n{{kind}} {{model}}\n",
    )
    shown = [
        desk.call("run", "tea.md", *args, "--dry-run", "--json", stdin=stdin).object[0]["prompt"]
        for args, stdin in (
            (["--kind", "@kind.txt"], None),
            (["--kind", "-"], "from stdin"),
            (["--kind", "@@home"], None),
            (["--inputs", "inputs.yaml"], None),
            (["--inputs", "inputs.json", "--input", "model=n"], None),
            (["--inputs", "inputs.json", "--kind=green"], None),
        )
    ]
    assert shown == ["black\n m", "from stdin m", "@home m", "white m", "red n", "green m"]


def test_help_shows_the_inputs_of_the_playbook(desk: Desk) -> None:
    ran = desk.call("run", "tea.md", "--help")
    assert ran.code == 0
    assert "Run Tea." in ran.out
    assert "--kind STRING  Which tea [default: green]" in ran.out
    assert desk.call("run", "--help").code == 0


def test_json_is_one_object_on_stdout(desk: Desk, server: ModelServer) -> None:
    ran = desk.call("run", "tea.md", "--json", "--kind", "black", "--max-tokens", "77", "--temperature", "0.5")
    shown = ran.object
    assert (ran.code, shown["status"], shown["output"]) == (0, "completed", "Reply number 3.")
    assert shown["outputs"] == {"1": "Reply number 1.", "2": "Reply number 2.", "3": "Reply number 3."}
    assert [step["status"] for step in shown["steps"]] == ["completed"] * 3
    assert (shown["totals"]["input_tokens"], shown["totals"]["output_tokens"]) == (30, 15)
    assert shown["totals"]["cost"] is None
    assert shown["next"] == f"cuebook show {shown['run']}"
    assert server.requests[0]["max_tokens"] == 77
    assert server.requests[0]["temperature"] == 0.5


def test_events_are_lines_of_json(desk: Desk) -> None:
    ran = desk.call("run", "tea.md", "--events")
    kinds = [event["event"] for event in ran.events]
    assert ran.code == 0
    assert kinds[0] in ("RunStarted", "Driven", "Planned")
    assert kinds[-1] == "RunFinished"
    assert kinds.count("StepFinished") == 3
    chunks = [event for event in ran.events if event["event"] == "TextChunk"]
    assert "".join(chunk["data"]["text"] for chunk in chunks if chunk["data"]["step"] == "1") == "Reply number 1."
    assert all(event["id"] and event["run"] for event in ran.events)


def test_a_dry_run_shows_every_prompt_and_creates_nothing(bare_desk: Desk) -> None:
    before = bare_desk.files()
    ran = bare_desk.call("run", "tea.md", "--dry-run", "--kind", "{{kind}}")
    assert ran.code == 0
    assert "=== Step 2: Brew\n--- system\nBe brief.\n\nOutput of step 1, Choose" in ran.out
    assert "--- prompt\nBrew the {{kind}} tea.\n" in ran.out
    assert bare_desk.files() == before
    shown = bare_desk.call("run", "tea.md", "--dry-run", "--json").object
    assert [one["prompt"] for one in shown] == ["Choose a green tea.", "Brew the green tea.", "Serve it."]


def test_a_failed_run_says_why_and_what_next(desk: Desk, server: ModelServer) -> None:
    server.replies = ["Sencha.", 401]
    ran = desk.call("run", "tea.md")
    assert (ran.code, ran.out) == (1, "")
    assert "status: failed" in ran.err
    assert "next: cuebook retry " in ran.err
    assert "Traceback" not in ran.err


def test_a_spent_budget_pauses_the_run(desk: Desk) -> None:
    ran = desk.call("run", "tea.md", "--budget-steps", "1", "--json")
    shown = ran.object
    assert (ran.code, shown["status"], shown["reason"]) == (4, "paused", "budget")
    assert shown["next"] == f"cuebook resume {shown['run']} --budget-steps MORE"
    less = desk.call("resume", shown["run"])
    assert less.code == 2
    assert "larger budget" in less.err
    assert desk.call("resume", shown["run"], "--budget-steps", "2").code == 4
    assert desk.call("resume", shown["run"], "--budget-steps", "9").code == 0


def test_a_warning_is_shown(desk: Desk) -> None:
    desk.write("odd.md", "# Odd\n\n## STEP 2: A\n\nHello {{nobody}}.\n")
    ran = desk.call("run", "odd.md")
    assert ran.code == 0
    assert "warning: Line 3: Non-sequential step number: expected 1, got 2" in ran.err
    assert "warning: Step 2: nothing is named 'nobody', so {{nobody}} was left." in ran.err


def test_the_key_of_a_provider_comes_from_the_environment_and_is_never_shown(desk: Desk, server: ModelServer) -> None:
    desk.config.write_text(f'[providers.keyed]\nbase_url = "{server.url}"\nkey_env = "MY_SERVER_KEY"\n')
    desk.environ["MY_SERVER_KEY"] = "sk-test-0123456789"
    ran = desk.call("run", "tea.md", "--model", "keyed/echo-1", "--json")
    assert ran.code == 0
    assert server.keys[0] == "Bearer sk-test-0123456789"
    everything = ran.out + ran.err + desk.call("doctor").out + desk.call("keys", "list").out
    assert "sk-test" not in everything
    assert b"sk-test" not in desk.store.read_bytes()
    assert "keyed         MY_SERVER_KEY           environment" in everything
    assert json.loads(desk.call("doctor", "--json").out)["ready"] is False  # the default model is not installed here
