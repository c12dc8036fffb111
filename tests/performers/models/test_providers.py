from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.performers.models import MissingKey, ProviderConfig, Providers
from cuebook.performers.models.model import masked
from cuebook.performers.models.providers import BUILT_IN, UnknownModel
from cuebook.performers.models.weights import WeightsMissing
from cuebook.testing import ScriptedModel


def no_keys(name: str) -> str | None:
    return None


def all_keys(name: str) -> str | None:
    return f"sk-{name.lower()}-0123456789"


def test_a_model_with_its_key_passes_the_check() -> None:
    providers = Providers(all_keys)
    for name in ("openai/gpt-4o", "anthropic/claude-sonnet-5-5", "openrouter/meta/llama-4", "ollama/llama3:8b"):
        providers.check(name)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY is not set"):
        Providers(no_keys).check("anthropic/claude-sonnet-5-5")


@pytest.mark.parametrize("key", ["two words here", "line\nbreak-in-it", "schlüssel-schlüssel"])
def test_a_value_that_cannot_be_a_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(MissingKey) as caught:
        Providers(lambda name: key).check("openai/gpt-4o")
    assert key not in str(caught.value)


def test_the_error_for_a_misspelt_provider_suggests_the_right_one() -> None:
    with pytest.raises(UnknownModel, match="Did you mean `openai`"):
        Providers(all_keys).check("openia/gpt-4o")


@pytest.mark.parametrize("name", ["alpha", "openai/", "/gpt"])
def test_a_name_without_provider_or_model_is_refused(name: str) -> None:
    with pytest.raises(UnknownModel, match="provider/model"):
        Providers(all_keys).check(name)


def test_a_server_of_the_user_needs_no_key_unless_it_says_so() -> None:
    own = ProviderConfig(base_url="http://127.0.0.1:8000/v1")
    keyed = ProviderConfig(base_url="https://models.example/v1", key="OWN_KEY", prices="openai")
    providers = Providers(no_keys, {"own": own, "keyed": keyed})
    providers.check("own/llama")
    with pytest.raises(MissingKey, match="OWN_KEY"):
        providers.check("keyed/llama")


@pytest.mark.parametrize(("name", "url"), [("local", "http://x/v1"), ("A b", "http://x/v1"), ("own", "models.example")])
def test_a_provider_that_cannot_be_is_refused_at_once(name: str, url: str) -> None:
    with pytest.raises(BadInput):
        Providers(no_keys, {name: ProviderConfig(base_url=url)})


def test_a_missing_embedded_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUEBOOK_LOCAL_WEIGHTS", str(tmp_path / "none.gguf"))
    with pytest.raises(WeightsMissing, match="cuebook models install local"):
        Providers(no_keys).check("local")


def test_no_other_embedded_model_is_made_up() -> None:
    with pytest.raises(UnknownModel, match="no embedded model"):
        Providers(no_keys).check("local/gpt-17")


def test_what_is_available_is_listed_with_reasons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUEBOOK_LOCAL_WEIGHTS", str(tmp_path / "none.gguf"))
    scripted = ScriptedModel([])
    statuses = {s.name: s for s in Providers(no_keys, models={"scripted": scripted}).available()}
    assert set(statuses) == {"local", "openai", "anthropic", "openrouter", "ollama", "scripted"}
    assert not statuses["openai"].usable
    assert "OPENAI_API_KEY" in statuses["openai"].reason
    assert "install local" in statuses["local"].reason
    assert statuses["ollama"].usable
    assert statuses["scripted"].usable


def test_keys_do_not_appear_in_representations() -> None:
    resolved = Providers(all_keys).resolve("openai/gpt-4o")
    assert "0123456789" not in repr(resolved)
    assert Providers(all_keys).secrets()


def test_masking_takes_out_given_values_and_what_looks_like_a_key() -> None:
    text = masked("a sk-proj-abcdef123456 b hunter2hunter2 c Bearer abc.def-ghi d", ["hunter2hunter2"])
    assert text == "a [removed] b [removed] c Bearer [removed] d"
    assert masked("a task-oriented, key-value risk-averse plan") == "a task-oriented, key-value risk-averse plan"


