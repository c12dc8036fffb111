"""The ways to send a message. Each sends only to what the operator configured for it."""

from __future__ import annotations

from cuebook.service.notifications.channels.channel import Channel, Recipient, Undelivered

__all__ = ["Channel", "Recipient", "Undelivered"]
