"""No URL, however it is written and wherever it redirects, reaches a server that must not be reached."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cuebook.formats.addresses import BadUrl, Url, kind_of, parse_url, resolve_url
from cuebook.gate.policy import Layer, Policy, bundle_from, names_host
from cuebook.kernel.effects import SecretUse, SendHttp
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Description
from cuebook.kernel.run import Settings
from cuebook.performers.http.performer import HttpPerformer
from cuebook.system.network import look_up
from tests.support.http_servers import (
    Asking,
    Names,
    Server,
    answer,
    failure_of,
    names,
    only,
    redirect,
    response_of,
    send,
)

PUBLIC = "93.184.215.14"


@pytest.fixture
async def forbidden() -> AsyncIterator[Server]:
    """Listens on both loopback addresses, and must never receive a request."""
    async with Server(hosts=("127.0.0.1", "::1")) as server:
        yield server


@pytest.fixture(autouse=True)
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records connections to addresses outside this machine instead of making them."""
    import httpcore2

    tried: list[str] = []
    connect = httpcore2.AnyIOBackend.connect_tcp

    async def guarded(self: Any, host: str, port: int, **options: Any) -> Any:
        if host.startswith("127.") or host in ("::1", "::", "0.0.0.0"):
            return await connect(self, host, port, **options)
        tried.append(host)
        raise httpcore2.ConnectError("not in a test")

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", guarded)
    return tried


def known() -> Names:
    return names(
        loopback_example="127.0.0.1",
        loopback6_example="::1",
        metadata_example="169.254.169.254",
        mixed_example=f"{PUBLIC} 127.0.0.1",
        mixed6_example=f"{PUBLIC} ::1",
        mapped_example="::ffff:127.0.0.1",
        zone_example="fe80::1%lo",
        zero_example="0.0.0.0",
        wrapped_example="64:ff9b::7f00:1",
    )


# --- tricks in the URL itself -------------------------------------------------------------------------

ODD_NUMBERS = [
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7F000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0x7f.1:{port}/",
    "http://0177.1:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://127.0.0.01:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://127.0.0.257:{port}/",
    "http://127.0.0.1.1:{port}/",
    "http://0:{port}/",
    "http://0x:{port}/",
    "http://00000000177.0.0.1:{port}/",
]

ADDRESSES = [
    "http://127.0.0.1:{port}/",
    "http://127.0.0.2:{port}/",
    "http://127.255.255.254:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::]:{port}/",
    "http://[::1]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[0000::0001]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[::7f00:1]:{port}/",
    "http://[64:ff9b::127.0.0.1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::]:{port}/",
    "http://[::ffff:0:127.0.0.1]:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://100.100.100.200/latest/meta-data/",
    "http://192.0.0.192/opc/v1/instance/",
    "http://168.63.129.16/machine/",
    "http://10.0.0.1:{port}/",
    "http://172.16.0.1:{port}/",
    "http://172.31.255.255:{port}/",
    "http://192.168.0.1:{port}/",
    "http://100.64.0.1:{port}/",
    "http://224.0.0.1:{port}/",
    "http://255.255.255.255:{port}/",
    "http://[fe80::1]:{port}/",
    "http://[fec0::1]:{port}/",
    "http://[fc00::1]:{port}/",
    "http://[ff02::1]:{port}/",
]

LOCAL_NAMES = [
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://localhost.:{port}/",
    "http://a.localhost:{port}/",
    "http://localhost.localdomain:{port}/",
    "http://ip6-localhost:{port}/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://instance-data.ec2.internal/",
    "http://printer.local:{port}/",
    "http://ⓛocalhost:{port}/",
    "http://ＬＯＣＡＬＨＯＳＴ:{port}/",
    "http://local\u00adhost:{port}/",
]

