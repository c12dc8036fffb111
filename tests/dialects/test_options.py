"""The options of every dialect: a warning fails a strict run, and a no may stop a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.options import COMMON, Option, chosen, with_options
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.effects import All, AskHuman, AskModel, Branch, Program
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.service import Service
from cuebook.testing import Line, Says, ScriptedModel, model_performer

ASKS = '# A\n\n## STEP 1: Ask\n\n@elicit(confirm, "Go on?")\n\n## STEP 2: Work\n\nDo it.\n'
WARNS = "# A\n\n## STEP 1: Work\n\nSay {{nothing}}.\n"
PLAIN = "# A\n\n## STEP 1: Work\n\nTell a tale.\n"
WRONG = "# A\n\n## STEP 1: Work\n\nDo it.\n\n## STEP 3: More\n\nDo more.\n"


class Table:
    def __init__(self, store: Store, script: Iterable[Line] = ()) -> None:
        self.model = ScriptedModel(script)
        self.service = Service(store, {AskModel: model_performer(self.model)})

    async def start(self, text: str, **options: Any) -> RunRow:
        settings = Settings(model="test/x", options=options)
        return await self.service.start(Playbook.from_text(text, "a.md"), {}, settings)

    async def driven(self, text: str, **options: Any) -> RunRow:
        return await self.service.drive((await self.start(text, **options)).id)


async def test_a_no_stops_the_run_only_if_that_option_is_set(store: Store) -> None:
    table = Table(store, ["done"])
    for options, status in (({"stop_on_no": True}, "cancelled"), ({}, "completed")):
        row = await table.driven(ASKS, **options)
        (wait,) = await table.service.inbox()
        await table.service.answer(wait.id, "no")
        row = await table.service.drive(row.id)
        assert row.status == status
    stopped = (await table.service.runs(status=["cancelled"]))[0]
    assert stopped.error is not None
    assert stopped.error.message == "The answer to 'Go on?' was no, which stops the run."
    assert len(table.model.requests) == 1


async def test_a_yes_continues_the_run(store: Store) -> None:
    table = Table(store, ["done"])
    row = await table.driven(ASKS, stop_on_no=True)
    (wait,) = await table.service.inbox()
    await table.service.answer(wait.id, "yes")
    assert (await table.service.drive(row.id)).status == "completed"
    assert (await table.service.replay(row.id)).complete


async def test_a_warning_fails_a_strict_run_before_the_model_is_asked(store: Store) -> None:
    table = Table(store, ["done"])
    row = await table.driven(WARNS, strict=True)
    assert (row.status, row.step) == ("failed", "1")
    assert row.error is not None
    assert row.error.code == "strict"
    assert "unknown variable 'nothing'" in row.error.message
    assert not table.model.requests
    assert (await table.driven(WARNS)).status == "completed"


async def test_a_truncated_reply_fails_a_strict_run(store: Store) -> None:
    table = Table(store, [Says("Once upon", finish="length")] * 2)
    assert (await table.driven(PLAIN)).status == "completed"
    row = await table.driven(PLAIN, strict=True)
    assert row.error is not None
    assert (row.status, row.error.code) == ("failed", "strict")
    assert "cut off at the token limit" in row.error.message


async def test_a_strict_run_of_a_playbook_with_warnings_is_refused(store: Store) -> None:
    table = Table(store)
    with pytest.raises(InvalidPlaybook, match=r"a\.md:7: Non-sequential step number: expected 2, got 3"):
        await table.start(WRONG, strict=True)
    assert await table.service.runs() == []


async def test_options_do_not_change(store: Store) -> None:
    table = Table(store, ["done", "done"])
    row = await table.driven(WARNS)
    with pytest.raises(BadInput, match="The options of a run"):
        await table.service.fork(row.id, "1", settings={"options": {"strict": True}})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"strikt": True},
            "The option 'strikt' is not available for this playbook. Available options: strict, stop_on_no, worktree, limit, policy.",
        ),
        ({"strict": "yes"}, "'strict' cannot be 'yes'. It must be true or false."),
        ({"limit": 0}, "'limit' cannot be 0. It must be a whole number above 0."),
        ({"policy": "ignore"}, "'policy' cannot be 'ignore'. It must be one of: halt, continue."),
    ],
)
def test_an_invalid_option_is_refused(given: dict[str, Any], words: str) -> None:
    known = (*COMMON, Option("limit", "", "number"), Option("policy", "", "choice", ("halt", "continue")))
    with pytest.raises(BadInput) as refused:
        chosen(given, known)
    assert words in str(refused.value)


def test_options_apply_in_branches_too() -> None:
    def inner(state: Any) -> Program[Any]:
        yield AskHuman("Sure?", "confirm")

    def outer(state: Any) -> Program[Any]:
        yield All((Branch(inner),))

    asked = next(with_options(outer, {"strict": True})(None))
    assert isinstance(asked, All)
    (branch,) = asked.branches
    assert isinstance(branch, Branch)

    def warning(state: Any) -> Program[Any]:
        yield Warned("odd", "This is odd.")

    program = with_options(warning, {"strict": True})(None)
    next(program)
    with pytest.raises(EffectFailed, match="This is odd"):
        program.send(None)


def test_a_program_may_clean_up_before_it_stops(tmp_path: Path) -> None:
    put_right: list[str] = []

    def program(state: Any) -> Program[Any]:
        try:
            yield Warned("odd", "This is odd.")
        finally:
            put_right.append("yes")

    started = with_options(program, {"strict": True})(None)
    next(started)
    with pytest.raises(EffectFailed):
        started.send(None)
    assert put_right == ["yes"]


@pytest.mark.parametrize("option", ["strict", "stop_on_no"])
def test_options_keep_how_branches_run(option: str) -> None:
    def branch(state: Any) -> Program[None]:
        yield AskHuman("Who?")

    def program(state: Any) -> Program[None]:
        yield All((Branch(branch, worktree="run-b"),), at_once=2, until="failure")

    asked = next(with_options(program, {option: True})(None))
    assert isinstance(asked, All)
    assert (asked.at_once, asked.until) == (2, "failure")
    (one,) = asked.branches
    assert isinstance(one, Branch)
    assert one.worktree == "run-b"
