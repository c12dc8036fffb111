"""Patterns: what wildcards mean, and how addresses and paths are matched without being fooled."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.gate.policy import Decision, Ruling, decide, names_host
from cuebook.gate.policy.patterns import fits, fits_path, may_fit
from cuebook.kernel.ports import Action
from tests.gate.policy.samples import layer, policy, ruled
from tests.support.sampling import many

# --- wildcards ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("*", "anything / at\nall", True),
        ("a*", "a", True),
        ("a*", "ba", False),
        ("*a", "ba", True),
        ("*a", "ab", False),
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("a*c", "acb", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("?", "", False),
        ("?*", "x", True),
        ("**", "x", True),
        ("a", "A", False),
        ("git *", "git", False),
        ("git *", "git push", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a.c", "abc", False),
        ("*ab*ab*", "xabyabz", True),
        ("*ab*ab*", "xabyaz", False),
        ("*aab", "aaaab", True),
        ("a?b*c?d", "axbyyycxd", True),
        ("a?b*c?d", "axbyyycd", False),
        ("é*", "été", True),
        ("e*", "été", False),
    ],
)
def test_a_pattern_covers_the_whole_text(pattern: str, text: str, expected: bool) -> None:
    assert fits(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*", "a.py", True),
        ("*", "src/a.py", False),
        ("src/*", "src/a.py", True),
        ("src/*", "src/deep/a.py", False),
        ("src/**", "src/deep/a.py", True),
        ("src/**", "src", False),
        ("**", "src/deep/a.py", True),
        ("**/*.py", "a.py", True),
        ("**/*.py", "src/deep/a.py", True),
        ("**/.env", ".env", True),
        ("**/.env", "src/.env", True),
        ("**/.env", "src/not.env", False),
        ("src/**/a.py", "src/a.py", True),
        ("src/**/a.py", "src/x/y/a.py", True),
        ("src/**/a.py", "src/xa.py", False),
        ("**/**/a", "a", True),
        ("a?b", "a/b", False),
        ("a?b", "axb", True),
        ("*.py", ".py", True),
    ],
)
def test_in_a_path_one_star_stops_at_a_slash_and_two_do_not(pattern: str, path: str, expected: bool) -> None:
    assert fits_path(pattern, path) is expected


@settings(max_examples=many(75, 300), deadline=None)
@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
def test_wildcards_mean_what_a_plain_reading_says(pattern: str, text: str) -> None:
    def plain(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return plain(pattern[1:], text) or (bool(text) and plain(pattern, text[1:]))
        return bool(text) and pattern[0] in ("?", text[0]) and plain(pattern[1:], text[1:])

    assert fits(pattern, text) is plain(pattern, text)


def test_no_pattern_takes_long_over_a_long_text() -> None:
    text = "a" * 100_000
    for pattern in ("a*" * 400 + "b", "*a" * 400 + "b", "?*" * 400 + "b", "*" * 900 + "b"):
        assert not fits(pattern, text)
        assert not fits_path(pattern, text)
    assert ruled(Action("command", f"x {text}"), {"commands": {"deny": ["*" + "a*" * 400 + "b"]}}) == "ask"


# --- addresses ----------------------------------------------------------------------------------------


def reached(target: str, *allow: str, **more: list[str]) -> Decision:
    return ruled(Action("egress", target), {"egress": {"allow": list(allow), **more}})


@pytest.mark.parametrize(
    ("pattern", "target", "expected"),
    [
        ("https://api.example.com/*", "GET https://api.example.com/v1/x", True),
        ("https://api.example.com/*", "GET https://api.example.com/", True),
        ("https://api.example.com/*", "GET https://api.example.com", True),
        ("https://api.example.com/*", "GET https://API.Example.com/v1", True),
        ("https://api.example.com/*", "GET https://api.example.com./v1", True),
        ("https://api.example.com/*", "GET https://api.example.com:443/v1", True),
        ("https://api.example.com/*", "GET https://api.example.com:8443/v1", False),
        ("https://api.example.com/*", "GET http://api.example.com/v1", False),
        ("https://api.example.com/*", "GET https://api.example.com.evil.net/", False),
        ("https://api.example.com/*", "GET https://api.example.com@evil.net/", False),
        ("https://api.example.com/*", "GET https://api.example.com:x@evil.net/", False),
        ("https://api.example.com/*", "GET https://evil.net/https://api.example.com/", False),
        ("https://api.example.com/*", "GET https://evil.net#https://api.example.com/", False),
        ("https://api.example.com/*", "GET https://evil.net?https://api.example.com/", False),
        ("*.example.com", "GET https://a.example.com/x", True),
        ("*.example.com", "GET http://a.b.example.com/x", True),
        ("*.example.com", "GET https://example.com/", False),
        ("*.example.com", "GET https://evil-example.com/", False),
        ("*.example.com", "GET https://example.com.evil.net/", False),
        ("*.example.com", "GET https://evil.net/.example.com", False),
        ("*.example.com", "GET https://evil.net/a.example.com", False),
        ("example.com", "POST http://example.com/any/path", True),
        ("example.com", "POST https://example.com/", True),
        ("example.com", "GET https://www.example.com/", False),
        ("example.com", "GET https://notexample.com/", False),
        ("example.com", "GET https://example.com:8080/", False),
        ("example.com:8080", "GET https://example.com:8080/", True),
        ("example.com:*", "GET https://example.com:8080/", True),
        ("example.com/api/*", "GET https://example.com/api/x", True),
        ("example.com/api/*", "GET https://example.com/apix", False),
        ("GET https://example.com/*", "GET https://example.com/x", True),
        ("get https://example.com/*", "GET https://example.com/x", True),
        ("GET https://example.com/*", "POST https://example.com/x", False),
        ("P* https://example.com/*", "PUT https://example.com/x", True),
        ("GET *", "GET https://anywhere.net:8443/x", True),
        ("GET *", "POST https://anywhere.net/x", False),
        ("*", "DELETE http://anywhere.net:1/x", True),
        ("https://example.com", "GET https://example.com/a/b", True),
        ("https://example.com/", "GET https://example.com/a", False),
        ("https://example.com/public/*", "GET https://example.com/public/../admin", False),
        ("https://example.com/public/*", "GET https://example.com/public/%2e%2e/admin", False),
        ("https://example.com/public/*", "GET https://example.com/public/..%2fadmin", False),
        ("https://example.com/public/*", "GET https://example.com/public/a%20b", True),
        ("http://127.0.0.1:8080/*", "GET http://127.0.0.1:8080/x", True),
        ("http://127.0.0.1:*/*", "GET http://127.0.0.1:5000/x", True),
        ("http://127.0.0.1/*", "GET http://127.0.0.1.evil.net/", False),
        ("http://[::1]:8080/*", "GET http://[0:0:0:0:0:0:0:1]:8080/x", True),
        ("https://b\u00fccher.example/*", "GET https://xn--bcher-kva.example/x", True),
        ("wss://example.com/*", "GET wss://example.com/socket", True),
    ],
)
def test_an_address_is_permitted_part_by_part(pattern: str, target: str, expected: bool) -> None:
    assert reached(target, pattern) == ("allow" if expected else "ask")


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("evil.net", "GET https://evil.net/"),
        ("evil.net", "GET https://evil.net:8443/"),
        ("evil.net", "GET https://EVIL.net./x"),
        ("*.evil.net", "GET https://a.evil.net:1/"),
        ("https://evil.net/*", "GET https://evil.net:8443/x"),
        ("*evil*", "GET https://my-evil-host.net/x"),
        ("10.*", "GET http://10.0.0.7/"),
        ("https://example.com/admin*", "GET https://example.com/%61dmin"),
        ("https://example.com/admin*", "GET https://example.com/public/../admin"),
        ("https://example.com/admin*", "GET https://example.com//admin"),
        ("https://example.com/admin*", "GET https://example.com/./admin/x"),
        ("DELETE *", "DELETE https://example.com/x"),
        ("*", "GET https://example.com:8443/x"),
        ("169.254.169.254", "GET http://169.254.169.254/latest"),
        ("169.254.169.254", "GET http://[::ffff:169.254.169.254]/latest"),
        ("169.254.169.254", "GET http://[::ffff:a9fe:a9fe]/latest"),
    ],
)
def test_a_restriction_of_an_address_is_not_written_around(pattern: str, target: str) -> None:
    assert reached(target, "*", deny=[pattern]) == "deny"
    assert reached(target, "*", ask=[pattern]) == "ask"


@pytest.mark.parametrize(
    "target",
    [
        "GET https://evil.net\\@api.example.com/",
        "GET https://api.example.com\t.evil.net/",
        "GET https://api.example.com /",
        "GET https://api%2eexample.com/",
        "GET https://2130706433/",
        "GET https://0x7f.1/",
        "GET https://0177.0.0.1/",
        "GET https://127.1/",
        "GET https:///x",
        "GET //api.example.com/",
        "GET api.example.com",
        "GET https://api.example.com:99999/",
        "GET https://api.example.com:x/",
        "GET https://[::1/",
        "GET https://[fe80::1%25eth0]/",
        "GET https://[fe80::1%eth0]/",
        "GET https://fa\u00df.example/",
        "GET https://a..example/",
        "GET gopher://api.example.com/",
        "https://api.example.com/",
        "",
    ],
)
def test_an_ambiguous_address_is_denied(target: str) -> None:
    assert reached(target, "*") == "deny"


def test_allowed_domains_permit_exactly_these_hosts_and_ask_about_the_rest() -> None:
    mine = {"allowed_domains": ["example.com"], "egress": {"default": "allow"}}

    def found(target: str) -> Ruling:
        return decide(Action("egress", target), [policy(mine)])

    assert found("POST http://example.com/x").decision == "allow"
    assert found("POST https://example.com/x").decision == "allow"
    assert found("GET https://www.example.com/x").decision == "ask"
    assert found("GET https://example.com:8443/x").decision == "ask"
    assert found("GET https://example.com/x").reasons[0].rule == "allowed_domains 'example.com'"
    assert ruled(Action("egress", "GET https://x.net/"), {**mine, "egress": {"default": "deny"}}) == "deny"
    assert ruled(Action("egress", "GET https://example.com/"), {**mine, "egress": {"deny": ["*.e.com"]}}) == "allow"
    assert ruled(Action("egress", "GET https://example.com/"), {**mine, "egress": {"deny": ["*e.com"]}}) == "deny"


@pytest.mark.parametrize(
    ("patterns", "host", "port", "expected"),
    [
        (["http://127.0.0.1:8080/*"], "127.0.0.1", 8080, True),
        (["http://127.0.0.1:8080/*"], "127.0.0.1", 8081, False),
        (["http://127.0.0.1:*/*"], "127.0.0.1", 8081, True),
        (["127.0.0.1"], "127.0.0.1", 80, True),
        (["127.0.0.1"], "127.0.0.1", 8080, False),
        (["http://localhost/*"], "LOCALHOST", 80, True),
        (["http://localhost/*"], "localhost", 443, False),
        (["https://localhost"], "localhost.", 443, True),
        (["http://[::1]:9/*"], "::1", 9, True),
        (["http://[::1]:9/*"], "[0::1]", 9, True),
        (["*"], "127.0.0.1", 80, False),
        (["*.localhost"], "a.localhost", 80, False),
        (["http://*:8080/*"], "localhost", 8080, False),
        (["GET localhost:8080/health"], "localhost", 8080, True),
        ([], "localhost", 80, False),
        (["localhost"], "2130706433", 80, False),
    ],
)
def test_a_host_is_named_only_in_full(patterns: list[str], host: str, port: int, expected: bool) -> None:
    mine = policy({"egress": {"allow": patterns}})
    assert names_host([mine], host, port) is expected
    assert names_host([mine, mine], host, port) is expected
    assert not names_host([mine, policy({})], host, port)


def test_a_host_is_not_named_by_a_layer_that_may_not_allow_or_if_it_is_denied() -> None:
    naming = {"egress": {"allow": ["localhost:8080"]}}
    assert not names_host([policy(layer(naming, "project", may_allow=False))], "localhost", 8080)
    assert not names_host([], "localhost", 8080)
    for denied in ("localhost", "*", "local*:8080/*"):
        playbook = layer({"egress": {"deny": [denied]}}, "playbook", may_allow=False)
        assert not names_host([policy(naming, playbook)], "localhost", 8080)
    for elsewhere in ("localhost:9", "http://localhost:8080/admin/*", "DELETE localhost", "other"):
        assert names_host([policy({"egress": {"allow": ["localhost:8080"], "deny": [elsewhere]}})], "localhost", 8080)


# --- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "target", "expected"),
    [
        ({"allow": ["write:src/**"]}, "write:src/deep/a.py", "allow"),
        ({"allow": ["write:src/*"]}, "write:src/deep/a.py", "ask"),
        ({"allow": ["src/**"]}, "write:src/a.py", "allow"),
        ({"allow": ["*:src/**"]}, "write:src/a.py", "allow"),
        ({"allow": ["read:src/**"]}, "write:src/a.py", "ask"),
        ({"deny": ["**/.env"]}, "read:.env", "deny"),
        ({"deny": ["**/.env"]}, "read:./.env", "deny"),
        ({"deny": [".env"]}, "read:./.env", "deny"),
        ({"deny": ["secrets/**"]}, "read:secrets//a", "deny"),
        ({"deny": ["write:**"]}, "read:a", "allow"),
        ({"allow": ["**"]}, "write:/etc/passwd", "deny"),
        ({"allow": ["**"]}, "write:../x", "deny"),
        ({"allow": ["**", "/**"], "default": "allow"}, "write:a/../../x", "deny"),
        ({"default": "allow"}, "write:/etc/passwd", "deny"),
        ({"default": "allow"}, "write:a", "allow"),
        ({"allow": ["read:/usr/share/**"]}, "read:/usr/share/dict/words", "allow"),
        ({"allow": ["read:/usr/share/**"]}, "read:/usr/share/../../etc/passwd", "deny"),
        ({"allow": ["read:/usr/share/**"]}, "write:/usr/share/dict/words", "deny"),
        ({"allow": ["write:src/*"]}, "write:src/./a.py", "allow"),
    ],
)
def test_files_are_permitted_by_their_path_in_the_workspace(rules: Any, target: str, expected: Decision) -> None:
    assert ruled(Action("file", target), {"files": rules}) == expected


# --- texts of which a part is unknown ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "pieces", "may"),
    [
        ("git push*", ["git ", ""], True),
        ("git push*", ["git pu", ""], True),
        ("git push*", ["git log ", ""], False),
        ("git push", ["", "push"], True),
        ("git push", ["", "pull"], False),
        ("*x", ["a", "b"], False),
        ("a?c", ["a", "c"], True),
        ("ac", ["a", "c"], True),
        ("a", ["a", "c"], False),
        ("", ["", ""], True),
        ("*", ["a*b"], True),
        ("a?b", ["a*b"], True),
        ("a", ["b"], False),
    ],
)
def test_a_pattern_may_fit_what_is_partly_known(pattern: str, pieces: list[str], may: bool) -> None:
    assert may_fit(pattern, pieces) is may


@given(
    st.text("ab*?", max_size=6), st.lists(st.text("ab", max_size=3), min_size=1, max_size=3), st.text("ab", max_size=3)
)
def test_what_fits_once_it_is_known_may_have_fitted_before(pattern: str, pieces: list[str], between: str) -> None:
    if fits(pattern, between.join(pieces)):
        assert may_fit(pattern, pieces)
