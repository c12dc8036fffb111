from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.kernel.context import ToolCall
from cuebook.kernel.errors import BadInput
from cuebook.testing import Final, ModelError, NotRecorded, RecordedModel, Request, Says, ScriptedModel, Tokens, Turn


def request(text: str) -> Request:
    return Request("m", (Turn("user", text),), 100)


async def chunks(model: RecordedModel, text: str) -> list[object]:
    return [chunk async for chunk in model.stream(request(text))]


async def test_what_was_recorded_is_replayed_without_the_model(tmp_path: Path) -> None:
    cassette = tmp_path / "cassettes" / "a.jsonl"
    line = Says("Hello there", calls=(ToolCall("1", "look", {"a": [1]}),), tokens=Tokens(3, 4), cost=0.25)
    inner = ScriptedModel([line], chunk=4)
    first = await chunks(RecordedModel(cassette, inner), "hi")
    again = await chunks(RecordedModel(cassette), "hi")
    assert again == first
    assert isinstance(again[-1], Final)
    assert len(inner.requests) == 1


async def test_auto_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    await chunks(RecordedModel(cassette, ScriptedModel(["one"])), "1")
    inner = ScriptedModel(["two"])
    model = RecordedModel(cassette, inner)
    await chunks(model, "1")
    await chunks(model, "2")
    assert [r.messages[0].text for r in inner.requests] == ["2"]


async def test_a_request_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    model = RecordedModel(tmp_path / "none.jsonl", ScriptedModel(["x"]), mode="replay")
    with pytest.raises(NotRecorded, match=r"none\.jsonl contains no reply of m to 'hi'.*Record it"):
        await chunks(model, "hi")


async def test_one_request_with_several_replies_gives_them_in_order_and_then_the_last(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    recording = RecordedModel(cassette, ScriptedModel(["one", "two"]), mode="record")
    await chunks(recording, "hi")
    await chunks(recording, "hi")
    playing = RecordedModel(cassette)
    texts = [(await chunks(playing, "hi"))[0].text for _ in range(3)]  # type: ignore[attr-defined]
    assert texts == ["one", "two", "two"]


async def test_a_failure_is_passed_on_and_not_kept(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    failing = ScriptedModel([ModelError("auth", "bad key", status=401)])
    with pytest.raises(ModelError, match="bad key"):
        await chunks(RecordedModel(cassette, failing), "hi")
    assert not cassette.exists()
    working = ScriptedModel(["Hello"])
    first = await chunks(RecordedModel(cassette, working), "hi")
    assert await chunks(RecordedModel(cassette), "hi") == first
    assert len(working.requests) == 1


async def test_a_failure_that_was_kept_once_is_asked_for_again(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    digest = RecordedModel(cassette).digest(request("hi"))
    cassette.write_text(f'{{"digest": "{digest}", "request": {{}}, "chunks": [], "error": {{"kind": "auth"}}}}\n')
    assert len(await chunks(RecordedModel(cassette, ScriptedModel(["Hello"])), "hi")) == 2


async def test_secrets_are_not_written_even_across_chunks(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    inner = ScriptedModel(["The word is opensesame, the key sk-abcdef0123456789."], chunk=3)
    heard = await chunks(RecordedModel(cassette, inner, strip=["opensesame"]), "what is opensesame?")
    assert any("ope" in getattr(chunk, "text", "") for chunk in heard)
    written = cassette.read_text()
    assert "opensesame" not in written
    assert "sk-abcdef" not in written
    replayed = await chunks(RecordedModel(cassette, strip=["opensesame"]), "what is opensesame?")
    assert replayed[0].text == "The word is [removed], the key [removed]"  # type: ignore[attr-defined]


async def test_a_call_stopped_half_way_is_not_kept(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    inner = ScriptedModel(["abcdef"], chunk=2)
    stream = RecordedModel(cassette, inner).stream(request("hi"))
    await anext(stream)
    await stream.aclose()
    assert not cassette.exists()
    assert inner.stopped == 1


def test_recording_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="without a model"):
        RecordedModel(tmp_path / "a.jsonl", mode="record")


def test_a_damaged_cassette_names_the_line(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    cassette.write_text('\n{"nonsense": 1}\n')
    with pytest.raises(BadInput, match=r"a\.jsonl:2"):
        RecordedModel(cassette)


async def test_a_reply_is_kept_though_its_listener_leaves_at_the_last_chunk(tmp_path: Path) -> None:
    cassette = tmp_path / "a.jsonl"
    stream = RecordedModel(cassette, ScriptedModel(["one"])).stream(request("1"))
    async for chunk in stream:
        if isinstance(chunk, Final):
            break
    await stream.aclose()
    assert len(await chunks(RecordedModel(cassette), "1")) == 2
