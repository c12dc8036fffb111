"""A canary in every place that a secret can pass through is not found in any file, log, event, error or preview."""

from __future__ import annotations

import base64
import html
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from cuebook.gate.redaction.logs import guard_logs
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskHuman, AskModel, CallTool, Program, RunCommand, SecretUse, SendHttp
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import StepFinished, StepStarted, TextChunk, ValueSet, Warned
from cuebook.kernel.outcomes import AnyOutcome, EffectFailed, Failed, Reply, Usage
from cuebook.kernel.ports import Call
from cuebook.kernel.run import Settings
from cuebook.performers.tools.functions import python_tool
from tests.gate.harness import BOOK, GateHarness, bytes_below, doing

CANARY = 'sk-canary "7f3a9c21/ü+x=\\end'
PLAIN = "sk-plain-canary-1234567890"
TOKEN = SecretUse("env.TOKEN", "env:CANARY")


def forms(secret: str = CANARY) -> dict[str, str]:
    """The secret as it may turn up, each with the text around it that hides it best."""
    raw = secret.encode()
    made = {
        "raw": secret,
        "json": json.dumps(secret),
        "json, not only ascii": json.dumps(secret, ensure_ascii=False),
        "json in json": json.dumps(json.dumps({"k": secret})),
        "url": quote(secret, safe=""),
        "url, slashes kept": quote(secret),
        "form": quote_plus(secret),
        "url in lower case": quote(secret, safe="").replace("%2F", "%2f").replace("%C3%BC", "%c3%bc"),
        "html": html.escape(secret),
        "hex": raw.hex(),
        "upper hex": raw.hex().upper(),
    }
    for shift in range(3):
        around = b"abc"[:shift] + raw + b"tail"
        made[f"base64 at {shift}"] = base64.b64encode(around).decode()
        made[f"url-safe base64 at {shift}"] = base64.urlsafe_b64encode(around).decode().rstrip("=")
    made["basic"] = base64.b64encode(b"user:" + raw).decode()
    return made


def leaked(data: bytes | str, secret: str = CANARY) -> list[str]:
    """The forms in which the canary can be read there."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    found = []
    for name, form in forms(secret).items():
        # Neighbouring bytes change the edges of base64, so only the part that does not depend on them is searched.
        core = form.strip('"').rstrip("=")
        core = core[4:-6] if "base64" in name or name == "basic" else core
        if core in text:
            found.append(name)
    return found


class Repeats:
    """A model that says a given text, in pieces of three characters."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: tuple[ToolCall, ...] = ()
        self.fails: Exception | None = None

    async def perform(self, effect: AskModel, call: Call) -> AnyOutcome:
        if self.fails is not None:
            raise self.fails
        for start in range(0, len(self.text), 3):
            call.emit(self.text[start : start + 3])
        call.warn("odd", f"It said {self.text}")
        return Reply(Text(self.text), self.calls, "test/echo", usage=Usage(1, 1, cost=0.0))


class _Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        told = json.dumps({"headers": dict(self.headers), "body": body.decode()}).encode()
        self.send_response(200)
        self.send_header("X-Echo", str(self.headers.get("Authorization", "")).encode("latin-1", "replace").decode())
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/echo"
    server.shutdown()
    server.server_close()


ALLOWED = {
    "commands": {"allow": ["*"]},
    "tools": {"allow": ["*"]},
    "egress": {"allow": ["http://127.0.0.1:*/*"]},
    "secrets": {"allow": ["*"]},
}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    def repeat(text: str, quoted: str = "") -> dict[str, str]:
        """Give back what was given, and more of it."""
        return {"text": text, "quoted": json.dumps(text), text: "as a key"}

    def fail(text: str) -> str:
        """Fail, saying why."""
        raise ValueError(f"cannot use {text}")

    made = GateHarness(
        tmp_path,
        ALLOWED,
        environ={"CANARY": CANARY, "PLAIN": PLAIN},
        names={"canary": "env:CANARY"},
        tools=[python_tool(repeat), python_tool(fail)],
        model=Repeats(),
    )
    made.vault.learn()
    yield made
    await made.close()


@pytest.fixture
def seen(harness: GateHarness) -> list[Any]:
    """Everything that an observer is shown."""
    events: list[Any] = []
    harness.service.observe(events.append)
    return events


async def clean(harness: GateHarness, run: str, seen: list[Any]) -> None:
    """Nothing that was written or shown gives the canary away."""
    view = await harness.service.view(run)
    waits = await harness.store.waits()
    entries = [str(entry) async for entry in harness.service.entries(run)]
    streamed: dict[int, str] = {}
    for event in seen:
        if isinstance(event, TextChunk):
            streamed[event.seq] = streamed.get(event.seq, "") + event.text
    shown = "\n".join([str(view), str(waits), *entries, *map(str, seen), *streamed.values()])
    assert leaked(shown) == []
    assert leaked(repr(shown)) == []
    assert leaked(bytes_below(harness.folder)) == []


# --- commands ------------------------------------------------------------------------------------------------

