"""Configuration: files, environment and flags in ascending order of precedence, and clear error messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cuebook.config import Config, load
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import EVERYWHERE
from cuebook.wiring.wiring import Wiring


class Machine:
    """A separate home, project and environment."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.work = self.project / "deep" / "er"
        self.work.mkdir(parents=True)
        users = "Library/Application Support" if sys.platform == "darwin" else ".config"
        self.users = self.home / users / "cuebook" / "cuebook.toml"
        self.users.parent.mkdir(parents=True)
        self.projects = self.project / "cuebook.toml"
        self.environ = {"HOME": str(self.home)}

    def load(self, flags: dict[str, Any] | None = None) -> Config:
        return load(flags, environ=self.environ, folder=self.work)

    def refused(self, text: str, *, shared: bool = False) -> BadInput:
        path = self.projects if shared else self.users
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadInput) as caught:
            self.load()
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
        return caught.value


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_anything_there_are_defaults_and_nothing_is_created(machine: Machine, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    config = machine.load()
    assert config.get("model") is None
    assert config.get("synchronous") == "FULL"
    assert config.get("pause_expiry") == 24 * 3600
    assert config.get("store").name == "cuebook.db"
    assert config.get("store").is_relative_to(machine.home)
    assert str(config.origin("store")) == "default"
    assert sorted(tmp_path.rglob("*")) == before


def test_later_sources_win_and_every_value_knows_its_origin(machine: Machine) -> None:
    machine.users.write_text('model = "a/user"\ntemperature = 0.1\nmax_tokens = 10\nprices = "p.toml"\n')
    machine.projects.write_text('# ours\nmodel = "a/project"\ntemperature = 0.2\nmax_tokens = 20\n')
    machine.environ |= {"CUEBOOK_MODEL": "a/environment", "CUEBOOK_TEMPERATURE": "0.3"}
    config = machine.load({"model": "a/flag", "temperature": None})
    found = {name: (config.get(name), str(config.origin(name))) for name in ("model", "temperature", "max_tokens")}
    assert found == {
        "model": ("a/flag", "--model"),
        "temperature": (0.3, "CUEBOOK_TEMPERATURE"),
        "max_tokens": (20, f"{machine.projects}:4"),
    }
    assert config.get("prices") == machine.users.parent / "p.toml"


def test_paths_in_a_file_are_relative_to_it(machine: Machine) -> None:
    machine.users.write_text('store = "runs/here.db"\n')
    machine.projects.write_text('prompts = "texts/ours"\n')
    assert machine.load().get("store") == machine.users.parent / "runs" / "here.db"
    assert machine.load().get("prompts") == machine.project / "texts" / "ours"


def test_the_nearest_project_file_counts(machine: Machine) -> None:
    machine.projects.write_text('model = "a/far"\n')
    (machine.work.parent / "cuebook.toml").write_text('model = "a/near"\n')
    assert machine.load().get("model") == "a/near"


def test_an_empty_variable_is_not_set(machine: Machine) -> None:
    machine.environ["CUEBOOK_MODEL"] = " "
    assert machine.load().get("model") is None


def test_a_budget_comes_from_its_table_and_the_environment(machine: Machine) -> None:
    machine.users.write_text("[budget]\nmoney = 0.5\nsteps = 3\n")
    machine.environ["CUEBOOK_BUDGET_TOKENS"] = "1000"
    config = machine.load()
    assert (config.budget.money, config.budget.tokens, config.budget.seconds, config.budget.steps) == (
        0.5,
        1000,
        None,
        3,
    )
    assert str(config.origin("budget.money")) == f"{machine.users}:2"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90.0), ('"90s"', 90.0), ('"15m"', 900.0), ('"24h"', 86400.0), ('"7d"', 604800.0), ('"never"', None)],
)
def test_a_pause_expires_after_some_time_or_never(machine: Machine, written: str, seconds: float | None) -> None:
    machine.users.write_text(f"pause_expiry = {written}\n")
    assert machine.load().get("pause_expiry") == seconds


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('modell = "a/b"', "there is no setting 'modell'. Did you mean 'model'?"),
        ("[retension]\nkeep = 5", "there is no setting 'retension'. Did you mean 'retention'?"),
        ("[budgett]\nmoney = 5", "there is no setting 'budgett'. Did you mean 'budget'?"),
        ("synchronous = 'OFF'", 'synchronous must be "FULL" or "NORMAL", not \'OFF\'.'),
        ('max_tokens = "many"', "max_tokens must be a number, not 'many'."),
        ("max_tokens = 0", "max_tokens must be a whole number of at least 1, not 0."),
        ("max_tokens = true", "max_tokens must be a number, not True."),
        ("temperature = 3", "temperature must be between 0 and 2, not 3."),
        (
            'model = "gpt/"',
            "model must be the name of a model, such as openai/gpt-5 or local, or several: `a, then b`, not 'gpt/'.",
        ),
        ('model = "a/b, then "', "model must be the name of a model"),
        ('effort = "huge"', "effort must be one of low, medium, high, not 'huge'."),
        ("store = 5", "store must be a string, not 5."),
        (
            'pause_expiry = "soon"',
            'pause_expiry must be a number of seconds, a duration such as "24h" or "7d", or "never", not \'soon\'.',
        ),
        ("budget = 5", "budget must be a table."),
        ("providers = 5", "providers must be a table."),
        ("model = = 5", "invalid TOML: Invalid value."),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_fix(machine: Machine, line: str, words: str) -> None:
    said = str(machine.refused(f"# mine\n\n{line}\n"))
    assert f"{machine.users}:3: {words}" in said


