"""The format's events: content while text arrives, done when a step ends, error when one fails."""

from __future__ import annotations

from typing import Any

from cuebook.dialects.markdown.observe import published
from cuebook.kernel.events import TextReset
from cuebook.kernel.ports import Store
from cuebook.testing import ModelError, Says, Tokens
from tests.dialects.markdown.harness import MarkdownHarness
from tests.support.programs import eventually

BOOK = '# S\n\n## STEP 1: A\n\nA\n\n## STEP 2: B\n\n```if x == "y"```\n\nB\n\n```endif```\n\n## STEP 3: C\n\nC\n'


async def streamed(store: Store, *script: Any) -> tuple[str, list[dict[str, Any]]]:
    harness = MarkdownHarness(store, script)
    seen: list[dict[str, Any]] = []
    harness.service.observe(lambda event: seen.extend(map(dict, published(event))))
    row = await harness.run(BOOK)

    async def is_told() -> bool:
        return any(one["step"] == "3" and one["type"] in ("done", "error") for one in seen)

    await eventually(is_told)  # observers hear of the end after the driver
    return row.id, seen


async def test_a_run_streams_content_and_says_when_each_step_is_done(store: Store) -> None:
    says = Says("One two", chunk=4, tokens=Tokens(input=10, output=3, cached=2, reasoning=1), cost=0.5)
    _, seen = await streamed(store, says, "Three")
    # A chunk is published immediately, a step's end when it is durable: only each kind by itself is in order.
    content = [(one["step"], one["content"]) for one in seen if one["type"] == "content"]
    assert content == [("1", "One "), ("1", "two"), ("3", "Three")]
    done = [one for one in seen if one["type"] == "done"]
    assert [(one["step"], one["status"]) for one in done] == [("1", "completed"), ("2", "skipped"), ("3", "completed")]
    assert done[0]["tokens"] == {"input": 10, "output": 3, "cached": 2, "reasoning": 1, "total": 13}
    assert (done[0]["cost"], done[1]["cost"]) == (0.5, None)
    assert all(one["latency"] >= 0 for one in done)


async def test_a_step_that_fails_says_why(store: Store) -> None:
    _, seen = await streamed(store, "One", ModelError("auth", "The key is wrong."))
    assert seen[-1] == {
        "type": "error",
        "step": "3",
        "error": "The key is wrong. Check the provider's key and set it again.",
        "code": "model_auth",
        "status": "failed",
    }


def test_a_reply_that_starts_over_retracts_the_shown_text() -> None:
    assert published(TextReset("run", 1, "1")) == [{"type": "reset", "step": "1"}]
