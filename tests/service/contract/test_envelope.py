"""The parts of an envelope: items, their limits, and codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate.roles import NotAllowed
from cuebook.gate.tokens import Tokens
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.errors import (
    AlreadyAnswered,
    BadInput,
    Busy,
    Conflict,
    CuebookError,
    NotFound,
    StoreFull,
    WaitClosed,
    WaitExpired,
)
from cuebook.kernel.journal import Place
from cuebook.kernel.run import Settings, WaitRow
from cuebook.service.contract.envelope import MOST_BYTES, MOST_ITEMS, capped, code_of, items_of, kind_of
from cuebook.service.contract.runtime import Runtime
from cuebook.service.playbooks.library import Stored
from cuebook.service.worker import Worker
from cuebook.stores.memory import MemoryStore
from tests.gate.harness import GateHarness, doing


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('[1, {"a": 2}]\n', [1, {"a": 2}]),
        ('{"a": 1}', [{"a": 1}]),
        ("null", [None]),
        ("42\n", [42]),
        ("[]", []),
        ("words\n", ["words\n"]),
        ("", [""]),
        ("[1", ["[1"]),
        ("[" * 100_000, ["[" * 100_000]),
    ],
)
def test_data_is_parsed_and_everything_else_is_text(text: str, items: list[Any]) -> None:
    assert items_of(text, data=True) == items
    assert items_of(text, data=False) == [text]


def test_the_items_shown_are_limited_in_number_and_size() -> None:
    kept, left_out = capped(list(range(1000)))
    assert (kept, left_out) == (list(range(MOST_ITEMS)), 1000 - MOST_ITEMS)
    kept, left_out = capped(["begin" + "x" * 1_000_000 + "end", {"small": 1}])
    assert (len(kept), left_out) == (2, 0)
    assert kept[0].startswith("begin")
    assert kept[0].endswith("end")
    assert len(msgspec.json.encode(kept)) <= MOST_BYTES
    kept, left_out = capped([{"large": "x" * 1_000_000}, 1])
    assert (kept, left_out) == ([], 2)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound(), "not_found"),
        (BadInput(), "invalid_request"),
        (AlreadyAnswered(), "conflict"),
        (Conflict(), "conflict"),
        (WaitExpired(), "invalid_state"),
        (WaitClosed(), "invalid_state"),
        (Busy(), "invalid_state"),
        (NotAllowed(), "not_allowed"),
        (StoreFull(), "internal"),
        (CuebookError(), "error"),
    ],
)
def test_every_error_has_a_code_of_the_format_or_its_own(error: CuebookError, code: str) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize(
    ("kind", "details", "named"),
    [
        ("approval", {"purpose": "step"}, "workflow_step"),
        ("approval", {"purpose": "takeover"}, "takeover"),
        ("approval", {"purpose": "policy"}, "policy"),
        ("approval", {}, "policy"),
        ("in_doubt", {}, "retry"),
        ("budget", {}, "budget"),
        ("question", {}, "question"),
        ("breakpoint", {}, "pause"),
    ],
)
def test_every_wait_has_a_kind(kind: Any, details: dict[str, Any], named: str) -> None:
    wait = WaitRow(
        id="w1", run="r", tenant="t", owner="o", place=Place(), kind=kind, prompt="?", purpose=kind, details=details
    )
    assert kind_of(wait) == named


def test_a_resume_token_cannot_be_used_as_another_token(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "key")
    resume = tokens.resume("w1")
    assert tokens.wait_of(resume) == "w1"
    assert not tokens.fits(resume.partition(".")[2], "w1")
    for wrong in (f"w2.{resume.partition('.')[2]}", "w1.", f"w1.{tokens.of('w1')}", f"{resume}x"):
        with pytest.raises(NotFound):
            tokens.wait_of(wrong)
    with pytest.raises(NotFound):
        Tokens(tmp_path / "another").wait_of(resume)


async def test_an_approval_without_a_token_key_is_still_pending(tmp_path: Path) -> None:

    harness = GateHarness(tmp_path, store=MemoryStore(), make=doing(RunCommand(("touch", "made.txt"))))
    harness.service.tokens = Tokens(None)
    row = await harness.service.start_program("# T\n\n## STEP 1: A\n\nx\n", "t.md", {}, Settings(model="test/echo"))
    runtime = Runtime(harness.service, Worker(harness.service, ""), lambda document, folder: Settings(), Stored([]))
    waiting = await runtime.handle({"action": "status", "runId": row.id})
    assert waiting["status"] == "needs_approval"
    token = waiting["requiresApproval"]["resumeToken"]
    assert token == waiting["requiresApproval"]["approvalId"]
    done = await runtime.handle({"action": "resume", "token": token, "approve": True})
    assert done["status"] == "ok"
    assert (harness.workspace / "made.txt").exists()
    await runtime.close()
    await harness.close()