def test_a_mistake_in_a_table_is_reported_with_its_line(machine: Machine) -> None:
    assert f"{machine.users}:3: there is no setting 'budget.mony'. Did you mean 'budget.money'?" in str(
        machine.refused("[budget]\n\nmony = 1\n")
    )
    assert f"{machine.users}:1: budget.money must not be negative" in str(machine.refused("budget.money = -1\n"))


@pytest.mark.parametrize("name", ["api_key", "key", "token", "openai_api_key", "secret", "password"])
def test_a_key_in_a_file_is_refused_and_not_repeated(machine: Machine, name: str) -> None:
    said = str(machine.refused(f'[providers.openai]\n{name} = "sk-very-secret"\n'))
    assert f"{machine.users}:2: 'providers.openai.{name}' looks like a key" in said
    assert "`cuebook keys set openai`" in said
    assert "sk-very-secret" not in said
    assert "`cuebook keys set PROVIDER`" in str(machine.refused(f'{name} = "sk-very-secret"\n'))


def test_a_key_as_the_name_of_its_variable_is_refused_and_not_repeated(machine: Machine) -> None:
    said = str(machine.refused('[providers.mine]\nbase_url = "http://127.0.0.1/v1"\nkey_env = "sk-very-secret"\n'))
    assert ":3: providers.mine.key_env must be the name of an environment variable" in said
    assert "sk-very-secret" not in said


def test_a_password_in_an_address_is_refused_and_not_repeated(machine: Machine) -> None:
    said = str(machine.refused('[providers.mine]\nbase_url = "http://me:hush@127.0.0.1/v1"\n'))
    assert "contains a password" in said
    assert "hush" not in said


CANARY = "CanarySecret77"
HANDLES = {"store_password": "{}", "signing_key": "{}", "temporal.api_key": "[temporal]\n{}"}


@pytest.mark.parametrize("name", HANDLES)
@pytest.mark.parametrize(
    "given", [CANARY, f"env:{CANARY}!", f"{CANARY}:x", f"vault:{CANARY}", "env:", f"file:{CANARY}"]
)
def test_a_secret_in_place_of_its_handle_is_refused_and_not_repeated(machine: Machine, name: str, given: str) -> None:
    variable = f"CUEBOOK_{name.replace('.', '_').upper()}"
    machine.environ[variable] = given
    with pytest.raises(BadInput) as caught:
        machine.load()
    said = [str(caught.value)]
    assert said[0].startswith(
        f"{variable}: expected the handle of a secret, such as env:NAME; the value itself does not belong here."
    )
    del machine.environ[variable]
    text = HANDLES[name].format(f'{name.rpartition(".")[2]} = "{given}"\n')
    said.append(str(machine.refused(text)))
    assert f":{text.count(chr(10))}: expected the handle of a secret" in said[1]
    machine.users.unlink()
    said.append(str(machine.refused(text, shared=True)))
    assert CANARY not in "".join(said)


