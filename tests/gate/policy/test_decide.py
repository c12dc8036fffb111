"""The ruling of a policy on an action: within a layer, between layers, between then and now, and with overrides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.gate.policy import (
    Bundle,
    Decision,
    Layer,
    Override,
    Policy,
    Rules,
    Ruling,
    approvals_of,
    bundle_from,
    decide,
    decide_all,
    opinions,
    strictest,
)
from cuebook.gate.policy.overrides import check_override, problem_with, safe_pattern, suggested
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.ports import Action, Domain
from tests.gate.policy.samples import layer, override, policy, ruled
from tests.support.sampling import many

ORDER = ("allow", "ask", "deny")


def tool(name: str = "deploy", *, reads_only: bool = False) -> Action:
    return Action("tool", name, reads_only)


# --- within a layer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"allow": ["deploy"]}, "allow"),
        ({"ask": ["deploy"], "allow": ["deploy"]}, "ask"),
        ({"deny": ["deploy"], "ask": ["deploy"], "allow": ["deploy"]}, "deny"),
        ({"deny": ["deploy"], "allow": ["deploy"]}, "deny"),
        ({"allow": ["deploy"], "default": "deny"}, "allow"),
        ({"ask": ["deploy"], "default": "deny"}, "ask"),
        ({"ask": ["deploy"], "default": "allow"}, "ask"),
        ({"deny": ["other"], "default": "allow"}, "allow"),
        ({"allow": ["other"], "default": "deny"}, "deny"),
        ({"default": "ask"}, "ask"),
        ({"allow": ["other"]}, "ask"),
        ({}, "ask"),
    ],
)
def test_deny_goes_before_ask_before_allow_before_the_default(rules: dict[str, Any], expected: Decision) -> None:
    assert ruled(tool(), {"tools": rules}) == expected


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action("tool", "t", True), "allow"),
        (Action("tool", "t"), "ask"),
        (Action("command", "ls", True), "allow"),
        (Action("command", "ls"), "ask"),
        (Action("egress", "GET https://example.com/"), "ask"),
        (Action("egress", "GET https://example.com/", True), "ask"),
        (Action("secret", "env:TOKEN"), "ask"),
        (Action("file", "read:src/a.py"), "allow"),
        (Action("file", "write:src/a.py"), "ask"),
        (Action("file", "read:../a.py"), "deny"),
        (Action("file", "read:a/../b"), "deny"),
        (Action("file", "read:/etc/passwd"), "deny"),
        (Action("file", "write:/etc/passwd"), "deny"),
        (Action("file", "read:"), "deny"),
        (Action("file", "read:a\0b"), "deny"),
        (Action("file", "delete:a"), "deny"),
        (Action("file", "a"), "deny"),
        (Action("model", "openai/gpt-5"), "allow"),
    ],
)
def test_without_a_rule_reading_is_allowed_and_changing_is_asked_about(action: Action, expected: Decision) -> None:
    for policies in ([], [Policy()], [policy({}), policy({"approvals": {"on_expiry": "hold"}})]):
        ruling = decide(action, policies)
        assert ruling.decision == expected
        assert {reason.where for reason in ruling.reasons} == {"default"}


def test_each_domain_has_its_own_table() -> None:
    everywhere = {"tools": {"deny": ["x"]}, "secrets": {"allow": ["x"]}, "models": {"ask": ["x"]}}
    found = {domain: ruled(Action(domain, "x"), everywhere) for domain in ("tool", "secret", "model", "command")}
    assert found == {"tool": "deny", "secret": "allow", "model": "ask", "command": "ask"}


def test_an_explicit_rule_counts_for_what_only_reads_as_well() -> None:
    assert ruled(tool(reads_only=True), {"tools": {"default": "ask"}}) == "ask"
    assert ruled(tool(reads_only=True), {"tools": {"deny": ["*"]}}) == "deny"


# --- between layers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("user", [None, *ORDER])
@pytest.mark.parametrize("project", [None, *ORDER])
@pytest.mark.parametrize("trusted", [True, False])
def test_the_most_restrictive_layer_counts(user: Any, project: Any, trusted: bool) -> None:
    mine = layer({"tools": {user: ["deploy"]} if user else {}})
    theirs = layer({"tools": {project: ["deploy"]} if project else {}}, "project", may_allow=trusted)
    counting = [one for one in (user, project if trusted or project != "allow" else None) if one]
    assert ruled(tool(), mine, theirs) == (strictest(counting) if counting else "ask")


def test_an_allow_rule_of_a_layer_that_may_not_allow_does_not_count() -> None:
    playbook = layer({"tools": {"allow": ["deploy"], "default": "allow"}}, "playbook", may_allow=False, where="book.md")
    ruling = decide(tool(), [policy(playbook)])
    assert ruling.decision == "ask"
    assert [reason.where for reason in ruling.reasons] == ["default"]
    (opinion,) = opinions(tool(), policy(playbook))
    assert (opinion.decision, opinion.counts) == ("allow", False)
    # The layer's own default does not apply either: the playbook has an opinion, but it does not count.
    strict = layer({"tools": {"allow": ["deploy"], "default": "deny"}}, "playbook", may_allow=False)
    assert ruled(tool(), {"tools": {"allow": ["*"]}}, strict) == "allow"
    assert ruled(tool("other"), {"tools": {"allow": ["*"]}}, strict) == "deny"


def test_a_playbook_cannot_soften_what_is_denied_by_default() -> None:
    outside = Action("file", "read:/etc/passwd")
    asking = layer({"files": {"ask": ["**", "/**"]}}, "playbook", may_allow=False)
    assert ruled(outside, asking) == "deny"
    assert ruled(outside, {"files": {"ask": ["/etc/*"]}}) == "ask"


def tables(*patterns: str) -> st.SearchStrategy[dict[str, Any]]:
    lists = st.lists(st.sampled_from(patterns), max_size=2)
    default = st.sampled_from(ORDER)
    return st.fixed_dictionaries({}, optional={"allow": lists, "ask": lists, "deny": lists, "default": default})


values = st.fixed_dictionaries(
    {},
    optional={
        "tools": tables("*", "deploy", "d?ploy"),
        "commands": tables("*", "git *", "git push*", "ls", "bash *"),
        "egress": tables("*", "https://example.com/*", "*.example.com", "example.com"),
        "secrets": tables("*", "env:*", "env:TOKEN"),
        "files": tables("**", "read:**", "write:src/*", "/etc/*"),
        "models": tables("*", "openai/*"),
        "allowed_domains": st.lists(st.sampled_from(["example.com", "a.example.com"]), max_size=1),
    },
)
TARGETS: dict[Domain, list[str]] = {
    "tool": ["deploy", "other"],
    "command": ["ls", "git push origin", "bash -c 'git push && ls'", "bash -c 'ls > x'", "sudo ls"],
    "egress": ["GET https://example.com/a", "POST https://a.example.com/", "GET https://example.com:8443/", "nonsense"],
    "secret": ["env:TOKEN", "keyring:x"],
    "file": ["read:src/a.py", "write:src/a.py", "read:/etc/passwd", "write:../x"],
    "model": ["openai/gpt-5", "local"],
}
actions = st.builds(
    lambda place, reads_only: Action(place[0], place[1], reads_only),
    st.sampled_from([(domain, target) for domain, targets in TARGETS.items() for target in targets]),
    st.booleans(),
)
overrides = st.lists(
    st.sampled_from(
        [
            override("deploy"),
            override("ls", "command"),
            override("git push*", "command"),
            override("sudo ls", "command"),
            override("GET https://example.com/*", "egress"),
            override("write:src/*", "file"),
            override("env:TOKEN", "secret"),
            override("openai/*", "model"),
        ]
    ),
    max_size=4,
)


@settings(max_examples=many(75, 300), deadline=None)
@given(actions, values, values, st.sampled_from(["project", "playbook"]), overrides)
def test_another_layer_that_may_not_allow_never_permits_more(
    action: Action, mine: dict[str, Any], theirs: dict[str, Any], whose: Any, standing: list[Override]
) -> None:
    before = decide(action, [policy(mine)], standing).decision
    after = decide(action, [policy(mine, layer(theirs, whose, may_allow=False))], standing).decision
    assert ORDER.index(after) >= ORDER.index(before)


@settings(max_examples=many(75, 300), deadline=None)
@given(actions, values, values, overrides)
def test_the_policy_of_the_beginning_never_permits_more_than_todays(
    action: Action, then: dict[str, Any], now: dict[str, Any], standing: list[Override]
) -> None:
    both = decide(action, [policy(then), policy(now)], standing).decision
    for one in (then, now):
        assert ORDER.index(both) >= ORDER.index(decide(action, [policy(one)], standing).decision)


@settings(max_examples=many(75, 300), deadline=None)
@given(actions, values, overrides)
def test_no_override_beats_a_deny_or_makes_anything_stricter(
    action: Action, mine: dict[str, Any], standing: list[Override]
) -> None:
    without, with_them = decide(action, [policy(mine)]), decide(action, [policy(mine)], standing)
    if without.decision != "ask":
        assert with_them.decision == without.decision
    else:
        assert with_them.decision in ("allow", "ask")


@settings(max_examples=many(50, 200), deadline=None)
@given(values, values)
def test_a_snapshot_is_the_policy_again(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    made = policy(mine, layer(theirs, "project", may_allow=False, where="cuebook.policy.yaml"))
    again = Policy.from_snapshot(made.snapshot())
    assert again == made
    assert again.snapshot() == made.snapshot()
    assert again.digest == made.digest


# --- snapshots ----------------------------------------------------------------------------------------


def test_a_snapshot_says_the_same_whatever_order_it_was_built_in() -> None:
    one = Layer("user", "p", Bundle(tools=Rules(allow=("a",))), True, {"tools.allow[0]": 3, "version": 1})
    other = Layer("user", "p", Bundle(tools=Rules(allow=("a",))), True, {"version": 1, "tools.allow[0]": 3})
    assert Policy((one,)).snapshot() == Policy((other,)).snapshot()
    assert Policy((one,)).digest != Policy((layer({"tools": {"allow": ["b"]}}),)).digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"layers": 1}',
        '{"layers": [{"whose": "user", "where": "p", "may_allow": true, "bundle": {"ships": {"deny": ["*"]}}}]}',
        '{"layers": [{"whose": "user", "where": "p", "may_allow": true, "bundle": {"tools": {"default": "maybe"}}}]}',
        '{"rules": []}',
    ],
)
def test_a_snapshot_that_cannot_be_read_whole_is_refused(text: str) -> None:
    with pytest.raises(CuebookError, match="stored with the run cannot be read"):
        Policy.from_snapshot(text)


def test_approvals_take_the_strictest_of_all_layers() -> None:
    nothing = policy({}).approvals
    assert (nothing.expires_after, nothing.on_expiry, nothing.different_person) == (86400.0, "cancel", False)
    long = {"approvals": {"expires_after": "7d", "on_expiry": "hold"}}
    assert policy(long).approvals.expires_after == 7 * 86400
    assert policy(long).approvals.on_expiry == "hold"
    both = policy(long, {"approvals": {"expires_after": "8h", "on_expiry": "deny", "different_person": True}}).approvals
    assert (both.expires_after, both.on_expiry, both.different_person) == (8 * 3600.0, "deny", True)
    assert policy({"approvals": {"expires_after": "never"}}).approvals.expires_after is None
    assert policy(long, {"tools": {}}).approvals.expires_after == 7 * 86400


def test_a_layer_that_may_not_allow_can_only_tighten_approvals() -> None:
    lax = layer({"approvals": {"expires_after": "never", "on_expiry": "hold"}}, "playbook", may_allow=False)
    assert policy(lax).approvals == policy({}).approvals
    tight = layer({"approvals": {"expires_after": "1h", "different_person": True}}, "playbook", may_allow=False)
    made = policy({"approvals": {"expires_after": "7d", "on_expiry": "hold"}}, tight).approvals
    assert (made.expires_after, made.on_expiry, made.different_person) == (3600.0, "hold", True)


def test_approvals_under_two_policies_are_the_strictest_of_both() -> None:
    then = policy({"approvals": {"expires_after": "7d", "on_expiry": "hold"}})
    assert approvals_of([then, policy({})]) == policy({}).approvals
    assert approvals_of([]) == policy({}).approvals


def test_what_a_playbook_says_itself_only_restricts() -> None:
    today = policy({"egress": {"allow": ["*"]}})
    narrowed = today.with_playbook({"allowed_domains": ["api.example.com"], "tools": {"allow": ["*"]}}, "book.md")
    assert decide(Action("egress", "GET https://api.example.com/x"), [narrowed]).decision == "allow"
    assert decide(Action("egress", "GET https://other.example.com/x"), [narrowed]).decision == "ask"
    assert decide(tool(), [narrowed]).decision == "ask"
    assert narrowed.layers[-1].where == "book.md"


# --- reasons ------------------------------------------------------------------------------------------


def test_a_ruling_says_which_rule_decided_and_where_it_is_written() -> None:
    mine = Layer("user", "/u/policy.toml", bundle_from({"tools": {"deny": ["a", "dep*"]}}), True, {"tools.deny[1]": 7})
    theirs = layer({"tools": {"default": "ask"}}, "project", where="/p/cuebook.policy.toml")
    ruling = decide(tool(), [policy(mine, theirs)])
    found = [(reason.decision, reason.rule, reason.where) for reason in ruling.reasons]
    assert found == [
        ("deny", "tools.deny 'dep*'", "/u/policy.toml:7"),
        ("ask", "tools.default 'ask'", "/p/cuebook.policy.toml"),
    ]
    assert [reason.rule for reason in ruling.deciding] == ["tools.deny 'dep*'"]


def test_the_same_rule_in_both_policies_is_listed_once() -> None:
    ruling = decide(tool(), [policy({"tools": {"ask": ["*"]}})] * 2)
    assert len(ruling.reasons) == 1


def test_an_effect_is_as_restricted_as_the_strictest_of_its_actions() -> None:
    mine = policy({"tools": {"allow": ["deploy"]}, "egress": {"deny": ["evil.net"]}})
    parts = [tool(), Action("egress", "GET https://evil.net/"), Action("secret", "env:TOKEN")]
    ruling = decide_all(parts, [mine])
    assert ruling.decision == "deny"
    assert ruling.reasons[0].rule == "egress.deny 'evil.net'"
    assert decide_all(parts[:1], [mine]).decision == "allow"
    assert decide_all([parts[0], parts[2]], [mine]).decision == "ask"
    assert decide_all([], [mine]) == Ruling("allow", ())


# --- overrides ----------------------------------------------------------------------------------------


def test_an_override_answers_what_would_be_asked() -> None:
    ruling = decide(tool(), [], [override("deploy")], now=1.0)
    assert ruling.decision == "allow"
    assert ruling.deciding[-1].override == "o1"
    assert "ada" in ruling.deciding[-1].rule
    assert decide(tool(), [policy({"tools": {"ask": ["*"]}})], [override("depl*")]).decision == "allow"
    assert decide(tool("other"), [], [override("deploy")]).decision == "ask"


@pytest.mark.parametrize(
    ("more", "now", "expected"),
    [
        ({"expires": 100.0}, 99.9, "allow"),
        ({"expires": 100.0}, 100.0, "ask"),
        ({"expires": 100.0}, 101.0, "ask"),
        ({"expires": None}, 1e12, "allow"),
        ({"revoked": True}, 1.0, "ask"),
        ({"revoked": True, "expires": 100.0}, 1.0, "ask"),
    ],
)
def test_an_override_ends_when_it_expires_or_is_revoked(more: dict[str, Any], now: float, expected: Decision) -> None:
    assert decide(tool(), [], [override("deploy", **more)], now).decision == expected


def test_an_override_counts_in_its_domain_only() -> None:
    assert decide(tool(), [], [override("deploy", "command"), override("deploy", "secret")]).decision == "ask"


def test_an_override_of_the_tool_leaves_its_request_and_its_secret_to_be_asked_about() -> None:
    parts = [tool(), Action("egress", "POST https://api.example.com/x"), Action("secret", "env:TOKEN")]
    standing = [override("deploy")]
    ruling = decide_all(parts, [], standing)
    assert ruling.decision == "ask"
    assert {reason.action.domain for reason in ruling.deciding} == {"egress", "secret"}
    standing += [override("https://api.example.com/*", "egress"), override("env:TOKEN", "secret")]
    assert decide_all(parts, [], standing).decision == "allow"


def test_an_override_that_is_too_wide_counts_for_nothing() -> None:
    for pattern in ("*", "d?ploy", "de*y", " *", "dep*"):
        assert decide(tool(), [], [override(pattern)]).decision == "ask"
    assert decide(Action("secret", "env:TOKEN"), [], [override("env:*", "secret")]).decision == "ask"


@pytest.mark.parametrize(
    ("pattern", "safe"),
    [
        ("git push", True),
        ("git push*", True),
        ("a*", True),
        ("*", False),
        ("", False),
        ("?", False),
        ("git pus?", False),
        ("git *", False),
        ("git\t*", False),
        ("*git", False),
        ("g*t", False),
        ("a**", False),
        ("a*b*", False),
        ("  *", False),
        ("x" * 1001, False),
    ],
)
def test_the_form_of_an_overrides_pattern_is_guarded(pattern: str, safe: bool) -> None:
    assert (safe_pattern(pattern) == "") is safe


@pytest.mark.parametrize(
    ("domain", "pattern"),
    [
        ("command", "git*"),
        ("command", "bash -c*"),
        ("command", "/bin/sh -c*"),
        ("command", "env FOO=1*"),
        ("command", "sudo rm*"),
        ("command", "git -*"),
        ("command", "git -c*"),
        ("command", "git push --*"),
        ("command", "git '-*"),
        ("tool", "git*"),
        ("secret", "github"),
        ("secret", "env:NOT A NAME"),
        ("secret", "file:~/token"),
        ("secret", "env:*"),
        ("egress", "https://example.com*"),
        ("egress", "https://*"),
        ("egress", "exam*"),
        ("egress", "example.com:80*"),
        ("egress", "https://user@example.com/*"),
        ("egress", "not an address"),
        ("egress", "nonsense"),
        ("egress", "example.com"),
        ("egress", "GET example.com/x"),
        ("egress", "gopher://example.com/x"),
        ("file", "write:*"),
        ("file", "write:/*"),
        ("file", "src/*"),
    ],
)
def test_an_override_that_leaves_open_what_matters_is_refused(domain: Domain, pattern: str) -> None:
    assert problem_with(domain, pattern)
    with pytest.raises(BadInput, match="cannot be an override"):
        check_override(domain, pattern)


def test_a_long_pattern_is_not_repeated_in_full_nor_what_cannot_be_seen() -> None:
    with pytest.raises(BadInput) as caught:
        check_override("tool", "x" * 5000)
    assert len(str(caught.value)) < 300
    assert "x" * 100 + "..." in str(caught.value)
    with pytest.raises(BadInput) as caught:
        check_override("tool", "a\x1b[2Jb")
    assert "a\\x1b[2Jb" in str(caught.value)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (tool("github.create_issue"), ("github.create_issue",)),
        (Action("command", "git push origin main"), ("git push origin main", "git push*")),
        (Action("command", "bash -c 'git push origin main'"), ("git push origin main", "git push*")),
        (Action("command", "bash -c 'git push && ls'"), ("bash -c 'git push && ls'",)),
        (Action("command", "bash -c 'rm -rf $HOME'"), ("bash -c 'rm -rf $HOME'",)),
        (Action("command", "ls"), ("ls",)),
        (Action("command", "ls -la"), ("ls -la",)),
        (Action("command", "ls '*.py'"), ()),
        (Action("command", "sudo rm x"), ("sudo rm x",)),
        (Action("command", "env FOO=1 rm x"), ("env FOO=1 rm x",)),
        (
            Action("egress", "POST https://api.example.com/v1/x"),
            ("POST https://api.example.com/v1/x", "https://api.example.com/*"),
        ),
        (Action("egress", "GET http://[::1]:8080/x"), ("GET http://[::1]:8080/x", "http://[::1]:8080/*")),
        (Action("egress", "GET nonsense"), ()),
        (Action("secret", "env:TOKEN"), ("env:TOKEN",)),
        (Action("file", "write:src/a.py"), ("write:src/a.py", "write:src/*")),
        (Action("file", "write:a.py"), ("write:a.py",)),
        (Action("model", "openai/gpt-5"), ("openai/gpt-5", "openai/*")),
    ],
)
def test_what_is_suggested_for_always_is_narrow(action: Action, expected: tuple[str, ...]) -> None:
    assert suggested(action) == expected
    for pattern in expected:
        check_override(action.domain, pattern)
        assert (
            decide(action, [policy({"models": {"default": "ask"}})], [override(pattern, action.domain)]).decision
            == "allow"
        )
