"""Traces and metrics over OTLP, as a collector receives them from real servers and workers."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuebook.service.insight.traces import trace_id
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.otlp_receiver import Receiver, otlp_receiver
from tests.surfaces.cli.test_logs import BOOK, PIPELINE, serving

KEY = "collector-key-" + "k" * 20
CHAIN = """
name: chain
steps:
  - id: kid
    playbook: short.yml
  - id: fails
    command: cli sh -c 'exit 3'
    effect: read
"""
SHORT = "name: short\nsteps:\n  - {id: a, command: cli true, effect: read}\n"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_receiver() as made:
        yield made


@pytest.fixture
def traced(cli: CommandLine, receiver: Receiver) -> CommandLine:
    cli.environ["COLLECTOR_KEY"] = f"authorization=Bearer {KEY}"
    cli.environ["OTEL_BSP_SCHEDULE_DELAY"] = "100"
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    with cli.config.open("a") as file:
        file.write(f'\n[otel]\nendpoint = "{receiver.url}"\nheaders = "env:COLLECTOR_KEY"\n')
    cli.write("book.md", BOOK)
    cli.write("short.yml", SHORT)
    cli.write("chain.yml", CHAIN)
    return cli


def test_a_run_is_a_trace_of_its_steps_calls_and_waits(
    traced: CommandLine, server: ModelServer, receiver: Receiver
) -> None:
    server.replies = [429, "One.", "Two."]
    with serving(traced, "--log-format", "json") as served:
        run = served.client.post("/api/runs", json={"playbook": "book", "inputs": {"word": "x"}}).json()["run"]
        wait = served.until(run, "awaiting_input")["waits"][0]["wait"]
        served.client.post(f"/api/waits/{wait}/answer", json={"value": "y"})
        served.until(run, "completed")
        _, err = served.end()
    whole = receiver.one("run book.md")
    assert {span.trace for span in receiver.spans} == {f"{trace_id(run):032x}"}
    assert whole.parent == ""
    assert whole.resource["service.name"] == "cuebook"
    assert whole.attributes["cuebook.run.status"] == "completed"
    assert (whole.attributes["gen_ai.operation.name"], whole.attributes["gen_ai.workflow.name"]) == (
        "invoke_workflow",
        "book.md",
    )
    assert (whole.attributes["gen_ai.usage.input_tokens"], whole.attributes["cuebook.cost.unknown_calls"]) == (20, 2)
    first, second = receiver.one("step 1"), receiver.one("step 2")
    assert {first.parent, second.parent} == {whole.id}
    call, other = receiver.named("chat echo-1")
    assert (call.parent, other.parent) == (first.id, second.id)
    assert call.span.kind == 3, "a client's"
    about = call.attributes
    assert (about["gen_ai.operation.name"], about["gen_ai.provider.name"]) == ("chat", "test")
    assert (about["gen_ai.request.model"], about["gen_ai.response.model"]) == ("echo-1", "echo-1")
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (10, 5)
    assert about["gen_ai.response.finish_reasons"] == ["stop"]
    assert "cuebook.cost.dollars" not in about, "an unknown cost is not zero"
    ((name, attempt),) = call.events
    assert (name, attempt["cuebook.attempt.kind"], attempt["cuebook.attempt.number"]) == ("model_attempt", "rate", 2)
    assert receiver.one("wait question").parent == second.id
    assert whole.seconds >= first.seconds >= call.seconds > 0
    assert {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"} <= receiver.metrics.keys()
    types = {point["gen_ai.token.type"] for point in receiver.metrics["gen_ai.client.token.usage"]}
    assert types == {"input", "output"}
    assert {"playbook": "book.md", "status": "completed"} in receiver.metrics["cuebook.runs_ended"]
    assert all(one["authorization"] == f"Bearer {KEY}" for one in receiver.headers)
    assert KEY not in err


def test_a_trace_survives_the_death_of_its_process(
    traced: CommandLine, server: ModelServer, receiver: Receiver
) -> None:
    server.replies = ["One.", "Two.", "Two."]
    server.hold_at = 2
    traced.write("both.md", "# Both\n\n## STEP 1: A\n\nDo A.\n\n## STEP 2: B\n\nDo B.\n")
    with serving(traced) as served:
        run = served.client.post("/api/runs", json={"playbook": "both"}).json()["run"]
        assert server.holding.wait(20)
        receiver.until("step 1")
        served.process.send_signal(signal.SIGKILL)
        served.process.communicate()
    server.release()
    with serving(traced) as served:
        served.until(run, "completed")
        served.end()
    first, second, whole = receiver.one("step 1"), receiver.one("step 2"), receiver.one("run both.md")
    assert {span.trace for span in receiver.spans} == {f"{trace_id(run):032x}"}
    assert (first.parent, second.parent) == (whole.id, whole.id)
    assert whole.span.start_time_unix_nano <= first.span.start_time_unix_nano, "it began in the first process"
    call = receiver.named("chat echo-1")[-1]
    assert call.parent == second.id
    assert second.span.start_time_unix_nano < call.span.start_time_unix_nano


def test_a_wait_that_outlives_its_process_has_a_span_from_its_beginning(
    traced: CommandLine, server: ModelServer, receiver: Receiver
) -> None:
    server.replies = ["One.", "Two."]
    asked = traced.call("run", "book.md", "--word", "x", "--json")
    assert asked.code == 3, asked.err
    run = str(asked.object["run"])
    with serving(traced) as served:
        (wait,) = served.until(run, "awaiting_input")["waits"]
        served.client.post(f"/api/waits/{wait['wait']}/answer", json={"value": "y"})
        served.until(run, "completed")
        served.end()
    span = receiver.one("wait question")
    assert span.parent == receiver.one("step 2").id
    assert span.trace == f"{trace_id(run):032x}"
    assert span.span.start_time_unix_nano < receiver.named("chat echo-1")[1].span.start_time_unix_nano
    assert span.seconds > receiver.one("step 1").seconds


def test_children_are_in_the_trace_of_their_parent_and_failures_are_marked(
    traced: CommandLine, receiver: Receiver
) -> None:
    ran = traced.call("run", "chain.yml")
    assert ran.code == 1, ran.err
    whole, child = receiver.one("run chain.yml"), receiver.one("run short.yml")
    assert child.trace == whole.trace
    assert child.parent == receiver.one("child").id
    assert receiver.one("child").parent == receiver.one("step kid").id
    assert receiver.one("step a").parent == child.id
    commands = receiver.named("command")
    assert sorted(one.attributes["process.exit.code"] for one in commands) == [0, 3]
    assert (whole.failed, receiver.one("step fails").failed, child.failed) == (True, True, False)
    assert whole.attributes["error.type"]


def test_a_run_that_is_retried_begins_again_in_its_trace(traced: CommandLine, receiver: Receiver) -> None:
    traced.write("flaky.yml", "name: F\nsteps:\n  - {id: a, command: cli test -e go, effect: read}\n")
    assert traced.call("run", "flaky.yml").code == 1
    (traced.work / "go").touch()
    assert traced.call("retry", traced.call("runs", "--json").object[0]["run"]).code == 0
    first, second = receiver.until("run flaky.yml", 2)
    assert first.trace == second.trace
    assert first.id != second.id
    assert (first.failed, second.failed) == (True, False)
    assert [one.parent for one in receiver.named("step a")] == [first.id, second.id]


@pytest.mark.parametrize("wanted", [False, True])
def test_texts_are_exported_only_if_wanted_and_then_masked(
    traced: CommandLine, server: ModelServer, receiver: Receiver, wanted: bool
) -> None:
    traced.environ["CANARY"] = "canary-secret-value"
    policy = '[commands]\nallow = ["*"]\n[secrets]\nallow = ["env:CANARY"]\n'
    (traced.config.parent / "policy.toml").write_text(policy)
    traced.write("pipes.yml", PIPELINE)
    if wanted:
        traced.environ["CUEBOOK_OTEL_TEXTS"] = "true"
    server.replies = ["canary-reply and canary-secret-value"]
    traced.call("secrets", "add", "canary", "env:CANARY")
    traced.call("run", "book.md", "--word", "canary-input", "--answer", "2=canary-answer")
    traced.call("run", "pipes.yml", "--word", "canary-input", "--no-ask")
    receiver.until("chat echo-1")
    sent = b"".join(receiver.bodies).decode("latin-1")
    assert "canary-secret-value" not in sent
    assert ("canary-prompt" in sent, "canary-reply" in sent) == (wanted, wanted)
    for word in ("canary-item", "canary-output", "canary-errors", "canary-question"):
        assert word not in sent
    if wanted:
        call = receiver.named("chat echo-1")[0]
        assert '"role": "user"' in call.attributes["gen_ai.input.messages"]
        assert '"finish_reason": "stop"' in call.attributes["gen_ai.output.messages"]


@pytest.mark.parametrize("kind", ["refuses", "hangs"])
def test_a_collector_that_is_down_fails_and_holds_up_nothing(cli: CommandLine, kind: str) -> None:
    cli.write("short.yml", SHORT)
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    cli.environ["OTEL_BSP_SCHEDULE_DELAY"] = "10"
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if kind == "hangs":
            listening.listen(64)
        cli.environ["CUEBOOK_OTEL_ENDPOINT"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with serving(cli) as served:
            runs = [served.client.post("/api/runs", json={"playbook": "short"}).json()["run"] for _ in range(5)]
            for run in runs:
                assert served.until(run, "completed")
            code, err = served.end()
    assert code == 130
    assert "Traceback" not in err
    assert err.count("could not be sent") <= 1
    assert "Transient" not in err


def test_without_the_package_a_command_says_how_to_install_it(cli: CommandLine, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "opentelemetry"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden by the test')\n")
    cli.environ["PYTHONPATH"] = f"{hidden.parent}:{cli.environ['PYTHONPATH']}"
    cli.environ["CUEBOOK_OTEL_ENDPOINT"] = "http://127.0.0.1:4318"
    refused = cli.start("worker")
    assert refused.code == 2
    assert "CUEBOOK_OTEL_ENDPOINT: otel.endpoint needs OpenTelemetry" in refused.err
    assert "[otel]" in refused.err


@pytest.mark.parametrize("url", ["collector:4318", "ftp://collector", "http://me:secret@collector", "http://c/?key=1"])
def test_an_address_that_is_none_is_refused(cli: CommandLine, url: str) -> None:
    cli.environ["CUEBOOK_OTEL_ENDPOINT"] = url
    refused = cli.call("worker")
    assert (refused.code, "otel.endpoint must be the URL of a collector" in refused.err) == (2, True), refused.err