@pytest.mark.parametrize("name", HANDLES)
@pytest.mark.parametrize("handle", ["env:NAME", "keyring:team", "keyring:my team", "file:/run/secrets/x", "file:~/x"])
def test_a_handle_is_accepted(machine: Machine, name: str, handle: str) -> None:
    machine.environ[f"CUEBOOK_{name.replace('.', '_').upper()}"] = f" {handle} "
    assert machine.load().get(name) == handle


@pytest.mark.parametrize("name", ["store", "store_password", "signing_key"])
@pytest.mark.parametrize("given", [f'["{CANARY}"]', f'{{ password = "{CANARY}" }}'])
def test_a_secret_of_another_type_is_not_repeated(machine: Machine, name: str, given: str) -> None:
    assert CANARY not in str(machine.refused(f"{name} = {given}\n"))
    assert "12345678" not in str(machine.refused("store_password = 12345678\n"))


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (f"postgres://postgres:12/{CANARY}@127.0.0.1:1/x", "Percent-encode special characters"),
        (f"host=127.0.0.1 user=me password={CANARY}", "Write a database as a URL like postgresql://"),
        (f"postgresql://me@127.0.0.1/x?sslpassword={CANARY}", "contains a password"),
        (f"postgresql://me@127.0.0.1/x?sslmode=require&password={CANARY}", "contains a password"),
    ],
)
def test_a_store_with_a_password_is_refused_in_a_file_and_a_flag(machine: Machine, store: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        machine.load({"store": store})
    for said in (str(caught.value), str(machine.refused(f'store = "{store}"\n'))):
        assert words in said
        assert CANARY not in said
    assert str(caught.value).startswith("--store: ")


def test_providers_are_read_with_their_origin(machine: Machine) -> None:
    machine.users.write_text('[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\nkey_env = "MINE"\n')
    provider = machine.load().providers["mine"]
    assert (provider.base_url, provider.key_env, str(provider.origin)) == (
        "http://127.0.0.1:1/v1",
        "MINE",
        f"{machine.users}:1",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[providers.Mine]\nbase_url = "http://x/v1"\n', "'Mine' is not a valid provider name"),
        ('[providers.local]\nbase_url = "http://x/v1"\n', "'local' is not a valid provider name"),
        ('[providers.mine]\nbase_url = "x"\n', "must be an http or https URL"),
        ("[providers.mine]\nbase_url = 5\n", "must be a string"),
        ('[providers.mine]\nprotocol = "soap"\n', 'must be "openai" or "anthropic"'),
        ("[providers.openai]\nat_once = 0\n", "providers.openai.at_once must be a whole number of at least 1"),
        ("[providers.openai]\nat_once = true\n", "must be a whole number of at least 1"),
        ('[providers.openai]\nrequests_per_minute = "60"\n', "must be a whole number of at least 1"),
        ('[providers.mine]\nurl = "http://x"\n', "Did you mean 'providers.mine.base_url'?"),
    ],
)
def test_a_wrong_provider_is_refused(machine: Machine, text: str, words: str) -> None:
    assert words in str(machine.refused(text))


@pytest.mark.parametrize(
    "table",
    [
        '[providers.openai]\nbase_url = "http://elsewhere/v1"\n',
        '[providers.fresh]\nbase_url = "http://elsewhere/v1"\nkey_env = "OPENAI_API_KEY"\n',
        '[providers.mine]\nbase_url = "http://elsewhere/v1"\n',
        '[providers.ollama]\nbase_url = "http://elsewhere/v1"\n',
    ],
)
def test_a_projects_file_cannot_send_a_users_key_elsewhere(machine: Machine, table: str) -> None:
    machine.users.write_text('[providers.mine]\nbase_url = "http://127.0.0.1/v1"\nkey_env = "MINE"\n')
    assert "may not decide where keys and prompts are sent" in str(machine.refused(table, shared=True))