MISREAD = [
    "http://allowed@127.0.0.1:{port}/",
    "http://user:pass@127.0.0.1:{port}/",
    "http://a.example:80@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@a.example/",
    "http://@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@a.example/",
    "http://a.example\\@127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http:/\\127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "127.0.0.1:{port}/",
    "http://127.0.0.1%00.a.example:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://127%2e0%2e0%2e1:{port}/",
    "http://%6c%6f%63%61%6c%68%6f%73%74:{port}/",
    "http://１２７.0.0.1:{port}/",
    "http://127。0。0。1:{port}/",
    "http://127．0．0．1:{port}/",
    "http://127｡0｡0｡1:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://𝟏𝟐𝟕.𝟎.𝟎.𝟏:{port}/",
    "http://1२7.0.0.1:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://[fe80::1%lo]:{port}/",
    "http://[::1:{port}/",
    "http://::1:{port}/",
    "http://[::1]a:{port}/",
    "http://[v1.::1]:{port}/",
    "http://[127.0.0.1]:{port}/",
    "http:// 127.0.0.1:{port}/",
    "http://127.0.0.1 :{port}/",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1\t:{port}/",
    "ht\ntp://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\r\nX-Injected: 1",
    "http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "http://127.0.0.1:{port}/\x00",
    "http://a.example\u2028@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}:{port}/",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:+{port}/",
    "http://127.0.0.1:８０/",
    "http://127.0.0.1:/",
    "http://",
    "http:///",
    "http://?127.0.0.1",
    "http://./",
    "http://a..example/",
    "http://-a.example/",
    "http://a℀.example/",
    "http://\ud800.example/",
    "",
]

SCHEMES = [
    "file:///etc/passwd",
    "file://127.0.0.1:{port}/",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_GET%20/",
    "dict://127.0.0.1:{port}/stats",
    "data:text/plain,hello",
    "javascript:alert(1)",
    "ws://127.0.0.1:{port}/",
    "unix:/var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "ldap://127.0.0.1:{port}/",
    "jar:http://127.0.0.1:{port}/!/",
    "url:http://127.0.0.1:{port}/",
]


EVERY_TRICK = [
    *((trick, "bad_url") for trick in (*ODD_NUMBERS, *MISREAD, *SCHEMES)),
    *((trick, "refused_address") for trick in (*ADDRESSES, *LOCAL_NAMES)),
]


def test_no_trick_is_tried_twice() -> None:
    assert len({trick for trick, _ in EVERY_TRICK}) == len(EVERY_TRICK) > 100


@pytest.mark.parametrize(("trick", "code"), EVERY_TRICK, ids=[ascii(trick) for trick, _ in EVERY_TRICK])
async def test_a_trick_is_refused_before_anything_is_sent(
    trick: str, code: str, forbidden: Server, left: list[str]
) -> None:
    effect = SendHttp("GET", trick.replace("{port}", str(forbidden.port)), reads_only=True)
    performer = HttpPerformer(resolve=known())
    described = await performer.describe(effect, Settings())
    assert isinstance(described, Failed)
    performed = await failure_of(effect, performer=performer)
    assert described.code == performed.code == code
    assert performed.fix
    assert not performed.retryable
    assert (forbidden.connections, left) == (0, [])


@pytest.mark.parametrize(
    "trick",
    [
        "http://a.example#@127.0.0.1:{port}/",
        "http://a.example?@127.0.0.1:{port}/",
        "http://a.example/@127.0.0.1:{port}/",
        "http://a.example;@127.0.0.1:{port}/",
        "http://a.example/#http://127.0.0.1:{port}/",
        "http://127.0.0.1.a.example:{port}/",
        "http://localhost.a.example:{port}/",
        "http://0x7f000001.a.example:{port}/",
    ],
)
async def test_what_only_looks_like_another_host_is_not_one(trick: str, forbidden: Server, left: list[str]) -> None:
    failed = await failure_of(trick.replace("{port}", str(forbidden.port)), performer=HttpPerformer(resolve=known()))
    assert failed.code in ("unreachable", "bad_url")
    assert (forbidden.connections, left) == (0, [])


@pytest.mark.parametrize("trick", ["http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://localhost:{port}/"])
async def test_the_forbidden_server_is_there_for_whom_a_rule_names(trick: str, forbidden: Server) -> None:
    performer = HttpPerformer(private=only("127.0.0.1", "::1", "localhost"), resolve=known())
    response = await response_of(trick.replace("{port}", str(forbidden.port)), performer=performer)
    assert str(response.body) == "hello"


