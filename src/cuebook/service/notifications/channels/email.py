"""E-mail over SMTP, encrypted, with a link to the page on which people decide."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from typing import Any

from cuebook.config.notifications import ChannelSettings, is_mail_address
from cuebook.service.notifications.channels.channel import PATIENCE, Recipient, Reveal, Undelivered, revealed
from cuebook.service.notifications.message import Message, minutes

_LINE = 120


class Email:
    """Sends messages through the configured mail server, to the configured recipients or to one person."""

    def __init__(self, settings: ChannelSettings, reveal: Reveal) -> None:
        self.settings = settings
        self._reveal = reveal

    async def send(self, message: Message, now: float, to: Recipient | None) -> dict[str, Any]:
        recipients = self.settings.to if to is None else (self._allowed(to),)
        if not recipients:
            raise Undelivered("The channel has no recipients.", final=True)
        handle = self.settings.password
        password = await revealed(self._reveal, handle) if handle else ""
        mail = written(message, now, self.settings.sender, recipients)
        await asyncio.to_thread(self._deliver, mail, recipients, password)
        return {}

    def _allowed(self, to: Recipient) -> str:
        """The address of a person. The domains may have changed since they chose it."""
        domain = to.address.rpartition("@")[2].lower()
        if not is_mail_address(to.address) or domain not in self.settings.domains:
            raise Undelivered(f"{to.name} has no address in a domain that this channel may write to.", final=True)
        return to.address

    def _deliver(self, mail: EmailMessage, recipients: tuple[str, ...], password: str) -> None:
        settings = self.settings
        where, tls = f"{settings.host}:{settings.port}", self._tls()
        sender = parseaddr(settings.sender)[1]
        try:
            with self._connected(tls) as server:
                if settings.security == "starttls":
                    server.starttls(context=tls)
                if password:
                    server.login(settings.user, password)
                refused = server.send_message(mail, from_addr=sender, to_addrs=list(recipients))
        except smtplib.SMTPNotSupportedError:
            raise Undelivered(f"{where} does not offer what is configured: encryption, or signing in.") from None
        except smtplib.SMTPAuthenticationError as error:
            raise Undelivered(f"{where} refused the user name or the password ({error.smtp_code}).") from None
        except smtplib.SMTPResponseException as error:
            raise Undelivered(f"{where} refused the message with code {error.smtp_code}.") from None
        except smtplib.SMTPRecipientsRefused:
            raise Undelivered(f"{where} refused all recipients.") from None
        except smtplib.SMTPException as error:
            raise Undelivered(f"{where} could not be used: {type(error).__name__}.") from None
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or "no secure connection"
            raise Undelivered(f"No secure connection to {where}: {why}.") from None
        except OSError as error:
            raise Undelivered(f"{where} cannot be reached: {error.strerror or error}.", down=True) from None
        if refused:
            raise Undelivered(f"{where} refused {len(refused)} of {len(recipients)} recipients.", final=True)

    def _connected(self, tls: ssl.SSLContext) -> smtplib.SMTP:
        settings = self.settings
        if settings.security == "tls":
            return smtplib.SMTP_SSL(settings.host, settings.port, timeout=PATIENCE, context=tls)
        return smtplib.SMTP(settings.host, settings.port, timeout=PATIENCE)

    def _tls(self) -> ssl.SSLContext:
        from cuebook.system.network import system_tls

        try:
            return ssl.create_default_context(cafile=self.settings.ca) if self.settings.ca else system_tls()
        except OSError:
            raise Undelivered(f"The certificates in {self.settings.ca} cannot be read.") from None


def written(message: Message, now: float, sender: str, recipients: tuple[str, ...]) -> EmailMessage:
    """The e-mail of a message. Its id is the same for each attempt, so mail programs show it once."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = _one_line(f"[Cuebook] {message.heading}")
    mail["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
    mail["Message-ID"] = f"<{message.id}@{parseaddr(sender)[1].rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content("\n".join(_lines(message)) + "\n")
    return mail


def _lines(message: Message) -> list[str]:
    lines = [f"{message.heading}.", ""]
    if message.text:
        lines += [*(f"  {line}" for line in message.text.splitlines()), ""]
    for name, text in message.preview.items():
        lines += [f"{name}:", *(f"  {line}" for line in text.splitlines()), ""]
    if message.link:
        verb = "Decide here, after signing in" if message.wait else "Look at it"
        lines.append(f"{verb}: {message.link}")
    if message.command:
        lines.append(f"Or on the command line: {message.command}")
    if message.short_id:
        lines.append(f"Id: {message.short_id}")
    if message.expires is not None:
        lines.append(f"It expires at {minutes(message.expires)}.")
    return lines


def _one_line(text: str) -> str:
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
