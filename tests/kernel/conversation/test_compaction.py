"""Compaction: a conversation that fills its window loses old results first, then turns, but never its task or its plan."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cuebook.kernel.context import EMPTY, Attachment, Block, Text, ToolCall
from cuebook.kernel.conversation import Talk, compaction, converse
from cuebook.kernel.conversation.compaction import DEEP, FULL, SUMMARISE
from cuebook.kernel.effects import All, AskModel, CallTool
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, ToolResult, Usage

WINDOW = 10_000
TOOLS = {"look": CallTool("look", reads_only=True), "TodoWrite": CallTool("TodoWrite", reads_only=True)}
Say = Any


def tokens(ask: AskModel) -> int:
    """What a provider would count: a token for four characters."""
    calls = sum(len(str(call.arguments)) for block in ask.context for call in block.calls)
    images = sum(len(block.attachments) for block in ask.context) * 1_600
    return (sum(len(block.text) for block in ask.context) + calls + len(ask.prompt)) // 4 + images


class Model:
    """Acts as the engine for a model with a small window, which answers from a function of the turn."""

    def __init__(self, say: Say, result: str = "r" * 4_000, window: int | None = WINDOW, room: int = WINDOW) -> None:
        self.say, self.result, self.window, self.room = say, result, window, room
        self.files: tuple[Attachment, ...] = ()
        self.asked: list[AskModel] = []
        self.summaries: list[AskModel] = []
        self.refused = 0
        self.events: list[Noted | Warned] = []
        self.summary: Reply | Failed = Reply(Text("I looked, and found x."))

    def play(self, **limits: Any) -> Talk:
        ask = AskModel("Find x.", EMPTY.add("system", "You are careful."))
        program = converse(ask, TOOLS, **{"max_turns": 200, **limits})
        send: Any = None
        throw: EffectFailed | None = None
        try:
            while True:
                asked = program.send(send) if throw is None else program.throw(throw)
                send, throw = None, None
                if isinstance(asked, Noted | Warned):
                    self.events.append(asked)
                elif isinstance(asked, All):
                    send = tuple(map(self._branch, asked.branches))
                elif tokens(asked) > self.room:
                    self.refused += 1
                    throw = EffectFailed(Failed("context_too_long", "It is too long."))
                else:
                    self.asked.append(asked)
                    send = self._reply(asked, self.say(len(self.asked)))
        except StopIteration as stop:
            talk: Talk = stop.value
            return talk

    def _reply(self, asked: AskModel, said: str | ToolCall) -> Reply:
        output = 10 if isinstance(said, str) else len(str(said.arguments)) // 4 + 10
        usage = Usage(tokens(asked), output)
        if isinstance(said, str) or not asked.may_call:
            return Reply(Text(str(said)), usage=usage, window=self.window)
        return Reply(Text("Let me see."), (said,), usage=usage, finish="tool_calls", window=self.window)

    def _branch(self, branch: Any) -> Any:
        if isinstance(branch, AskModel):
            self.summaries.append(branch)
            return self.summary
        return ToolResult("noted" if branch.tool == "TodoWrite" else self.result, attachments=self.files)

    @property
    def compactions(self) -> list[dict[str, Any]]:
        return [event.data for event in self.events if isinstance(event, Noted) and event.name == "compaction"]

    def breaks(self) -> int:
        """How often a call did not begin with the whole call before it."""
        contexts = [list(ask.context) for ask in self.asked]
        pairs = itertools.pairwise(contexts)
        return sum(later[: len(earlier)] != earlier for earlier, later in pairs)


def looks(turns: int, **arguments: Any) -> Say:
    return lambda turn: ToolCall(str(turn), "look", {"at": turn, **arguments}) if turn < turns else "It is x."


def test_old_results_are_replaced_by_notes_with_their_sizes() -> None:
    model = Model(looks(20))
    assert model.play().reply.text == "It is x."
    assert model.compactions
    assert not model.summaries
    last = [str(block.text) for block in model.asked[-1].context]
    assert last[:2] == ["You are careful.", "Find x."]
    assert "[The result of look (4,000 bytes) was removed to make room. Call it again if you need it.]" in last
    assert last[-1] == model.result, "the latest result stays"


def test_old_images_are_removed_like_long_results() -> None:
    model = Model(looks(40), result="[a picture]")
    model.files = (Attachment("image/png", Text("aGVsbG8="), "a.png"),)
    assert model.play().reply.text == "It is x."
    assert model.compactions
    assert model.refused == 0
    last = list(model.asked[-1].context)
    assert any("was removed to make room" in str(block.text) for block in last)
    assert last[-1].attachments, "the latest one stays"


def test_it_is_rare_and_deep_and_the_prefix_is_equal_in_between() -> None:
    model = Model(looks(100))
    model.play()
    assert all(tokens(ask) <= WINDOW for ask in model.asked)
    assert all(one["before"] > FULL * WINDOW for one in model.compactions)
    assert all(one["after"] <= (DEEP + 0.1) * WINDOW for one in model.compactions)
    assert model.breaks() == len(model.compactions) <= 100 / 3


def test_turns_that_are_long_in_themselves_are_summarised_by_the_model() -> None:
    model = Model(looks(12, because="a" * 4_000), result="short")
    model.play()
    assert model.summaries
    assert all(one["summary"] for one in model.compactions)
    first = model.summaries[0]
    assert (first.prompt, first.may_call) == (SUMMARISE, False)
    shown = [str(block.text) for block in model.asked[-1].context]
    assert shown[:2] == ["You are careful.", "Find x."]
    assert "I looked, and found x." in shown[2]
    assert shown[-1] == "short"


@pytest.mark.parametrize("summary", [Failed("model_server_error", "It is down."), Reply(Text(" "))])
def test_without_a_summary_the_calls_are_listed_with_a_warning(summary: Reply | Failed) -> None:
    model = Model(looks(7, because="a" * 6_000), result="short")
    model.summary = summary
    model.play()
    assert any(isinstance(event, Warned) and event.code == "no_summary" for event in model.events)
    assert 'look {"at":1' in str(list(model.asked[-1].context)[2].text)


def test_the_number_of_summaries_is_bounded() -> None:
    model = Model(looks(60, because="a" * 4_000), result="short")
    model.play(summaries=2)
    assert len(model.summaries) == 2
    assert len(model.compactions) > 2


def test_the_open_plan_stays_through_every_compaction() -> None:
    plan = {"todos": [{"content": "Look everywhere", "status": "pending"}]}
    often = looks(40, because="a" * 4_000)

    def say(turn: int) -> str | ToolCall:
        return ToolCall("p", "TodoWrite", plan) if turn == 1 else often(turn)

    model = Model(say, result="short")
    model.play()
    assert len(model.compactions) > 2
    for ask in model.asked[1:]:
        calls = [call for block in ask.context for call in block.calls if call.name == "TodoWrite"]
        assert calls or any("Look everywhere" in str(block.text) for block in ask.context)


def test_an_unknown_window_is_learnt_from_the_call_that_did_not_fit() -> None:
    model = Model(looks(60), window=None)
    assert model.play().reply.text == "It is x."
    assert model.compactions
    assert model.refused <= 2, "what did not fit once is not tried again and again"


def test_a_task_that_does_not_fit_fails_as_it_is() -> None:
    model = Model(looks(3), room=5)
    with pytest.raises(EffectFailed) as caught:
        model.play()
    assert caught.value.failed.code == "context_too_long"
    assert not model.compactions


def test_a_conversation_that_cannot_be_compacted_further_is_closed() -> None:
    def say(turn: int) -> str | ToolCall:
        return ToolCall(str(turn), "look", {"at": turn}) if turn < 100 else "never"

    model = Model(say)
    program = converse(AskModel("t" * 4 * 6_500), TOOLS, max_turns=100, closes=True)
    send: Any = None
    talk = Talk()
    try:
        while True:
            asked = program.send(send)
            send = None
            if isinstance(asked, Noted | Warned):
                model.events.append(asked)
            elif isinstance(asked, All):
                send = tuple(map(model._branch, asked.branches))
            else:
                model.asked.append(asked)
                send = model._reply(asked, say(len(model.asked)) if asked.may_call else "As far as I know, x.")
    except StopIteration as stop:
        talk = stop.value
    assert talk.closed
    assert talk.reply.text == "As far as I know, x."
    assert len(model.asked) < 10
    assert [event.code for event in model.events if isinstance(event, Warned)][-1] == "closing_turn"


def test_results_of_one_turn_that_take_too_much_are_trimmed_at_head_and_tail() -> None:
    text = "begin" + "m" * 30_000 + "end"
    model = Model(looks(3), result=text, room=10**9)
    model.play()
    results = [str(block.text) for block in model.asked[-1].context if block.role == "tool"]
    assert results[-1].startswith("begin")
    assert results[-1].endswith("end")
    assert "of 30,008 bytes are left out here]" in results[-1]
    assert len(results[-1]) < WINDOW * 4 / 3


def test_the_first_version_neither_compacts_nor_trims() -> None:
    model = Model(looks(8), room=10**9)
    model.play(version=1)
    assert not model.compactions
    assert tokens(model.asked[-1]) > FULL * WINDOW * 0.8


def test_a_context_that_conversations_share_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each node of a long workflow would cost more than the one before it."""
    counted: list[Block] = []
    size_of = compaction._size_of

    def counting(block: Block) -> int:
        counted.append(block)
        return size_of(block)

    monkeypatch.setattr(compaction, "_size_of", counting)
    context = EMPTY
    for node in range(200):
        context = context.add("user", f"Result of node {node}.")
        program = converse(AskModel("Next.", context), TOOLS)
        next(program)
        with pytest.raises(StopIteration):
            program.send(Reply(Text("Done."), usage=Usage(10, 5), window=WINDOW))
    assert len(counted) <= 400
