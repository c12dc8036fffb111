from __future__ import annotations

import datetime as dt
import re
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from cuebook.kernel.errors import BadInput
from cuebook.performers.models.model import Tokens
from cuebook.performers.models.prices import Price, Prices

TODAY = dt.date(2026, 11, 15)


def test_the_snapshot_is_small_dated_and_names_its_source() -> None:
    prices = Prices()
    assert dt.date.fromisoformat(prices.date) >= dt.date(2026, 11, 15)
    assert prices.source.startswith("genai-prices ")
    assert len(resources.files("cuebook.performers.models").joinpath("prices.json").read_bytes()) < 200_000


def test_known_models_are_found_by_their_several_names() -> None:
    prices = Prices()
    for provider, model in [
        ("openai", "gpt-4o"),
        ("openai", "gpt-4o-2024-08-06"),
        ("anthropic", "claude-haiku-4-5-20251001"),
        ("openrouter", "openai/gpt-4o"),
        ("google", "gemini-2.5-pro"),
    ]:
        assert prices.facts(provider, model, TODAY).price is not None, model


def test_what_is_not_listed_is_unknown() -> None:
    facts = Prices().facts("openai", "gpt-that-never-was")
    assert (facts.price, facts.window, facts.output) == (None, None, None)
    assert Prices().facts("nobody", "x").price is None


def test_windows_and_small_output_limits_are_known() -> None:
    facts = Prices().facts("anthropic", "claude-3-haiku-20240307")
    assert (facts.window, facts.output) == (200_000, 4_096)


def test_cached_and_written_input_have_prices_of_their_own() -> None:
    price = Price(input=3.0, output=15.0, cached=0.3, written=3.75)
    cost = price.cost(Tokens(input=1_000_000, output=100_000, cached=600_000, written=200_000))
    assert cost == pytest.approx(0.2 * 3.0 + 0.6 * 0.3 + 0.2 * 3.75 + 0.1 * 15.0)


def test_without_a_price_for_the_cache_cached_input_costs_what_input_costs() -> None:
    assert Price(input=2.0, output=0.0).cost(Tokens(1_000_000, 0, cached=500_000)) == pytest.approx(2.0)


def test_a_tier_is_the_price_of_all_tokens_once_it_is_reached() -> None:
    price = Price(input=[3.0, [200_000.0, 6.0]], output=[15.0, [200_000.0, 22.5]])
    assert price.cost(Tokens(200_000, 0)) == pytest.approx(0.6)
    assert price.cost(Tokens(200_001, 1_000_000)) == pytest.approx(200_001 * 6.0 / 1e6 + 22.5)


def test_the_most_counts_all_input_as_written_to_the_cache() -> None:
    assert Price(input=3.0, output=15.0, written=3.75).most(1_000_000, 1_000_000) == pytest.approx(18.75)


def test_every_price_of_the_snapshot_can_be_reckoned_with() -> None:
    raw = msgspec.json.decode(resources.files("cuebook.performers.models").joinpath("prices.json").read_bytes())
    prices = Prices()
    for provider, entries in raw["providers"].items():
        for entry in entries:
            plain = [name for name in entry["m"] if "|" not in name]
            if plain:
                price = prices.facts(provider, plain[0], TODAY).price
                assert price is None or price.cost(Tokens(1_000, 1_000, cached=10)) >= 0.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.toml", '[models."openai/gpt-4o"]\ninput = 9.0\n[models."ollama/*"]\ninput = 0\noutput = 0\n'),
        (
            "prices.json",
            '{"models": {"openai/gpt-4o": {"input": 9.0}, "ollama/*": {"input": 0, "output": 0}}}',
        ),
    ],
)
def test_the_user_s_file_wins(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    prices = Prices(file)
    own = prices.facts("openai", "gpt-4o", TODAY)
    assert own.price == Price(input=9.0, output=10.0)
    assert own.window == 128_000
    assert prices.facts("ollama", "llama3:8b", TODAY).price == Price(input=0.0, output=0.0)
    assert prices.facts("openai", "gpt-5", TODAY).price == Prices().facts("openai", "gpt-5", TODAY).price


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("prices.toml", "models = 3", r":1: the prices are invalid: Expected `object`, got `int`"),
        ("prices.toml", "\nnot toml [", r":2: invalid TOML"),
        ("prices.toml", '[models."x/y"]\ninput = 1.0\n[models."a/b"]\nprize = 1.0', r":3: .* unknown field `prize`"),
        ("prices.toml", "\n[prices]", r":2: .* unknown field `prices`"),
        ("prices.json", '{\n"models": {"a/b": {"input": "much"}}}', r":2: the prices are invalid"),
    ],
)
def test_a_file_that_is_not_understood_is_named_with_its_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(BadInput, match=rf"{re.escape(name)}{said}"):
        Prices(file).facts("a", "b")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        Prices(tmp_path / "none.toml").facts("a", "b")