def test_a_projects_file_cannot_set_the_limits_of_a_provider(machine: Machine) -> None:
    """Its calls would count for everyone on the store who has a provider with this name."""
    table = '[providers.fresh]\nbase_url = "http://127.0.0.1/v1"\nat_once = 1000\n'
    assert "it cannot set 'providers.fresh.at_once'" in str(machine.refused(table, shared=True))


def test_limits_of_tenants_and_providers_are_read(machine: Machine) -> None:
    assert machine.load().get("limits.tenant_runs") is None
    machine.users.write_text(
        "[limits]\ntenant_runs = 5\n\n[providers.openai]\nat_once = 8\nrequests_per_minute = 500\n"
    )
    config = machine.load()
    provider = config.providers["openai"]
    assert (config.get("limits.tenant_runs"), provider.at_once, provider.requests_per_minute) == (5, 8, 500)
    made = Wiring(config).provider_configs["openai"]
    assert (made.base_url, made.at_once, made.requests_per_minute) == ("https://api.openai.com/v1", 8, 500)


def test_a_projects_file_may_name_a_server_without_a_key(machine: Machine) -> None:
    machine.projects.write_text('[providers.lab]\nbase_url = "http://127.0.0.1:8000/v1"\n')
    assert machine.load().providers["lab"].base_url == "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    "line",
    [
        'store = "runs.db"',
        'prices = "prices.toml"',
        'sandbox = "none"',
        'workspace = "."',
        'workspace_label = "shop"',
        "worker.at_once = 1000",
        'pass_env = ["OPENAI_API_KEY"]',
        "limits.memory = 1",
        "limits.tenant_runs = 1000",
        "retention.keep = 1",
        'usage.time_zone = "UTC"',
        'access.runs = "all"',
        'log.level = "error"',
        'metrics.address = "0.0.0.0:9464"',
        'otel.endpoint = "http://elsewhere.example:4318"',
        "otel.texts = true",
    ],
)
def test_a_projects_file_cannot_add_approvals_or_loosen_restrictions(machine: Machine, line: str) -> None:
    said = str(machine.refused(f"# ours\n{line}\n", shared=True))
    name = line.partition(" =")[0]
    assert f"{machine.projects}:2: a project file may not set '{name}'." in said
    assert f"CUEBOOK_{name.replace('.', '_').upper()}" in said
    machine.projects.unlink()
    machine.users.write_text(f"{line}\n")
    machine.load()


def test_a_projects_file_cannot_choose_a_model_of_its_own_provider(machine: Machine) -> None:
    provider = '[providers.evil]\nbase_url = "http://elsewhere/v1"\n'
    said = str(machine.refused(f'model = "evil/m"\n{provider}', shared=True))
    assert f"{machine.projects}:1: a project file may not choose a model from provider 'evil'" in said
    assert "CUEBOOK_MODEL" in said
    machine.projects.write_text(f'model = "openai/gpt-5"\n{provider}')
    assert machine.load().get("model") == "openai/gpt-5"
    machine.projects.write_text(provider)
    assert machine.load({"model": "evil/m"}).get("model") == "evil/m"


def test_prompts_of_a_projects_file_are_in_the_project(machine: Machine) -> None:
    outside = machine.home / "letters"
    outside.mkdir()
    (machine.project / "link").symlink_to(outside)
    for path in (str(outside), "../home/letters", "link", "~/letters", "texts/../../home"):
        said = str(machine.refused(f'prompts = "{path}"\n', shared=True))
        assert f"{machine.projects}:1: 'prompts' in a project file must be inside the project's folder" in said
    machine.projects.unlink()
    machine.users.write_text(f'prompts = "{outside}"\n')
    assert machine.load().get("prompts") == outside


