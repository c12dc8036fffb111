"""Temporal behind TLS: the server's certificate is checked, and the client shows its own."""

from __future__ import annotations

import asyncio
import datetime
import gc
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cuebook.service.dispatch.dispatcher import Unreachable
from cuebook.service.dispatch.temporal.connection import Connection, Server
from tests.support.temporal import server

pytestmark = [pytest.mark.needs("temporal")]


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for this machine that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes the bytes of a connection on to the server."""
    inside, outside = await asyncio.open_connection("127.0.0.1", server().port)

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        except OSError:
            pass
        target.close()

    await asyncio.gather(pump(reader, outside), pump(inside, writer))
    for one in (outside, writer):
        with suppress(OSError):
            await one.wait_closed()


class Guarded:
    """A proxy that speaks TLS and accepts only clients with a certificate."""

    def __init__(self, folder: Path) -> None:
        self.own, self.client, self.stranger = (certificate(folder, name) for name in ("own", "client", "stranger"))
        self.port = 0

    def server(self, client: tuple[Path, Path] | None, ca: Path | None = None) -> Server:
        certificate, key = client or (None, None)
        return Server(f"127.0.0.1:{self.port}", ca=ca or self.own[0], certificate=certificate, key=key)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    made = Guarded(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*made.own)
    context.load_verify_locations(made.client[0])
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(forward(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    gc.collect()  # the client closes its connections
    await asyncio.gather(*serving)


async def connected(to: Server) -> bool:
    connection = Connection(to)
    try:
        await connection.client()
        return True
    except Unreachable:
        return False
    finally:
        await connection.close()


async def test_a_client_with_the_right_certificate_connects(guarded: Guarded) -> None:
    assert await connected(guarded.server(guarded.client))


async def test_a_client_without_one_is_turned_away(guarded: Guarded) -> None:
    assert not await connected(guarded.server(None))
    assert not await connected(guarded.server(guarded.stranger))


async def test_a_server_with_another_certificate_is_not_trusted(guarded: Guarded) -> None:
    assert not await connected(guarded.server(guarded.client, ca=guarded.stranger[0]))