SAYING = {
    "raw": 'printf %s "$TOKEN"',
    "to stderr": 'printf %s "$TOKEN" >&2; exit 3',
    "base64": 'printf %s "$TOKEN" | base64 -w0',
    "base64 in lines": "printf 'some text before %s' \"$TOKEN$TOKEN$TOKEN\" | base64",
    "base64 at 1": "printf 'a%sb' \"$TOKEN\" | base64 -w0",
    "base64 at 2": "printf 'ab%sb' \"$TOKEN\" | base64 -w0",
    "hex": "printf %s \"$TOKEN\" | od -An -tx1 | tr -d ' \\n'",
    "the environment": "env",
    "in pieces with a pause": 'printf %s "$TOKEN" | head -c 9; sleep 0.05; printf %s "$TOKEN" | tail -c +10',
    "many times": 'for i in 1 2 3 4 5 6 7 8 9; do printf \'%s,%s\\n\' "$i" "$TOKEN"; done',
}


@pytest.mark.parametrize("script", SAYING.values(), ids=SAYING)
async def test_a_command_that_says_its_secret(harness: GateHarness, seen: list[Any], script: str) -> None:
    row = await harness.run(RunCommand(("sh", "-c", script), secrets=(TOKEN,)))
    assert row.status == "completed", row.error
    await clean(harness, row.id, seen)
    assert "[secret env:CANARY]" in str(await harness.result(row.id))


async def test_a_command_gets_the_real_secret(harness: GateHarness, seen: list[Any]) -> None:
    size = len(CANARY.encode())
    row = await harness.run(
        RunCommand(("sh", "-c", 'printf %s "$TOKEN" | wc -c'), secrets=(TOKEN,)),
        RunCommand(("wc", "-c"), secrets=(SecretUse("stdin", "canary"),)),
    )
    assert row.status == "completed", row.error
    assert str(await harness.result(row.id)).count(str(size)) >= 2
    await clean(harness, row.id, seen)


async def test_output_that_is_cut_in_the_middle_of_a_secret(harness: GateHarness, seen: list[Any]) -> None:
    script = "printf 'x%.0s' $(seq 50); printf %s \"$TOKEN\""
    row = await harness.run(RunCommand(("sh", "-c", script), secrets=(TOKEN,), max_output=50 + 20))
    assert row.status == "completed"
    assert CANARY[:20] not in str(await harness.result(row.id))
    assert CANARY[:18].encode() not in bytes_below(harness.folder)


async def test_a_command_that_times_out_while_it_says_its_secret(harness: GateHarness, seen: list[Any]) -> None:
    row = await harness.run(RunCommand(("sh", "-c", 'printf %s "$TOKEN"; sleep 60'), secrets=(TOKEN,), timeout=1))
    assert (row.status, row.reason) == ("awaiting_approval", "in_doubt")
    await clean(harness, row.id, seen)


async def test_a_secret_never_goes_into_argv(harness: GateHarness, seen: list[Any]) -> None:
    row = await harness.run(RunCommand(("echo", "x"), secrets=(SecretUse("argv.1", "env:CANARY"),)))
    assert row.error is not None
    assert row.error.code == "secret_misplaced"
    await clean(harness, row.id, seen)


# --- requests, tools, models -----------------------------------------------------------------------------------


async def test_a_server_that_sends_its_secret_back(harness: GateHarness, seen: list[Any], echo: str) -> None:
    # A header cannot contain every character, so another secret is used.
    row = await harness.run(
        SendHttp("POST", echo, secrets=(SecretUse("headers.Authorization", "env:PLAIN", "Bearer {}"),)),
        SendHttp("POST", echo, secrets=(SecretUse("body", "canary"),)),
    )
    assert row.status == "completed", row.error
    await clean(harness, row.id, seen)
    assert leaked(bytes_below(harness.folder), PLAIN) == []


@pytest.mark.parametrize("form", forms().values(), ids=forms())
async def test_a_tool_that_gives_its_secret_back_in_another_form(
    harness: GateHarness, seen: list[Any], form: str
) -> None:
    row = await harness.run(
        CallTool("repeat", {"text": f"here: {form} and more"}),
        CallTool("repeat", {}, secrets=(SecretUse("arguments.text", "env:CANARY"),)),
    )
    assert row.status == "completed", row.error
    await clean(harness, row.id, seen)


