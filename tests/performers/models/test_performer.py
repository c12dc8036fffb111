from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from cuebook.kernel.context import EMPTY, ToolCall
from cuebook.kernel.effects import AskModel
from cuebook.kernel.outcomes import Failed, Reply
from cuebook.kernel.ports import Performer
from cuebook.kernel.run import Settings
from cuebook.performers.models import ModelError, ModelPerformer, Prices, Providers, Retries, Tokens
from cuebook.testing import Says, ScriptedModel, model_performer
from tests.performers.models.calls import Observer, Sleeper, failure_of, reply_of


def only(*lines: str | Says | ModelError, chunk: int | None = None) -> tuple[ScriptedModel, Providers]:
    model = ScriptedModel(lines, chunk=chunk)
    return model, Providers.only(model)


@pytest.fixture
def small(tmp_path: Path) -> Prices:
    """Prices under which the model `test/small` has a window of 2,000 tokens and 500 of output."""
    file = tmp_path / "prices.toml"
    file.write_text('[models."test/small"]\ninput = 1.0\noutput = 2.0\nwindow = 2000\nmax_output = 500\n')
    return Prices(file)


async def test_output_is_limited_to_our_default_where_nothing_is_known() -> None:
    model, providers = only("ok")
    await reply_of(providers)
    assert model.requests[0].max_tokens == 16_384


async def test_the_effect_says_more_than_the_run_and_the_run_more_than_the_default() -> None:
    model = ScriptedModel(["a", "b"])
    performer = model_performer(model)
    call = Observer().call(model="a/b", max_tokens=30, temperature=0.7)
    await performer.perform(AskModel(prompt="x"), call)
    await performer.perform(AskModel(prompt="x", max_tokens=20, temperature=0.0, model="c/d"), call)
    first, second = model.requests
    assert (first.model, first.max_tokens, first.temperature) == ("b", 30, 0.7)
    assert (second.model, second.max_tokens, second.temperature) == ("d", 20, 0.0)


async def test_output_is_clamped_to_the_model(small: Prices) -> None:
    model, providers = only("ok", "ok")
    await reply_of(providers, prices=small, model="test/small")
    await reply_of(providers, AskModel(prompt="x" * 4_800), prices=small, model="test/small")
    assert model.requests[0].max_tokens == 500
    assert 1 <= model.requests[1].max_tokens <= 500


async def test_input_that_does_not_fit_fails_before_the_call_and_names_the_sizes(small: Prices) -> None:
    model, providers = only()
    failed = await failure_of(providers, AskModel(prompt="x" * 9_000), prices=small, model="test/small")
    assert failed.code == "context_too_long"
    assert "2,000" in failed.message
    assert failed.details["window"] == 2_000
    assert failed.details["input_tokens"] >= 2_250
    assert model.requests == []


async def test_the_cost_is_estimated_from_the_user_s_prices(small: Prices) -> None:
    _, providers = only(Says("ok", tokens=Tokens(1_000, 100)))
    reply = await reply_of(providers, prices=small, model="test/small")
    assert reply.usage.cost == pytest.approx(0.0012)
    assert reply.usage.origin == "estimated"


def test_an_estimate_is_the_most_that_a_call_may_use(small: Prices) -> None:
    performer = ModelPerformer(Providers.only(ScriptedModel([])), prices=small)
    estimate = performer.estimate(AskModel(prompt="x" * 300), Settings(model="test/small"))
    assert estimate.output_tokens == 500
    assert estimate.input_tokens >= 100
    assert estimate.cost == pytest.approx((estimate.input_tokens * 1.0 + 500 * 2.0) / 1e6)


def test_an_estimate_with_an_unknown_price_has_no_cost() -> None:
    performer = model_performer(ScriptedModel([]))
    assert performer.estimate(AskModel(prompt="x"), Settings(model="who/knows")).cost is None


def test_a_model_is_free_where_its_price_is_known_to_be_nothing(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    prices = {"free": "0.0\noutput = 0.0", "paid": "0.0\noutput = 2.0"}
    file.write_text("".join(f'[models."test/{name}"]\ninput = {price}\n' for name, price in prices.items()))
    performer = ModelPerformer(Providers.only(ScriptedModel([])), prices=Prices(file))
    effect = AskModel(prompt="x")
    found = [name for name in ("free", "paid", "other") if performer.is_free(effect, Settings(model=f"test/{name}"))]
    assert found == ["free"]
    assert not ModelPerformer(Providers(lambda name: None)).is_free(effect, Settings(model="openai/gpt-4o"))


def test_a_call_that_cannot_be_made_is_estimated_at_nothing() -> None:
    performer = ModelPerformer(Providers(lambda name: None))
    assert performer.estimate(AskModel(prompt="x"), Settings(model="openai/gpt-4o")).cost == 0.0


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("openai/gpt-4o", "missing_key"),
        ("nobody/x", "unknown_model"),
        ("gpt-4o", "missing_key"),
        ("x", "unknown_model"),
    ],
)
async def test_a_model_that_cannot_be_found_is_a_failure_with_a_fix(model: str, code: str) -> None:
    failed = await failure_of(Providers(lambda name: None), model=model)
    assert failed.code == code
    assert failed.fix