# --- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(known().known))
async def test_a_name_that_leads_to_a_forbidden_address_is_refused(
    name: str, forbidden: Server, left: list[str]
) -> None:
    resolver = known()
    failed = await failure_of(forbidden.url(host=name), performer=HttpPerformer(resolve=resolver))
    assert failed.code == "refused_address"
    assert name in failed.message
    assert resolver.asked == [name]
    assert (forbidden.connections, left) == (0, [])


async def test_a_name_is_looked_up_once_and_only_what_was_checked_is_connected_to(
    forbidden: Server, left: list[str]
) -> None:
    rebinding = names(rebinding_example=[PUBLIC, "127.0.0.1"])
    failed = await failure_of(forbidden.url(host="rebinding.example"), performer=HttpPerformer(resolve=rebinding))
    assert failed.code == "unreachable"
    assert rebinding.asked == ["rebinding.example"]
    assert left == [PUBLIC]
    assert forbidden.connections == 0


async def test_a_redirect_to_a_name_that_changed_its_address_is_checked_again(forbidden: Server) -> None:
    async with Server(redirect("/again"), hosts=("127.0.0.1",)) as allowed:
        rebinding = names(rebinding_example=["127.0.0.1", "169.254.169.254"])
        performer = HttpPerformer(private=only("rebinding.example"), resolve=rebinding)
        failed = await failure_of(allowed.url(host="rebinding.example"), performer=performer)
    assert failed.code == "refused_address"
    assert len(allowed.requests) == 1


async def test_a_permitted_name_is_reached_at_its_checked_address_under_its_own_name() -> None:
    async with Server() as server:
        resolver = names(good_example="127.0.0.1")
        performer = HttpPerformer(private=only("good.example"), resolve=resolver)
        response = await response_of(server.url("/a?b=c", host="GOOD.example."), performer=performer)
    assert response.url == f"http://good.example:{server.port}/a?b=c"
    assert server.requests[0].headers["host"] == f"good.example:{server.port}"
    assert server.requests[0].target == "/a?b=c"
    assert resolver.asked == ["good.example"]


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "224.0.0.1", "0.0.0.0", "168.63.129.16"])
async def test_a_rule_for_a_name_does_not_reach_metadata_services(address: str, left: list[str]) -> None:
    performer = HttpPerformer(private=only("good.example"), resolve=names(good_example=address))
    assert (await failure_of("http://good.example/", performer=performer)).code == "refused_address"
    assert left == []


async def test_every_address_is_tried_in_turn(left: list[str]) -> None:
    async with Server() as server:
        performer = HttpPerformer(private=only("good.example"), resolve=names(good_example=f"{PUBLIC} 127.0.0.1"))
        await response_of(server.url(host="good.example"), performer=performer)
    assert left == [PUBLIC]


async def test_a_public_name_is_connected_to(left: list[str]) -> None:
    performer = HttpPerformer(resolve=names(a_example=f"{PUBLIC} 2606:2800:21f:cb07:6820:80da:af6b:8b2c"))
    assert (await failure_of("http://a.example/", performer=performer)).code == "unreachable"
    assert left == [PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]


async def test_the_system_is_asked_where_no_other_resolver_is_given() -> None:
    assert set(await look_up("localhost", 80)) <= {"127.0.0.1", "::1"}


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch, forbidden: Server) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{forbidden.port}")
    async with Server() as server:
        await response_of(server.url())
    assert (len(server.requests), forbidden.connections) == (1, 0)


# --- redirects --------------------------------------------------------------------------------------

REDIRECTS = [
    "http://127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://localhost:{port}/",
    "http://loopback.example:{port}/",
    "http://mixed.example:{port}/",
    "http://x@127.0.0.1:{port}/",
    "\\\\127.0.0.1:{port}/",
    "/\\127.0.0.1:{port}/",
    "HTTP://127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_",
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1\t:{port}/",
]


