"""A conversation: the model requests tools, receives their results, and finishes."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.conversation import Talk, converse
from cuebook.kernel.effects import All, AskModel, CallTool
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, ToolResult, Usage

TOOLS = {"search": CallTool("web.search", reads_only=True), "send": CallTool("mail.send")}


def wants(*calls: ToolCall) -> Reply:
    return Reply(Text("Let me see."), calls=calls, finish="tool_calls")


class Stage:
    """Acts as the engine: returns a reply to each question and a result for each call."""

    def __init__(self, *replies: Reply, results: dict[str, Any] | None = None, **limits: Any) -> None:
        self.asked: list[AskModel] = []
        self.called: list[CallTool] = []
        self.noted: list[Noted] = []
        self.replies, self.results = list(replies), results or {}
        self.program = converse(AskModel("What is new?"), TOOLS, **limits)

    def play(self) -> Talk:
        send: Any = None
        try:
            while True:
                asked = self.program.send(send)
                if isinstance(asked, Noted):
                    self.noted.append(asked)
                    send = None
                elif isinstance(asked, Warned):
                    send = None
                elif isinstance(asked, All):
                    send = tuple(map(self._outcome, asked.branches))
                else:
                    self.asked.append(asked)
                    send = self.replies.pop(0)
        except StopIteration as stop:
            talk: Talk = stop.value
            return talk

    def _outcome(self, branch: Any) -> Any:
        if isinstance(branch, CallTool):
            self.called.append(branch)
            return self.results.get(branch.tool, ToolResult("found"))
        try:
            next(branch.start(None))
        except StopIteration as stop:
            return stop.value
        raise AssertionError("a refusal asks for nothing")

    def shown(self, turn: int = -1) -> list[tuple[str, str]]:
        return [(block.role, str(block.text)) for block in self.asked[turn].context]


def test_without_calls_it_ends_at_once() -> None:
    stage = Stage(Reply(Text("Nothing.")))
    assert stage.play().replies == [Reply(Text("Nothing."))]
    assert stage.asked == [AskModel("What is new?", relays=True)]


def test_the_model_sees_what_it_asked_for_and_what_came_back() -> None:
    calls = (ToolCall("1", "search", {"q": "a"}), ToolCall("2", "send", {"to": "b"}))
    stage = Stage(wants(*calls), Reply(Text("Done.")), results={"mail.send": ToolResult({"id": 7})})
    talk = stage.play()
    assert (talk.reply.text, len(talk.replies), len(talk.calls)) == ("Done.", 2, 2)
    assert [(call.tool, call.arguments, call.reads_only) for call in stage.called] == [
        ("web.search", {"q": "a"}, True),
        ("mail.send", {"to": "b"}, False),
    ]
    assert stage.shown() == [
        ("user", "What is new?"), ("assistant", "Let me see."), ("tool", "found"), ("tool", '{"id":7}'),
    ]  # fmt: skip
    assert [block.call_id for block in stage.asked[-1].context][-2:] == ["1", "2"]


def test_each_turn_is_shown_the_beginning_of_the_one_before() -> None:
    stage = Stage(wants(ToolCall("1", "search")), wants(ToolCall("2", "search")), Reply(Text("Done.")))
    stage.play()
    assert stage.shown(1) == stage.shown(2)[: len(stage.shown(1))]


def test_a_failed_tool_is_reported_to_the_model_and_ends_nothing() -> None:
    stage = Stage(
        wants(ToolCall("1", "search")), Reply(Text("So be it.")), results={"web.search": Failed("down", "It is down.")}
    )
    talk = stage.play()
    assert talk.reply.text == "So be it."
    assert talk.calls[0][1] == ToolResult("It is down.", is_error=True)
    assert ("tool", "It is down.") in stage.shown()
    assert [block.is_error for block in stage.asked[-1].context] == [False, False, True]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (ToolCall("1", "guess"), "There is no tool named 'guess'. Use one of: search, send."),
        (ToolCall("1", "search", malformed="{oops"), "The arguments of 'search' were not a JSON object."),
    ],
)
def test_a_call_that_makes_no_sense_is_answered_and_not_performed(call: ToolCall, said: str) -> None:
    stage = Stage(wants(call, ToolCall("2", "search")), Reply(Text("Sorry.")))
    stage.play()
    assert len(stage.called) == 1
    assert stage.shown()[-2:] == [("tool", said), ("tool", "found")], "in the order of the calls"


def test_a_conversation_has_a_maximum_number_of_turns() -> None:
    with pytest.raises(EffectFailed, match="within 3 turns"):
        Stage(*[wants(ToolCall("1", "search"))] * 9, max_turns=3).play()
    with pytest.raises(EffectFailed, match="more than 2 tool calls"):
        Stage(wants(*[ToolCall(str(n), "search") for n in range(3)]), max_calls=2).play()


def test_the_conversation_is_kept_even_if_it_fails() -> None:
    talk = Talk()
    with pytest.raises(EffectFailed, match="within 2 turns"):
        Stage(*[wants(ToolCall("1", "search"))] * 2, max_turns=2, talk=talk).play()
    assert [reply.text for reply in talk.replies] == ["Let me see."] * 2
    assert [(call.name, result.value) for call, result in talk.calls] == [("search", "found")] * 2


@pytest.mark.parametrize("hearing", [{}, {"heard": lambda call, outcome: None}], ids=["", "with a listener"])
@pytest.mark.parametrize("code", ["in_doubt", "expired"])
def test_a_stop_by_a_person_ends_the_conversation(code: str, hearing: dict[str, Any]) -> None:
    failed = Failed(code, "Stopped.")
    with pytest.raises(EffectFailed, match="Stopped"):
        Stage(wants(ToolCall("1", "send")), Reply(Text("On.")), results={"mail.send": failed}, **hearing).play()


def test_the_same_call_that_fails_the_same_way_is_stopped_after_a_warning() -> None:
    down = {"web.search": Failed("down", "It is down.")}
    replies = [wants(ToolCall(str(turn), "search", {"q": "a"})) for turn in range(9)]
    stage, talk = Stage(*replies, results=down), Talk()
    stage.program = converse(AskModel("What is new?"), TOOLS, talk=talk)
    with pytest.raises(EffectFailed, match=r"called 'search' 5 times in a row .*: It is down\.") as stopped:
        stage.play()
    assert (stopped.value.failed.code, len(stage.called), len(talk.calls)) == ("same_call", 5, 5)
    told = [said for role, said in stage.shown() if role == "tool"]
    assert told[:2] == ["It is down."] * 2
    assert all(said.startswith("It is down.\n[") and "in a row" in said for said in told[2:])
    assert {result.value for _, result in talk.calls} == {"It is down."}, "the warning is not the tool's"


@pytest.mark.parametrize(
    "between",
    [
        (ToolCall("s", "send"),),
        (ToolCall("s", "search", {"q": "b"}),),
        (ToolCall("s", "send"), ToolCall("t", "search", {"q": "a"})),
    ],
    ids=["one that succeeds", "another that fails", "one beside it"],
)
def test_a_failing_call_may_be_made_again_after_another(between: tuple[ToolCall, ...]) -> None:
    down = {"web.search": Failed("down", "It is down.")}
    replies: list[Reply] = []
    for _ in range(6):
        replies += [wants(ToolCall("1", "search", {"q": "a"}))] * 2 + [wants(*between)]
    stage = Stage(*replies, Reply(Text("Done.")), results=down, max_turns=50)
    assert stage.play().reply.text == "Done."
    assert not any("in a row" in said for _, said in stage.shown())


def cut(*calls: ToolCall) -> Reply:
    return Reply(Text(""), calls=calls, finish="length", usage=Usage(output=16_384))


@pytest.mark.parametrize("arguments", [{"malformed": '{"to": "b", "text": "Once'}, {}], ids=["", "not even begun"])
def test_a_call_that_was_cut_off_is_reported_and_not_made(arguments: dict[str, str]) -> None:
    stage = Stage(cut(ToolCall("1", "search", {"q": "a"}), ToolCall("2", "send", **arguments)), Reply(Text("Sorry.")))  # type: ignore[arg-type]
    stage.play()
    assert [call.tool for call in stage.called] == ["web.search"]
    said = stage.shown()[-1][1]
    assert "was not made" in said
    assert "cut" in said
    assert "16,384 tokens" in said
    assert "JSON" not in said


def test_different_cut_calls_are_not_the_same_call_and_end_in_time() -> None:
    replies = [cut(ToolCall(str(turn), "send", malformed=f'{{"text": "{turn}')) for turn in range(9)]
    stage = Stage(*replies[:4], Reply(Text("Done.")))
    assert stage.play().reply.text == "Done."
    assert not any("in a row" in said for _, said in stage.shown())
    with pytest.raises(EffectFailed, match="were cut off at its output limit 5 times in a row") as stopped:
        Stage(*replies).play()
    assert stopped.value.failed.code == "call_cut"


def test_a_flawed_reply_is_requested_again_up_to_a_limit() -> None:
    replies = [Reply(Text(said)) for said in ("no", "", "nope", "yes")]
    stage = Stage(*replies, flaw=lambda reply: "" if reply.text == "yes" else f"'{reply.text}' is not yes")
    assert stage.play().reply.text == "nope", "the caller judges the last one"
    assert [note.data["number"] for note in stage.noted] == [1, 2]
    assert "'no' is not yes" in stage.asked[1].prompt
    assert stage.shown(1)[-1] == ("assistant", "no")
    assert [role for role, _ in stage.shown(2)] == ["user", "assistant", "user"], "an empty turn is left out"
    assert Stage(*replies, max_turns=2, flaw=lambda reply: "no").play().reply.text == ""


def test_a_model_whose_reply_was_cut_off_is_asked_for_a_shorter_one() -> None:
    stage = Stage(
        Reply(Text('{"a": '), finish="length"),
        Reply(Text("{}")),
        flaw=lambda reply: "" if reply.text == "{}" else "no JSON",
    )
    stage.play()
    assert "cut off at the output limit" in stage.asked[1].prompt


@pytest.mark.parametrize(
    ("arguments", "result"), [({"q": "a"}, ToolResult("found")), (None, Failed("down", "It is down."))]
)
def test_a_call_that_succeeds_or_differs_may_be_made_again(arguments: dict[str, str] | None, result: Any) -> None:
    calls = [ToolCall(str(turn), "search", arguments or {"q": str(turn)}) for turn in range(6)]
    stage = Stage(*map(wants, calls), Reply(Text("Done.")), results={"web.search": result})
    assert stage.play().reply.text == "Done."


def test_a_call_repeated_under_its_id_counts_once_and_is_not_made_again() -> None:
    call = ToolCall("1", "send", {"to": "b"})
    stage = Stage(wants(call), wants(call), Reply(Text("Done.")), max_calls=1)
    assert stage.play().reply.text == "Done."
    assert len(stage.called) == 1
    assert [said for role, said in stage.shown() if role == "tool"] == ["found", "found"]


def test_another_call_under_a_known_id_counts() -> None:
    calls = [ToolCall("1", "send", {"to": "b"}), ToolCall("1", "send", {"to": "c"})]
    for replies in ([wants(calls[0]), wants(calls[1])], [wants(calls[0], calls[0])]):
        stage = Stage(*replies, max_calls=1)
        with pytest.raises(EffectFailed, match="more than 1 tool calls"):
            stage.play()
        assert len(stage.called) < 2


def test_every_outcome_is_reported_even_after_one_that_ends_the_conversation() -> None:
    heard: list[str] = []

    def hearing(call: ToolCall, outcome: Any) -> Failed | None:
        heard.append(call.id)
        return Failed("enough", "Enough.") if call.id == "1" else None

    with pytest.raises(EffectFailed, match="Enough"):
        Stage(wants(ToolCall("1", "send"), ToolCall("2", "send")), heard=hearing).play()
    assert heard == ["1", "2"]


@pytest.mark.parametrize(("tool", "told"), [("send", True), ("search", False)])
def test_a_model_learns_that_an_unanswered_call_may_have_happened(tool: str, told: bool) -> None:
    silent = Failed("timeout", "It took too long.", details={"unanswered": True})
    stage = Stage(
        wants(ToolCall("1", tool, {})), Reply(Text("So.")), results={"web.search": silent, "mail.send": silent}
    )
    stage.play()
    role, words = stage.shown()[-1]
    assert (role, "It may still have taken effect" in words) == ("tool", told)
    assert stage.called[0].doubt == "tell"


class TestClosingTurn:
    """A model that runs out of turns is asked once for its best answer."""

    def test_it_is_asked_once_without_tools(self) -> None:
        replies = [wants(ToolCall(str(n), "search", {"q": n})) for n in range(3)]
        stage = Stage(*replies, Reply(Text("As far as I know, nothing.")), max_turns=3, closes=True)
        talk = stage.play()
        assert talk.closed
        assert talk.reply.text == "As far as I know, nothing."
        assert [ask.may_call for ask in stage.asked] == [True, True, True, False]
        assert "did not finish within 3 turns" in stage.asked[-1].prompt

    def test_a_model_that_still_says_nothing_fails_as_before(self) -> None:
        replies = [wants(ToolCall(str(n), "search", {"q": n})) for n in range(2)]
        with pytest.raises(EffectFailed, match="did not finish within 2 turns"):
            Stage(*replies, Reply(Text("")), max_turns=2, closes=True).play()

    def test_the_first_version_fails(self) -> None:
        with pytest.raises(EffectFailed, match="did not finish within 1 turns"):
            Stage(wants(ToolCall("1", "search")), max_turns=1, closes=True, version=1).play()