async def test_retries_stop_when_their_time_is_used_up() -> None:
    _, providers = only(*[ModelError("overloaded", "busy") for _ in range(9)])
    sleeper = Sleeper()
    failed = await failure_of(providers, sleeper=sleeper, retries=Retries(attempts=9, total=10.0))
    assert sleeper.slept == [1.0, 2.0, 4.0]
    assert (failed.code, failed.details["retries"]) == ("model_overloaded", 3)


async def test_a_failure_that_will_not_pass_is_not_tried_again() -> None:
    model, providers = only(ModelError("bad_request", "no"))
    failed = await failure_of(providers)
    assert (failed.code, failed.retryable, len(model.requests)) == ("model_bad_request", False, 1)


async def test_a_drop_after_text_is_taken_back() -> None:
    observer = Observer()
    _, providers = only(Says("Half a reply", drop_after=4), "Whole")
    reply = await reply_of(providers, observer=observer)
    assert (reply.text, observer.shown, observer.resets, reply.retries) == ("Whole", "Whole", 1, 1)


async def test_a_drop_before_any_text_takes_nothing_back() -> None:
    observer = Observer()
    _, providers = only(Says("Half", drop_after=0), "Whole")
    await reply_of(providers, observer=observer)
    assert (observer.resets, observer.warnings) == (0, [])


async def test_the_watch_closes_the_stream() -> None:
    model, providers = only("One two three", chunk=4)
    reply = await reply_of(providers, observer=Observer(until=lambda shown: "two" in shown))
    assert (reply.text, reply.finish, model.stopped) == ("One two ", "watch", 1)


async def test_a_cancelled_call_closes_the_stream() -> None:
    never = asyncio.Event()
    model, providers = only(Says("One two", wait_for=never, pause_at=3))
    observer = Observer()
    task = asyncio.create_task(reply_of(providers, observer=observer))
    await observer.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.stopped == 1


async def test_tool_calls_are_not_held_to_the_schema() -> None:
    _, providers = only(Says("", calls=(ToolCall("1", "look", {}),)))
    reply = await reply_of(providers, AskModel(prompt="x", schema={"type": "object"}))
    assert reply.finish == "tool_calls"


async def test_a_cut_reply_that_misses_its_schema_says_why() -> None:
    _, providers = only(Says('{"a": ', finish="length"))
    failed = await failure_of(providers, AskModel(prompt="x", schema={"type": "object"}))
    assert "cut at 16384 tokens" in failed.message


async def test_system_blocks_at_the_beginning_become_one_and_later_ones_stay() -> None:
    context = EMPTY.add("system", "A").add("system", "B").add("user", "C").add("system", "D")
    model, providers = only("ok")
    await reply_of(providers, AskModel(context=context))
    assert [(m.role, m.text) for m in model.requests[0].messages] == [
        ("system", "A\n\nB"),
        ("user", "C"),
        ("system", "D"),
    ]


async def test_the_performer_is_one_to_the_kernel() -> None:
    performer: Performer = model_performer(ScriptedModel(["ok"]))
    outcome = await performer.perform(AskModel(prompt="x"), Observer().call(model="any/thing"))
    assert isinstance(outcome, Reply | Failed)


def test_importing_the_models_loads_no_http_library() -> None:
    code = (
        "import sys, cuebook.performers.models, cuebook.testing;"
        "heavy = {'xllamacpp', 'jsonschema', 'httpx2', 'httpcore2', 'pydantic'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


async def test_a_playbook_that_chooses_a_provider_with_a_key_causes_one_warning() -> None:
    models = {name: ScriptedModel(["a"] * 4) for name in ("openai", "ollama", "test")}
    performer = ModelPerformer(Providers(lambda name: None, models=models))
    seen = Observer()
    call = seen.call(model="test/own")
    for model in (None, "test/other", "ollama/m", "openai/gpt-5", "openai/gpt-4o"):
        assert isinstance(await performer.perform(AskModel(prompt="x", model=model), call), Reply)
    ((code, words),) = seen.warnings
    assert code == "other_provider"
    assert "openai/gpt-5" in words
    assert "test/own" in words


@pytest.mark.parametrize("said", ["", "I cannot help with that."])
async def test_a_refused_reply_is_a_failure_that_says_so_and_counts_its_tokens(said: str) -> None:
    _, providers = only(Says(said, finish="filter", tokens=Tokens(10, 3)))
    failed = await failure_of(providers)
    assert (failed.code, failed.retryable) == ("model_refused", False)
    assert "refused to answer" in failed.message
    assert said in failed.message
    assert failed.details["usage"]["output"] == 3
