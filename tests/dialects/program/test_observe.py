"""The projection of a run from its journal, and a conversation as it streams."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cuebook.dialects.presentation.projection import Said
from cuebook.dialects.program.conversation import ProgramConversation
from cuebook.dialects.program.machine import machine
from cuebook.dialects.program.observe import ProgramProjection
from cuebook.dialects.program.parse import parse
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Send
from cuebook.kernel.events import (
    ModelAsked,
    Noted,
    Performed,
    Performing,
    Rewound,
    StepStarted,
    TextChunk,
    TextReset,
    ValueSet,
)
from cuebook.kernel.journal import Entry, Place
from cuebook.kernel.outcomes import Answer, Resumed
from tests.dialects.program.harness import ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply

ASK = reply('`Step["Main:01:QUE"]` `Say("user", "Who?")`', "trig? no", "yld user")


class Written:
    """Entries as a journal would contain them."""

    def __init__(self) -> None:
        self.seq = 0

    def __call__(self, event: Any, **place: Any) -> Entry:
        self.seq += 1
        return Entry("r", self.seq, 0.0, Place(**place), event)


def called(playbook: str = "Main", agent: str = "Desk", **arguments: Any) -> Noted:
    return Noted("called", {"agent": agent, "playbook": playbook, "arguments": arguments})


# --- the projection ---


async def test_a_waiting_run_shows_its_stack_pending_calls_and_variable_types() -> None:
    text = program(
        "- 01:EXE $n:int = 1\n- 02:QUE Rate($n)\n- 03:QUE Say(user, Ask for $mood); YLD for user\n- 04:RET $n",
        "## Rate($n:int) -> int\n### Steps\n- 01:RET $n\n",
    )
    says = [reply('`Step["Main:03:QUE"]` `Var[$mood:str, "good"]` `Say("user", "And?")`', "trig? no", "yld user")]
    run = await ProgramHarness().play(text, says)
    shown = ProgramConversation.of(run.entries, parse(text, "program.pbasm"))
    (frame,) = shown.stack
    assert (frame.agent, frame.playbook, frame.line, frame.status) == ("Desk", "Main", "03", "done")
    assert frame.pending == ("02#1 Rate(1)",)
    assert [(one.name, one.type, one.value) for one in shown.typed()["Desk"]] == [
        ("n", "int", 1),
        ("mood", "str", "good"),
    ]
    assert [(one.label, one.status == "current") for one in shown.listing(frame).lines] == [
        ("01", False),
        ("02", False),
        ("03", True),
        ("04", False),
    ]
    assert (shown.model_calls, shown.without_model) == (1, 2)
    assert shown.question == "And?"
    trace = msgspec.json.decode(msgspec.json.encode(shown.as_object()))
    assert trace["stack"][0]["pending"] == ["02#1 Rate(1)"]
    assert trace["conversation"] == [{"by": "program", "text": "And?", "to": "user", "agent": "Desk"}]


async def test_a_refusal_contains_everything_that_was_sent_to_the_model() -> None:
    text = program("- 01:QUE Say(user, Ask); YLD for user\n- 02:EXE Think of $x\n- 03:RET")
    skips = reply('`Step["Main:03:RET"]` `Return[]`')
    run = await ProgramHarness().play(text, [skips, ASK])
    (one,) = run.seen.refused
    assert (one.playbook, one.rule, one.attempt, one.retries) == ("Main", "C4", 1, 2)
    assert one.position == "Main:01, not yet executed"
    assert one.legal == ("Main:01:QUE Say(user, Ask); YLD for user",)
    assert one.at.startswith('line 3, column 1: `Step["Main:03:RET"]`')
    assert all(words in run.prompt(1) for words in (one.problem, one.at, one.legal[0]))


async def test_a_failed_run_shows_the_stack_at_the_failure() -> None:
    text = program(
        "- 01:QUE $x:int = Find()\n- 02:YLD for call\n- 03:RET $x",
        "## Find() -> int\n### Steps\n- 01:EXE Find $y:int\n- 02:RET $y\n",
    )
    run = await ProgramHarness().play(text, ["no"] * 12)
    assert run.status == "failed"
    assert run.seen.failed
    assert next((frame.playbook, frame.line) for frame in run.seen.stack) == ("Main", "02")


def test_an_argument_that_is_set_is_the_frames_and_changes_by_a_person_count() -> None:
    write, run = Written(), ProgramConversation()
    for event in (
        called(n=1),
        StepStarted("Main:01"),
        ValueSet("n", 2),
        ValueSet("m", 3),
        Performed(Resumed({"$m": 4}), ""),
    ):
        run.see(write(event))
    assert run.stack[0].arguments == {"n": 2}
    assert run.variables == {"Desk": {"m": 4}}


def test_rewound_entries_are_ignored() -> None:
    write, run = Written(), ProgramConversation()
    run.see(write(called()))
    run.see(write(StepStarted("Main:01")))
    again = write(Performing(Send("Hello"), "s"), step="Main:01", index=1)
    assert [one.text for one in run.see(again)] == ["Hello"]
    run.see(write(Rewound(again.seq, "")))
    assert run.messages == []
    assert run.lines == ["Main:01"]


# --- as it streams ---


def asked(write: Written, prompt: str = "State: {}") -> Entry:
    return write(ModelAsked("m", "c", Text(prompt), "AskModel"), step="Main:01")


def begun(
    write: Written, talk: ProgramProjection, text: str = ASK, playbook: str = "Main", prompt: str = "State: {}"
) -> int:
    talk.see(write(called(playbook)))
    entry = asked(write, prompt)
    talk.see(entry)
    return entry.seq


def sent(write: Written, text: str) -> Entry:
    return write(Performing(Send(text), "Send user"), step="Main:01", index=write.seq)


def test_a_message_is_shown_once_however_the_reply_is_split() -> None:
    for size in (1, 2, 7, 1000):
        write, talk = Written(), ProgramProjection()
        seq = begun(write, talk)
        shown: list[Said] = []
        for at in range(0, len(ASK), size):
            piece = ASK[at : at + size]
            shown += talk.see(TextChunk("r", seq, "Main:01", at, piece)).said
        assert [(one.agent, one.text) for one in shown] == [("Desk", "Who?")], size
        assert talk.see(sent(write, "Who?")).said == []
        assert [one.text for one in talk.see(sent(write, "Who?")).said] == ["Who?"], (
            "the second time it is another message"
        )
        assert [one.by for one in talk.see(write(Performed(Answer("Ada"), ""))).said] == ["user"]
        assert [one.text for one in talk.conversation.said] == ["Who?", "Who?", "Ada"]


def test_a_reply_that_begins_again_repeats_nothing() -> None:
    write, talk = Written(), ProgramProjection()
    seq = begun(write, talk)
    other = ASK.replace("Who?", "Who are you?")
    assert len(talk.see(TextChunk("r", seq, "Main:01", 0, ASK)).said) == 1
    talk.see(TextReset("r", seq, "Main:01"))
    assert talk.see(TextChunk("r", seq, "Main:01", 0, ASK)).said == []
    talk.see(TextReset("r", seq, "Main:01"))
    assert [one.text for one in talk.see(TextChunk("r", seq, "Main:01", 0, other)).said] == ["Who are you?"]
    assert talk.see(sent(write, "Who are you?")).said == []


def test_only_what_executes_lines_speaks() -> None:
    text = program("- 01:RET", "## Raw\nexecution_mode: raw\nSay something.\n")
    for playbook, prompt in (("Raw", "Say something."), ("Main", "Look at these triggers and at nothing else. Does")):
        write, talk = Written(), ProgramProjection(parse(text, "program.pbasm"))
        seq = begun(write, talk, playbook=playbook, prompt=prompt)
        assert talk.see(TextChunk("r", seq, playbook, 0, ASK)).said == []
    write, talk = Written(), ProgramProjection()
    seq = begun(write, talk)
    to_another = ASK.replace('"user"', '"Shop"')
    assert talk.see(TextChunk("r", seq, "Main:01", 0, to_another)).said == []
    assert talk.see(TextChunk("r", seq, "Main:01", 500, ASK)).said == [], "something is missing in between"


def test_what_is_computed_is_shown_when_it_is_sent() -> None:
    write, talk = Written(), ProgramProjection()
    seq = begun(write, talk)
    assert talk.see(TextChunk("r", seq, "Main:01", 0, ASK.replace('"Who?"', "$question"))).said == []
    assert [one.text for one in talk.see(sent(write, "Who?")).said] == ["Who?"]


# --- the plan ---


async def test_the_plan_lists_the_lines_that_run_at_the_start() -> None:
    text = program(
        "- 01:EXE $n:int = 1\n- 02:CND If $n == 1\n  - 02.01:EXE $n = 2\n- 03:RET $n", "## Other\n### Steps\n- 01:RET\n"
    )
    document = parse(text, "program.pbasm")
    assert [(one.label, one.title, one.branched) for one in document.plan] == [
        ("Main:01", "EXE $n:int = 1", False),
        ("Main:02", "CND If $n == 1", False),
        ("Main:02.01", "EXE $n = 2", True),
        ("Main:03", "RET $n", False),
    ]
    run = await ProgramHarness().play(text)
    assert run.lines == [one.label for one in document.plan]
    assert (run.row.totals.steps, run.row.totals.steps_done) == (4, 4)
    called = await ProgramHarness().play(text, call="Other")
    assert called.row.totals.steps == 0


async def test_calls_that_ran_after_a_checkpoint_are_no_longer_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CHECKPOINT_EVERY", 1)
    text = program(
        "- 01:EXE $n:int = 1\n- 02:QUE $m:int = Rate($n)\n- 03:YLD for call\n- 04:QUE Say(user, Ask); YLD for user\n- 05:RET $m",
        "## Rate($n:int) -> int\n### Steps\n- 01:RET $n\n",
    )
    says = [reply('`Step["Main:04:QUE"]` `Say("user", "And?")`', "trig? no", "yld user")]
    run = await ProgramHarness().play(text, says)
    (frame,) = run.seen.stack
    assert (frame.line, frame.pending) == ("04", ())
