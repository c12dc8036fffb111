"""Chains of models: `a, then b` calls b while a is unavailable, and never hides a refused request."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.kernel.effects import AskModel
from cuebook.kernel.errors import BadInput
from cuebook.kernel.model_names import chain, chained
from cuebook.kernel.outcomes import Failed, Reply
from cuebook.kernel.run import Settings
from cuebook.performers.models import ModelPerformer, Prices, Providers
from cuebook.performers.models.model import ErrorKind, ModelError
from cuebook.performers.models.scripted import Line, ScriptedModel
from tests.performers.models.calls import Observer, Sleeper

NAMES = "a/one, then b/two"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Pair:
    """Two providers with scripted models, and the performer over them."""

    def __init__(self, first: list[Line], second: list[Line] | None = None, prices: Prices | None = None) -> None:
        self.first, self.second = ScriptedModel(first, cycle=True), ScriptedModel(second or ["I am two."], cycle=True)
        providers = Providers(lambda name: None, models={"a": self.first, "b": self.second})
        self.clock, self.observer = Clock(), Observer()
        self.performer = ModelPerformer(providers, prices=prices, sleep=Sleeper(), draw=lambda: 1.0, clock=self.clock)

    async def ask(self, model: str = NAMES) -> Reply | Failed:
        return await self.performer.perform(AskModel("Who?"), self.observer.call(model=model))


def test_a_chain_is_split_and_joined() -> None:
    assert chain("a/one") == ("a/one",)
    assert chain(" a/one , then b/two,then c ") == ("a/one", "b/two", "c")
    assert chained(["a", "b", "a"]) == "a, then b"


@pytest.mark.parametrize("kind", ["rate", "overloaded", "server", "network", "timeout", "dropped"])
async def test_an_outage_falls_to_the_next_and_the_reply_says_who_answered(kind: ErrorKind) -> None:
    pair = Pair([ModelError(kind, "It is down.")])
    reply = await pair.ask()
    assert isinstance(reply, Reply)
    assert (reply.text, reply.model) == ("I am two.", "b/two")
    assert len(pair.first.requests) > 1, "its own retries come first"
    code, words = pair.observer.warnings[-1]
    assert code == "model_fallback"
    *attempts, (noted, about) = pair.observer.notes
    assert {name for name, _ in attempts} == {"model_attempt"}
    assert {(data["model"], data["kind"]) for _, data in attempts} == {("a/one", kind)}
    assert (noted, about["model"], about["to"], about["kind"]) == ("model_fallback", "a/one", "b/two", kind)
    assert words.startswith("a/one is unavailable, so b/two was called instead: It is down")


@pytest.mark.parametrize("kind", ["auth", "permission", "quota", "bad_request", "not_found", "context_length"])
async def test_a_refused_request_does_not_fall_back(kind: ErrorKind) -> None:
    pair = Pair([ModelError(kind, "No.")])
    failed = await pair.ask()
    assert isinstance(failed, Failed)
    assert not pair.second.requests
    assert not any(code == "model_fallback" for code, _ in pair.observer.warnings)


async def test_the_last_failure_counts_if_all_are_down() -> None:
    pair = Pair([ModelError("server", "One is down.")], [ModelError("overloaded", "Two is busy.")])
    failed = await pair.ask()
    assert isinstance(failed, Failed)
    assert failed.code == "model_overloaded"


async def test_a_model_that_is_down_is_passed_over_for_a_while() -> None:
    pair = Pair([ModelError("server", "Down.")])
    await pair.ask()
    tried = len(pair.first.requests)
    pair.observer.notes.clear()
    await pair.ask()
    assert len(pair.first.requests) == tried
    assert pair.observer.notes == [("model_fallback", {"model": "a/one", "to": "b/two", "kind": "down"})]
    assert isinstance(await pair.ask("a/one"), Failed), "alone, it is tried"
    tried = len(pair.first.requests)
    pair.clock.now += 61.0
    await pair.ask()
    assert len(pair.first.requests) > tried


async def test_estimates_take_the_dearest_of_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('[models."a/one"]\ninput = 1\noutput = 1\n[models."b/two"]\ninput = 5\noutput = 5\n')
    pair = Pair(["x"], prices=Prices(path))
    effect = AskModel("Who?")
    costs = [pair.performer.estimate(effect, Settings(model=name)).cost for name in ("a/one", "b/two", NAMES)]
    assert costs[2] == costs[1]
    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[0] < costs[1]
    unknown = Pair(["x"])
    assert unknown.performer.estimate(effect, Settings(model=NAMES)).cost is None


async def test_policy_sees_every_model_of_the_chain() -> None:
    described = await Pair(["x"]).performer.describe(AskModel("Who?"), Settings(model=NAMES))
    assert [action.target for action in described.actions] == ["a/one", "b/two"]


def test_every_model_of_a_chain_must_exist_before_a_run_begins() -> None:
    providers = Providers(lambda name: None, models={"a": ScriptedModel(["x"])})
    providers.check("a/one")
    with pytest.raises(BadInput):
        providers.check("a/one, then nowhere/two")
    with pytest.raises(BadInput, match="OPENAI_API_KEY"):
        providers.check("a/one, then openai/gpt-5")


@pytest.mark.parametrize("name", ["host, then a/one", "a/one, then host", "acp/opencode, then a/one"])
def test_what_waits_or_acts_on_its_own_is_not_part_of_a_chain(name: str) -> None:
    providers = Providers(lambda name: None, models={"a": ScriptedModel([])})
    providers.check("a/one, then a/two")
    with pytest.raises(BadInput, match="cannot be part of a chain"):
        providers.check(name)
