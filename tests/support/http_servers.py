"""Real servers on loopback that behave as a test requires, and helpers for requests."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpcore2  # noqa: F401 - before the first request, whose time limit it would take a part of

from cuebook.kernel.effects import SendHttp
from cuebook.kernel.outcomes import Failed, HttpResponse
from cuebook.kernel.ports import Action, Call, Limits
from cuebook.kernel.run import Settings
from cuebook.performers.http.performer import HttpPerformer


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    sni: str = ""


Handler = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def raw(*pieces: bytes) -> Handler:
    """Sends these bytes and closes."""

    async def handle(seen: Seen, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return handle


def answer(body: bytes | str = b"hello", status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Handler:
    """A well-behaved response."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(data)}", *(f"{n}: {v}" for n, v in headers)]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + data)


def redirect(location: str, status: int = 302) -> Handler:
    return answer(b"", status, [("Location", location)])


async def hang(seen: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def hanging_after(*pieces: bytes) -> Handler:
    """Sends these bytes, and then nothing more."""

    async def handle(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await raw(*pieces)(seen, writer)
        await hang(seen, writer)

    return handle


def endless(start: bytes, piece: bytes, pause: float = 0.0) -> Handler:
    """Never stops sending."""

    async def handle(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return handle


class Server:
    """Counts connections, stores requests, and answers with the handlers in turn, repeating the last one."""

    def __init__(
        self,
        *handlers: Handler,
        hosts: Sequence[str] = ("127.0.0.1",),
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self._handlers = list(handlers) or [answer()]
        self._hosts = hosts
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = port
        self.connections = 0
        self.requests: list[Seen] = []
        self.left = asyncio.Event()
        """Set when a connection has ended or its client has disconnected."""
        self.sni: list[str | None] = []
        if tls is not None:
            tls.sni_callback = self._named

    def _named(self, sslobject: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self.sni.append(name)

    async def __aenter__(self) -> Server:
        for host in self._hosts:
            server = await asyncio.start_server(self._accept, host, self.port, ssl=self._tls)
            self.port = server.sockets[0].getsockname()[1]
            self._servers.append(server)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, path: str = "/", *, host: str = "127.0.0.1") -> str:
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = None
        try:
            seen = await _request(reader)
            self.requests.append(seen)
            handler = self._handlers.pop(0) if len(self._handlers) > 1 else self._handlers[0]
            gone = asyncio.get_running_loop().create_task(self._watch(reader))
            await handler(seen, writer)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            self.left.set()
            if gone is not None:
                gone.cancel()
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        try:
            await reader.read()
        except OSError:
            pass
        self.left.set()


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, target, headers, body)


# --- helpers for requests -----------------------------------------------------------------------------


@dataclass
class Names:
    """A resolver with the answers of a test, which it returns in turn and counts."""

    known: dict[str, list[list[str]]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self.known.get(host)
        if not answers:
            raise OSError(-2, "Name or service not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def names(**known: str | list[str]) -> Names:
    """`names(good_example="127.0.0.1")` knows good.example."""
    return Names(
        {
            name.replace("_", "."): [value.split()] if isinstance(value, str) else [one.split() for one in value]
            for name, value in known.items()
        }
    )


def only(*hosts: str) -> Callable[[str, int], bool]:
    return lambda host, port: host in hosts


LOOPBACK = HttpPerformer(private=only("127.0.0.1"), resolve=names())


@dataclass
class Asking:
    """Replaces the gate: permits what the test allows, and passes on secrets."""

    secrets: dict[str, str] = field(default_factory=dict)
    refuse: Callable[[Action], Failed | None] = lambda action: None
    limits: Limits = field(default_factory=lambda: Limits(seconds=20.0))
    asked: list[Action] = field(default_factory=list)

    def permits(self, action: Action) -> Failed | None:
        self.asked.append(action)
        return self.refuse(action)

    def call(self) -> Call:
        return Call(
            run="r1",
            key="r1/step#1.0~0",
            attempt=1,
            settings=Settings(),
            emit=lambda text: True,
            reset=lambda: None,
            warn=lambda code, message: None,
            permits=self.permits,
            secrets=lambda: self.secrets,
            limits=self.limits,
        )


def within(seconds: float = 20.0, output: int = 32_768) -> Asking:
    return Asking(limits=Limits(seconds=seconds, output=output))


async def send(
    effect: SendHttp | str, asking: Asking | None = None, performer: HttpPerformer = LOOPBACK
) -> HttpResponse | Failed:
    if isinstance(effect, str):
        effect = SendHttp("GET", effect, reads_only=True)
    return await performer.perform(effect, (asking or Asking()).call())


async def response_of(*args: Any, **kwargs: Any) -> HttpResponse:
    outcome = await send(*args, **kwargs)
    assert isinstance(outcome, HttpResponse), outcome
    return outcome


async def failure_of(*args: Any, **kwargs: Any) -> Failed:
    outcome = await send(*args, **kwargs)
    assert isinstance(outcome, Failed), outcome
    assert outcome.message
    return outcome


# --- certificates -------------------------------------------------------------------------------------


@dataclass
class Authority:
    """Signs certificates that only selected clients trust."""

    folder: Path

    def __post_init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign("Test authority", self._key.public_key(), ())
        self._write("ca.pem", self._certificate)

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "ca.pem"))

    def serving(self, *hosts: str) -> ssl.SSLContext:
        """The TLS context of a server for these names."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        self._write("server.pem", self._sign(hosts[0], key.public_key(), hosts))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.folder / "server.key").write_bytes(private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.pem", self.folder / "server.key")
        return context

    def _write(self, name: str, certificate: Any) -> None:
        from cryptography.hazmat.primitives import serialization

        (self.folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _sign(self, name: str, public: Any, hosts: Sequence[str]) -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import NameOID

        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), False)
        else:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        return builder.sign(self._key, hashes.SHA256())


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
