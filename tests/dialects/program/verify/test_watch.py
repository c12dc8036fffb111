"""The watch on a model's stream, on the real engine: it stops at the first illegal step, and shows the verified text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.verify.verdicts import State
from cuebook.dialects.program.verify.watch import NAME, ReplyWatch, verdicts_of, watch_arguments
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, Program, Watch
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import TextChunk
from cuebook.kernel.outcomes import Reply, Usage
from cuebook.kernel.ports import Call
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import PROGRAMS, begin

LISTING = Listing.of_rows(
    "Main",
    [
        ("01", "QUE", "Say(user, Hello)"),
        ("02", "EXE", "$n:int = 1"),
        ("03", "QUE", "Say(user, $n)"),
        ("04", "YLD", "for user"),
    ],
)
LEGAL = """\
recap – the program starts
plan – greet
`Step["Main:01:QUE"]` `Say("user", "Hello")`
trig? no
`Step["Main:02:EXE"]` `Var[$n, 1]`
trig? no
`Step["Main:03:QUE"]` `Say("user", "1")`
trig? no
`Step["Main:04:YLD"]` yld user
"""
ILLEGAL = LEGAL.replace('`Step["Main:02:EXE"]` `Var[$n, 1]`\ntrig? no\n', "")


class Streaming:
    """A model that streams a scripted reply, some characters at a time, until it is stopped."""

    def __init__(self, pieces: int) -> None:
        self.pieces, self.said = pieces, 0

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        for at in range(0, len(effect.prompt), self.pieces):
            self.said = at + self.pieces
            if not call.emit(effect.prompt[at : at + self.pieces]):
                text = effect.prompt[: self.said]
                return Reply(Text(text), model="test/streaming", finish="watch", usage=Usage(1, 1, cost=0.0))
        return Reply(Text(effect.prompt), model="test/streaming", usage=Usage(1, 1, cost=0.0))


async def watched(text: str, path: Path, pieces: int = 3) -> tuple[str, str, int]:
    """The text that observers saw, how the reply ended, and how many characters the model sent."""
    arguments = watch_arguments(LISTING, Position("01"), State(variables={}, playbooks={}))

    def start(state: Any) -> Program[Any]:
        reply = yield AskModel(text, watch=Watch(NAME, arguments))
        return [reply.finish, reply.released]

    PROGRAMS["program watch"] = lambda inputs: start
    model = Streaming(pieces)
    store = SqliteStore(path / "store.db")
    engine = Engine(
        store,
        lambda row, text, inputs, options: PROGRAMS[row.name](inputs),
        {AskModel: model},
        watches={NAME: ReplyWatch.of},
    )
    seen: list[str] = []
    engine.observe(lambda event: seen.append(event.text) if isinstance(event, TextChunk) else None)
    row = await engine.drive(await begin(engine, "program watch"))
    assert row.status == "completed", row.error
    finish, released = [entry.event.result async for entry in engine.entries(row.id) if hasattr(entry.event, "result")][
        -1
    ]
    await engine.close()
    await store.close()
    assert released == len("".join(seen))
    return "".join(seen), finish, model.said


async def test_a_legal_reply_is_shown_in_full(tmp_path: Path) -> None:
    seen, finish, _ = await watched(LEGAL, tmp_path)
    assert seen == LEGAL.rstrip("\n")
    assert finish == "watch", "behind the yield nothing is waited for"


async def test_generation_stops_at_the_first_illegal_step(tmp_path: Path) -> None:
    seen, finish, said = await watched(ILLEGAL, tmp_path)
    illegal = ILLEGAL.index('`Step["Main:03:QUE"]`')
    assert finish == "watch"
    assert 'Say("user", "Hello")' in seen
    assert len(seen) <= illegal
    assert said <= illegal + len('`Step["Main:03:QUE"]`') + 3, "not a word more than the step"


async def test_a_say_is_seen_only_when_it_is_verified(tmp_path: Path) -> None:
    secret = LEGAL.replace('`Say("user", "Hello")`', '`Sya("user", "Hello")`')
    seen, finish, _ = await watched(secret, tmp_path)
    assert "Hello" not in seen
    assert finish == "watch"


async def test_text_after_the_yield_is_never_requested(tmp_path: Path) -> None:
    seen, _, said = await watched(LEGAL + "recap – and on it goes\n" * 50, tmp_path)
    assert seen == LEGAL.rstrip("\n")
    assert said < len(LEGAL) + 4


async def test_a_reply_without_an_end_is_shown_as_far_as_it_is_legal(tmp_path: Path) -> None:
    unended = LEGAL[: LEGAL.index('`Step["Main:04')]
    seen, finish, _ = await watched(unended, tmp_path, pieces=1000)
    assert finish == "stop"
    assert seen == unended.rstrip("\n")


def test_verdicts_are_those_of_one_question_and_one_text() -> None:
    def asked() -> dict[str, Any]:
        return watch_arguments(LISTING, Position("01"), State(variables={}, playbooks={}))

    def streamed(question: dict[str, Any]) -> None:
        ReplyWatch.of(**question).feed(LEGAL)

    first, second = asked(), asked()
    streamed(first)
    assert verdicts_of(second, LEGAL) is None, "the same words, and another question"
    found = verdicts_of(first, LEGAL)
    assert found is not None
    assert found.ok
    streamed(first)
    assert verdicts_of(first, LEGAL + "more") is None, "the reply that came was another one"


def test_unclaimed_verdicts_are_forgotten() -> None:
    questions = [watch_arguments(LISTING, Position("01"), State(variables={}, playbooks={})) for _ in range(100)]
    for question in questions:
        ReplyWatch.of(**question).feed(LEGAL)
    taken = [verdicts_of(question, LEGAL) is not None for question in questions]
    assert not any(taken[:30])
    assert all(taken[-30:])