async def test_a_tool_that_fails_with_its_secret(
    harness: GateHarness, seen: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    row = await harness.run(CallTool("fail", {}, secrets=(SecretUse("arguments.text", "env:CANARY"),)))
    assert row.status == "failed"
    await clean(harness, row.id, seen)
    assert leaked(caplog.text) == []


@pytest.mark.parametrize("form", forms().values(), ids=forms())
async def test_a_model_that_repeats_a_secret_as_it_streams(harness: GateHarness, seen: list[Any], form: str) -> None:
    model = harness.service._engine.performers[AskModel]
    assert isinstance(model, Repeats)
    model.text = f"The key is {form}, as you know."
    model.calls = (ToolCall("1", "repeat", {"text": form, form: {"deep": [form]}}),)
    row = await harness.run(AskModel("What is it?"))
    assert row.status == "completed", row.error
    await clean(harness, row.id, seen)
    streamed = "".join(event.text for event in seen if isinstance(event, TextChunk))
    assert streamed.startswith("The key is")
    assert streamed.endswith("as you know.")


async def test_a_performer_that_breaks_with_a_secret(harness: GateHarness, seen: list[Any]) -> None:
    model = harness.service._engine.performers[AskModel]
    assert isinstance(model, Repeats)
    model.fails = RuntimeError(f"401: {CANARY} is not a key")
    row = await harness.run(AskModel("What is it?"))
    assert row.status == "failed"
    await clean(harness, row.id, seen)


# --- people and programs ----------------------------------------------------------------------------------------


async def test_a_playbook_or_an_input_that_holds_a_secret_starts_nothing(harness: GateHarness) -> None:
    for text, inputs in ((f"{BOOK}\n{CANARY}\n", {}), (BOOK, {"topic": CANARY}), (BOOK, {"deep": {"a": [CANARY]}})):
        with pytest.raises(BadInput) as refused:
            await harness.service.start_program(text, "book.md", inputs, Settings(model="test/echo"))
        assert leaked(str(refused.value)) == []
    assert await harness.service.runs() == []
    assert leaked(bytes_below(harness.folder)) == []


async def test_people_who_type_a_secret(harness: GateHarness, seen: list[Any]) -> None:
    harness.make = doing(AskHuman("Which?"), RunCommand(("true",), approval=f"Use {CANARY}?"))
    row = await harness.run()
    with pytest.raises(BadInput, match="nothing was answered") as refused:
        await harness.service.answer((await harness.wait(row.id)).id, f"it is {CANARY}")
    assert CANARY not in str(refused.value)
    await clean(harness, row.id, seen)
    await harness.service.answer((await harness.wait(row.id)).id, "that one")
    row = await harness.service.drive(row.id)
    row = await harness.decide(row.id, "approve", reason=f"because {CANARY}")
    await harness.service.cancel(row.id, f"because {CANARY}") if row.status == "running" else None
    await clean(harness, row.id, seen)


async def test_a_message_and_a_cancellation_that_hold_a_secret(harness: GateHarness, seen: list[Any]) -> None:
    harness.make = doing(AskHuman("Which?"))
    row = await harness.run()
    await harness.service.send(row.id, "news", {"text": CANARY})
    await harness.service.cancel(row.id, f"because {CANARY}")
    row = await harness.service.drive(row.id)
    assert row.status == "cancelled"
    await clean(harness, row.id, seen)


async def test_a_preview_of_an_approval_shows_handles(harness: GateHarness, seen: list[Any]) -> None:
    harness.allow({})
    row = await harness.run(RunCommand(("deploy-it", CANARY), secrets=(TOKEN,), env={"A": CANARY}, stdin=CANARY))
    assert row.status in ("awaiting_approval", "failed")
    await clean(harness, row.id, seen)
    row = await harness.run(RunCommand(("cat", CANARY), secrets=(TOKEN,), env={"A": CANARY}, stdin=CANARY))
    assert row.status == "awaiting_approval"
    preview = str((await harness.wait(row.id)).details["preview"])
    assert "env:CANARY" in preview
    await clean(harness, row.id, seen)


async def test_a_program_that_reveals_a_secret(harness: GateHarness, seen: list[Any]) -> None:
    def make(inputs: dict[str, Any]) -> Program[Any]:
        yield StepStarted("1", f"Title {CANARY}")
        yield ValueSet("token", CANARY)
        yield Warned("odd", CANARY)
        yield StepFinished("1", output=Text(CANARY * 400), reason=CANARY)
        raise EffectFailed(Failed("bad", CANARY, CANARY, details={CANARY: [CANARY]}))

    harness.make = make
    row = await harness.run()
    assert row.status == "failed"
    await clean(harness, row.id, seen)


async def test_logs_are_masked(harness: GateHarness, caplog: pytest.LogCaptureFixture) -> None:
    guard_logs(harness.redactor)
    caplog.set_level(logging.DEBUG)
    log = logging.getLogger("cuebook")
    log.warning("with %s", CANARY)
    try:
        raise ValueError(CANARY)
    except ValueError:
        log.exception("it failed")
    assert leaked(caplog.text) == []


async def test_a_process_that_only_resumes_masks_as_well(harness: GateHarness, tmp_path: Path) -> None:
    (harness.workspace / "kept.txt").write_text("nothing yet")
    steps = doing(
        RunCommand(("sh", "-c", 'printf %s "$TOKEN" > kept.txt'), secrets=(TOKEN,)),
        AskHuman("Go on?"),
        RunCommand(("cat", "kept.txt"), reads_only=True),
    )
    harness.make = steps
    row = await harness.run()
    wait = await harness.wait(row.id)
    await harness.close()
    again = GateHarness(tmp_path, ALLOWED, make=steps, environ={"CANARY": CANARY}, names={"canary": "env:CANARY"})
    again.vault.learn()
    try:
        await again.service.answer(wait.id, "yes")
        row = await again.service.drive(row.id)
        assert row.status == "completed"
        (again.workspace / "kept.txt").unlink()
        await clean(again, row.id, [])
    finally:
        await again.close()