@pytest.mark.parametrize("location", REDIRECTS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_forbidden_place_is_not_followed(
    location: str, status: int, forbidden: Server, left: list[str]
) -> None:
    resolver = names(good_example="127.0.0.1", loopback_example="127.0.0.1", mixed_example=f"{PUBLIC} 127.0.0.1")
    performer = HttpPerformer(private=only("good.example"), resolve=resolver)
    async with Server(redirect(location.replace("{port}", str(forbidden.port)), status)) as server:
        for method in ("GET", "HEAD", "POST", "DELETE"):
            effect = SendHttp(method, server.url(host="good.example"))
            failed = await failure_of(effect, performer=performer)
            assert failed.code in ("refused_address", "bad_url", "redirect_refused")
            assert not failed.retryable
    assert len(server.requests) == 4
    assert (forbidden.connections, left) == (0, [])


async def test_a_chain_of_redirects_is_checked_to_its_end(forbidden: Server) -> None:
    steps = [redirect("/two"), redirect("three"), redirect("?four"), redirect(f"http://127.0.0.1:{forbidden.port}/")]
    async with Server(*steps) as server:
        performer = HttpPerformer(private=only("good.example"), resolve=names(good_example="127.0.0.1"))
        failed = await failure_of(server.url("/one/", host="good.example"), performer=performer)
    assert [seen.target for seen in server.requests] == ["/one/", "/two", "/three", "/three?four"]
    assert failed.code == "refused_address"
    assert forbidden.connections == 0


async def test_a_redirect_that_policy_refuses_is_not_followed() -> None:
    denied = Failed("denied_by_policy", "Not there.")
    async with Server(redirect("/secret?q=1"), answer()) as server:
        asking = Asking(refuse=lambda action: denied)
        failed = await failure_of(server.url("/open"), asking)
    assert (failed.code, failed.message) == ("denied_by_policy", "Not there.")
    assert [action.target for action in asking.asked] == [f"GET http://127.0.0.1:{server.port}/secret"]
    assert asking.asked[0].reads_only
    assert len(server.requests) == 1


async def test_a_redirect_with_two_targets_is_followed_to_none(forbidden: Server) -> None:
    both = answer(b"", 302, [("Location", "/here"), ("Location", forbidden.url())])
    async with Server(both) as server:
        assert (await failure_of(server.url())).code == "bad_response"
    assert forbidden.connections == 0


# --- what is sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "effect",
    [
        SendHttp("GET", "{url}", headers={"X-A": "1\r\nX-B: 2"}),
        SendHttp("GET", "{url}", headers={"X-A": "1\nX-B: 2"}),
        SendHttp("GET", "{url}", headers={"X-A": "1\x00"}),
        SendHttp("GET", "{url}", headers={"X-A: 1\r\nX-B": "2"}),
        SendHttp("GET", "{url}", headers={"X A": "2"}),
        SendHttp("GET", "{url}", headers={"": "2"}),
        SendHttp("GET", "{url}", headers={"X-Ä": "2"}),
        SendHttp("GET", "{url}", headers={"X-A": "\ud800"}),
        SendHttp("GET", "{url}", headers={"Host": "other.example"}),
        SendHttp("GET", "{url}", headers={"host": "other.example"}),
        SendHttp("POST", "{url}", headers={"Content-Length": "0"}, body="GET / HTTP/1.1"),
        SendHttp("POST", "{url}", headers={"Transfer-Encoding": "chunked"}),
        SendHttp("GET", "{url}", headers={"Connection": "upgrade"}),
        SendHttp("GET", "{url}", headers={"X-A": "1", "x-a": "2"}),
        SendHttp("GET / HTTP/1.1\r\nX:", "{url}"),
        SendHttp("CONNECT", "{url}"),
        SendHttp("TRACE", "{url}"),
        SendHttp("", "{url}"),
        SendHttp("POST", "{url}", body="\ud800"),
    ],
)
async def test_a_request_within_a_request_is_refused(effect: SendHttp) -> None:
    async with Server() as server:
        tried = SendHttp(effect.method, server.url(), headers=effect.headers, body=effect.body)
        failed = await failure_of(tried)
    assert failed.code == "bad_request"
    assert server.connections == 0


async def test_a_secret_with_a_line_break_is_refused_without_being_quoted() -> None:
    async with Server() as server:
        uses = (SecretUse("headers.Authorization", "env:TOKEN"),)
        asking = Asking(secrets={"headers.Authorization": "canary-0123\r\nX-B: 2"})
        failed = await failure_of(SendHttp("GET", server.url(), secrets=uses), asking)
    assert failed.code == "bad_request"
    assert "canary" not in str(failed)
    assert server.connections == 0


