"""A real mail server on loopback, with TLS and accounts, that keeps what it receives."""

from __future__ import annotations

import asyncio
import email
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session


class MailServer:
    """Its mails, and how it answers."""

    def __init__(self, password: str) -> None:
        self._password = password
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.was_encrypted: list[bool] = []
        self.answer = "250 OK"
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            made = email.message_from_bytes(envelope.content, policy=default)
            assert isinstance(made, EmailMessage)
            self.mails.append(made)
            self.recipients.append(list(envelope.rcpt_tos))
            self.was_encrypted.append(session.ssl is not None or isinstance(server.transport, _TLS))
        return self.answer

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        password = getattr(data, "password", b"")
        return AuthResult(success=password == self._password.encode(), handled=False)


_TLS = asyncio.sslproto._SSLProtocolTransport


@asynccontextmanager
async def mail_server(
    tls: ssl.SSLContext | None, *, password: str = "", implicit: bool = False
) -> AsyncIterator[MailServer]:
    """With `implicit`, connections begin with TLS; otherwise the server offers STARTTLS, if it has a certificate."""
    made = MailServer(password)
    loop = asyncio.get_running_loop()

    def protocol() -> SMTP:
        return SMTP(
            made,
            hostname="mail.test",
            tls_context=None if implicit else tls,
            authenticator=made.authenticate if password else None,
            auth_require_tls=not implicit,
            loop=loop,
        )

    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=tls if implicit else None)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