def test_a_link_in_a_project_is_not_a_default_prompt_library(machine: Machine) -> None:
    machine.projects.write_text("")
    assert machine.load().get("prompts") == machine.project / "prompts"
    (machine.project / "prompts").symlink_to(machine.home)
    assert machine.load().get("prompts") is None


def test_a_projects_tool_server_runs_in_the_project(machine: Machine) -> None:
    (machine.project / "link").symlink_to(machine.home)
    for cwd in ("/etc", "..", "a/../../b", "link"):
        said = str(machine.refused(f'[mcp.x]\ncommand = ["serve"]\ncwd = "{cwd}"\n', shared=True))
        assert f"{machine.projects}:3: The cwd" in said
    machine.projects.write_text('[mcp.x]\ncommand = ["serve"]\ncwd = "servers/x"\n')
    assert machine.load().reach.servers["x"].cwd == "servers/x"
    machine.projects.unlink()
    machine.users.write_text('[mcp.x]\ncommand = ["serve"]\ncwd = "/srv"\n')
    assert machine.load().reach.servers["x"].cwd == "/srv"


def test_the_network_of_a_tool_server_is_everything_nothing_or_a_list_of_hosts(machine: Machine) -> None:
    hosts = ("api.example.com", "db.example.com:8443")
    for given, network in (
        ("true", EVERYWHERE),
        ("false", ()),
        ('["API.example.com:443", "db.example.com:8443"]', hosts),
    ):
        machine.users.write_text(f'[mcp.x]\ncommand = ["serve"]\nnetwork = {given}\n')
        assert machine.load().reach.servers["x"].network == network
    for wrong in ('"yes"', "1", '["*.example.com"]', '["https://example.com/"]', "[1]"):
        said = str(machine.refused(f'[mcp.x]\ncommand = ["serve"]\nnetwork = {wrong}\n'))
        assert f"{machine.users}:3: " in said


def test_a_default_limit_above_the_maximum_is_refused(machine: Machine) -> None:
    said = str(machine.refused("[limits]\nseconds = 600\n"))
    assert f"{machine.users}:2: limits.seconds is 600 and limits.max_seconds is 300 (default)" in said
    assert "Raise limits.max_seconds, or lower limits.seconds." in said
    said = str(machine.refused('[limits]\nmax_output = "1K"\n'))
    assert f"{machine.users}:2: limits.output is 32768 (default) and limits.max_output is 1024:" in said
    machine.users.write_text("[limits]\nseconds = 600\nmax_seconds = 600\n")
    assert machine.load().get("limits.seconds") == 600


def test_the_example_for_variable_names_suits_its_source(machine: Machine) -> None:
    machine.environ["CUEBOOK_PASS_ENV"] = "LANG, EDITOR"
    assert machine.load().get("pass_env") == ("LANG", "EDITOR")
    machine.environ["CUEBOOK_PASS_ENV"] = '["LANG"]'
    with pytest.raises(
        BadInput, match=r"^CUEBOOK_PASS_ENV: pass_env must be a list of variable names, such as LANG,EDITOR,"
    ):
        machine.load()
    del machine.environ["CUEBOOK_PASS_ENV"]
    assert 'such as ["LANG", "EDITOR"], not [1].' in str(machine.refused("pass_env = [1]\n"))


def test_a_file_that_is_not_utf_8_is_refused(machine: Machine) -> None:
    machine.users.write_bytes(b"model = '\xff'\n")
    with pytest.raises(BadInput, match="is not UTF-8"):
        machine.load()


def test_an_invalid_variable_or_flag_is_reported(machine: Machine) -> None:
    machine.environ["CUEBOOK_MAX_TOKENS"] = "lots"
    with pytest.raises(BadInput, match=r"^CUEBOOK_MAX_TOKENS: max_tokens must be a number, not 'lots'\."):
        machine.load()
    del machine.environ["CUEBOOK_MAX_TOKENS"]
    with pytest.raises(BadInput, match=r"^--budget-money: budget\.money must not be negative, not '-1'\."):
        machine.load({"budget.money": "-1"})