def test_a_playbook_cannot_choose_a_provider_that_its_project_brought() -> None:
    custom = {name: ProviderConfig(base_url="http://127.0.0.1:9/v1") for name in ("theirs", "mine")}
    providers = Providers(no_keys, custom, shared=["theirs"])
    with pytest.raises(BadInput, match="every prompt would be sent there") as caught:
        providers.chosen("theirs/m", "mine/m")
    assert "--model theirs/m" in caught.value.fix
    assert providers.chosen("theirs/other", "theirs/m")[0].name == "theirs/other", "a user chose the provider"
    assert providers.chosen("mine/other", "theirs/m")[0].name == "mine/other"
    assert providers.chosen(None, "theirs/m")[0].name == "theirs/m"


# --- names that leave the provider out ----------------------------------------------------------------


def keyed(*names: str) -> Providers:
    """Providers of which these have a key or need none."""
    custom = {name: ProviderConfig(base_url="http://127.0.0.1:9/v1") for name in names if name not in BUILT_IN}
    keys = {BUILT_IN[name].key for name in names if name in BUILT_IN}
    return Providers(lambda name: "sk-0123456789" if name in keys else None, custom, shared=["theirs"])


@pytest.mark.parametrize(
    ("providers", "own", "name", "full"),
    [
        (["anthropic"], "", "claude-opus-4-6", "anthropic/claude-opus-4-6"),
        (["anthropic", "openai", "openrouter", "lab"], "lab/x", "claude-opus-4-6", "anthropic/claude-opus-4-6"),
        (["openai", "anthropic"], "", "gpt-5", "openai/gpt-5"),
        (["openai"], "", "o3-mini", "openai/o3-mini"),
        (["openrouter"], "", "claude-opus-4-6", "openrouter/anthropic/claude-opus-4.6"),
        (["openrouter"], "", "claude-3-5-sonnet-20241022", "openrouter/anthropic/claude-3.5-sonnet-20241022"),
        (["openrouter", "openai"], "openai/gpt-5", "gemini-2.5-pro", "openrouter/google/gemini-2.5-pro"),
        (["openrouter", "lab"], "openrouter/x/y", "gemini-2.5-pro", "openrouter/google/gemini-2.5-pro"),
        (["lab"], "", "claude-opus-4-6", "lab/claude-opus-4-6"),
        (["lab", "den"], "den/x", "alpha", "den/alpha"),
        (["lab"], "ollama/llama3", "qwen3", "ollama/qwen3"),
        (["theirs"], "theirs/m", "alpha", "theirs/alpha"),
        ([], "", "local", "local/smollm2-135m"),
        ([], "", "smollm2-135m", "local/smollm2-135m"),
    ],
)
def test_a_bare_name_goes_to_the_provider_that_has_it(providers: list[str], own: str, name: str, full: str) -> None:
    assert keyed(*providers).full_name(name, own) == full


@pytest.mark.parametrize(
    ("providers", "name", "said"),
    [
        ([], "claude-opus-4-6", ["ANTHROPIC_API_KEY is not set", "OPENROUTER_API_KEY", "provider/model"]),
        ([], "gemini-2.5-pro", ["OPENROUTER_API_KEY is not set"]),
        (["lab", "den"], "alpha", ["Several providers", "`lab/alpha` or `den/alpha`"]),
        (["lab", "openrouter"], "gpt-5", ["`lab/gpt-5` or `openrouter/openai/gpt-5`"]),
        (["theirs"], "alpha", ["No provider is known", "provider/model"]),
        (["openai"], "openai", ["is a provider, not a model", "openai/MODEL"]),
        (["openai"], "claudette", ["No provider is known"]),
    ],
)
def test_a_bare_name_that_means_nothing_or_too_much_is_refused(
    providers: list[str], name: str, said: list[str]
) -> None:
    with pytest.raises(BadInput) as caught:
        keyed(*providers).full_name(name)
    assert all(words in f"{caught.value.message} {caught.value.fix}" for words in said), caught.value


def test_a_rejected_key_is_not_tried_again_until_it_changes() -> None:
    keys = {"OWN_KEY": "old"}
    providers = Providers(keys.get, {"own": ProviderConfig(base_url="http://127.0.0.1:1", key="OWN_KEY")})
    assert providers.may_try("own")
    providers.resolve("own/x")
    assert "cuebook keys set own" in providers.rejected("own")
    assert not providers.may_try("own")
    keys["OWN_KEY"] = "new"
    assert providers.may_try("own")
    providers.resolve("own/x")
    providers.rejected("own")
    providers.accepted("own")
    assert providers.may_try("own")
    del keys["OWN_KEY"]
    providers.rejected("own", sent=False)
    assert not providers.may_try("own")
    assert (providers.rejected("local"), providers.may_try("local")) == ("", False)
