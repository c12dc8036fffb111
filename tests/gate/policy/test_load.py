"""Policy files: where they are found, what they may contain, and how mistakes are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.policy import (
    Bundle,
    Rules,
    bundle_from,
    content_digest,
    content_of,
    decide,
    duration,
    find,
    load_bundle,
    load_policy,
    playbook_layer,
    trust_subject,
)
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Action

TOML = """\
# ours
version = 1
allowed_domains = ["example.com"]

[tools]
allow = ["Read", 'Glob']
default = "ask"

[commands]
allow = [
    "git status",   # harmless
    # "git push",
    'git log *', "ls",
]
deny = [ "rm *",
  \"\"\"sudo *\"\"\" ]

[egress]
allow = ["https://api.example.com/*", "*.example.org"]

[approvals]
expires_after = "8h"
on_expiry = "hold"
different_person = true
"""

YAML = """\
# ours
version: 1
allowed_domains: [example.com]

tools:
  allow: [Read, 'Glob']
  default: ask

commands:
  allow:
    - git status   # harmless
    # - git push
    - 'git log *'
    - ls
  deny: ["rm *",
    "sudo *"]

egress:
  allow: ["https://api.example.com/*", "*.example.org"]

approvals:
  expires_after: 8h
  on_expiry: hold
  different_person: true
"""


def write(folder: Path, text: str, name: str = "policy.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path) -> BadInput:
    with pytest.raises(BadInput) as caught:
        load_bundle(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.fix
    return caught.value


# --- what stands in a file ----------------------------------------------------------------------------


def test_toml_and_yaml_say_the_same_and_every_rule_knows_its_line(tmp_path: Path) -> None:
    from_toml, toml_lines = load_bundle(write(tmp_path, TOML))
    from_yaml, yaml_lines = load_bundle(write(tmp_path, YAML, "policy.yaml"))
    assert from_toml == from_yaml
    assert from_toml.tools == Rules(allow=("Read", "Glob"), default="ask")
    assert from_toml.commands == Rules(allow=("git status", "git log *", "ls"), deny=("rm *", "sudo *"))
    assert from_toml.allowed_domains == ("example.com",)
    assert from_toml.approvals.expires_after == 8 * 3600
    expected = {
        "allowed_domains[0]": 3,
        "tools.allow[1]": 6,
        "tools.default": 7,
        "commands.allow[0]": 11,
        "commands.allow[1]": 13,
        "commands.allow[2]": 13,
        "commands.deny[0]": 15,
        "commands.deny[1]": 16,
        "egress.allow[1]": 19,
        "approvals.on_expiry": 23,
    }
    assert {key: toml_lines[key] for key in expected} == expected
    in_yaml = {"commands.allow[0]": 11, "commands.allow[2]": 14, "commands.deny[1]": 16, "tools.default": 7}
    assert {key: yaml_lines[key] for key in in_yaml} == in_yaml


@pytest.mark.parametrize(
    "text",
    [
        'commands.deny = ["rm *"]\n',
        'commands = { deny = ["rm *"] }\n',
        '"commands"."deny" = ["rm *"]\n',
        '[ commands ]\n"deny"=["rm *"]\n',
    ],
)
def test_toml_may_be_written_in_its_other_ways(tmp_path: Path, text: str) -> None:
    bundle, lines = load_bundle(write(tmp_path, text))
    assert bundle == Bundle(commands=Rules(deny=("rm *",)))
    assert lines["commands.deny[0]"] == text.count("\n")


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert load_bundle(write(tmp_path, ""))[0] == Bundle()
    assert load_bundle(write(tmp_path, "# nothing\n", "p.yaml"))[0] == Bundle()
    assert load_bundle(write(tmp_path, "\ufeffversion = 1\n"))[0] == Bundle()


@pytest.mark.parametrize(
    ("text", "line", "words", "fix"),
    [
        ("version = 2\n", 1, "version must be 1, not 2", "version of Cuebook"),
        ("version = true\n", 1, "version must be 1", ""),
        ("\ncomands = {}\n", 2, "there is no setting 'comands'", "Did you mean 'commands'?"),
        ('[tools]\nalow = ["x"]\n', 2, "there is no setting 'tools.alow'", "Did you mean 'allow'?"),
        ("[tools]\nxyz = 1\n", 2, "there is no setting 'tools.xyz'", "Known settings: allow, ask, deny, default."),
        ("tools = 3\n", 1, "tools must be a table", "[tools]"),
        ('[tools]\n\nallow = "x"\n', 3, "tools.allow must be a list of strings", '["..."]'),
        ('[tools]\nallow = [\n"a",\n3,\n]\n', 4, "tools.allow[1] must be a non-empty string, not 3", "quotes"),
        ('[tools]\ndeny = ["a",\n"  "]\n', 3, "tools.deny[1] must be a non-empty string", ""),
        ('[tools]\ndeny = [""]\n', 2, "tools.deny[0] must be a non-empty string", ""),
        ('[tools]\ndeny = [" a"]\n', 2, "must not begin or end with a space", ""),
        ('[tools]\ndeny = ["a\\u202eb"]\n', 2, "invisible characters", ""),
        (f'[tools]\ndeny = ["{"a" * 1001}"]\n', 2, "must have at most 1000 characters", "Shorten"),
        ('[tools]\ndefault = "alow"\n', 2, 'must be one of "allow", "ask", "deny"', "Did you mean 'allow'?"),
        ("[tools]\ndefault = true\n", 2, "tools.default must be one of", ""),
        ('[approvals]\non_expiry = "canel"\n', 2, "approvals.on_expiry must be one of", "Did you mean 'cancel'?"),
        ('[approvals]\nexpires_after = "soon"\n', 2, 'must be a number of seconds, a duration such as "24h"', ""),
        ("[approvals]\nexpires_after = 0\n", 2, "must be a number of seconds", ""),
        ("[approvals]\nexpires_after = nan\n", 2, "must be a number of seconds", ""),
        ('[approvals]\ndifferent_person = "yes"\n', 2, "must be true or false", ""),
        ("[approvals]\nexpires = 1\n", 2, "there is no setting 'approvals.expires'", "expires_after"),
        ('[egress]\nallow = ["https://example.com*"]\n', 2, "must name its host in full", "*.example.com"),
        ('[egress]\nallow = ["*example.com"]\n', 2, "must name its host in full", ""),
        ('[egress]\nallow = ["https://me:pw@example.com/"]\n', 2, "must not contain a user or password", ""),
        ('[egress]\ndeny = ["https:// x"]\n', 2, "must begin with a method or a URL", ""),
        ('[egress]\ndeny = ["example.com:http"]\n', 2, "number or * as its port", ""),
        ('[egress]\ndeny = ["2130706433"]\n', 2, "must name a host", ""),
        ('[files]\nallow = ["read:../x"]\n', 2, "must not contain ..", ""),
        ('allowed_domains = ["*.example.com"]\n', 1, "must be a single host name", "patterns belong in [egress]"),
        ('allowed_domains = ["https://example.com"]\n', 1, "must be a single host name", ""),
        ('allowed_domains = ["example.com/x"]\n', 1, "must be a single host name", ""),
        ("allowed_domains = 1\n", 1, "allowed_domains must be a list", ""),
        ("a = [\n", 2, "invalid TOML", ""),
        ("version = 1\nversion = 1\n", 2, "invalid TOML", ""),
    ],
)
def test_a_mistake_in_toml_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, words: str, fix: str
) -> None:
    path = write(tmp_path, text)
    error = refused(path)
    assert error.message.startswith(f"{path}:{line}: ")
    assert words in error.message
    assert fix in error.fix


@pytest.mark.parametrize(
    ("text", "line", "words", "fix"),
    [
        ("tools:\n  alow: []\n", 2, "there is no setting 'tools.alow'", "Did you mean 'allow'?"),
        ("tools:\n  allow:\n    - a\n    - 3\n", 4, "tools.allow[1] must be a non-empty string, not 3", ""),
        ("tools:\n  allow:\n    - ~\n", 3, "tools.allow[0] must be a non-empty string", ""),
        ("tools:\n  allow:\n    - [a]\n", 3, "tools.allow[0] must be a non-empty string", ""),
        ("tools:\n  allow: yes\n", 2, "tools.allow must be a list", ""),
        ("tools:\n  default: no\n", 2, "tools.default must be one of", ""),
        ("tools: {}\ntools: {}\n", 2, "'tools' is defined twice", "Remove one"),
        ("tools:\n  deny: [a]\n  deny: []\n", 3, "'deny' is defined twice", ""),
        ("egress:\n  allow:\n    - *.example.com\n", 3, "unknown alias '*.example.com'", "in quotes"),
        ("tools: [\n", 2, "invalid YAML", ""),
        ("tools:\n\tallow: []\n", 2, "a tab where YAML allows only spaces", ""),
        ("version: 1\n---\nversion: 1\n", 2, "a second document begins here", ""),
        ("version: !!python/object:os.system x\n", 1, "unknown tag", ""),
        ("version: 2\n", 1, "version must be 1", ""),
        ("tools: &a\n  allow: *a\n", 2, "circular alias", ""),
        ("? [a]\n: 1\n", 1, "name must be a string", ""),
    ],
)
def test_a_mistake_in_yaml_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, words: str, fix: str
) -> None:
    path = write(tmp_path, text, "policy.yaml")
    error = refused(path)
    assert error.message.startswith(f"{path}:{line}: "), error.message
    assert words in error.message
    assert fix in error.fix


def test_a_file_that_is_not_a_policy_is_refused(tmp_path: Path) -> None:
    assert "a policy must be a table" in refused(write(tmp_path, "- a\n", "p.yaml")).message
    assert ".toml or .yaml" in refused(write(tmp_path, "x", "policy.json")).message
    assert "cannot be read" in refused(tmp_path / "missing.toml").message
    assert "larger than" in refused(write(tmp_path, "#" * 250_001)).message
    assert "invalid YAML" in refused(write(tmp_path, "a: \x01", "p.yaml")).message
    for name in ("deep.toml", "deep.yaml"):
        assert (
            "nested too deeply"
            in refused(write(tmp_path, "a" + (" = " if "toml" in name else ": ") + "[" * 5000, name)).message
        )
    (tmp_path / "bytes.toml").write_bytes(b"\n\xff")
    assert refused(tmp_path / "bytes.toml").message.endswith("bytes.toml:2: this is not UTF-8 text.")


def test_a_few_aliases_do_not_become_a_flood(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert "nested too deeply" in refused(write(tmp_path, bomb, "p.yaml")).message


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("24h", 86400), ("15m", 900), ("30s", 30), ("7d", 604800), ("90", 90), (90, 90), (1.5, 1.5), ("1.5h", 5400)],
)
def test_a_time_is_seconds_or_has_a_unit(given: Any, seconds: float) -> None:
    assert duration(given) == seconds


def test_a_time_may_be_never_but_not_nonsense() -> None:
    assert duration("never") is None
    nonsense: tuple[Any, ...] = ("", "h", "-1h", 0, -1, True, None, "inf", "nan", "1y", [], float("inf"))
    for wrong in nonsense:
        with pytest.raises(ValueError):
            duration(wrong)


def test_plain_values_are_checked_as_a_file_is() -> None:
    assert bundle_from({"tools": {"allow": ("a",)}}) == Bundle(tools=Rules(allow=("a",)))
    with pytest.raises(BadInput, match=r"tools\.alow"):
        bundle_from({"tools": {"alow": ["a"]}})
    with pytest.raises(BadInput, match=r"book\.md:12: .*no setting 'tols'"):
        playbook_layer("book.md", {"tols": {}}, {("tols",): 12})
    made = playbook_layer("book.md", {"tools": {"deny": ["x"]}}, {("tools", "deny", 0): 4})
    assert (made.whose, made.may_allow, made.place("tools.deny[0]")) == ("playbook", False, "book.md:4")


def test_the_example_of_the_reference_is_a_policy(tmp_path: Path) -> None:
    reference = Path(__file__).resolve().parents[3] / "docs" / "reference" / "policy.md"
    example = reference.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    bundle, _ = load_bundle(write(tmp_path, example))
    assert bundle.commands.ask == ("git push*",)
    assert bundle.approvals.on_expiry == "cancel"


# --- where files are ----------------------------------------------------------------------------------


def test_the_users_file_and_all_of_the_projects_are_found_the_nearest_first(tmp_path: Path) -> None:
    config, work = tmp_path / "config", tmp_path / "project" / "deep" / "er"
    work.mkdir(parents=True)
    assert find(config, work) == []
    users = write(config, "")
    far = write(tmp_path / "project", "", "cuebook.policy.yaml")
    assert [(one.whose, one.path) for one in find(config, work)] == [("user", users), ("project", far)]
    near = write(work.parent, "", "cuebook.policy.toml")
    assert [one.path for one in find(config, work)] == [users, near, far]
    # The name of the other file has no meaning in the wrong place.
    write(work, "", "policy.toml")
    assert [one.path for one in find(config, work)] == [users, near, far]
    nearest = write(work, "", "cuebook.policy.yml")
    assert [one.path for one in find(config, work)] == [users, nearest, near, far]


def test_a_nearer_file_hides_nothing_that_one_above_forbids(tmp_path: Path) -> None:
    above = write(tmp_path, '[tools]\ndeny = ["drop"]\nallow = ["deploy"]\n', "cuebook.policy.toml")
    below = write(tmp_path / "deep", '[tools]\nallow = ["drop", "look"]\nask = ["deploy"]\n', "cuebook.policy.toml")
    trusted: set[Path] = set()

    def today(name: str) -> str:
        policy = load_policy(tmp_path / "config", tmp_path / "deep", lambda path, digest: path in trusted)
        return decide(Action("tool", name), [policy]).decision

    assert (today("drop"), today("deploy"), today("look")) == ("deny", "ask", "ask")
    trusted.add(below)
    assert (today("drop"), today("deploy"), today("look")) == ("deny", "ask", "allow")
    trusted.add(above)
    assert (today("drop"), today("deploy"), today("look")) == ("deny", "ask", "allow")


def test_two_kinds_of_file_in_one_place_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "config", "")
    write(tmp_path / "config", "", "policy.yaml")
    with pytest.raises(BadInput, match=r"policy\.toml and policy\.yaml"):
        find(tmp_path / "config", tmp_path)
    write(tmp_path / "work", "", "cuebook.policy.toml")
    write(tmp_path / "work", "", "cuebook.policy.yml")
    with pytest.raises(BadInput, match="only one of them may exist"):
        find(tmp_path / "elsewhere", tmp_path / "work")


def test_an_intended_policy_is_not_skipped_silently(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "policy.toml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="this is not a file"):
        find(config, tmp_path)


def test_a_projects_file_may_allow_only_as_it_was_trusted(tmp_path: Path) -> None:
    path = write(tmp_path, '[tools]\nallow = ["deploy"]\ndeny = ["drop"]\n', "cuebook.policy.toml")
    trusted: dict[str, str] = {}

    def today(name: str) -> str:
        policy = load_policy(
            tmp_path / "config", tmp_path, lambda path, digest: trusted.get(trust_subject(path)) == digest
        )
        return decide(Action("tool", name), [policy]).decision

    assert (today("deploy"), today("drop")) == ("ask", "deny")
    text, digest = content_of(path)
    assert (text, digest) == (path.read_text(), content_digest(path.read_bytes()))
    trusted[trust_subject(path)] = digest
    assert (today("deploy"), today("drop")) == ("allow", "deny")
    path.write_text(path.read_text() + "# changed\n")
    assert (today("deploy"), today("drop")) == ("ask", "deny")


def test_the_users_own_file_needs_no_trust(tmp_path: Path) -> None:
    write(tmp_path / "config", '[tools]\nallow = ["deploy"]\n')
    policy = load_policy(tmp_path / "config", tmp_path, lambda path, digest: False)
    ruling = decide(Action("tool", "deploy"), [policy])
    assert ruling.decision == "allow"
    assert ruling.deciding[0].where == f"{tmp_path / 'config' / 'policy.toml'}:2"


def test_only_a_valid_file_can_be_trusted(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"tools\.alow"):
        content_of(write(tmp_path, '[tools]\nalow = ["x"]\n', "cuebook.policy.toml"))
