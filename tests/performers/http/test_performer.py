"""Requests arrive as described, redirects drop what only the first server may see, and no server can block us."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from cuebook import __version__
from cuebook.kernel.effects import SecretUse, SendHttp
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Action, Description
from cuebook.kernel.run import Settings
from cuebook.performers.http.performer import HttpPerformer
from tests.support.http_servers import (
    LOOPBACK,
    Asking,
    Authority,
    Handler,
    Server,
    answer,
    endless,
    failure_of,
    hang,
    hanging_after,
    names,
    only,
    raw,
    redirect,
    response_of,
    within,
)

OK = b"HTTP/1.1 200 OK\r\n"
TOKEN = "canary-0123456789"
BEARER = (SecretUse("headers.Authorization", "env:TOKEN", "Bearer {}"),)


async def describe(effect: SendHttp, performer: HttpPerformer = LOOPBACK) -> Description:
    described = await performer.describe(effect, Settings())
    assert isinstance(described, Description), described
    return described


async def undescribed(effect: SendHttp, performer: HttpPerformer = LOOPBACK) -> Failed:
    described = await performer.describe(effect, Settings())
    assert isinstance(described, Failed)
    return described


# --- a request and its response -----------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_written() -> None:
    async with Server(answer('{"ok": true}', 201, [("X-A", "1"), ("x-a", "2"), ("Set-Cookie", "a=b")])) as server:
        effect = SendHttp(
            "post", server.url("/a?b=c"), headers={"Content-Type": "text/plain", "X-Own": " y "}, body="grün"
        )
        response = await response_of(effect)
    seen = server.requests[0]
    assert (seen.method, seen.target, seen.body) == ("POST", "/a?b=c", "grün".encode())
    assert seen.headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "text/plain",
        "x-own": "y",
        "user-agent": f"cuebook/{__version__}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "idempotency-key": "r1/step#1.0~0",
        "connection": "close",
        "content-length": "5",
    }
    assert (response.status, str(response.body), response.truncated) == (201, '{"ok": true}', False)
    assert response.url == server.url("/a?b=c")
    assert response.headers == {"content-length": "12", "x-a": "1, 2", "set-cookie": "a=b"}


@pytest.mark.parametrize("status", [204, 304, 400, 401, 404, 429, 500, 503])
async def test_a_status_is_an_answer_and_not_a_failure(status: int) -> None:
    async with Server(raw(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())) as server:
        assert (await response_of(server.url())).status == status


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_reading_carries_no_idempotency_key(method: str) -> None:
    async with Server(raw(OK + b"Content-Length: 0\r\n\r\n")) as server:
        await response_of(SendHttp(method, server.url()))
    assert "idempotency-key" not in server.requests[0].headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_the_idempotency_key_is_the_same_for_every_attempt_unless_one_is_given(method: str) -> None:
    async with Server() as server:
        for _ in range(2):
            await response_of(SendHttp(method, server.url()))
        await response_of(SendHttp(method, server.url(), headers={"idempotency-key": "mine"}))
    keys = [seen.headers["idempotency-key"] for seen in server.requests]
    assert keys == ["r1/step#1.0~0", "r1/step#1.0~0", "mine"]


async def test_cookies_are_not_kept() -> None:
    async with Server(answer(headers=[("Set-Cookie", "session=1")])) as server:
        await response_of(server.url())
        await response_of(server.url())
    assert "cookie" not in server.requests[1].headers


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain", "grün".encode(), "grün"),
        ("text/plain; charset=iso-8859-1", "grün".encode("latin-1"), "grün"),
        ('text/plain; charset="windows-1252"', "10 €".encode("cp1252"), "10 €"),
        ("text/plain; charset=utf-16", "grün".encode("utf-16"), "grün"),
        ("text/plain; charset=utf-7", b"+AGE-", "+AGE-"),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=nonsense", b"abc", "abc"),
        ("text/plain", b"a\xffb", "a�b"),
        ("text/plain", b"\xef\xbb\xbfabc", "abc"),
    ],
)
async def test_the_body_becomes_text(content_type: str, body: bytes, text: str) -> None:
    async with Server(answer(body, headers=[("Content-Type", content_type)])) as server:
        assert str((await response_of(server.url())).body) == text


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Content-Length: 5\r\n\r\n", b"hello"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n"),
        (b"Connection: close\r\n\r\n", b"hello"),
        (b"Content-Length: 5\r\n\r\n", b"hello and what nobody asked for"),
    ],
)
async def test_a_body_may_be_framed_in_any_way(head: bytes, body: bytes) -> None:
    async with Server(raw(OK + head, body)) as server:
        response = await response_of(server.url())
    assert (str(response.body), response.truncated) == ("hello", False)


# --- what is described --------------------------------------------------------------------------------


async def test_a_request_is_described_with_everything_that_is_sent_except_secrets() -> None:
    uses = (*BEARER, SecretUse("body", "keyring:payload"))
    effect = SendHttp("POST", "https://a.example:8443/b?c=d", headers={"X-A": "1"}, secrets=uses, timeout=5)
    described = await describe(effect)
    assert described.actions == (Action("egress", "POST https://a.example:8443/b", reads_only=False),)
    assert described.summary == "POST https://a.example:8443/b"
    assert described.preview == {
        "request": "POST https://a.example:8443/b?c=d",
        "headers": "X-A: 1\nAuthorization: Bearer [secret env:TOKEN]",
        "body": "[secret keyring:payload]",
        "time limit": "5 s",
    }


@pytest.mark.parametrize(
    ("method", "headers", "reads_only"),
    [
        ("GET", {}, True),
        ("head", {}, True),
        ("OPTIONS", {}, True),
        ("POST", {}, False),
        ("DELETE", {}, False),
        ("GET", {"X-HTTP-Method-Override": "DELETE"}, False),
    ],
)
async def test_only_a_request_that_changes_nothing_is_called_reading(
    method: str, headers: dict[str, str], reads_only: bool
) -> None:
    effect = SendHttp(method, "https://a.example/", headers=headers, reads_only=True)
    assert (await describe(effect)).actions[0].reads_only is reads_only


async def test_describing_sends_no_request() -> None:
    resolver = names()
    await describe(SendHttp("GET", "https://a.example/"), HttpPerformer(resolve=resolver))
    assert resolver.asked == []


# --- secrets --------------------------------------------------------------------------------------------


async def test_secrets_are_put_in_place_at_the_last_moment() -> None:
    async with Server() as server:
        uses = (*BEARER, SecretUse("body", "env:BODY"))
        asking = Asking(secrets={"headers.Authorization": f"Bearer {TOKEN}", "body": "payload"})
        await response_of(SendHttp("POST", server.url(), secrets=uses), asking)
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert server.requests[0].body == b"payload"


@pytest.mark.parametrize("place", ["url", "query.token", "path", "env.TOKEN", "stdin", "header.X", "", "body.token"])
async def test_a_secret_has_no_other_place(place: str) -> None:
    effect = SendHttp("GET", "https://a.example/", secrets=(SecretUse(place, "env:TOKEN"),))
    assert (await undescribed(effect)).code == "secret_misplaced"
    assert (await failure_of(effect, Asking(secrets={place: TOKEN}))).code == "secret_misplaced"


async def test_a_secret_does_not_travel_in_the_open() -> None:
    effect = SendHttp("GET", "http://a.example/", secrets=BEARER)
    performer = HttpPerformer(private=lambda host, port: True, resolve=names(a_example="127.0.0.1"))
    asking = Asking(secrets={"headers.Authorization": TOKEN})
    assert (await undescribed(effect, performer)).code == "insecure_secret"
    assert (await failure_of(effect, asking, performer)).code == "insecure_secret"


@pytest.mark.parametrize(
    "effect",
    [
        SendHttp("GET", "https://a.example/", headers={"authorization": "x"}, secrets=BEARER),
        SendHttp("GET", "https://a.example/", secrets=(*BEARER, *BEARER)),
        SendHttp("POST", "https://a.example/", body="text", secrets=(SecretUse("body", "env:BODY"),)),
        SendHttp("GET", "https://a.example/", secrets=(SecretUse("headers.Host", "env:BODY"),)),
        SendHttp(
            "GET", "https://a.example/", secrets=(SecretUse("headers.X", "env:BODY", "{}\r\nX-Shown: as a header"),)
        ),
    ],
)
async def test_what_is_given_twice_or_may_not_be_given_is_refused(effect: SendHttp) -> None:
    assert (await undescribed(effect)).code == "bad_request"


async def test_a_secret_that_cannot_be_had_fails_the_request() -> None:
    def nothing() -> dict[str, str]:
        raise CuebookError("There is no secret TOKEN.", fix="Set it.")

    async with Server() as server:
        effect = SendHttp("GET", server.url(), secrets=BEARER)
        asking = Asking()
        call = asking.call()
        outcome = await LOOPBACK.perform(effect, type(call)(**{**_fields(call), "secrets": nothing}))
        missing = await failure_of(effect, asking)
    assert isinstance(outcome, Failed)
    assert outcome.message == "There is no secret TOKEN."
    assert "env:TOKEN" in missing.message
    assert server.connections == 0


def _fields(call: Any) -> dict[str, Any]:
    return {name: getattr(call, name) for name in call.__struct_fields__}


# --- redirects ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (301, "PUT", "PUT"),
        (302, "GET", "GET"),
        (307, "POST", "POST"),
        (308, "DELETE", "DELETE"),
    ],
)
async def test_a_redirect_on_the_same_server_is_followed_as_browsers_do(status: int, method: str, then: str) -> None:
    async with Server(redirect("/there", status), raw(OK + b"Content-Length: 0\r\n\r\n")) as server:
        asking = Asking(secrets={"headers.Authorization": TOKEN})
        effect = SendHttp(method, server.url(), headers={"Content-Type": "text/plain"}, body="b", secrets=BEARER)
        response = await response_of(effect, asking)
    first, second = server.requests
    assert (second.method, second.target) == (then, "/there")
    assert second.body == (b"b" if then == method else b"")
    assert ("content-type" in second.headers) is (then == method)
    assert ("idempotency-key" in second.headers) is (then not in ("GET", "HEAD"))
    assert second.headers["authorization"] == first.headers["authorization"] == TOKEN
    assert response.url == server.url("/there")
    assert [action.target for action in asking.asked] == [f"{then} {server.url('/there')}"]
    assert asking.asked[0].reads_only is (then in ("GET", "HEAD"))


async def test_another_server_gets_nothing_that_was_meant_for_the_first() -> None:
    uses = (*BEARER, SecretUse("headers.X-Key", "env:KEY"), SecretUse("headers.Accept-Language", "env:ODD"))
    secrets = {"headers.Authorization": TOKEN, "headers.X-Key": TOKEN, "headers.Accept-Language": TOKEN}
    async with Server() as other, Server(redirect(other.url("/there"))) as server:
        headers = {"Cookie": "a=b", "X-Api-Key": "plain", "Accept": "text/plain"}
        effect = SendHttp("GET", server.url(), headers=headers, secrets=uses)
        await response_of(effect, Asking(secrets=secrets))
    assert TOKEN in server.requests[0].headers["accept-language"]
    assert other.requests[0].headers == {
        "host": f"127.0.0.1:{other.port}",
        "accept": "text/plain",
        "user-agent": f"cuebook/{__version__}",
        "accept-encoding": "identity",
        "connection": "close",
    }


@pytest.mark.parametrize(
    ("status", "method", "body"), [(307, "POST", "b"), (308, "PUT", "b"), (307, "DELETE", ""), (302, "GET", "b")]
)
async def test_what_was_meant_for_one_server_is_not_sent_to_another(status: int, method: str, body: str) -> None:
    async with Server() as other, Server(redirect(other.url(), status)) as server:
        failed = await failure_of(SendHttp(method, server.url(), body=body))
    assert failed.code == "redirect_refused"
    assert failed.details == {"sent": True}
    assert other.connections == 0


async def test_five_redirects_are_followed_and_six_are_not() -> None:
    async with Server(*[redirect(f"/{n}") for n in range(5)], answer("there")) as server:
        assert str((await response_of(server.url("/first"))).body) == "there"
    async with Server(redirect("/round")) as circle:
        assert (await failure_of(circle.url())).code == "too_many_redirects"
    assert len(circle.requests) == 6


async def test_a_redirect_that_leads_nowhere_is_an_answer() -> None:
    async with Server(answer("choose", 300), answer("moved", 302)) as server:
        assert (await response_of(server.url())).status == 300
        assert (await response_of(server.url())).status == 302


async def test_it_is_the_server_that_hangs_that_is_named() -> None:
    async with Server(hang) as slow, Server(redirect(slow.url())) as server:
        failed = await failure_of(server.url(), within(3.0))
    assert failed.message == f"http://127.0.0.1:{slow.port} did not answer within 3 seconds."


async def test_the_body_of_a_redirect_is_not_waited_for() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 100\r\n\r\n"
    async with Server(hanging_after(head), answer("there")) as server:
        assert str((await response_of(server.url())).body) == "there"


# --- TLS --------------------------------------------------------------------------------------------------


async def test_a_certificate_is_checked_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with Server(tls=authority.serving("good.example")) as server:
        performer = HttpPerformer(
            private=only("good.example", "other.example", "127.0.0.1"),
            resolve=names(good_example="127.0.0.1", other_example="127.0.0.1"),
            tls=authority.trusting(),
        )
        good = await response_of(server.url(host="good.example"), performer=performer)
        wrong = await failure_of(server.url(host="other.example"), performer=performer)
        bare = await failure_of(server.url(host="127.0.0.1"), performer=performer)
    assert str(good.body) == "hello"
    assert server.requests[0].headers["host"] == f"good.example:{server.port}"
    assert server.sni[:2] == ["good.example", "other.example"]
    assert (wrong.code, bare.code) == ("tls", "tls")
    assert "other.example" in wrong.message
    assert not wrong.retryable
    assert len(server.requests) == 1


async def test_an_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    async with Server(tls=Authority(tmp_path).serving("127.0.0.1")) as server:
        assert (await failure_of(server.url())).code == "tls"
    assert server.requests == []


async def test_a_server_without_tls_is_distinguished_from_one_that_is_down() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        failed = await failure_of(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert (failed.code, failed.retryable) == ("tls", False)


async def test_a_redirect_out_of_tls_is_refused_and_one_into_it_is_followed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    performer = HttpPerformer(private=only("127.0.0.1"), tls=authority.trusting())
    async with Server() as plain, Server(redirect(plain.url()), tls=authority.serving("127.0.0.1")) as secure:
        assert (await failure_of(secure.url(), performer=performer)).code == "redirect_refused"
        assert plain.connections == 0
    async with Server(tls=authority.serving("127.0.0.1")) as secure, Server(redirect(secure.url())) as plain:
        await response_of(plain.url(), performer=performer)
    assert len(secure.requests) == 1


# --- servers that misbehave -------------------------------------------------------------------------------


async def test_a_body_longer_than_the_limit_is_cut() -> None:
    async with Server(answer("x" * 100_000)) as server:
        cut = await response_of(server.url(), within(output=1_000))
        whole = await response_of(server.url(), within(output=100_000))
    assert (str(cut.body), cut.truncated) == ("x" * 1_000, True)
    assert (len(whole.body), whole.truncated) == (100_000, False)


async def test_a_character_cut_in_two_is_left_out() -> None:
    async with Server(answer("aäö")) as server:
        assert str((await response_of(server.url(), within(output=4))).body) == "aä"


async def test_a_body_that_never_ends_is_cut() -> None:
    async with Server(endless(OK + b"\r\n", b"x" * 1_000)) as server:
        response = await response_of(server.url(), within(output=5_000))
        await asyncio.wait_for(server.left.wait(), 20)
    assert (len(response.body), response.truncated) == (5_000, True)


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        pytest.param(hang, "timeout", id="hangs before its headers"),
        pytest.param(hanging_after(OK + b"X-A: "), "timeout", id="hangs within its headers"),
        pytest.param(hanging_after(OK + b"Content-Length: 9\r\n\r\nhalf"), "timeout", id="hangs within its body"),
        pytest.param(endless(OK + b"\r\n", b"x", 0.05), "timeout", id="drips its body"),
        pytest.param(endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.05), "timeout", id="drips its headers"),
        pytest.param(raw(), "dropped", id="closes at once"),
        pytest.param(raw(b"HTTP/1.1 200"), "dropped", id="dies within its status"),
        pytest.param(raw(OK + b"X-A: 1\r\n"), "dropped", id="dies within its headers"),
        pytest.param(raw(OK + b"Content-Length: 99\r\n\r\nhalf"), "dropped", id="promises more than it sends"),
        pytest.param(raw(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe"), "dropped", id="dies within a chunk"),
        pytest.param(raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "bad_response", id="speaks something else"),
        pytest.param(raw(OK + b"no colon\r\n\r\n"), "bad_response", id="sends no header as one"),
        pytest.param(raw(OK + b"Content-Length: -5\r\n\r\n"), "bad_response", id="has a negative length"),
        pytest.param(raw(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), "bad_response", id="has two lengths"),
        pytest.param(
            raw(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "bad_response", id="has no size of a chunk"
        ),
        pytest.param(raw(OK + b"X-A: " + b"x" * 70_000 + b"\r\n\r\n"), "bad_response", id="has one huge header"),
        pytest.param(raw(OK + b"X-A: 1\r\n" * 9_000 + b"\r\n"), "bad_response", id="has too many headers"),
        pytest.param(endless(OK, b"X-A: 1\r\n" * 100), "bad_response", id="never ends its headers"),
        pytest.param(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "bad_response", id="says continue for ever"),
        pytest.param(
            endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 9_000 + b"\r\nx\r\n"),
            "bad_response",
            id="wraps every byte in thousands",
        ),
        pytest.param(raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), "bad_response", id="changes the protocol"),
    ],
)
async def test_each_kind_of_misbehaving_server_has_its_own_error(handler: Handler, code: str) -> None:
    async with Server(handler) as server:
        failed = await failure_of(server.url(), within(1.0 if code == "timeout" else 20))
        await asyncio.wait_for(server.left.wait(), 20)
    assert failed.code == code
    assert failed.retryable is (code in ("timeout", "dropped"))
    assert failed.details == {"sent": True}
    assert f"http://127.0.0.1:{server.port}" in failed.message


@pytest.mark.parametrize(("idempotent", "retryable"), [(False, False), (True, True)])
async def test_what_may_have_happened_is_not_sent_twice_by_itself(idempotent: bool, retryable: bool) -> None:
    async with Server(raw()) as server:
        failed = await failure_of(SendHttp("POST", server.url(), body="x", idempotent=idempotent))
    open_ended = {} if idempotent else {"unanswered": True}
    assert (failed.code, failed.retryable, failed.details) == ("dropped", retryable, {"sent": True, **open_ended})


async def test_what_was_never_sent_may_be_tried_again() -> None:
    async with Server() as server:
        pass
    down = await failure_of(SendHttp("POST", server.url(), body="x"))
    assert (down.code, down.retryable, down.details) == ("unreachable", True, {})
    unknown = await failure_of(SendHttp("POST", "https://nowhere.example/", body="x"))
    assert (unknown.code, unknown.retryable) == ("unreachable", True)
    assert "nowhere.example" in unknown.message


async def test_a_resolver_that_hangs_is_given_up() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    failed = await failure_of("https://a.example/", within(0.2), HttpPerformer(resolve=never))
    assert (failed.code, failed.retryable, failed.details) == ("timeout", True, {})


async def test_a_handshake_that_hangs_is_given_up_and_its_connection_closed() -> None:
    closed = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        failed = await failure_of(f"https://127.0.0.1:{port}/", within(0.3))
        await asyncio.wait_for(closed.wait(), 20)
    assert (failed.code, failed.details) == ("timeout", {})


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with Server(hanging_after(OK + b"Content-Length: 9\r\n\r\nhalf")) as server:
        task = asyncio.create_task(response_of(server.url(), within(60)))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 20)


# --- packed bodies ----------------------------------------------------------------------------------------


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=1, mtime=0)


def _deflate(data: bytes, wbits: int = zlib.MAX_WBITS) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", _gzip(b"hello")),
        ("X-GZIP", _gzip(b"hello")),
        ("gzip", _gzip(b"hel") + _gzip(b"lo")),
        ("gzip", _gzip(b"hello") + b"\0" * 20),
        ("deflate", _deflate(b"hello")),
        ("deflate", _deflate(b"hello", -zlib.MAX_WBITS)),
        ("identity", b"hello"),
    ],
)
async def test_a_body_that_came_packed_all_the_same_is_unpacked(encoding: str, body: bytes) -> None:
    async with Server(answer(body, headers=[("Content-Encoding", encoding)])) as server:
        response = await response_of(server.url())
    assert (str(response.body), response.truncated) == ("hello", False)


async def test_a_bomb_is_unpacked_no_further_than_the_limit() -> None:
    bomb = _gzip(b"0" * 200_000_000)
    async with Server(answer(bomb, headers=[("Content-Encoding", "gzip")])) as server:
        response = await response_of(server.url(), within(output=10_000))
    assert (len(response.body), response.truncated) == (10_000, True)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"not packed at all"),
        ("gzip", _gzip(b"hello" * 100)[:-12]),
        ("br", b"whatever"),
        ("gzip, gzip", _gzip(_gzip(b"hello"))),
        ("zstd", b"(\xb5/\xfd"),
    ],
)
async def test_a_body_that_cannot_be_decompressed_is_reported(encoding: str, body: bytes) -> None:
    async with Server(answer(body, headers=[("Content-Encoding", encoding)])) as server:
        assert (await failure_of(server.url())).code == "bad_response"


async def test_an_empty_body_needs_no_unpacking() -> None:
    async with Server(raw(OK + b"Content-Encoding: gzip\r\nContent-Length: 30\r\n\r\n")) as server:
        assert (await response_of(SendHttp("HEAD", server.url()))).status == 200
