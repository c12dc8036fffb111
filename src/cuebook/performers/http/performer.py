"""The performer of `SendHttp`: describes a request, sends it, and follows redirects one by one.

Each redirect target is parsed, checked and permitted like the first URL. `exchange` sends a single request, `addresses`
checks URLs and addresses, and the gate applies policies.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import ssl
from collections.abc import Callable, Iterable, Mapping

import msgspec

from cuebook import __version__
from cuebook.formats.addresses import Private, Url, check_host, parse_url, resolve_url
from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.effects import SecretUse, SendHttp
from cuebook.kernel.engine.descriptors import NoDescriptors
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import UNANSWERED, Failed, HttpResponse
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.files.decoding import decoded, is_text
from cuebook.performers.files.spool import Spool
from cuebook.performers.http import forms
from cuebook.performers.http.exchange import Ended, Incoming, Outgoing, Progress, exchange
from cuebook.system.network import Resolver, is_loopback, look_up

MOST_REDIRECTS = 5

_READING = ("GET", "HEAD", "OPTIONS")
_METHOD = re.compile(r"[A-Z][A-Z-]{0,19}")
_NOT_SENT = ("CONNECT", "TRACE", "TRACK")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRINTABLE = re.compile(r"[!-~]{1,255}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

# They determine where a request ends and who it is for. If they contradict the URL, two servers may see different requests.
_OURS = (
    *("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade"),
)
_METHOD_IN_DISGUISE = ("x-http-method", "x-http-method-override", "x-method-override")
# All other headers are meant only for the original server.
_HARMLESS_ELSEWHERE = ("accept", "accept-encoding", "accept-language", "content-type", "user-agent")

_CHARSETS = ("utf-8", "utf-16", "utf-32", "iso8859", "cp125", "koi8", "gb", "big5", "euc", "shift_jis", "ascii")


class BadRequest(BadInput):
    """The request cannot be sent."""

    code = "bad_request"


class SecretMisplaced(BadInput):
    """A secret would be visible in the place where it is used."""

    code = "secret_misplaced"


class InsecureSecret(BadInput):
    """A secret would be sent unencrypted."""

    code = "insecure_secret"


class Fetched(msgspec.Struct, frozen=True):
    """A response, and the URL it came from."""

    incoming: Incoming
    url: Url

    def text(self, errors: str = "replace") -> str:
        """The body as text, without a last character that was cut in two. Raises `UnicodeDecodeError` if strict."""
        body, cut = self.incoming.body, self.incoming.truncated
        return decoded(body, self._charset, cut=cut, errors=errors).removeprefix("\ufeff")

    @property
    def replaced(self) -> bool:
        """Whether the text has replacements for invalid bytes."""
        return not is_text(self.incoming.body, self._charset, cut=self.incoming.truncated)

    @property
    def _charset(self) -> str:
        return _charset(self.incoming.headers.get("content-type", ""))


def no_private(host: str, port: int) -> bool:
    return False


class HttpPerformer:
    """Sends requests to public addresses, and to the private addresses that `private` allows."""

    def __init__(
        self, *, private: Private = no_private, resolve: Resolver = look_up, tls: ssl.SSLContext | None = None
    ) -> None:
        self._private = private
        self._resolve = resolve
        self._tls = tls

    async def describe(self, effect: SendHttp, settings: Settings) -> Description | Failed:
        try:
            request = _Request(effect, self._private)
        except BadInput as refused:
            return Failed.of(refused)
        url, method = request.url, request.method
        preview = {"request": f"{method} {url}"}
        headers = [f"{name}: {value}" for name, value in request.headers]
        headers += [f"{_header(use.at)}: {_shown(use)}" for use in effect.secrets if use.at != "body"]
        if headers:
            preview["headers"] = "\n".join(headers)
        bodies = [_shown(use) for use in effect.secrets if use.at == "body"]
        if effect.body or bodies or forms.is_streamed(effect):
            preview["body"] = forms.shown(effect) or effect.body or bodies[0]
        if effect.download:
            preview["download"] = f"to the file {effect.download} of this run"
        if effect.timeout is not None:
            preview["time limit"] = f"{effect.timeout:g} s"
        return Description(
            actions=(_action(method, url, request.names),),
            summary=f"{method} {url.place}",
            preview=preview,
            bound={"method": method, "url": msgspec.to_builtins(url)},
        )

    async def perform(self, effect: SendHttp, call: Call) -> HttpResponse | Failed:
        spool = Spool(call.files, effect.download) if effect.download else None
        try:
            fetched = await self.fetch(effect, call, call.limits.output, None if spool is None else spool.write)
            if isinstance(fetched, Failed):
                return fetched
            if spool is not None and fetched.incoming.status < 400:
                file = await spool.stored()
                incoming = fetched.incoming
                return HttpResponse(incoming.status, incoming.headers, url=str(fetched.url), files=(file,))
        except CuebookError as error:
            return Failed.of(error)
        finally:
            if spool is not None:
                spool.close()
        incoming = fetched.incoming
        body, cut = Text(fetched.text()), incoming.truncated
        if cut:
            has = f"{incoming.size:,} bytes" if incoming.size else "more bytes than are kept"
            call.warn("output_cut", f"The response has {has}; the first {call.limits.output:,} are kept.")
        if fetched.replaced:
            call.warn("bytes_replaced", "The response is not entirely text: invalid bytes were replaced.")
        where = str(fetched.url)
        return HttpResponse(incoming.status, incoming.headers, body, where, cut, fetched.replaced, incoming.size)

    async def fetch(
        self, effect: SendHttp, call: Call, limit: int, sink: Callable[[bytes], None] | None = None
    ) -> Fetched | Failed:
        """The response with at most `limit` bytes of its body, within the call's time. With a `sink`, the whole body of a
        successful response goes there."""
        progress = Progress()
        try:
            async with asyncio.timeout(call.limits.seconds):
                return await self._fetch(effect, call, limit, progress, sink)
        except TimeoutError:
            failed = _too_slow(call.given, progress)
        except Ended as ended:
            failed = ended.failed
        except NoDescriptors as error:
            return Failed.of(error)
        except CuebookError as refused:
            failed = Failed.of(refused)
        return _weighed(failed, effect, progress)

    async def _fetch(
        self, effect: SendHttp, call: Call, limit: int, progress: Progress, sink: Callable[[bytes], None] | None
    ) -> Fetched:
        request = _Request(effect, self._private)
        outgoing = request.outgoing(call)
        for hop in range(MOST_REDIRECTS + 1):
            try:
                incoming = await exchange(
                    outgoing,
                    limit=limit,
                    private=self._private,
                    resolve=self._resolve,
                    tls=self._tls,
                    progress=progress,
                    sink=sink,
                )
            except NoDescriptors as error:
                if not hop:
                    raise
                # The first request was sent, so the error must not claim that nothing was done.
                raise Ended(Failed("unreachable", error.message, error.fix)) from None
            if not incoming.moved:
                return Fetched(incoming, outgoing.url)
            outgoing = _redirected(outgoing, incoming, request.secret_headers)
            check_host(outgoing.url, self._private)
            names = [name for name, _ in outgoing.headers]
            refused = call.permits(_action(outgoing.method, outgoing.url, names))
            if refused is not None:
                raise Ended(refused)
        raise Ended(
            Failed(
                "too_many_redirects",
                f"{request.url.origin} redirected more than {MOST_REDIRECTS} times, last to {outgoing.url}.",
                fix="Request the final URL.",
            )
        )


# --- the request ------------------------------------------------------------------------------------


class _Request:
    """The request of an effect, checked without using the network. It does not contain secret values."""

    def __init__(self, effect: SendHttp, private: Private) -> None:
        self._effect = effect
        self.method = effect.method.upper()
        if not _METHOD.fullmatch(self.method) or self.method in _NOT_SENT:
            raise BadRequest(
                f"The method {effect.method[:40]!a} is not supported.", fix="Use a method such as GET, POST or PUT."
            )
        self.url = parse_url(effect.url)
        check_host(self.url, private)
        self.headers = [(name, _checked(name, value)) for name, value in effect.headers.items()]
        self._check_secrets()
        self._check_names()
        try:
            self._body = effect.body.encode()
        except UnicodeEncodeError:
            raise BadRequest("The body contains an unpaired surrogate.", fix="Use complete characters.") from None

    @property
    def secret_headers(self) -> list[str]:
        """The names of the headers that contain secrets, in lower case."""
        return [_header(use.at).lower() for use in self._effect.secrets if use.at != "body"]

    @property
    def names(self) -> list[str]:
        secret = [_header(use.at) for use in self._effect.secrets if use.at != "body"]
        return [*self._effect.headers, *secret]

    def outgoing(self, call: Call) -> Outgoing:
        """The request with its secrets in place."""
        secrets = call.secrets() if self._effect.secrets else {}
        missing = next((use for use in self._effect.secrets if use.at not in secrets), None)
        if missing is not None:
            raise SecretMisplaced(f"The secret {missing.handle} for {missing.at} was not provided.")
        headers = [*self.headers, *self._secret_headers(secrets), *self._added(call)]
        body = secrets["body"].encode() if "body" in secrets else self._body
        if not forms.is_streamed(self._effect):
            return Outgoing(self.method, self.url, tuple(headers), body)
        pieces, length = forms.stream(self._effect, call.files)
        return Outgoing(self.method, self.url, tuple(headers), stream=pieces, length=length)

    def _check_names(self) -> None:
        seen: set[str] = set()
        for name in self.names:
            lowered = name.lower()
            if not _HEADER_NAME.fullmatch(name):
                raise BadRequest(f"{name[:60]!a} is not a valid header name.", fix="Use letters, digits and '-'.")
            if lowered in _OURS:
                raise BadRequest(f"The header {name} is set from the URL and the body.", fix="Remove it.")
            if lowered in seen:
                raise BadRequest(f"The header {name} is set twice.", fix="Set it only once.")
            seen.add(lowered)

    def _check_secrets(self) -> None:
        uses = self._effect.secrets
        for use in uses:
            if use.at != "body" and not use.at.startswith("headers."):
                raise SecretMisplaced(
                    f"A secret cannot be used at {use.at[:60]!a} in a request.", fix="Use headers.NAME, or body."
                )
            if use.at != "body":
                _checked(_header(use.at), use.form)
        if [use.at for use in uses].count("body") + bool(self._effect.body) > 1:
            raise BadRequest("The body is set twice.", fix="Pass either text or a secret, not both.")
        if uses and self.url.scheme == "http" and not is_loopback(self.url.host):
            raise InsecureSecret(
                f"A secret would be sent to {self.url.origin} unencrypted.", fix="Use https, or remove the secret."
            )

    def _secret_headers(self, secrets: Mapping[str, str]) -> list[tuple[str, str]]:
        placed = [(_header(place), value) for place, value in secrets.items() if place != "body"]
        return [(name, _checked(name, value)) for name, value in placed]

    def _added(self, call: Call) -> list[tuple[str, str]]:
        given = {name.lower() for name in self.names}
        added = {"User-Agent": f"cuebook/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"}
        if forms.is_streamed(self._effect):
            added["Content-Type"] = forms.content_type(self._effect)
        if not _reads_only(self.method, self.names):
            added["Idempotency-Key"] = call.key if _PRINTABLE.fullmatch(call.key) else digest_of(call.key)
        return [(name, value) for name, value in added.items() if name.lower() not in given]


def _checked(name: str, value: str) -> str:
    """The value of a header. Errors do not quote it, because it may be a secret."""
    text = value.strip(" \t")
    if _CONTROL.search(text):
        raise BadRequest(f"The value of the header {name[:60]!a} contains a line break or another control character.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"The value of the header {name[:60]!a} contains an unpaired surrogate.") from None
    return text


def _shown(use: SecretUse) -> str:
    return use.form.replace("{}", f"[secret {use.handle}]")


def _header(place: str) -> str:
    return place.removeprefix("headers.")


def _reads_only(method: str, names: Iterable[str]) -> bool:
    """Whether the request changes nothing on a server that follows HTTP. Some servers take the real method from a header."""
    return method in _READING and not any(name.lower() in _METHOD_IN_DISGUISE for name in names)


def _action(method: str, url: Url, names: Iterable[str]) -> Action:
    return Action("egress", f"{method} {url.place}", reads_only=_reads_only(method, names))


# --- redirects --------------------------------------------------------------------------------------


def _redirected(outgoing: Outgoing, incoming: Incoming, secret_headers: list[str]) -> Outgoing:
    """The request to the target of a redirect."""
    here = outgoing.url
    if len(set(incoming.locations)) > 1:
        raise Ended(Failed("bad_response", f"{here.origin} redirects to {len(incoming.locations)} places at once."))
    url = resolve_url(here, incoming.locations[0])
    if here.scheme == "https" and url.scheme == "http":
        raise Ended(_refused(here, url, "it would no longer be secure"))
    method, sent = outgoing.method, outgoing
    if (incoming.status == 303 and method != "HEAD") or (incoming.status in (301, 302) and method == "POST"):
        method, sent = "GET", msgspec.structs.replace(outgoing, body=b"", stream=None, length=0)
    headers = outgoing.headers
    if url.origin != here.origin:
        if sent.has_body or method not in _READING:
            raise Ended(_refused(here, url, f"the {method} was meant for another server"))
        kept = [name for name in _HARMLESS_ELSEWHERE if name not in secret_headers]
        headers = tuple(entry for entry in headers if entry[0].lower() in kept)
    if method != outgoing.method:
        about_the_body = ("content-type", "content-encoding", "content-language", "idempotency-key")
        headers = tuple(entry for entry in headers if entry[0].lower() not in about_the_body)
    return msgspec.structs.replace(sent, method=method, url=url, headers=headers)


def _refused(here: Url, there: Url, why: str) -> Failed:
    return Failed(
        "redirect_refused",
        f"{here.origin} redirected to {there.place}, which was not followed: {why}.",
        fix="Request that URL directly if you want to allow it.",
    )


# --- outcomes ---------------------------------------------------------------------------------------


def _too_slow(seconds: float, progress: Progress) -> Failed:
    if progress.status:
        how = f"did not complete its response (status {progress.status}, {progress.received} bytes so far)"
    else:
        how = "did not answer" if progress.sent else "could not be reached"
    return Failed(
        "timeout", f"{progress.origin} {how} within {seconds:g} seconds.", fix="Try again later, or allow more time."
    )


_UNHEARD = ("timeout", "dropped", "unreachable", "tls", "bad_response")
"""Failures after which no response can be trusted."""


def _weighed(failed: Failed, effect: SendHttp, progress: Progress) -> Failed:
    """Adds whether the request may have been performed, so that nothing is sent twice by mistake."""
    passing = failed.code in ("timeout", "dropped", "unreachable")
    if not progress.sent:
        return msgspec.structs.replace(failed, retryable=passing)
    safe = effect.idempotent or _reads_only(effect.method.upper(), effect.headers)
    fix = failed.fix if safe or not passing else "It may have taken effect anyway: check before you send it again."
    details = {**failed.details, "sent": True}
    if failed.code in _UNHEARD and not safe:
        details[UNANSWERED] = True
    return msgspec.structs.replace(failed, fix=fix, retryable=safe and passing, details=details)


def _charset(content_type: str) -> str:
    found = re.search(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", content_type, re.IGNORECASE)
    if found is None:
        return "utf-8"
    try:
        name = codecs.lookup(found[1]).name
    except LookupError:
        return "utf-8"
    return name if name.startswith(_CHARSETS) else "utf-8"