# --- reading a URL ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("https://Example.COM", "https://example.com/"),
        ("https://example.com.:443/a", "https://example.com/a"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("https://example.com?q=1#top", "https://example.com/?q=1"),
        ("https://example.com/a/./b/../c", "https://example.com/a/c"),
        ("https://example.com/a/%2E%2e/c", "https://example.com/c"),
        ("https://example.com/../../c", "https://example.com/c"),
        ("https://example.com/a/..", "https://example.com/"),
        ("https://example.com/ä?ö=ü", "https://example.com/%C3%A4?%C3%B6=%C3%BC"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://[2606:4700:0:0::1]:8443/", "https://[2606:4700::1]:8443/"),
        ("https://example.com/a%20b%2Fc", "https://example.com/a%20b%2Fc"),
        ('https://example.com/<"{|}>?`^', "https://example.com/%3C%22%7B%7C%7D%3E?%60%5E"),
        ("https://example.com/a//b", "https://example.com/a//b"),
    ],
)
def test_a_url_has_one_form(given: str, read: str) -> None:
    assert str(parse_url(given)) == read
    assert parse_url(read) == parse_url(given)


@pytest.mark.parametrize("path", ["/a/..%2fb", "/a/%2e%2e%2Fb", "/a%2f../b", "/a%5c..%5cb"])
def test_a_path_whose_meaning_depends_on_the_server_is_refused(path: str) -> None:
    with pytest.raises(BadUrl):
        parse_url(f"https://example.com{path}")


def test_a_very_long_url_is_refused() -> None:
    with pytest.raises(BadUrl):
        parse_url("https://example.com/" + "a" * 10_000)


def test_a_refusal_does_not_show_a_password() -> None:
    with pytest.raises(BadUrl) as refused:
        parse_url("https://user:hunter2@example.com/")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("", "https://a.example/b/c?d"),
        ("#x", "https://a.example/b/c?d"),
        ("?e", "https://a.example/b/c?e"),
        ("x", "https://a.example/b/x"),
        ("../x", "https://a.example/x"),
        ("../../../x", "https://a.example/x"),
        ("/x", "https://a.example/x"),
        ("//b.example", "https://b.example/"),
        ("http://b.example/x", "http://b.example/x"),
    ],
)
def test_a_location_is_read_on_its_page(location: str, target: str) -> None:
    assert str(resolve_url(parse_url("https://a.example/b/c?d"), location)) == target


def test_public_addresses_are_public() -> None:
    hosts = ["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.128.0.1", "[2606:4700::1]", "[64:ff9b::808:808]"]
    addresses = [parse_url(f"http://{host}/").address for host in hosts]
    assert [kind_of(address) for address in addresses if address] == [""] * len(hosts)


async def test_a_person_is_shown_the_url_that_is_sent() -> None:
    async with Server() as server:
        effect = SendHttp("GET", f"HTTP://127.0.0.1:{server.port}/a/../b c".replace(" ", "%20") + "?q=ä#f")
        performer = HttpPerformer(private=only("127.0.0.1"), resolve=names())
        described = await performer.describe(effect, Settings())
        await send(effect, performer=performer)
    assert isinstance(described, Description)
    assert described.preview["request"] == f"GET http://127.0.0.1:{server.port}/b%20c?q=%C3%A4"
    assert server.requests[0].target == "/b%20c?q=%C3%A4"
    assert described.bound["url"] == {
        "scheme": "http",
        "host": "127.0.0.1",
        "port": server.port,
        "path": "/b%20c",
        "query": "?q=%C3%A4",
    }
    assert isinstance(parse_url(effect.url), Url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080/x", "http://[::1]:8080/", "https://localhost/", "http://10.0.0.1/x"]
)
async def test_the_rule_that_a_refusal_proposes_permits_the_address(url: str) -> None:
    refused = await HttpPerformer().describe(SendHttp("GET", url), Settings())
    assert isinstance(refused, Failed)
    found = re.search(r'allow = \["(.*)"\]', refused.fix)
    assert found is not None
    meant = parse_url(url)
    policy = Policy((Layer("user", "policy.toml", bundle_from({"egress": {"allow": [found[1]]}}), may_allow=True),))
    assert names_host([policy], meant.host, meant.port)
