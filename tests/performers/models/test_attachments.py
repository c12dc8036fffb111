"""Images and documents that tools read: sent to models that take them, and an error for those that do not."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import EMPTY, Attachment, Context, Text, ToolCall
from cuebook.kernel.effects import AskModel
from cuebook.kernel.events import Performed, Warned
from cuebook.kernel.fold.verify import texts_behind
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools import agent_tools
from cuebook.performers.agent_tools.files import IMAGE_LIMIT
from cuebook.performers.models.attachments import fitted, taken_by
from cuebook.performers.models.model import Request, estimate_request, messages_of
from cuebook.performers.models.protocols.anthropic import AnthropicMessages, request_body
from cuebook.performers.models.protocols.openai import OpenAICompatible
from cuebook.performers.models.providers import Resolved
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.performers.tools.toolbox import Toolbox
from tests.performers.tools.calls import ToolCaller
from tests.support.model_server import ModelServer
from tests.support.runtime import RuntimeHarness

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
PDF = b"%PDF-1.7\n" + bytes(range(256)) * 20
GRAPH = """\
id: look
name: Look
entry: work
nodes:
  work: {name: Work, instruction: Look at the picture.}
edges: []
"""


def resolved(protocol: str, model: str, takes: tuple[str, ...] | None = None) -> Resolved:
    answers: Any = ScriptedModel([])
    if protocol == "openai":
        answers = OpenAICompatible("p", "http://127.0.0.1:1", "")
    elif protocol == "anthropic":
        answers = AnthropicMessages("p", "")
    return Resolved("p", model, answers, "p", takes=takes)


# --- Read ---


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89arest", "image/gif"),
        (b"RIFF\0\0\0\0WEBPrest", "image/webp"),
        (PDF, "application/pdf"),
    ],
)
async def test_images_and_documents_are_recognised_by_their_content(tmp_path: Path, content: bytes, media_type: str):
    (tmp_path / "file.txt").write_bytes(content)
    outcome = await ToolCaller().perform(
        Toolbox(agent_tools(tmp_path, commands=None, http=None)), "Read", {"path": "file.txt"}
    )
    assert isinstance(outcome, ToolResult)
    (file,) = outcome.attachments
    assert (file.media_type, file.name, b64decode(str(file.data))) == (media_type, "file.txt", content)
    assert f"{len(content):,} bytes" in outcome.value


async def test_an_image_that_is_too_large_is_refused(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(PNG + b"x" * IMAGE_LIMIT)
    failed = await ToolCaller().failure(
        Toolbox(agent_tools(tmp_path, commands=None, http=None)), "Read", {"path": "a.png"}
    )
    assert failed.code == "too_large"


# --- which models take them ---


@pytest.mark.parametrize(
    ("protocol", "model", "takes"),
    [
        ("anthropic", "claude-opus-4-6", {"images", "pdf"}),
        ("anthropic", "claude-3-haiku-20240307", {"images"}),
        ("anthropic", "claude-2.1", set()),
        ("openai", "gpt-5-mini", {"images"}),
        ("openai", "gpt-4o", {"images"}),
        ("openai", "o3-mini", set()),
        ("openai", "anthropic/claude-sonnet-4.5", {"images"}),
        ("openai", "qwen2.5-vl-7b", {"images"}),
        ("openai", "llama-3.1-8b", set()),
        ("scripted", "gpt-4o", set()),
    ],
)
def test_models_are_recognised_by_their_names(protocol: str, model: str, takes: set[str]):
    assert taken_by(resolved(protocol, model)) == takes


def test_the_configuration_decides_before_the_name():
    assert taken_by(resolved("openai", "llama-3.1-8b", ("images", "pdf"))) == {"images"}
    assert taken_by(resolved("openai", "gpt-4o", ())) == set()


# --- on the wire ---


def context() -> Context:
    calls = (ToolCall("a", "Read", {"path": "a.png"}), ToolCall("b", "Read", {"path": "b.txt"}))
    image = Attachment("image/png", Text(b64encode(PNG).decode()), "a.png")
    document = Attachment("application/pdf", Text(b64encode(PDF).decode()), "c.pdf")
    made = EMPTY.add("user", "Look.").add("assistant", "", calls=calls)
    made = made.add("tool", "[a.png: image]", call_id="a", attachments=(image,)).add("tool", "text", call_id="b")
    made = made.add("assistant", "", calls=(ToolCall("c", "Read", {"path": "c.pdf"}),))
    return made.add("tool", "[c.pdf: PDF]", call_id="c", attachments=(document,))


def request(model: Resolved) -> Request:
    return fitted(Request(model.model, messages_of(AskModel("", context())), 100), model)


def test_anthropic_gets_image_and_document_blocks_in_the_results():
    body = request_body(request(resolved("anthropic", "claude-opus-4-6")), native_schema=True)
    image, text = body["messages"][2]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
    assert image["content"] == [{"type": "text", "text": "[a.png: image]"}, {"type": "image", "source": source}]
    assert text["content"] == "text"
    (document,) = body["messages"][4]["content"]
    assert document["content"][1]["type"] == "document"
    assert document["content"][1]["source"]["media_type"] == "application/pdf"


def test_openai_gets_images_after_the_results_and_an_error_for_a_document():
    model = resolved("openai", "gpt-4o")
    assert isinstance(model.answers, OpenAICompatible)
    messages = model.answers._body(request(model))["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
        "tool",
    ]
    words, image = messages[4]["content"]
    assert "a.png" in words["text"]
    assert image["image_url"]["url"] == f"data:image/png;base64,{b64encode(PNG).decode()}"
    assert "PDF document, which cannot be sent to the model p/gpt-4o" in messages[6]["content"]


def test_a_model_that_takes_no_images_gets_an_error():
    fit = request(resolved("openai", "llama-3.1-8b"))
    assert not any(message.files for message in fit.messages)
    refused = fit.messages[2]
    assert refused.is_error
    assert "does not take images" in refused.text


def test_an_attachment_counts_as_tokens():
    bare = Request("m", messages_of(AskModel("", EMPTY.add("tool", "[a.png: image]", call_id="a"))), 100)
    image = Attachment("image/png", Text(b64encode(PNG).decode()), "a.png")
    whole = EMPTY.add("tool", "[a.png: image]", call_id="a", attachments=(image,))
    assert estimate_request(Request("m", messages_of(AskModel("", whole)), 100)).likely >= (
        estimate_request(bare).likely + 1_000
    )


# --- in a run ---


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    made.replies = [{"tool": "Read", "arguments": {"file_path": "shot.png"}}, '{"seen": true}']
    yield made
    made.close()


@pytest.mark.parametrize("model", ["gpt-4o", "llama-3.1-8b"])
async def test_an_image_reaches_the_model_and_is_stored_once_outside_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ModelServer, model: str
):
    runtime = RuntimeHarness(
        tmp_path, monkeypatch, 'from_outside = "allow"\n[files]\nallow = ["*"]\n[tools]\nallow = ["*"]\n'
    )
    (runtime.config / "cuebook.toml").write_text(f'[providers.test]\nbase_url = "{server.url}"\n')
    (runtime.work / "shot.png").write_bytes(PNG)
    runtime.open(model=f"test/{model}")
    service = runtime.service
    settings = Settings(model=f"test/{model}", workspace=runtime.wiring.factory.workspace.path)
    run = (await service.start(Playbook.from_text(GRAPH, "look.yml"), {}, settings)).id
    row = await service.drive(run)
    assert row.status == "completed", row.error
    encoded = b64encode(PNG).decode()
    sent = str(server.requests[1]["messages"])
    warned = [entry async for entry in service.entries(run) if isinstance(entry.event, Warned)]
    if model == "gpt-4o":
        assert f"data:image/png;base64,{encoded}" in sent
        assert not warned
    else:
        assert encoded not in sent
        assert "does not take images" in sent
        assert "attachment_left_out" in [entry.event.code for entry in warned if isinstance(entry.event, Warned)]
    records = [record async for record in service._store.records(run)]
    assert all(encoded[:3000].encode() not in record.body for record in records)
    held = [found for found in texts_behind(records, service._store.text) if found.text == encoded]
    assert len(held) == 1
    results = [entry.event.outcome async for entry in service.entries(run) if isinstance(entry.event, Performed)]
    (read,) = [one for one in results if isinstance(one, ToolResult)]
    assert str(read.attachments[0].data) == encoded
    assert (await service.verify(run)).broken_at is None
    assert not isinstance((await service.replay(run)).failed, Failed)
    await runtime.close()
